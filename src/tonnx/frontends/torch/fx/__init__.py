"""From a torch.export program to an ONNX graph."""
