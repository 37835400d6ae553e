"""Reductions: sums, products, extremes, truth, norms, running sums, and sorting."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.fit import axes_of
from tonnx.frontends.paddle.lower.rules import Ints, Value, lower
from tonnx.ir.build import Builder, Size
from tonnx.lowering.ops import cumulate as torch_cumulate
from tonnx.lowering.ops import reduce as like_torch
from tonnx.lowering.ops import sort as torch_sort
from tonnx.lowering.values import axis_of, is_float

T = ir.DataType


@lower("sum")
def sum_(
    op: Builder,
    x: Value,
    axis: Ints = (),
    *,
    dtype: ir.DataType | None = None,
    keepdim: bool = False,
    reduce_all: bool = False,
) -> ir.Value:
    return like_torch.sum_(op, x, axes_of(op, x, axis, reduce_all), keepdim, dtype)


@lower("mean")
def mean(op: Builder, x: Value, axis: Ints = (), *, keepdim: bool = False, reduce_all: bool = False) -> ir.Value:
    axes = axes_of(op, x, axis, reduce_all)
    if x.dtype in (T.INT32, T.INT64):  # Paddle stays among integers, and cuts off what is behind the point
        total = like_torch.reduce(op, "ReduceSum", op.cast(x, T.INT64), axes, keepdim)
        count = op.product([op.size(x, i) for i in (axes or range(op.rank(x)))])
        return op.cast(op.Div(total, count if isinstance(count, int) else op.Squeeze(count, [0])), x.dtype)
    x = x if is_float(x.dtype) else op.cast(x, T.FLOAT)
    return like_torch.reduce(op, "ReduceMean", x, axes, keepdim)


@lower("mean_all")
def mean_all(op: Builder, x: Value) -> ir.Value:
    return op.ReduceMean(x, keepdims=0)


@lower("max", "amax")
def max_(op: Builder, x: Value, axis: Ints = (), *, keepdim: bool = False, reduce_all: bool = False) -> ir.Value:
    return like_torch.amax(op, x, axes_of(op, x, axis, reduce_all), keepdim)


@lower("min", "amin")
def min_(op: Builder, x: Value, axis: Ints = (), *, keepdim: bool = False, reduce_all: bool = False) -> ir.Value:
    return like_torch.amin(op, x, axes_of(op, x, axis, reduce_all), keepdim)


@lower("prod")
def prod(op: Builder, x: Value, axis: Ints = (), *, keepdim: bool = False, reduce_all: bool = False) -> ir.Value:
    x = x if is_float(x.dtype) else op.cast(x, T.INT64)
    return like_torch.reduce(op, "ReduceProd", x, axes_of(op, x, axis, reduce_all), keepdim)


@lower("all")
def all_(op: Builder, x: Value, axis: Ints = (), *, keepdim: bool = False, reduce_all: bool = False) -> ir.Value:
    return like_torch.all_(op, x, axes_of(op, x, axis, reduce_all), keepdim)


@lower("any")
def any_(op: Builder, x: Value, axis: Ints = (), *, keepdim: bool = False, reduce_all: bool = False) -> ir.Value:
    return like_torch.any_(op, x, axes_of(op, x, axis, reduce_all), keepdim)


@lower("logsumexp")
def logsumexp(op: Builder, x: Value, axis: Ints = (), *, keepdim: bool = False, reduce_all: bool = False) -> ir.Value:
    return like_torch.logsumexp(op, x, axes_of(op, x, axis, reduce_all), keepdim)


@lower("p_norm")
def p_norm(
    op: Builder,
    x: Value,
    *,
    porder: float = 2.0,
    axis: int = -1,
    epsilon: float = 1e-12,
    keepdim: bool = False,
    asvector: bool = False,
) -> ir.Value:
    return like_torch.vector_norm(op, x, porder, None if asvector else axis, keepdim)


@lower("frobenius_norm")
def frobenius_norm(
    op: Builder,
    x: Value,
    axis: Ints = (),
    *,
    keepdim: bool = False,
    keep_dim: bool = False,
    reduce_all: bool = False,
) -> ir.Value:
    return like_torch.vector_norm(op, x, 2, axes_of(op, x, axis, reduce_all), keepdim or keep_dim)


@lower("squared_l2_norm")
def squared_l2_norm(op: Builder, x: Value) -> ir.Value:
    return op.ReduceSumSquare(x, keepdims=0)


@lower("l1_norm")
def l1_norm(op: Builder, x: Value) -> ir.Value:
    return op.ReduceL1(x, keepdims=0)


@lower("dist")
def dist(op: Builder, x: Value, y: Value, *, p: float = 2.0) -> ir.Value:
    return like_torch.dist(op, x, y, p)


@lower("trace")
def trace(op: Builder, x: Value, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> ir.Value:
    from tonnx.lowering.ops.parts import diagonal

    return like_torch.sum_(op, diagonal(op, x, offset, axis1, axis2), -1)


# Where the extremes are


@lower("argmax", extreme=like_torch.argmax)
@lower("argmin", extreme=like_torch.argmin)
def place_of_extreme(
    op: Builder,
    x: Value,
    axis: int = -1,
    *,
    keepdims: bool = False,
    flatten: bool = False,
    dtype: ir.DataType | None = None,
    extreme: Callable[..., ir.Value],
) -> ir.Value:
    return op.cast(extreme(op, x, None if flatten else axis, keepdims), dtype or T.INT64)


@lower("topk")
def topk(
    op: Builder, x: Value, k: Size, *, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[ir.Value, ir.Value]:
    at = axis_of(op, x, axis)
    if op.rank(x) == 0:
        return x, op.constant(0, T.INT64)
    values, places = op.TopK(x, op.vector([k]), axis=at, largest=int(largest), sorted=1, _outputs=2)
    return values, places


@lower("topk_v1")
def topk_v1(op: Builder, x: Value, k: Size) -> tuple[ir.Value, ir.Value]:
    return topk(op, x, k)


@lower("argsort")
def argsort(
    op: Builder, x: Value, *, axis: int = -1, descending: bool = False, stable: bool = False
) -> tuple[ir.Value, ir.Value]:
    values, places = torch_sort.sort(op, x, axis, descending)
    return values, places


@lower("kthvalue")
def kthvalue(op: Builder, x: Value, *, k: int = 1, axis: int = -1, keepdim: bool = False) -> tuple[ir.Value, ir.Value]:
    values, places = torch_sort.kthvalue(op, x, k, axis, keepdim)
    return values, places


@lower("mode")
def mode(op: Builder, x: Value, *, axis: int = -1, keepdim: bool = False) -> tuple[ir.Value, ir.Value]:
    values, places = torch_sort.mode(op, x, axis, keepdim)
    return values, places


@lower("median")
def median(
    op: Builder, x: Value, *, axis: Ints = (), keepdim: bool = False, mode: str = "avg"
) -> tuple[ir.Value, ir.Value | None]:
    """The mean of the two in the middle, or the lower one."""
    axes = axes_of(op, x, axis)
    if len(axes) > 1:
        others = [i for i in range(op.rank(x)) if i not in axes]
        flat = op.Reshape(op.Transpose(x, perm=[*others, *axes]), op.vector([*(op.size(x, i) for i in others), -1]))
        value = _middle(op, flat, len(others), mode)[0]
        return op.Unsqueeze(value, axes) if keepdim else value, None
    value, place = _middle(op, x, axes[0], mode)
    return (op.Unsqueeze(value, axes), place) if keepdim else (value, place)


def _middle(op: Builder, x: ir.Value, axis: int, mode: str) -> tuple[ir.Value, ir.Value]:
    low, place = torch_sort.median_of_axis(op, x, axis)
    if mode == "min":
        return low, place
    high, _ = torch_sort.median_of_axis(op, op.Neg(x), axis)
    return op.Mul(op.Sub(low, high), 0.5), place


# Running


def _flat(op: Builder, x: ir.Value, flatten: bool) -> ir.Value:
    return op.reshape(x, [-1]) if flatten else x


@lower("cumsum")
def cumsum(
    op: Builder,
    x: Value,
    axis: int = -1,
    *,
    flatten: bool = False,
    exclusive: bool = False,
    reverse: bool = False,
) -> ir.Value:
    x = _flat(op, x, flatten)
    if op.rank(x) == 0:
        return x
    at = 0 if flatten else axis_of(op, x, axis)
    return op.CumSum(x, op.constant(at, T.INT64), exclusive=int(exclusive), reverse=int(reverse))


@lower("cumprod")
def cumprod(op: Builder, x: Value, *, dim: int, exclusive: bool = False, reverse: bool = False) -> ir.Value:
    if op.rank(x) == 0:
        return x
    at = op.constant(axis_of(op, x, dim), T.INT64)
    return op.CumProd(x, at, exclusive=int(exclusive), reverse=int(reverse))


@lower("logcumsumexp")
def logcumsumexp(
    op: Builder, x: Value, *, axis: int = -1, flatten: bool = False, exclusive: bool = False, reverse: bool = False
) -> ir.Value:
    if exclusive or reverse:
        raise UnsupportedArgument("logcumsumexp that is exclusive or reversed is not supported")
    return torch_cumulate.logcumsumexp(op, _flat(op, x, flatten), 0 if flatten else axis)


@lower("cummax")
def cummax(op: Builder, x: Value, *, axis: int = -1, dtype: ir.DataType | None = None) -> tuple[ir.Value, ir.Value]:
    values, places = torch_cumulate.cummax(op, x, axis)
    return values, op.cast(places, dtype or T.INT64)


@lower("cummin")
def cummin(op: Builder, x: Value, *, axis: int = -1, dtype: ir.DataType | None = None) -> tuple[ir.Value, ir.Value]:
    values, places = torch_cumulate.cummin(op, x, axis)
    return values, op.cast(places, dtype or T.INT64)


