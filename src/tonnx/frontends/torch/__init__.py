"""PyTorch: from a module, or a torch.export program, to an ONNX graph at CANON."""

from tonnx.frontends.torch.convert import Converted, convert

__all__ = ["Converted", "convert"]
