"""The rules of the version steps, by family; every module here is imported by `load`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from tonnx.legalise.table import DOWN, SUBSTITUTES, UP


@cache
def load() -> None:
    """Import every rule module, once."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    DOWN.freeze()
    UP.freeze()
    SUBSTITUTES.freeze()
