"""ONNX files: read and written."""
