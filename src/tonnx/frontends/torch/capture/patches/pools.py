"""Pooling over windows whose size, step or padding is a dynamic size: PyTorch takes plain numbers for them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.utils import _pytree as pytree

from tonnx.frontends.patching import Patch
from tonnx.frontends.torch.capture.patches.library import operator
from tonnx.frontends.torch.capture.patches.plain_sizes import is_dynamic, windows

_REASON = "it takes the window as plain numbers, which fixes the sizes that it is computed of"


def _is_same(one: Any, other: Any) -> bool:
    """Whether two sizes are the same at every size, not in the example only."""
    if is_dynamic(one) and is_dynamic(other):
        return bool(one.node.expr == other.node.expr)
    return not is_dynamic(one) and not is_dynamic(other) and int(one) == int(other)


def _each(value: Any, rank: int) -> list[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * rank if len(values) == 1 else values


def _where_dynamic(compute: Any, rank: int, original: Any, *args: Any, **options: Any) -> Any:
    """By our own way where the window, its step or its padding is a dynamic size."""
    asks = any(map(is_dynamic, pytree.tree_leaves((args, options))))
    return compute(rank, original, *args, **options) if asks else original(*args, **options)


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
    padded = any(is_dynamic(pad) or pad for pad in pads)
    if ceil_mode or divisor_override is not None or (padded and not count_include_pad):
        rest = () if rank == 1 else (divisor_override,)
        return original(input, kernel, step, pads, ceil_mode, count_include_pad, *rest)
    if padded:
        input = functional.pad(input, [pad for one in reversed(pads) for pad in (one, one)])
    moving = [is_dynamic(size) or is_dynamic(by) for size, by in zip(kernel, step, strict=True)]
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


def _maxima(
    rank: int,
    original: Any,
    input: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Axis by axis where the window is dynamic: of all of it, or of windows that are taken out."""
    kernel, pads, dilations = (_each(one, rank) for one in (kernel_size, padding, dilation))
    step = kernel if stride is None or stride == [] else _each(stride, rank)
    moving = [is_dynamic(size) or is_dynamic(by) for size, by in zip(kernel, step, strict=True)]
    plain = all(pads[place] == 0 and dilations[place] == 1 for place in range(rank) if moving[place])
    if ceil_mode or return_indices or not plain:
        return original(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    if not all(moving):
        kept = ([1 if moves else n for moves, n in zip(moving, sizes, strict=True)] for sizes in (kernel, step))
        input = original(input, *kept, pads, dilations)
    for place in range(rank):
        if moving[place] and _is_same(kernel[place], input.shape[place - rank]):
            input = input.amax(place - rank, keepdim=True)
        elif moving[place]:
            input = windows(input, place - rank, kernel[place], step[place]).amax(-1)
    return input


def _adaptive_largest(
    rank: int, original: Any, input: torch.Tensor, output_size: Any, *indices: Any, **options: Any
) -> Any:
    """Maxima to sizes that are dynamic."""
    sizes = [n if size is None else size for n, size in zip(input.shape[-rank:], _each(output_size, rank), strict=True)]
    if not any(map(is_dynamic, sizes)) or any((*indices, *options.values())):
        return original(input, output_size, *indices, **options)
    return operator("adaptive_max(Tensor x, SymInt[] output_size) -> Tensor", _adapted, _adapt)(input, sizes)


def _adapted(x: torch.Tensor, output_size: Any) -> torch.Tensor:
    return x.new_empty([*x.shape[: -len(output_size)], *output_size])


def _adapt(x: torch.Tensor, output_size: Any) -> torch.Tensor:
    return getattr(functional, f"adaptive_max_pool{len(output_size)}d")(x, output_size)  # type: ignore[no-any-return]


def _adaptive_average(original: Any, input: torch.Tensor, output_size: Any) -> Any:
    """Of a row as of a picture of that height, for which PyTorch takes dynamic sizes."""
    size = _each(output_size, 1)[0]
    if not is_dynamic(size):
        return original(input, output_size)
    return functional.adaptive_avg_pool2d(input.unsqueeze(-2), (1, size)).squeeze(-2)


def pools() -> Iterator[Patch]:
    """Averages and maxima of one to three dimensions."""
    yield Patch("torch.nn.functional", "adaptive_avg_pool1d", _adaptive_average, _REASON)
    for rank in (1, 2, 3):
        yield Patch("torch.nn.functional", f"avg_pool{rank}d", partial(_where_dynamic, _windows, rank), _REASON)
        yield Patch("torch.nn.functional", f"max_pool{rank}d", partial(_where_dynamic, _maxima, rank), _REASON)
        yield Patch("torch.nn.functional", f"adaptive_max_pool{rank}d", partial(_adaptive_largest, rank), _REASON)
