"""Any opset: one rule per operator version, applied to any ONNX graph."""

from tonnx.legalise.engine import Report, legalise

__all__ = ["Report", "legalise"]
