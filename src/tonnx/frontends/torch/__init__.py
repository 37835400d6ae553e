"""PyTorch: from a module, or a torch.export program, to an ONNX graph at CANON; see ``convert.convert``.

Nothing is imported here. The rules in ``ops`` are plain functions without torch, which the Paddle front end calls too.
"""
