"""The quick suite in other versions of Python, PyTorch, Paddle, onnx and ONNX Runtime."""
