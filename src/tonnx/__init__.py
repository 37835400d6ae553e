"""Any PyTorch or PaddlePaddle model as an ONNX file, at the opset that was asked for, proven equal to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tonnx.api.check import CheckResult, check
    from tonnx.api.custom import (
        lower,
        register_container,
        register_custom_op_symbolic,
        unregister_custom_op_symbolic,
    )
    from tonnx.api.diff import DiffResult, diff
    from tonnx.api.export import export
    from tonnx.api.optimise import OptimiseResult, optimise
    from tonnx.api.quantize import quantize
    from tonnx.api.quantize_result import QuantizeResult
    from tonnx.api.result import ExportResult
    from tonnx.api.retarget import RetargetResult, retarget
    from tonnx.api.verify import VerifyResult, verify
    from tonnx.benching import Bench, bench
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
    from tonnx.packages.export import PackageResult, export_package
    from tonnx.reporting import report
    from tonnx.run.model import Model, load
    from tonnx.run.package import Package

__version__ = "0.1.0"

# Imported when first used: `import tonnx` costs a few milliseconds.
_LATER = {
    "Bench": "tonnx.benching",
    "bench": "tonnx.benching",
    "CaptureError": "tonnx.errors",
    "check": "tonnx.api.check",
    "CheckResult": "tonnx.api.check",
    "diff": "tonnx.api.diff",
    "DiffResult": "tonnx.api.diff",
    "export": "tonnx.api.export",
    "export_package": "tonnx.packages.export",
    "ExportResult": "tonnx.api.result",
    "InvalidArgument": "tonnx.errors",
    "InvalidModel": "tonnx.errors",
    "load": "tonnx.run.model",
    "lower": "tonnx.api.custom",
    "LoweringError": "tonnx.errors",
    "MissingDependency": "tonnx.errors",
    "Model": "tonnx.run.model",
    "optimise": "tonnx.api.optimise",
    "OptimiseResult": "tonnx.api.optimise",
    "register_container": "tonnx.api.custom",
    "register_custom_op_symbolic": "tonnx.api.custom",
    "Package": "tonnx.run.package",
    "PackageResult": "tonnx.packages.export",
    "quantize": "tonnx.api.quantize",
    "QuantizeResult": "tonnx.api.quantize_result",
    "report": "tonnx.reporting",
    "retarget": "tonnx.api.retarget",
    "RetargetError": "tonnx.errors",
    "RetargetResult": "tonnx.api.retarget",
    "TonnxError": "tonnx.errors",
    "unregister_custom_op_symbolic": "tonnx.api.custom",
    "UnsupportedArgument": "tonnx.errors",
    "UnsupportedOp": "tonnx.errors",
    "VerificationFailed": "tonnx.errors",
    "verify": "tonnx.api.verify",
    "VerifyResult": "tonnx.api.verify",
}
_MODULES = ("linger", "paddle", "quant", "ray")
"""Modules under the name of what they replace or work with, and training with quantised numbers."""

__all__ = [
    "Bench",
    "CaptureError",
    "CheckResult",
    "DiffResult",
    "ExportResult",
    "InvalidArgument",
    "InvalidModel",
    "LoweringError",
    "MissingDependency",
    "Model",
    "OptimiseResult",
    "Package",
    "PackageResult",
    "QuantizeResult",
    "RetargetError",
    "RetargetResult",
    "TonnxError",
    "UnsupportedArgument",
    "UnsupportedOp",
    "VerificationFailed",
    "VerifyResult",
    "__version__",
    "bench",
    "check",
    "diff",
    "export",
    "export_package",
    "load",
    "lower",
    "optimise",
    "quantize",
    "register_container",
    "register_custom_op_symbolic",
    "report",
    "retarget",
    "unregister_custom_op_symbolic",
    "verify",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
