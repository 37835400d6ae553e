"""The table that the modules beside this fill, and what they fill it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

RANDOM = np.random.default_rng(5)
CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], Any]] = {}
"""By name: the function, its inputs, and which of their axes are dynamic (for all inputs, or by input)."""


def case(name: str, function: Callable[..., Any], *inputs: np.ndarray, dyn: Any = (0,)) -> None:
    assert name not in CASES, name
    CASES[name] = (function, inputs, dyn)


@dataclass
class Raw:
    """One old operator by its slots and attributes. ``outputs``: the dtype and the number of each slot's values."""

    type: str
    inputs: dict[str, Any]
    outputs: dict[str, tuple[str, int]]
    attributes: dict[str, Any]
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    dynamic: Sequence[int] = (0,)
    hidden: Sequence[str] = ()
    """Output slots that the operator must have, but that nobody reads."""


RAW: dict[str, Raw] = {}
LIKE: dict[str, dict[str, Any]] = {}
"""Cases that cannot be compared number by number: what has to hold instead (see `tests.frontends.paddle.archive`)."""


def raw(
    name: str,
    type: str,
    inputs: dict[str, Any],
    outputs: dict[str, str | tuple[str, int]],
    attributes: dict[str, Any] | None = None,
    *,
    weights: dict[str, np.ndarray] | None = None,
    dyn: Sequence[int] = (0,),
    hidden: Sequence[str] = (),
) -> None:
    """A case for the old format only."""
    assert name not in CASES and name not in RAW, name
    made = {slot: (what, 1) if isinstance(what, str) else what for slot, what in outputs.items()}
    RAW[name] = Raw(type, inputs, made, attributes or {}, weights or {}, dyn, hidden)


STATIC: set[str] = set()
"""Cases that Paddle cannot run eagerly: built as a static program, and computed by its executor."""


MEND: dict[str, Callable[..., Any]] = {}
"""Cases of which Paddle computes something else than it says: gives the outputs from those that Paddle gave."""


def static(
    name: str,
    function: Callable[..., Any],
    *inputs: np.ndarray,
    dyn: Any = (0,),
    mend: Callable[..., Any] | None = None,
) -> None:
    """A case for what exists in programs alone."""
    case(name, function, *inputs, dyn=dyn)
    STATIC.add(name)
    if mend is not None:
        MEND[name] = mend


def random(name: str, function: Callable[..., Any], *inputs: np.ndarray, dyn: Any = (0,), **like: Any) -> None:
    """A case whose values are drawn: compared are shape and dtype, and what ``like`` says of the values."""
    case(name, function, *inputs, dyn=dyn)
    LIKE[name] = {"like": like}


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
