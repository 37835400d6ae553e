"""Reductions: sums, products, extremes, truth, norms, running sums, and sorting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.fit import axes_of
from tonnx.frontends.paddle.lower.rules import Ints, Value, direct, lower
from tonnx.ir.build import Builder, T
from tonnx.lowering.ops import parts as torch_parts
from tonnx.lowering.ops import reduce as like_torch
from tonnx.lowering.ops import sort as torch_sort
from tonnx.lowering.ops.statistics import histc
from tonnx.lowering.values import axis_of, is_float, to_float

direct("mean_all(x)", lambda op, x: op.ReduceMean(x, keepdims=0))
direct("squared_l2_norm(x)", lambda op, x: op.ReduceSumSquare(x, keepdims=0))
direct("l1_norm(x)", lambda op, x: op.ReduceL1(x, keepdims=0))
direct("dist(x, y, *, p: float = 2.0)", like_torch.dist)
direct(
    "sum(x, axis: Ints = (), *, dtype: ir.DataType = None, keepdim: bool = False, reduce_all: bool = False)",
    lambda op, x, axis, dtype, keepdim, every: like_torch.sum_(op, x, axes_of(op, x, axis, every), keepdim, dtype),
)
direct(
    "p_norm(x, *, porder: float = 2.0, axis: int = -1, keepdim: bool = False, asvector: bool = False)",
    lambda op, x, p, axis, keepdim, asvector: like_torch.vector_norm(op, x, p, None if asvector else axis, keepdim),
    unused="epsilon",
)
direct(
    "trace(x, *, offset: int = 0, axis1: int = 0, axis2: int = 1)",
    lambda op, x, *place: like_torch.sum_(op, torch_parts.diagonal(op, x, *place), -1),
)


def _mean(op: Builder, x: ir.Value, axes: list[int], keepdim: bool) -> ir.Value:
    if x.dtype in (T.INT32, T.INT64):  # Paddle stays among integers, and cuts off what is behind the point
        total = like_torch.reduce(op, "ReduceSum", op.cast(x, T.INT64), axes, keepdim)
        count = op.product([op.size(x, i) for i in (axes or range(op.rank(x)))])
        return op.cast(op.Div(total, count if isinstance(count, int) else op.Squeeze(count, [0])), x.dtype)
    x = x if is_float(x.dtype) else op.cast(x, T.FLOAT)
    return like_torch.reduce(op, "ReduceMean", x, axes, keepdim)


def _product(op: Builder, x: ir.Value, axes: list[int], keepdim: bool) -> ir.Value:
    return like_torch.reduce(op, "ReduceProd", x if is_float(x.dtype) else op.cast(x, T.INT64), axes, keepdim)


@lower("mean", reduction=_mean)
@lower("prod", reduction=_product)
@lower("max", "amax", reduction=partial(like_torch.extreme, kind="Max"))
@lower("min", "amin", reduction=partial(like_torch.extreme, kind="Min"))
@lower("all", reduction=partial(like_torch.truth, op_type="ReduceMin"))
@lower("any", reduction=partial(like_torch.truth, op_type="ReduceMax"))
@lower("logsumexp", reduction=like_torch.logsumexp)
@lower("frobenius_norm", reduction=lambda op, x, axes, keepdim: like_torch.vector_norm(op, x, 2, axes, keepdim))
def reduced(
    op: Builder,
    x: Value,
    axis: Ints = (),
    *,
    keepdim: bool = False,
    keep_dim: bool = False,
    reduce_all: bool = False,
    reduction: Callable[..., ir.Value],
) -> ir.Value:
    return reduction(op, x, axes_of(op, x, axis, reduce_all), keepdim or keep_dim)


# Where the extremes are


def _results(function: Callable[..., list[ir.Value]]) -> Callable[..., tuple[ir.Value, ...]]:
    """A rule of torch with several results: a list of them would be the parts of one here."""
    return lambda *arguments: tuple(function(*arguments))


direct("topk_v1(x, k: Size)", _results(torch_sort.topk))
direct("topk(x, k: Size, *, axis: int = -1, largest: bool = True)", _results(torch_sort.topk), unused="sorted")
direct("argsort(x, *, axis: int = -1, descending: bool = False)", _results(torch_sort.sort), unused="stable")
direct("kthvalue(x, *, k: int = 1, axis: int = -1, keepdim: bool = False)", _results(torch_sort.kthvalue))
direct("mode(x, *, axis: int = -1, keepdim: bool = False)", _results(torch_sort.mode))


@lower("argmax", kind="Max")
@lower("argmin", kind="Min")
def place_of_extreme(
    op: Builder,
    x: Value,
    axis: int = -1,
    *,
    keepdims: bool = False,
    flatten: bool = False,
    dtype: ir.DataType | None = None,
    kind: str,
) -> ir.Value:
    place = like_torch.place_of_extreme(op, x, None if flatten else axis, keepdims, kind=kind)
    return op.cast(place, dtype or T.INT64)


@lower("median")
def median(
    op: Builder, x: Value, *, axis: Ints = (), keepdim: bool = False, mode: str = "avg"
) -> tuple[ir.Value, ir.Value | None]:
    """The mean of the two in the middle, or the lower one."""
    axes = axes_of(op, x, axis)
    if len(axes) > 1:
        value = _middle(op, _as_last_axis(op, x, axes), op.rank(x) - len(axes), mode)[0]
        return op.Unsqueeze(value, axes) if keepdim else value, None
    value, place = _middle(op, x, axes[0], mode)
    return (op.Unsqueeze(value, axes), place) if keepdim else (value, place)


def _as_last_axis(op: Builder, x: ir.Value, axes: list[int]) -> ir.Value:
    """Axes taken together behind all others; of a size that is known if theirs are."""
    others = [i for i in range(op.rank(x)) if i not in axes]
    count = op.product([op.size(x, i) for i in axes])
    return op.reshape(op.Transpose(x, perm=[*others, *axes]), [*(op.size(x, i) for i in others), count])


def _middle(op: Builder, x: ir.Value, axis: int, mode: str) -> tuple[ir.Value, ir.Value]:
    low, place = torch_sort.median_of_axis(op, x, axis)
    if mode == "min":
        return low, place
    high, _ = torch_sort.median_of_axis(op, op.Neg(x), axis)
    return op.Mul(op.Sub(low, high), 0.5), place


# Statistics

direct(
    "nansum(x, axis: Ints = (), *, dtype: ir.DataType = None, keepdim: bool = False)",
    lambda op, x, axis, dtype, keepdim: like_torch.nansum(op, x, axes_of(op, x, axis), keepdim, dtype),
)
direct("renorm(x, *, p: float, axis: int, max_norm: float)", like_torch.renorm)


@lower("reduce_as")
def reduce_as(op: Builder, x: Value, target: Value) -> ir.Value:
    """Summed to the shape that would broadcast to that of ``x``."""
    more = op.rank(x) - op.rank(target)
    axes = list(range(more))
    for axis in range(op.rank(target)):
        own, target_size = op.size(x, axis + more), op.size(target, axis)
        if isinstance(target_size, int) and target_size == 1 and own != 1:
            axes.append(axis + more)
    if not axes:
        return x
    summed = op.ReduceSum(x, axes)
    return op.Squeeze(summed, list(range(more))) if more else summed


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
    variance, _ = like_torch.variance_and_mean(op, x, axes_of(op, x, axis), amount, keepdim)
    return op.Sqrt(variance) if root else variance


@lower("max_with_index", kind="Max")
@lower("min_with_index", kind="Min")
def extreme_with_index(
    op: Builder, x: Value, *, dim: int = -1, keepdim: bool = False, flatten: bool = False, kind: str
) -> tuple[ir.Value, ...]:
    x, dim = (op.reshape(x, [-1]), 0) if flatten else (x, dim)
    return tuple(like_torch.extreme_and_place(op, x, dim, keepdim, kind=kind))


@lower("histogram")
def histogram(
    op: Builder,
    input: Value,
    weight: Value | None = None,
    *,
    bins: int = 100,
    min: float = 0.0,
    max: float = 0.0,
) -> ir.Value:
    if weight is not None:
        raise UnsupportedArgument("histogram with weights")
    if min == max == 0:
        raise UnsupportedArgument("histogram whose bounds come from the data", hint="give min and max")
    return op.cast(histc(op, input, bins, min, max), T.INT64)


@lower("nanmedian")
def nanmedian(op: Builder, x: Value, *, axis: Ints = (), keepdim: bool = True, mode: str = "avg") -> ir.Value:
    """The middle of what is a number, or the mean of the two in the middle."""
    x = to_float(op, x)
    axes = axes_of(op, x, axis)
    which = "midpoint" if mode == "avg" else "lower"
    middle = torch_sort.quantile(op, _as_last_axis(op, x, axes), 0.5, -1, interpolation=which, of_numbers=True)
    return op.Unsqueeze(middle, sorted(axes)) if keepdim else middle


# Running


def _flat(op: Builder, x: ir.Value, flatten: bool) -> ir.Value:
    return op.reshape(x, [-1]) if flatten else x


@lower("cumsum")
def cumsum(
    op: Builder, x: Value, axis: int = -1, *, flatten: bool = False, exclusive: bool = False, reverse: bool = False
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
def logcumsumexp(op: Builder, x: Value, *, axis: int = -1, flatten: bool = False) -> ir.Value:
    return like_torch.logcumsumexp(op, _flat(op, x, flatten), 0 if flatten else axis)


@lower("cummax", better="GreaterOrEqual")
@lower("cummin", better="LessOrEqual")
def running_extreme(
    op: Builder, x: Value, *, axis: int = -1, dtype: ir.DataType | None = None, better: str
) -> tuple[ir.Value, ir.Value]:
    values, places = like_torch.running_extreme(op, x, axis, better=better)
    return values, op.cast(places, dtype or T.INT64)
