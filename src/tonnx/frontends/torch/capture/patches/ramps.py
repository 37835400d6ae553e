"""Rows of numbers that are as long as a dynamic size: PyTorch's functions for them take plain numbers only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from tonnx.frontends.patching import Patch
from tonnx.frontends.torch.capture.patches.plain_sizes import is_dynamic

_REASON = "it takes the length as a plain number, which fixes it"


def _options(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: kwargs[name] for name in ("dtype", "device") if kwargs.get(name) is not None}


def _linspace(original: Any, start: Any, end: Any, steps: Any = None, **kwargs: Any) -> torch.Tensor:
    """From both ends to the middle, as PyTorch counts."""
    real = not any(isinstance(bound, complex) for bound in (start, end))
    options = {"dtype": torch.get_default_dtype(), **_options(kwargs)}
    dtype = options.pop("dtype")
    if not is_dynamic(steps) and real and dtype.is_complex:
        return original(start, end, steps, dtype=_COUNTED_IN[dtype], **options).to(dtype)  # type: ignore[no-any-return]
    if not is_dynamic(steps) or not real:
        return original(start, end, steps, **kwargs)  # type: ignore[no-any-return]
    places = torch.arange(steps, dtype=_COUNTED_IN.get(dtype, dtype), **options)
    last = places.new_full((), steps) - 1  # a tensor: that sizes are more than 1 is taken for granted of symbols
    step = (end - start) / last.clamp(min=1)
    from_start = (2 * places < last) | (places == 0)
    return torch.where(from_start, start + step * places, end - step * (last - places)).to(dtype)


_COUNTED_IN = {
    **dict.fromkeys((torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8), torch.float64),
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
"""Whole numbers are cut afterwards; complex ones have no order, and no rule makes a row of them."""


def _logspace(original: Any, start: Any, end: Any, steps: Any = None, base: float = 10.0, **kwargs: Any) -> Any:
    if not is_dynamic(steps):
        return original(start, end, steps, base, **kwargs)
    return torch.pow(base, torch.linspace(start, end, steps, **_options(kwargs)))


_SHAPES: dict[str, Callable[..., torch.Tensor]] = {
    "hann": lambda phase: 0.5 - 0.5 * phase.cos(),
    "hamming": lambda phase, alpha=0.54, beta=0.46: alpha - beta * phase.cos(),
    "blackman": lambda phase: 0.42 - 0.5 * phase.cos() + 0.08 * (2 * phase).cos(),
    "bartlett": lambda phase: 1 - (phase / math.pi - 1).abs(),
}


def _window(
    shape: Callable[..., torch.Tensor], original: Any, length: Any, periodic: bool = True, *args: Any, **kwargs: Any
) -> torch.Tensor:
    if not is_dynamic(length):
        return original(length, periodic, *args, **kwargs)  # type: ignore[no-any-return]
    options = {"dtype": torch.get_default_dtype(), **_options(kwargs)}
    numbers = {name: kwargs[name] for name in ("alpha", "beta") if name in kwargs}
    last = length if periodic else torch.sym_max(length - 1, 1)
    places = torch.arange(length, **options)
    window = shape(places * (2 * math.pi / last), *args, **numbers)
    return torch.where(places.new_full((), length) == 1, 1.0, window)  # a single number is 1


def ramps() -> Iterator[Patch]:
    """``linspace`` and windows."""
    yield Patch("torch", "linspace", _linspace, _REASON)
    yield Patch("torch", "logspace", _logspace, _REASON)
    for name, shape in _SHAPES.items():
        yield Patch("torch", f"{name}_window", partial(_window, shape), _REASON)
