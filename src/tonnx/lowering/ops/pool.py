"""Pooling: fixed windows, adaptive windows, and the inverse of max pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size
from tonnx.ir.infer import same_dim
from tonnx.ir.sizes import size_dim
from tonnx.lowering.ops.conv import Ints, batched, spread
from tonnx.lowering.rules import lower
from tonnx.lowering.sizes import arange
from tonnx.lowering.values import is_float, is_integer


class _Windows:
    """The attributes of a pooling node, and torch's rule for its output size."""

    def __init__(
        self, axes: int, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints = 1, ceil_mode: bool = False
    ) -> None:
        self.axes = axes
        self.kernel = spread(kernel_size, axes, "kernel_size")
        self.stride = spread(stride, axes, "stride") or self.kernel  # an empty list: windows side by side
        self.padding = spread(padding, axes, "padding")
        self.dilation = spread(dilation, axes, "dilation")
        self.ceil_mode = ceil_mode

    def rounds_up(self, x: ir.Value) -> bool:
        """Whether ceil_mode makes a difference; on most fixed sizes it does not, and then it is left out."""
        assert x.shape is not None
        if not self.ceil_mode:
            return False
        for i, size in enumerate(x.shape.dims[-self.axes :]):
            if self.stride[i] == 1:
                continue
            if not isinstance(size, int):
                return True
            if (size + 2 * self.padding[i] - self.dilation[i] * (self.kernel[i] - 1) - 1) % self.stride[i]:
                return True
        return False


def max_pool(
    op: Builder,
    x: ir.Value,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    *,
    axes: int,
    indices: bool,
) -> Any:
    """The maxima; with ``indices`` also their places."""
    windows = _Windows(axes, kernel_size, stride, padding, dilation, ceil_mode)
    if is_integer(x.dtype):
        x = op.cast(x, ir.DataType.DOUBLE)  # exact up to 2**53
    x, single = batched(op, x, axes + 2)
    results = op.MaxPool(
        x,
        kernel_shape=windows.kernel,
        strides=windows.stride,
        pads=windows.padding * 2,
        dilations=windows.dilation if set(windows.dilation) != {1} else None,
        ceil_mode=1 if windows.rounds_up(x) else None,
        _outputs=2 if indices else 1,
    )
    if indices:
        # ONNX counts through batch and channels, torch within one plane.
        plane = op.product(op.sizes(x)[2:])
        results = (results[0], op.Mod(results[1], plane))
    if single:
        results = tuple(op.Squeeze(y, [0]) for y in results)
    return results if indices else results[0]


for _axes in (1, 2, 3):
    lower(f"aten.max_pool{_axes}d", axes=_axes, indices=False)(max_pool)
    lower(f"aten.max_pool{_axes}d_with_indices", axes=_axes, indices=True)(max_pool)


# Averages


@lower("aten.avg_pool1d", axes=1)
@lower("aten.avg_pool2d", axes=2)
@lower("aten.avg_pool3d", axes=3)
def avg_pool(
    op: Builder,
    x: ir.Value,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    axes: int,
) -> ir.Value:
    if not is_float(x.dtype):
        raise UnsupportedArgument(f"the average of {x.dtype} rounds down in torch, which ONNX's AveragePool does not")
    windows = _Windows(axes, kernel_size, stride, padding, 1, ceil_mode)
    x, single = batched(op, x, axes + 2)
    if divisor_override is not None:
        y = _sum_pool(op, x, windows) / divisor_override
    else:
        y = op.AveragePool(
            x,
            kernel_shape=windows.kernel,
            strides=windows.stride,
            pads=windows.padding * 2,
            ceil_mode=1 if windows.rounds_up(x) else None,
            count_include_pad=1 if count_include_pad and any(windows.padding) else None,
        )
    return op.Squeeze(y, [0]) if single else y


def _sum_pool(op: Builder, x: ir.Value, windows: _Windows) -> ir.Value:
    """The plain sum of each window: the average, padding counted, times the size of a window."""
    sizes = op.sizes(x)[2:]
    rounds_up = windows.rounds_up(x)
    # A window that hangs over the edge must be divided by its full size too, so the overhang becomes real zeros.
    before = windows.padding
    after = [p + s - 1 if rounds_up else p for p, s in zip(before, windows.stride, strict=True)]
    if any(after):
        x = op.Pad(x, [0, 0, *before, 0, 0, *after])
    y = op.AveragePool(x, kernel_shape=windows.kernel, strides=windows.stride)
    if rounds_up:
        counts = [
            # The last window must start inside the input or its left padding.
            op.Min(
                op.Div(op.Add(op.vector([size]), 2 * p - k + 2 * s - 1), s),
                op.Div(op.Add(op.vector([size]), p + s - 1), s),
            )
            for size, k, s, p in zip(sizes, windows.kernel, windows.stride, windows.padding, strict=True)
        ]
        y = op.Slice(y, [0] * len(counts), op.vector(counts), list(range(2, 2 + len(counts))))
    return y * math.prod(windows.kernel)


# Adaptive windows: output i of O covers the input from floor(i·L/O) up to, not including, ceil((i+1)·L/O)


def _edges(op: Builder, size: Size, count: Size) -> tuple[ir.Value, ir.Value]:
    """Where the windows begin and end, as vectors."""
    i = arange(op, count)
    if isinstance(count, ir.Value):
        count = op.Max(count, 1)  # no window at all must not divide by zero
    begins = op.Div(op.Mul(i, size), count)
    after = op.Mul(op.Add(i, 1), size)
    ends = op.Div(op.Add(after, op.Sub(op.vector([count]), 1)), count)
    return begins, ends


def _same(x: ir.Value, axis: int, count: Size) -> bool:
    assert x.shape is not None
    return same_dim(x.shape[axis], size_dim(count))


def _divides(size: Size, count: Size) -> bool:
    return isinstance(size, int) and isinstance(count, int) and count > 0 and size > 0 and size % count == 0


def _fixed_windows(op: Builder, x: ir.Value, output_size: Sequence[Size]) -> list[int] | None:
    """The kernel with which plain pooling gives the output size, if there is one."""
    kernel = []
    for axis, count in enumerate(output_size, -len(output_size)):
        if _same(x, axis, count):
            kernel.append(1)
        elif _divides(size := op.size(x, axis), count):
            kernel.append(size // count)  # type: ignore[operator]
        else:
            return None
    return kernel


@lower(
    "aten.adaptive_avg_pool1d",
    "aten.adaptive_avg_pool2d",
    "aten.adaptive_avg_pool3d",
    "aten._adaptive_avg_pool2d",
    "aten._adaptive_avg_pool3d",
)
def adaptive_avg_pool(op: Builder, x: ir.Value, output_size: Sequence[Size]) -> ir.Value:
    axes = len(output_size)
    if all(isinstance(count, int) and count == 1 for count in output_size):
        if op.rank(x) == axes + 2 and x.dtype != ir.DataType.DOUBLE:
            return op.GlobalAveragePool(x)
        return op.ReduceMean(x, list(range(-axes, 0)))
    kernel = _fixed_windows(op, x, output_size)
    if kernel is not None:
        return x if set(kernel) == {1} else avg_pool(op, x, kernel, kernel, axes=axes)
    # A mean over a box is the mean of means along its sides, one axis at a time.
    for axis, count in enumerate(output_size, op.rank(x) - axes):
        if isinstance(count, int) and count == 1:
            x = op.ReduceMean(x, [axis])
        elif not _same(x, axis, count):
            x = _averaged(op, x, axis, count)
    return x


def _averaged(op: Builder, x: ir.Value, axis: int, count: Size) -> ir.Value:
    """The means of the windows along an axis: a product with the matrix of their weights."""
    size, sizes = op.size(x, axis), op.sizes(x)
    is_last = axis == op.rank(x) - 1
    begins, ends = (op.Unsqueeze(edge, [0 if is_last else 1]) for edge in _edges(op, size, count))
    places = op.Unsqueeze(arange(op, size), [1 if is_last else 0])
    inside = op.And(op.GreaterOrEqual(places, begins), op.Less(places, ends))
    weights = op.Div(op.cast(inside, x.dtype), op.cast(op.Sub(ends, begins), x.dtype))
    if is_last:
        return op.MatMul(x, weights)
    if axis == op.rank(x) - 2:
        return op.MatMul(weights, x)
    inner = sizes[axis + 1 :]
    y = op.MatMul(weights, op.reshape(x, [*sizes[:axis], size, op.product(inner)]))
    return op.reshape(y, [*sizes[:axis], count, *inner])


@lower("aten.adaptive_max_pool1d", "aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d")
def adaptive_max_pool(op: Builder, x: ir.Value, output_size: Sequence[Size]) -> tuple[ir.Value, ir.Value]:
    axes = len(output_size)
    kernel = _fixed_windows(op, x, output_size)
    if kernel is not None:
        values = max_pool(op, x, kernel, kernel, axes=axes, indices=False)
        _, places = max_pool(op, x, kernel, kernel, axes=axes, indices=True)  # alone: mostly nobody wants the indices
        return values, places
    lead = op.rank(x) - axes
    if all(isinstance(count, int) and count == 1 for count in output_size):
        flat = op.reshape(x, [*op.sizes(x)[:lead], op.product(op.sizes(x)[lead:])])
        place = op.ArgMax(flat, axis=-1, keepdims=0)
        return op.ReduceMax(x, list(range(lead, op.rank(x)))), op.Unsqueeze(place, list(range(lead, op.rank(x))))
    values = x
    for axis, count in enumerate(output_size, lead):
        members = _members(op, op.size(x, axis), count)
        values = op.ReduceMax(op.Gather(values, members, axis=axis), [axis + 1], keepdims=0)
    return values, _max_places(op, x, output_size, lead)


adaptive_maxima = lower("tonnx.adaptive_max")(lambda op, x, output_size: adaptive_max_pool(op, x, output_size)[0])


def _members(op: Builder, size: Size, count: Size) -> ir.Value:
    """For each window a row of the positions in it; shorter windows repeat their last one, which changes no maximum."""
    begins, ends = _edges(op, size, count)
    longest = op.ReduceMax(op.Sub(ends, begins), keepdims=0)
    offsets = op.Range(0, longest, 1)
    return op.Min(op.Add(op.Unsqueeze(begins, [1]), offsets), op.Sub(op.Unsqueeze(ends, [1]), 1))


def _max_places(op: Builder, x: ir.Value, output_size: Sequence[Size], lead: int) -> ir.Value:
    """The place of each window's maximum in its plane."""
    sizes, axes = op.sizes(x), len(output_size)
    windows = x
    for i, count in enumerate(output_size):
        windows = op.Gather(windows, _members(op, sizes[lead + i], count), axis=lead + 2 * i)
    outer = list(range(lead))
    perm = [*outer, *(lead + 2 * i for i in range(axes)), *(lead + 2 * i + 1 for i in range(axes))]
    windows = op.Transpose(windows, perm=perm)
    spans = [op.Shape(windows, start=lead + axes + i, end=lead + axes + i + 1) for i in range(axes)]
    flat = op.Reshape(windows, op.vector([*sizes[:lead], *output_size, -1]))
    rest = op.ArgMax(flat, axis=-1, keepdims=0)
    place: ir.Value | None = None
    scale: Size = 1
    for i in reversed(range(axes)):  # the last axis runs fastest, in the window as in the plane
        begins, _ = _edges(op, sizes[lead + i], output_size[i])
        column = op.Reshape(begins, [-1] + [1] * (axes - 1 - i))
        at = op.Add(op.Mod(rest, spans[i]), column)
        rest = op.Div(rest, spans[i])
        step = op.Mul(at, scale)
        place = step if place is None else op.Add(place, step)
        scale = op.product([scale, sizes[lead + i]])
    assert place is not None
    return place


@lower("aten.max_unpool2d", "aten.max_unpool3d", unused="stride padding")
def max_unpool(op: Builder, x: ir.Value, indices: ir.Value, output_size: Sequence[Size]) -> ir.Value:
    """Each value goes back to the place in its plane that max pooling took it from; zeros everywhere else."""
    lead = op.rank(x) - len(output_size)
    sizes = op.sizes(x)
    flat = [*sizes[:lead], op.product(sizes[lead:])]
    plane = [*sizes[:lead], op.product(output_size)]
    zeros = op.Expand(op.constant(0, x.dtype), op.vector(plane))
    y = op.ScatterElements(zeros, op.reshape(indices, flat), op.reshape(x, flat), axis=lead)
    return op.reshape(y, [*sizes[:lead], *output_size])


# Windows at random places


@lower("aten.fractional_max_pool2d", sampled=(1, 0))
@lower("aten.fractional_max_pool3d", sampled=(0, 1, 2))
def fractional_max_pool(
    op: Builder,
    x: ir.Value,
    kernel_size: Ints,
    output_size: Ints,
    random_samples: ir.Value,
    *,
    sampled: Sequence[int],
) -> tuple[ir.Value, ir.Value]:
    """The largest of each window. ``sampled``: which of a plane's random numbers moves the windows of each axis."""
    axes = len(sampled)
    kernel, output = spread(kernel_size, axes, "kernel_size"), spread(output_size, axes, "output_size")
    planes = x if op.rank(x) == axes + 2 else op.Unsqueeze(x, [0])
    lead, own = op.sizes(planes)[:2], op.sizes(planes)[2:]
    place: ir.Value | None = None  # in a plane, of every element of every window: (…, output, kernel)
    for i in range(axes):
        starts = _random_starts(op, op.Gather(random_samples, sampled[i], axis=2), own[i], kernel[i], output[i])
        index = op.Unsqueeze(starts, [3]) + arange(op, kernel[i])
        index = op.Unsqueeze(index, [axis for axis in range(2, 2 + 2 * axes) if axis not in (2 + i, 2 + axes + i)])
        place = index if place is None else place * op.scalar(own[i]) + index
    assert place is not None
    many = [*lead, *output, math.prod(kernel)]
    flat = op.reshape(place, [*lead, math.prod(many[2:])])  # type: ignore[arg-type]
    windows = op.reshape(op.GatherElements(op.reshape(planes, [*lead, op.product(own)]), flat, axis=2), many)
    best = op.ArgMax(windows, axis=-1, keepdims=1)
    results = (op.GatherElements(part, best, axis=-1) for part in (windows, op.reshape(place, many)))
    largest, taken = (op.Squeeze(part, [-1] if planes is x else [0, -1]) for part in results)
    return largest, taken


def _random_starts(op: Builder, sample: ir.Value, size: Size, kernel: int, count: int) -> ir.Value:
    """Where the windows of one axis begin: about evenly, moved by the sample, and the last at the end. (…, count)."""
    room = op.cast(op.scalar(size), ir.DataType.INT64) - kernel
    last = op.Expand(op.Unsqueeze(room, [0]), op.vector([*op.sizes(sample), 1]))
    if count == 1:
        return last
    step = op.cast(room, sample.dtype) / float(count - 1)
    sample = op.Unsqueeze(sample, [2])
    moved, first = ((op.cast(arange(op, count - 1), sample.dtype) + sample) * step, sample * step)
    begins = op.cast(moved, ir.DataType.INT64) - op.cast(first, ir.DataType.INT64)
    return op.Concat(begins, last, axis=2)
