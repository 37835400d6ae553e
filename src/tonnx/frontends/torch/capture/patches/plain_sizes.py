"""Functions of PyTorch that take some of their numbers as plain ones only, written with those that take dynamic ones.

``x.unfold(1, n // 2, 1)``, ``F.one_hot(places, n)``, ``torch.triu_indices(n, n)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from tonnx.frontends.patching import How, Patch

_REASON = "it takes a size as a plain number, which fixes it"


def is_dynamic(size: Any) -> bool:
    """Whether a size is known only at run time."""
    return isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None


# Windows


def windows(x: torch.Tensor, axis: int, size: Any, step: Any) -> torch.Tensor:
    """All windows along an axis, which count along it; their elements lie along a new last axis."""
    count = (x.shape[axis] - size) // step + 1
    places = torch.arange(count, device=x.device)[:, None] * step + torch.arange(size, device=x.device)
    return x.movedim(axis, -1)[..., places].movedim(-2, axis % x.dim())


def _unfold(original: Any, x: torch.Tensor, dimension: int, size: Any, step: Any) -> torch.Tensor:
    if not is_dynamic(size) and not is_dynamic(step):
        return original(x, dimension, size, step)  # type: ignore[no-any-return]
    return windows(x, dimension, size, step)


def _pad(original: Any, x: torch.Tensor, pad: Any, mode: str = "constant", value: Any = None) -> torch.Tensor:
    """With a number that is made of sizes."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat)):
        return original(x, pad, mode, value)  # type: ignore[no-any-return]
    inside = original(torch.ones_like(x, dtype=torch.bool), pad, mode, False)
    return torch.where(inside, original(x, pad, mode, 0), value).to(x.dtype)


# Places


def _one_hot(original: Any, tensor: torch.Tensor, num_classes: Any = -1) -> torch.Tensor:
    """Of as many classes as a size or a tensor says."""
    if isinstance(num_classes, int):
        return original(tensor, num_classes)  # type: ignore[no-any-return]
    if isinstance(num_classes, torch.Tensor):
        num_classes = num_classes.to(torch.int64).item()
        torch._check(num_classes >= 0)
    return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).to(torch.int64)


def _triangle(
    part: Callable[..., torch.Tensor], original: Any, row: Any, col: Any, offset: Any = 0, **options: Any
) -> torch.Tensor:
    """The places above or below a diagonal, row by row."""
    if not any(map(is_dynamic, (row, col, offset))):
        return original(row, col, offset, **options)  # type: ignore[no-any-return]
    ones = torch.ones(row, col, dtype=torch.bool, device=options.get("device"))
    return part(ones, offset).nonzero().mT.to(options.get("dtype") or torch.int64)


def _diagonal(original: Any, x: torch.Tensor, offset: Any = 0, dim1: int = 0, dim2: int = 1) -> torch.Tensor:
    if not is_dynamic(offset):
        return original(x, offset, dim1, dim2)  # type: ignore[no-any-return]
    after, before = torch.sym_max(offset, 0), torch.sym_max(-offset, 0)
    rows, columns = x.shape[dim1], x.shape[dim2]
    length = torch.sym_max(torch.sym_min(rows - before, columns - after), 0)
    places = torch.arange(length, device=x.device)
    return x.movedim((dim1, dim2), (-2, -1))[..., places + before, places + after]


# Chance


def _drawn(original: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``torch.randn(n, generator=None)``: the function with a generator, though none is given, takes plain sizes."""
    if kwargs.get("generator", original) is None:
        del kwargs["generator"]
    return original(*args, **kwargs)  # type: ignore[no-any-return]


def plain_sizes() -> Iterator[Patch]:
    """The functions that sizes meet in models."""
    for name in ("rand", "randn", "randint", "randperm"):
        yield Patch("torch", name, _drawn, _REASON)
    yield Patch("torch.Tensor", "unfold", _unfold, _REASON)
    yield Patch("torch.nn.functional", "pad", _pad, _REASON, How.CODE)
    yield Patch("torch.nn.functional", "one_hot", _one_hot, _REASON)
    for name, part in (("triu", torch.triu), ("tril", torch.tril)):
        yield Patch("torch", f"{name}_indices", partial(_triangle, part), _REASON)
    yield Patch("torch", "diagonal", _diagonal, _REASON)
    yield Patch("torch.Tensor", "diagonal", _diagonal, _REASON)
