"""The table of layers: each with its inputs as the program has them, and arrays to run it on, one list for each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

NETS: dict[str, tuple[Callable[[], Any], Sequence[Any], Sequence[Sequence[np.ndarray]]]] = {}

_rng = np.random.default_rng(5)


def net(*specs: tuple[Sequence[int | None], str, str], runs: Sequence[Sequence[np.ndarray]]) -> Callable[[Any], Any]:
    """Enter a class of layers. ``specs`` are the shape, dtype and name of each input."""

    def enter(make: Any) -> Any:
        assert make.__name__ not in NETS
        NETS[make.__name__] = (make, specs, runs)
        return make

    return enter


def f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype("float32")


def i(*values: int) -> np.ndarray:
    return np.array(values, "int64")


X = ([None, 3], "float32", "x")
FIXED = ([2, 3], "float32", "x")
N = ([1], "int64", "n")
STEPS = ([None, None, 3], "float32", "x")
"""A batch of sequences."""
UP, DOWN = np.abs(f(2, 3)), -np.abs(f(4, 3))
