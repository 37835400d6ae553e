"""The user's call: example inputs, dynamic dimensions, the names of inputs and outputs."""
