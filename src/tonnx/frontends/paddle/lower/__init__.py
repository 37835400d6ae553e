"""From a Paddle program to an ONNX graph: the walk, how rules get their arguments, branches and loops."""
