"""The table that the modules beside this fill, and what they fill it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

RANDOM = np.random.default_rng(5)
CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], Any]] = {}
"""By name: the function, its inputs, and which of their axes are dynamic (for all inputs, or by input)."""


def case(name: str, function: Callable[..., Any], *inputs: np.ndarray, dyn: Any = (0,)) -> None:
    assert name not in CASES, name
    CASES[name] = (function, inputs, dyn)


def same(*names: str, src: np.ndarray) -> None:
    import paddle

    for name in names:
        case(name, one(getattr(paddle, name)), src)


def one(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: function(x)


def two(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: function(x, y)


def given(function: Callable[..., Any], *more: Any, **options: Any) -> Callable[..., Any]:
    return lambda x: function(x, *more, **options)


def given2(function: Callable[..., Any], *more: Any, **options: Any) -> Callable[..., Any]:
    return lambda x, y: function(x, y, *more, **options)


def floats(*shape: int, lo: float = -2.0, hi: float = 2.0) -> np.ndarray:
    return RANDOM.uniform(lo, hi, shape).round(2).astype("float32")  # few digits: small archives


def positive(*shape: int) -> np.ndarray:
    return floats(*shape, lo=0.1, hi=3.0)


def ints(*shape: int, lo: int = 0, hi: int = 5, t: str = "int64") -> np.ndarray:
    return RANDOM.integers(lo, hi, shape).astype(t)


def bools(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 2, shape).astype(bool)


def weight(*shape: int) -> Any:
    """The same whenever it is asked for: eager and traced."""
    return _tensor(shape, -2, 2)


def variance(*shape: int) -> Any:
    return _tensor(shape, 0.1, 2)


def _tensor(shape: Sequence[int], lo: float, hi: float) -> Any:
    import paddle

    return paddle.to_tensor(np.random.default_rng(sum(shape)).uniform(lo, hi, shape).round(1).astype("float32"))
