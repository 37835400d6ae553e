"""What stands in for PyTorch's own code while a capture runs."""
