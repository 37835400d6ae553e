"""Smaller numbers in the place of floats: what is stored, and what that costs.

Training that is aware of it, for PyTorch: `prepare`, `calibrate`, `freeze`, `constrain`, by a `Config`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tonnx.quant.config import Config
    from tonnx.quant.training.prepare import calibrate, constrain, freeze, prepare
    from tonnx.quant.training.proof import compare

# Imported when first used: PyTorch is needed for training only.
_LATER = {
    "Config": "tonnx.quant.config",
    "calibrate": "tonnx.quant.training.prepare",
    "compare": "tonnx.quant.training.proof",
    "constrain": "tonnx.quant.training.prepare",
    "freeze": "tonnx.quant.training.prepare",
    "prepare": "tonnx.quant.training.prepare",
}

__all__ = ["Config", "calibrate", "compare", "constrain", "freeze", "prepare"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LATER[name]), name)
    return value
