"""The PyTorch model itself, as what a file is compared with."""
