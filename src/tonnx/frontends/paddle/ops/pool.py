"""Pooling: fixed windows, adaptive windows, and one window for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Ints, Sizes, Value, lower
from tonnx.frontends.paddle.ops.conv import EXPLICIT, SAME, VALID, pads_of, surplus, windows
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
    padded = windows(op, x, kernel, steps, paddings, padding_algorithm)
    return _pooled(op, x, kernel, steps, padded, pooling_type, ceil_mode, exclusive)


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


def _pooled(
    op: Builder,
    x: ir.Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    padded: dict[str, object],
    pooling_type: str,
    ceil_mode: bool,
    exclusive: bool,
) -> ir.Value:
    """``padded`` are ONNX's attributes: ``pads``, or ``auto_pad`` for SAME, which rounds up by itself."""
    pads = padded.get("pads")
    up = ceil_mode and isinstance(pads, list) and _rounds_up(op, x, kernel, strides, pads)
    shape = {"kernel_shape": kernel, "strides": strides}
    leaves = up and isinstance(pads, list) and _leaves(op, x, kernel, strides, pads)
    if pooling_type == "max":
        if leaves and isinstance(pads, list):
            return op.MaxPool(_filled(op, x, strides, pads, _lowest(x)), **shape)
        return op.MaxPool(x, **shape, ceil_mode=1 if up else None, **padded)
    begins = _begins(op, x, kernel, strides, pads)
    if leaves and isinstance(pads, list):
        sums = _sums(op, _filled(op, x, strides, pads, 0.0), kernel, strides)
        return op.Div(sums, _counts(op, x, sums, kernel, strides, begins, exclusive))
    plain = {**shape, "ceil_mode": 1 if up else None, **padded}
    if exclusive or (isinstance(pads, list) and not any(pads)):
        return op.AveragePool(x, **plain)
    if isinstance(pads, list) and all(a >= b for a, b in zip(pads[: len(kernel)], pads[len(kernel) :], strict=True)):
        return op.AveragePool(x, **plain, count_include_pad=1)
    # Paddle counts as much padding at the end as there is at the beginning.
    y = op.AveragePool(x, **plain)
    return op.Mul(y, op.Div(*(_counts(op, x, y, kernel, strides, begins, own) for own in (True, False))))


def _lowest(x: ir.Value) -> float:
    """What Paddle begins a maximum with."""
    assert x.dtype is not None
    return float(np.finfo(x.dtype.numpy()).min)


def _rounds_up(op: Builder, x: ir.Value, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> bool:
    """Whether ceil_mode makes a difference; on most fixed sizes it does not, and then it is left out."""
    axes = len(kernel)
    spans = [sizes.add(op, op.size(x, i + 2), pads[i] + pads[axes + i] - kernel[i]) for i in range(axes)]
    pairs = zip(spans, strides, strict=True)
    return any(step > 1 and (not isinstance(span, int) or span % step) for span, step in pairs)


def _leaves(op: Builder, x: ir.Value, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> bool:
    """Whether rounding up may add a window that begins behind the data: ONNX leaves it out, Paddle does not."""
    axes = len(kernel)
    for i, (k, step) in enumerate(zip(kernel, strides, strict=True)):
        size, end = op.size(x, i + 2), pads[axes + i]
        if not isinstance(size, int):
            if end + step > k:
                return True
        elif -((k - size - pads[i] - end) // step) * step >= size + pads[i]:
            return True
    return False


def _filled(op: Builder, x: ir.Value, strides: Sequence[int], pads: Sequence[int], value: float) -> ir.Value:
    """``x`` with its padding, and with so much behind it that rounding down gives as many windows as rounding up."""
    axes = len(strides)
    ends = [pads[axes + i] + step - 1 for i, step in enumerate(strides)]
    return op.Pad(x, op.constant([0, 0, *pads[:axes], 0, 0, *ends], T.INT64), op.constant(value, x.dtype))


def _sums(op: Builder, x: ir.Value, kernel: Sequence[int], strides: Sequence[int]) -> ir.Value:
    """The sum of each window."""
    count = math.prod(kernel)
    if count == 1:
        axes = list(range(2, 2 + len(kernel)))
        return op.Slice(x, [0] * len(axes), [sizes.END] * len(axes), axes, list(strides))
    # Multiplied before: ONNX Runtime makes a Pad right before a pooling its padding, whether it may be or not.
    return op.AveragePool(op.Mul(x, float(count)), kernel_shape=list(kernel), strides=list(strides))


def _begins(op: Builder, x: ir.Value, kernel: Sequence[int], strides: Sequence[int], pads: object) -> list[Size]:
    """The padding before the first element of each axis; that of SAME depends on the size."""
    if isinstance(pads, list):
        return list(pads[: len(kernel)])
    begins: list[Size] = []
    for i, (k, step) in enumerate(zip(kernel, strides, strict=True)):
        total = sizes.larger(op, surplus(op, op.size(x, i + 2), k, step), 0)
        begins.append(sizes.divide(op, total, 2))
    return begins


def _counts(
    op: Builder,
    x: ir.Value,
    y: ir.Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    begins: Sequence[Size],
    exclusive: bool,
) -> ir.Value:
    """By how much Paddle divides the sum of each window: its elements in the data, or also those in the padding."""
    total: ir.Value | None = None
    for i, (k, step, begin) in enumerate(zip(kernel, strides, begins, strict=True)):
        size, number = op.size(x, i + 2), op.size(y, i + 2)
        starts = op.Sub(op.Mul(sizes.arange(op, number), step), begin)
        ends = op.Min(op.Add(starts, k), size if exclusive else sizes.add(op, size, begin))
        counts = op.cast(op.Sub(ends, op.Max(starts, 0) if exclusive else starts), x.dtype)
        counts = op.Unsqueeze(counts, list(range(1, len(kernel) - i))) if i < len(kernel) - 1 else counts
        total = counts if total is None else op.Mul(total, counts)
    assert total is not None
    return total


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
        return _pooled(op, x, list(kernel_size), list(strides), {"pads": pads}, "max", ceil_mode, True)
    else:
        powers = op.Pow(x, norm_type)
        if ceil_mode or any(pads):
            powers = _filled(op, powers, strides if ceil_mode else [1, 1], pads, 0.0)
        sums = _sums(op, powers, kernel_size, strides)
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
    if ceil_mode and _leaves(op, x, kernel_size, strides, list(paddings) * 2):
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
