"""The proof that a file computes what a model computes. Knows arrays and ONNX, no framework."""
