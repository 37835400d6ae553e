"""Pooling over windows whose size, step or padding is a dynamic size: PyTorch takes plain numbers for them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.utils import _pytree as pytree

from tonnx.frontends.patching import Patch

_REASON = "it takes the window as plain numbers, which fixes the sizes that it is computed of"


def _is_dynamic(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None


def _is_same(one: Any, other: Any) -> bool:
    """Whether two sizes are the same at every size, not in the example only."""
    if _is_dynamic(one) and _is_dynamic(other):
        return bool(one.node.expr == other.node.expr)
    return not _is_dynamic(one) and not _is_dynamic(other) and int(one) == int(other)


def _each(value: Any, rank: int) -> list[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * rank if len(values) == 1 else values


def _average(rank: int, original: Any, *args: Any, **options: Any) -> Any:
    return (_windows if _asks_sizes(args, options) else _as_it_is)(rank, original, *args, **options)


def _largest(rank: int, original: Any, *args: Any, **options: Any) -> Any:
    return (_whole if _asks_sizes(args, options) else _as_it_is)(rank, original, *args, **options)


def _as_it_is(rank: int, original: Any, *args: Any, **options: Any) -> Any:
    return original(*args, **options)


def _asks_sizes(args: Any, options: Any) -> bool:
    return any(map(_is_dynamic, pytree.tree_leaves((args, options))))


def _windows(
    rank: int,
    original: Any,
    input: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    kernel, pads = _each(kernel_size, rank), _each(padding, rank)
    step = kernel if stride is None or stride == [] else _each(stride, rank)
    padded = any(_is_dynamic(pad) or pad for pad in pads)
    if ceil_mode or divisor_override is not None or (padded and not count_include_pad):
        rest = () if rank == 1 else (divisor_override,)
        return original(input, kernel, step, pads, ceil_mode, count_include_pad, *rest)
    if padded:
        input = functional.pad(input, [pad for one in reversed(pads) for pad in (one, one)])
    moving = [_is_dynamic(size) or _is_dynamic(by) for size, by in zip(kernel, step, strict=True)]
    input = original(input, *([1 if moves else size for moves, size in zip(moving, sizes, strict=True)]
                              for sizes in (kernel, step)))  # fmt: skip
    for place in range(rank):
        if moving[place]:
            input = _axis_average(input, place - rank, kernel[place], step[place])
    return input


def _axis_average(x: torch.Tensor, axis: int, window: Any, step: Any) -> torch.Tensor:
    """Means along one axis: of all of it, or as differences of sums that grow along it."""
    if _is_same(window, x.shape[axis]):
        return x.mean(axis, keepdim=True)
    sums = x.double().cumsum(axis)  # in float32 differences of long sums would lose digits
    sums = torch.cat([torch.zeros_like(sums.narrow(axis, 0, 1)), sums], axis)
    starts = step * torch.arange((x.shape[axis] - window) // step + 1, device=x.device)
    inside = sums.index_select(axis, starts + window) - sums.index_select(axis, starts)
    return (inside / window).to(x.dtype)


def _whole(rank: int, original: Any, input: torch.Tensor, kernel_size: Any, *args: Any, **options: Any) -> Any:
    """Of all of every axis, which a window of dynamic size is nearly always; others are PyTorch's to refuse."""
    kernel, rest = _each(kernel_size, rank), [*args, *options.values()]
    if not all(_is_same(size, input.shape[place - rank]) for place, size in enumerate(kernel)) or any(rest):
        return original(input, kernel_size, *args, **options)
    return input.amax(tuple(range(-rank, 0)), keepdim=True)


def pools() -> Iterator[Patch]:
    """Averages and maxima of one to three dimensions."""
    for rank in (1, 2, 3):
        yield Patch("torch.nn.functional", f"avg_pool{rank}d", partial(_average, rank), _REASON)
        yield Patch("torch.nn.functional", f"max_pool{rank}d", partial(_largest, rank), _REASON)
