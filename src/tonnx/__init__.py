"""Any PyTorch or PaddlePaddle model as an ONNX file, at the opset that was asked for, proven equal to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from tonnx.api import export
    from tonnx.result import ExportResult
    from tonnx.retargeting import RetargetResult, retarget

__version__ = "0.1.0"

# Imported when first used, so that `tonnx --help` and `import tonnx` cost milliseconds.
_LATER = {
    "ExportResult": "tonnx.result",
    "RetargetResult": "tonnx.retargeting",
    "export": "tonnx.api",
    "retarget": "tonnx.retargeting",
}

__all__ = [
    "CaptureError",
    "ExportResult",
    "InvalidArgument",
    "InvalidModel",
    "LoweringError",
    "MissingDependency",
    "RetargetError",
    "RetargetResult",
    "TonnxError",
    "UnsupportedArgument",
    "UnsupportedOp",
    "VerificationFailed",
    "__version__",
    "export",
    "retarget",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
