"""Any PyTorch or PaddlePaddle model as an ONNX file, at the opset that was asked for, proven equal to the model."""

from tonnx.api import ExportResult, export
from tonnx.errors import (
    CaptureError,
    InvalidArgument,
    InvalidModel,
    LoweringError,
    MissingDependency,
    RetargetError,
    TonnxError,
    UnsupportedArgument,
    UnsupportedOp,
    VerificationFailed,
)

__version__ = "0.1.0"

__all__ = [
    "CaptureError",
    "ExportResult",
    "InvalidArgument",
    "InvalidModel",
    "LoweringError",
    "MissingDependency",
    "RetargetError",
    "TonnxError",
    "UnsupportedArgument",
    "UnsupportedOp",
    "VerificationFailed",
    "__version__",
    "export",
]
