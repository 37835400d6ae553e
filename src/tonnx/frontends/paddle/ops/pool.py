"""Pooling: fixed windows, adaptive windows, and one window for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Ints, Sizes, Value, lower
from tonnx.frontends.paddle.ops.conv import EXPLICIT, SAME, VALID, padding, pads_for, pads_of, same_ends
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops import pool as like_torch


@lower("pool2d", "pool3d", layout="data_format")
def pool(
    op: Builder,
    x: Value,
    kernel_size: Sizes,
    *,
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0),
    ceil_mode: bool = False,
    exclusive: bool = True,
    pooling_type: str = "max",
    global_pooling: bool = False,
    adaptive: bool = False,
    padding_algorithm: str = EXPLICIT,
) -> ir.Value:
    axes = op.rank(x) - 2
    if global_pooling or (adaptive and all(isinstance(size, int) and size == 1 for size in kernel_size)):
        return op.GlobalMaxPool(x) if pooling_type == "max" else op.GlobalAveragePool(x)
    if adaptive:
        return _adaptive(op, x, kernel_size, pooling_type)
    kernel, steps = _fixed(kernel_size, axes), _fixed(strides, axes)
    windows = _Windows(op, x, kernel, steps, pads_for(op, x, kernel, steps, paddings, padding_algorithm))
    return windows.maximum(ceil_mode) if pooling_type == "max" else windows.average(ceil_mode, exclusive)


def _fixed(kernel_size: Sizes, axes: int) -> list[int]:
    fixed = sizes.known("a pooling window of a size", *kernel_size)
    return fixed * axes if len(fixed) == 1 else fixed


def _adaptive(op: Builder, x: ir.Value, output_size: Sizes, pooling_type: str) -> ir.Value:
    axes = op.rank(x) - 2
    asked = list(output_size) * axes if len(output_size) == 1 else list(output_size)
    # -1 is None in the API: the size stays.
    targets: list[Size] = [op.size(x, i + 2) if isinstance(s, int) and s < 0 else s for i, s in enumerate(asked)]
    if pooling_type == "max":
        return like_torch.adaptive_max_pool(op, x, targets)[0]
    return like_torch.adaptive_avg_pool(op, x, targets)


@dataclass
class _Windows:
    """The windows that a pooling lays over its input."""

    op: Builder
    x: ir.Value
    kernel: Sequence[int]
    strides: Sequence[int]
    pads: list[int] | None
    """None: those of SAME on dynamic sizes, which rounds up by itself."""

    def maximum(self, ceil_mode: bool) -> ir.Value:
        up = ceil_mode and self._rounds_up()
        if up and self.leaves():
            assert self.x.dtype is not None
            lowest = float(np.finfo(self.x.dtype.numpy()).min)  # what Paddle begins a maximum with
            return self.op.MaxPool(self.filled(lowest), kernel_shape=self.kernel, strides=self.strides)
        return self.op.MaxPool(self.x, **self._attributes(up))

    def average(self, ceil_mode: bool, exclusive: bool) -> ir.Value:
        """The mean of each: of its elements in the data (``exclusive``), or also of those in the padding."""
        op, pads = self.op, self.pads
        up = ceil_mode and self._rounds_up()
        if up and self.leaves():
            sums = self.sums(self.filled(0.0))
            return op.Div(sums, self._counts(sums, exclusive))
        attributes = self._attributes(up)
        if exclusive or (pads is not None and not any(pads)):
            return op.AveragePool(self.x, **attributes)
        axes = len(self.kernel)
        if pads is not None and all(a >= b for a, b in zip(pads[:axes], pads[axes:], strict=True)):
            return op.AveragePool(self.x, **attributes, count_include_pad=1)
        # Paddle counts as much padding at the end as there is at the beginning.
        y = op.AveragePool(self.x, **attributes)
        return op.Mul(y, op.Div(*(self._counts(y, own) for own in (True, False))))

    def _attributes(self, up: bool) -> dict[str, Any]:
        shape = {"kernel_shape": self.kernel, "strides": self.strides}
        return {**shape, "ceil_mode": 1 if up else None, **padding(self.pads)}

    def _rounds_up(self) -> bool:
        """Whether ceil_mode makes a difference; on most fixed sizes it does not, and then it is left out."""
        if self.pads is None:
            return False
        both = zip(self.pads, self.pads[len(self.kernel) :], strict=False)
        padded = [sizes.add(self.op, self.op.size(self.x, axis), sum(ends)) for axis, ends in enumerate(both, 2)]
        spans = (sizes.add(self.op, size, -k) for size, k in zip(padded, self.kernel, strict=True))
        pairs = zip(spans, self.strides, strict=True)
        return any(step > 1 and (not isinstance(span, int) or span % step) for span, step in pairs)

    def leaves(self) -> bool:
        """Whether rounding up may add a window that begins behind the data: ONNX leaves it out, Paddle does not."""
        assert self.pads is not None
        for i, (k, step) in enumerate(zip(self.kernel, self.strides, strict=True)):
            size, begin, end = self.op.size(self.x, i + 2), self.pads[i], self.pads[len(self.kernel) + i]
            if not isinstance(size, int):
                if end + step > k:
                    return True
            elif -((k - size - begin - end) // step) * step >= size + begin:
                return True
        return False

    def filled(self, value: float) -> ir.Value:
        """The input with its padding, and so much behind it that rounding down gives as many windows as rounding up."""
        assert self.pads is not None
        axes = len(self.kernel)
        ends = [end + step - 1 for end, step in zip(self.pads[axes:], self.strides, strict=True)]
        pads = self.op.constant([0, 0, *self.pads[:axes], 0, 0, *ends], T.INT64)
        return self.op.Pad(self.x, pads, self.op.constant(value, self.x.dtype))

    def sums(self, x: ir.Value) -> ir.Value:
        """The sum of each, in an input that is padded already."""
        count = math.prod(self.kernel)
        if count == 1:
            axes = list(range(2, 2 + len(self.kernel)))
            return self.op.Slice(x, [0] * len(axes), [sizes.END] * len(axes), axes, list(self.strides))
        # Multiplied before: ONNX Runtime makes a Pad right before a pooling its padding, whether it may be or not.
        shape = {"kernel_shape": list(self.kernel), "strides": list(self.strides)}
        return self.op.AveragePool(self.op.Mul(x, float(count)), **shape)

    def _counts(self, y: ir.Value, exclusive: bool) -> ir.Value:
        """By how much Paddle divides the sums ``y``: by the elements in the data, or also by those in the padding."""
        op, axes = self.op, len(self.kernel)
        factors = []
        for i, (k, step) in enumerate(zip(self.kernel, self.strides, strict=True)):
            size, number = op.size(self.x, i + 2), op.size(y, i + 2)
            begin = same_ends(op, size, k, step)[0] if self.pads is None else self.pads[i]
            starts = op.Sub(op.Mul(sizes.arange(op, number), step), begin)
            ends = op.Min(op.Add(starts, k), size if exclusive else sizes.add(op, size, begin))
            counts = op.cast(op.Sub(ends, op.Max(starts, 0) if exclusive else starts), self.x.dtype)
            factors.append(op.Unsqueeze(counts, list(range(1, axes - i))) if i < axes - 1 else counts)
        return reduce(op.Mul, factors)


@lower("lp_pool2d", unused="exclusive pooling_type", layout="data_format")
def lp_pool2d(
    op: Builder,
    x: Value,
    kernel_size: Ints,
    *,
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0),
    ceil_mode: bool = False,
    global_pooling: bool = False,
    adaptive: bool = False,
    padding_algorithm: str = EXPLICIT,
    norm_type: float = 2.0,
) -> ir.Value:
    """The signed sum of powers, and its root: unlike LpPool, which takes magnitudes."""
    if adaptive or padding_algorithm == SAME or norm_type == -math.inf:
        raise UnsupportedArgument("lp_pool2d that is adaptive, padded with SAME, or of norm -inf")
    pads = [0] * 4 if padding_algorithm == VALID or global_pooling else pads_of(paddings, 2)
    if global_pooling:
        sums = op.ReduceSum(op.Pow(x, norm_type), [2, 3])
    elif norm_type == math.inf:
        return _Windows(op, x, list(kernel_size), list(strides), pads).maximum(ceil_mode)
    else:
        windows = _Windows(op, op.Pow(x, norm_type), kernel_size, strides if ceil_mode else [1, 1], pads)
        powers = windows.filled(0.0) if ceil_mode or any(pads) else windows.x
        sums = replace(windows, strides=strides).sums(powers)
    return op.Pow(sums, 1 / norm_type)


@lower("unpool", "unpool3d", unused="data_format unpooling_type")
def unpool(
    op: Builder,
    x: Value,
    indices: Value,
    output_size: Sizes = (),
    *,
    ksize: Ints = (),
    strides: Ints = (),
    padding: Ints = (),
    paddings: Ints = (),
) -> ir.Value:
    padding = padding or paddings  # as unpool3d calls it
    target = list(output_size)
    for axis, size in enumerate(target):
        if isinstance(size, int) and size < 0:  # Paddle has computed with an unknown size as if it were -1
            size_in, step = op.size(x, axis - len(target)), strides[axis]
            more = ksize[axis] - 2 * (padding[axis] if padding else 0) - step
            target[axis] = sizes.add(op, sizes.multiply(op, size_in, step), more)
    return like_torch.max_unpool(op, x, op.cast(indices, ir.DataType.INT64), target)


@lower("max_pool2d_with_index", "max_pool3d_with_index")
def max_pool_with_index(
    op: Builder,
    x: Value,
    *,
    kernel_size: Ints,
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0),
    global_pooling: bool = False,
    adaptive: bool = False,
    ceil_mode: bool = False,
) -> tuple[ir.Value, ir.Value]:
    axes = op.rank(x) - 2
    if adaptive or global_pooling:
        return like_torch.adaptive_max_pool(op, x, [1] * axes if global_pooling else list(kernel_size))
    if ceil_mode and _Windows(op, x, kernel_size, strides, list(paddings) * 2).leaves():
        raise UnsupportedArgument(
            "positions of a pooling with ceil_mode whose last window may lie in the padding alone",
            why="ONNX leaves that window out",
        )
    windows = list(kernel_size), list(strides), list(paddings)
    return like_torch.max_pool(op, x, *windows, ceil_mode=ceil_mode, axes=axes, indices=True)


# Windows that divide the data by a fraction: where each begins follows from one number that was drawn


@lower("fractional_max_pool2d", "fractional_max_pool3d", unused="return_mask")
def fractional_max_pool(
    op: Builder, x: Value, *, output_size: Ints, kernel_size: Ints = (), random_u: float = 0.0
) -> tuple[ir.Value, ir.Value]:
    """The largest of each window, and where in its plane it lies."""
    axes = len(output_size)
    spatial = op.sizes(x)[-axes:]
    fixed = [size for size in spatial if isinstance(size, int)]
    if len(fixed) < axes:
        raise UnsupportedArgument("a fractional pooling of a size known only at run time", hint="fix it: input_shapes")
    if random_u == 0:
        raise UnsupportedArgument("a fractional pooling that draws its windows anew", hint="give random_u")
    output = [size if asked < 0 else asked for size, asked in zip(fixed, output_size, strict=True)]
    kernel = list(kernel_size) or [0] * axes
    bounds = [_bounds(*each, random_u) for each in zip(fixed, output, kernel, strict=True)]
    table = _members(bounds, fixed)
    flat = op.reshape(x, [*op.sizes(x)[:2], int(np.prod(fixed))])
    members = op.Gather(flat, table, axis=2)
    shape = [*op.sizes(x)[:2], *output]
    values = op.ReduceMax(members, [3], keepdims=0)
    rows = np.arange(len(table)) * table.shape[1]
    places = op.Gather(table.reshape(-1), op.Add(op.ArgMax(members, axis=3, keepdims=0), rows), axis=0)
    return op.reshape(values, shape), op.cast(op.reshape(places, shape), T.INT32)


def _bounds(size: int, output: int, kernel: int, drawn: float) -> list[tuple[int, int]]:
    """Begin and end of each window of an axis, in the single precision that Paddle computes them with."""
    single = np.float32
    step = single(size - kernel) / single(output - (1 if kernel > 0 else 0))
    shift = single(drawn)
    if kernel <= 0:
        base = size // output
        most = min(single(base + 2) / step - single(1), single(size + 1 - base) / step - single(output - 1))
        shift = shift * most
    origin = int(shift * step)
    begins = [int((single(i) + shift) * step) - origin for i in range(output + 1)]
    ends = [begin + kernel for begin in begins[:-1]] if kernel > 0 else begins[1:]
    return [(max(begin, 0), min(end, size)) for begin, end in zip(begins[:-1], ends, strict=True)]


def _members(bounds: Sequence[Sequence[tuple[int, int]]], sizes: Sequence[int]) -> np.ndarray:
    """For each window the places in its plane; shorter ones repeat their last, which changes no maximum."""
    windows = []
    for window in product(*bounds):
        places = [int(np.ravel_multi_index(at, tuple(sizes))) for at in product(*(range(*edge) for edge in window))]
        windows.append(places)
    longest = max(map(len, windows))
    return np.array([places + places[-1:] * (longest - len(places)) for places in windows], np.int64)
