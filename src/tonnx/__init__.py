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
    from tonnx.benching import Bench, bench
    from tonnx.custom import lower, register_custom_op_symbolic, unregister_custom_op_symbolic
    from tonnx.reporting import report
    from tonnx.result import ExportResult
    from tonnx.retargeting import RetargetResult, retarget
    from tonnx.run.model import Model, load
    from tonnx.verifying import VerifyResult, verify

__version__ = "0.1.0"

# Imported when first used, so that `tonnx --help` and `import tonnx` cost milliseconds.
_LATER = {
    "Bench": "tonnx.benching",
    "bench": "tonnx.benching",
    "export": "tonnx.api",
    "ExportResult": "tonnx.result",
    "load": "tonnx.run.model",
    "lower": "tonnx.custom",
    "Model": "tonnx.run.model",
    "register_custom_op_symbolic": "tonnx.custom",
    "report": "tonnx.reporting",
    "retarget": "tonnx.retargeting",
    "RetargetResult": "tonnx.retargeting",
    "unregister_custom_op_symbolic": "tonnx.custom",
    "verify": "tonnx.verifying",
    "VerifyResult": "tonnx.verifying",
}
_MODULES = ("paddle",)
"""Drop-ins under the name of what they replace."""

__all__ = [
    "Bench",
    "CaptureError",
    "ExportResult",
    "InvalidArgument",
    "InvalidModel",
    "LoweringError",
    "MissingDependency",
    "Model",
    "RetargetError",
    "RetargetResult",
    "TonnxError",
    "UnsupportedArgument",
    "UnsupportedOp",
    "VerificationFailed",
    "VerifyResult",
    "__version__",
    "bench",
    "export",
    "load",
    "lower",
    "register_custom_op_symbolic",
    "report",
    "retarget",
    "unregister_custom_op_symbolic",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
