"""What a runtime cannot run although ONNX allows it, and what to run instead."""
