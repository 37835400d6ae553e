"""Where a file departs from the model."""
