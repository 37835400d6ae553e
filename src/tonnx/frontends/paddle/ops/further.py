"""Operators that are rarely met, and fit no other family."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.fit import axes_of
from tonnx.frontends.paddle.lower.rules import Ints, Sizes, Value, Values, lower
from tonnx.frontends.paddle.ops.conv import EXPLICIT, conv, conv_transpose
from tonnx.ir.build import Builder, Size
from tonnx.lowering import sizes
from tonnx.lowering.ops import reduce as torch_reduce
from tonnx.lowering.ops import scatter as torch_scatter
from tonnx.lowering.ops import sort as torch_sort
from tonnx.lowering.values import axis_of, to_float

T = ir.DataType

# Parts of several tensors


def _parts(op: Builder, x: Values, start: int, length: int) -> list[ir.Value]:
    """Some columns of each."""
    end: Size = sizes.END if length < 0 else start + length
    return [sizes.cut(op, part, 1, start, sizes.END if start < 0 and end == 0 else end) for part in x]


@lower("partial_concat")
def partial_concat(op: Builder, x: Values, *, start_index: int = 0, length: int = -1) -> ir.Value:
    return op.Concat(*_parts(op, x, start_index, length), axis=1)


@lower("partial_sum")
def partial_sum(op: Builder, x: Values, *, start_index: int = 0, length: int = -1) -> ir.Value:
    parts = _parts(op, x, start_index, length)
    total = parts[0]
    for part in parts[1:]:
        total = op.Add(total, part)
    return total


@lower("view_slice")
def view_slice(op: Builder, input: Value, *, begin_idx: int, end_idx: int) -> ir.Value:
    return sizes.cut(op, input, 0, begin_idx, end_idx)


@lower("reduce_as")
def reduce_as(op: Builder, x: Value, target: Value) -> ir.Value:
    """Summed to the shape that would broadcast to that of ``x``."""
    more = op.rank(x) - op.rank(target)
    axes = list(range(more))
    for axis in range(op.rank(target)):
        own, wanted = op.size(x, axis + more), op.size(target, axis)
        if isinstance(wanted, int) and wanted == 1 and own != 1:
            axes.append(axis + more)
    if not axes:
        return x
    summed = op.ReduceSum(x, axes)
    return op.Squeeze(summed, list(range(more))) if more else summed


# Statistics


@lower("var")
@lower("std", root=True)
def var(
    op: Builder,
    x: Value,
    axis: Ints = (),
    *,
    keepdim: bool = False,
    unbiased: bool = True,
    correction: float = 1.0,
    root: bool = False,
) -> ir.Value:
    amount = correction if unbiased else 0
    variance, _ = torch_reduce.variance_and_mean(op, x, axes_of(op, x, axis), amount, keepdim)
    return op.Sqrt(variance) if root else variance


@lower("nansum")
def nansum(
    op: Builder, x: Value, axis: Ints = (), *, dtype: ir.DataType | None = None, keepdim: bool = False
) -> ir.Value:
    return torch_reduce.nansum(op, x, axes_of(op, x, axis), keepdim, dtype)


@lower("max_with_index", like_torch=torch_reduce.max_)
@lower("min_with_index", like_torch=torch_reduce.min_)
def extreme_with_index(
    op: Builder,
    x: Value,
    *,
    dim: int = -1,
    keepdim: bool = False,
    flatten: bool = False,
    like_torch: Callable[..., Any],
) -> tuple[ir.Value, ir.Value]:
    values, places = like_torch(op, op.reshape(x, [-1]) if flatten else x, 0 if flatten else dim, keepdim)
    return values, places


@lower("histogram")
def histogram(
    op: Builder,
    input: Value,
    weight: Value | None = None,
    *,
    bins: int = 100,
    min: float = 0.0,
    max: float = 0.0,
    density: bool = False,
) -> ir.Value:
    if weight is not None or density:
        raise UnsupportedArgument("histogram with weights or as a density")
    flat = to_float(op, op.reshape(input, [-1]))
    if min == max == 0:
        raise UnsupportedArgument("histogram whose bounds come from the data", hint="give min and max")
    place = op.Floor(op.Mul(op.Sub(flat, min), bins / (max - min)))
    place = op.Where(op.Equal(flat, max), float(bins - 1), place)  # the last bin has both its ends
    inside = op.And(op.GreaterOrEqual(flat, min), op.LessOrEqual(flat, max))
    own = op.And(op.Equal(op.Unsqueeze(place, [1]), op.constant([float(i) for i in range(bins)])), _column(op, inside))
    return op.ReduceSum(op.cast(own, T.INT64), [0], keepdims=0)


def _column(op: Builder, x: ir.Value) -> ir.Value:
    return op.Unsqueeze(x, [1])


@lower("unique_consecutive")
def unique_consecutive(
    op: Builder,
    x: Value,
    *,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Ints = (),
    dtype: ir.DataType | None = None,
) -> tuple[ir.Value, ...]:
    found = torch_sort.unique_consecutive(op, x, True, True, axis[0] if len(axis) else None)
    found[1:] = [op.Reshape(vector, [-1]) for vector in found[1:]]  # unlike torch, the places are a vector, too
    for vector in found[1:]:
        vector.shape = ir.Shape([None])
    return tuple(found)


@lower("segment_pool")
def segment_pool(op: Builder, x: Value, segment_ids: Value, *, pooltype: str = "SUM") -> ir.Value:
    """Rows of one number together; numbers grow, and those that are missing give zeros."""
    ids = op.cast(segment_ids, T.INT64)
    count = op.Add(op.ReduceMax(ids, [0]), 1)
    shape = op.vector([count, *op.sizes(x)[1:]])
    zeros = op.Expand(op.constant(0, x.dtype), shape)
    place = op.Unsqueeze(ids, [1])
    if pooltype in ("SUM", "MEAN"):
        total = op.ScatterND(zeros, place, x, reduction="add")
        if pooltype == "SUM":
            return total
        ones = op.Expand(op.constant(1, x.dtype), op.Shape(x))
        return op.Div(total, op.Max(op.ScatterND(zeros, place, ones, reduction="add"), 1.0))
    low = pooltype == "MAX"
    limit = op.Expand(op.constant(-math.inf if low else math.inf, x.dtype), shape)
    best = op.ScatterND(limit, place, x, reduction="max" if low else "min")
    return op.Where(op.IsInf(best), zeros, best)


@lower("renorm")
def renorm(op: Builder, x: Value, *, p: float, axis: int, max_norm: float) -> ir.Value:
    return torch_reduce.renorm(op, x, p, axis, max_norm)


# Index


@lower("fill_diagonal_tensor")
def fill_diagonal_tensor(
    op: Builder, x: Value, y: Value, *, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> ir.Value:
    return torch_scatter.diagonal_scatter(op, x, y, offset, dim1, dim2)


# Layers with their bias


@lower("depthwise_conv2d_bias", "conv2d_bias", "conv3d_bias", "depthwise_conv3d_bias")
def conv_bias(
    op: Builder,
    input: Value,
    filter: Value,
    bias: Value | None = None,
    *,
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0),
    padding_algorithm: str = EXPLICIT,
    dilations: Ints = (1, 1),
    groups: int = 1,
    data_format: str = "NCHW",
) -> ir.Value:
    return conv(
        op,
        input,
        filter,
        bias,
        strides=strides,
        paddings=paddings,
        padding_algorithm=padding_algorithm,
        dilations=dilations,
        groups=groups,
        data_format=data_format,
    )


@lower("conv2d_transpose_bias")
def conv_transpose_bias(
    op: Builder,
    x: Value,
    filter: Value,
    bias: Value | None = None,
    output_size: Sizes = (),
    *,
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0),
    output_padding: Ints = (),
    padding_algorithm: str = EXPLICIT,
    groups: int = 1,
    dilations: Ints = (1, 1),
    data_format: str = "NCHW",
) -> ir.Value:
    return conv_transpose(
        op,
        x,
        filter,
        output_size,
        bias=bias,
        strides=strides,
        paddings=paddings,
        output_padding=output_padding,
        padding_algorithm=padding_algorithm,
        groups=groups,
        dilations=dilations,
        data_format=data_format,
    )


@lower("data_norm")
def data_norm(
    op: Builder,
    x: Value,
    batch_size: Value,
    batch_sum: Value,
    batch_square_sum: Value,
    scale_w: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-4,
    slot_dim: int = -1,
    summary_decay_rate: float = 0.9999999,
    enable_scale_and_shift: bool = False,
    data_layout: str = "NCHW",
    sync_stats: bool = False,
    do_model_average: bool = False,
) -> ir.Value:
    """(x - mean) · √(count / sum of squares)."""
    if slot_dim > 0:
        raise UnsupportedArgument("data_norm with slots, where some rows are left as they are (slot_dim)")
    y = op.Mul(op.Sub(x, op.Div(batch_sum, batch_size)), op.Sqrt(op.Div(batch_size, batch_square_sum)))
    if enable_scale_and_shift and scale_w is not None and bias is not None:
        y = op.Add(op.Mul(y, scale_w), bias)
    return y


@lower("add_position_encoding")
def add_position_encoding(op: Builder, x: Value, *, alpha: float = 1.0, beta: float = 1.0) -> ir.Value:
    """Sines in the first half of the features, cosines in the second."""
    assert x.dtype is not None
    length, width = op.sizes(x)[1:]
    if not isinstance(width, int):
        raise UnsupportedArgument("add_position_encoding of a number of features that is known only at run time")
    half = width // 2
    rate = [10000.0 ** (-i / (half - 1)) if half > 1 else 10000.0 ** -1 for i in range(half)]
    angle = op.Mul(op.Unsqueeze(op.cast(sizes.arange(op, length), x.dtype), [1]), op.constant(rate, x.dtype))
    return op.Add(op.Mul(x, alpha), op.Mul(op.Concat(op.Sin(angle), op.Cos(angle), axis=1), beta))


@lower("row_conv")
def row_conv(op: Builder, x: Value, filter: Value) -> ir.Value:
    """Each feature from the steps that follow it: (sentences, steps, features)."""
    ahead, width = op.sizes(filter)
    kernel = op.Unsqueeze(op.Transpose(filter, perm=[1, 0]), [1])
    padded = op.Transpose(x, perm=[0, 2, 1])
    assert isinstance(ahead, int) and isinstance(width, int)
    made = op.Conv(padded, kernel, group=width, kernel_shape=[ahead], pads=[0, ahead - 1])
    return op.Transpose(made, perm=[0, 2, 1])


@lower("cvm")
def cvm(op: Builder, x: Value, cvm: Value | None = None, *, use_cvm: bool = True) -> ir.Value:
    """The first two columns are shows and clicks: as logarithms, or left out."""
    rest = sizes.cut(op, x, 1, 2)
    if not use_cvm:
        return rest
    show = op.Log(op.Add(sizes.cut(op, x, 1, 0, 1), 1.0))
    click = op.Sub(op.Log(op.Add(sizes.cut(op, x, 1, 1, 2), 1.0)), show)
    return op.Concat(show, click, rest, axis=1)


@lower("frame")
def frame(op: Builder, x: Value, *, frame_length: int, hop_length: int, axis: int = -1) -> ir.Value:
    """Windows of a signal: (…, length, frames), or (frames, length, …) along the first axis."""
    at = axis_of(op, x, axis)
    count = sizes.add(op, sizes.divide(op, sizes.subtract(op, op.size(x, at), frame_length), hop_length), 1)
    start = op.Mul(sizes.arange(op, count), hop_length)
    within = op.constant(np.arange(frame_length, dtype=np.int64))
    if at == 0 and axis == 0:
        return op.Gather(x, op.Add(op.Unsqueeze(start, [1]), within), axis=0)
    return op.Gather(x, op.Add(op.Unsqueeze(within, [1]), start), axis=at)



@lower("nanmedian")
def nanmedian(
    op: Builder, x: Value, *, axis: Ints = (), keepdim: bool = True, mode: str = "avg"
) -> ir.Value:
    """The middle of what is a number, or the mean of the two in the middle."""
    x = to_float(op, x)
    axes = axes_of(op, x, axis)
    others = [i for i in range(op.rank(x)) if i not in axes]
    flat = op.Reshape(op.Transpose(x, perm=[*others, *axes]), op.vector([*(op.size(x, i) for i in others), -1]))
    missing = op.IsNaN(flat)
    count = op.ReduceSum(op.cast(op.Not(missing), T.INT64), [-1])
    values = op.Where(missing, op.constant(math.inf, x.dtype), flat)
    length = op.product([op.size(x, i) for i in axes])
    ranked, _ = op.TopK(values, op.vector([length]), axis=-1, largest=0, _outputs=2)
    low = op.GatherElements(ranked, op.Max(op.Div(op.Sub(count, 1), 2), 0), axis=-1)
    if mode == "avg":
        last = op.Sub(op.scalar(length), 1)
        high = op.GatherElements(ranked, op.Min(op.Div(count, 2), last), axis=-1)
        low = op.Mul(op.Add(low, high), 0.5)
    middle = op.Squeeze(op.Where(op.Equal(count, 0), op.constant(math.nan, x.dtype), low), [-1])
    return op.Unsqueeze(middle, sorted(axes)) if keepdim else middle
