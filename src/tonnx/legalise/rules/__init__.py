"""The rules of the version steps, by family; every module here is imported by `load`."""

from __future__ import annotations

from functools import cache

from tonnx.ir.registry import import_all
from tonnx.legalise.table import DOWN, SUBSTITUTES, UP


@cache
def load() -> None:
    """Import every rule module, once."""
    import_all(__name__)
    DOWN.freeze()
    UP.freeze()
    SUBSTITUTES.freeze()
