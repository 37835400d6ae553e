"""Covariances and histograms."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops.create import linspace
from tonnx.lowering.ops.math import mul
from tonnx.lowering.ops.parts import diagonal
from tonnx.lowering.rules import lower
from tonnx.lowering.values import Number, as_value, opmath, result_type

# Covariances


@lower("aten.cov")
def cov(
    op: Builder,
    x: ir.Value,
    correction: int = 1,
    fweights: ir.Value | None = None,
    aweights: ir.Value | None = None,
) -> ir.Value:
    """Of the rows, which may be one; of columns that count as often as the product of their weights."""
    rows = op.reshape(x, [1, -1]) if op.rank(x) < 2 else x
    rows = opmath(op, op.cast(rows, result_type(*(v for v in (rows, aweights) if v is not None))))
    factors = [op.cast(v, rows.dtype) for v in (fweights, aweights) if v is not None]
    weight = None if not factors else factors[0] if len(factors) == 1 else factors[0] * factors[1]
    counted = rows if weight is None else rows * weight
    total = op.cast(op.scalar(op.size(rows, 1)), rows.dtype) if weight is None else op.ReduceSum(weight, keepdims=0)
    centred = rows - op.ReduceSum(counted, [1]) / total
    free = total - float(correction)
    if aweights is not None and weight is not None and correction:
        free = total - op.ReduceSum(weight * factors[-1], keepdims=0) * float(correction) / total
    turned = op.Transpose(centred if weight is None else centred * weight, perm=[1, 0])
    result = op.MatMul(centred, turned) / op.Max(free, 0.0)
    return op.reshape(result, []) if op.size(rows, 0) == 1 else result


@lower("aten.corrcoef")
def corrcoef(op: Builder, x: ir.Value) -> ir.Value:
    covariance = cov(op, x)
    if op.rank(covariance) == 0:
        return covariance / covariance
    deviation = op.Sqrt(diagonal(op, covariance))
    return op.Clip(covariance / op.Unsqueeze(deviation, [1]) / deviation, -1.0, 1.0)


# Histograms


@lower("aten.histc")
def histc(op: Builder, x: ir.Value, bins: int = 100, min: Number = 0, max: Number = 0) -> ir.Value:
    x = opmath(op, op.Reshape(x, [-1]))
    if min == max == 0:
        low, high = op.ReduceMin(x, keepdims=0), op.ReduceMax(x, keepdims=0)
        same = op.Equal(low, high)
        low, high = op.Where(same, op.Sub(low, 1), low), op.Where(same, op.Add(high, 1), high)
    else:
        low, high = as_value(op, min, x.dtype), as_value(op, max, x.dtype)
    place = op.Floor(op.Div(op.Mul(op.Sub(x, low), bins), op.Sub(high, low)))
    place = op.Where(op.Equal(x, high), bins - 1, place)  # the last bin has its upper edge too
    inside = op.And(op.GreaterOrEqual(x, low), op.LessOrEqual(x, high))
    place = op.Where(inside, place, -1)
    edges = op.cast(op.Range(op.constant(0, T.INT64), bins, 1), x.dtype)
    hits = op.Equal(op.Unsqueeze(place, [0]), op.Unsqueeze(edges, [1]))
    return op.ReduceSum(op.cast(hits, x.dtype), [1], keepdims=0)


@lower("aten.histogram")
def histogram(
    op: Builder,
    x: ir.Value,
    bins: int | ir.Value = 100,
    range: Sequence[float] | None = None,
    weight: ir.Value | None = None,
    density: bool = False,
) -> list[ir.Value]:
    column = op.Unsqueeze(x, [-1])
    hist, edges = histogramdd(op, column, [bins], range, weight, density)
    return [hist, edges[0]]


@lower("aten.histogramdd")
def histogramdd(
    op: Builder,
    x: ir.Value,
    bins: int | Sequence[int | ir.Value],
    range: Sequence[float] | None = None,
    weight: ir.Value | None = None,
    density: bool = False,
) -> tuple[ir.Value, list[ir.Value]]:
    """How many points lie between the edges of each axis: a point is a row of coordinates."""
    (dims,) = sizes.known("histogramdd of points with a number of coordinates", op.size(x, -1))
    points = op.reshape(x, [op.product(op.sizes(x)[:-1]), dims])
    wanted = [bins] * dims if isinstance(bins, int) else list(bins)
    edges, counts = [], op.constant(1.0, x.dtype) if weight is None else op.reshape(weight, [op.size(points, 0), 1])
    place = op.Expand(op.constant(True, T.BOOL), op.vector([op.size(points, 0), 1]))
    cells: Size = 1
    for axis, each in enumerate(wanted):
        own = op.Gather(points, axis, axis=1)
        limits = None if not range else range[2 * axis : 2 * axis + 2]
        edges.append(each if isinstance(each, ir.Value) else _edges(op, own, each, limits))
        hits = _inside(op, own, edges[-1])  # (points, bins)
        cells = sizes.multiply(op, cells, op.size(hits, 1))
        place = op.reshape(op.And(op.Unsqueeze(place, [2]), op.Unsqueeze(hits, [1])), [op.size(points, 0), cells])
    hist = op.ReduceSum(mul(op, op.cast(place, x.dtype), counts), [0], keepdims=0)
    hist = op.reshape(hist, [sizes.subtract(op, op.size(edge, 0), 1) for edge in edges])
    return (_density(op, hist, edges) if density else hist), edges


def _edges(op: Builder, x: ir.Value, count: int, limits: Sequence[float] | None) -> ir.Value:
    """Of bins of one width, from the smallest to the largest."""
    if limits is None and op.size(x, 0) == 0:
        limits = (0.0, 1.0)
    if limits is not None:
        low, high = (op.constant(limit, x.dtype) for limit in limits)
    else:
        low, high = op.ReduceMin(x, keepdims=0), op.ReduceMax(x, keepdims=0)
    same = op.cast(op.Equal(low, high), x.dtype) * 0.5
    return linspace(op, low - same, high + same, count + 1, x.dtype)


def _inside(op: Builder, x: ir.Value, edges: ir.Value) -> ir.Value:
    """Whether a number is in a bin: from its edge up to the next, which belongs to the last bin only."""
    number, low, high = op.Unsqueeze(x, [1]), sizes.cut(op, edges, 0, 0, -1), sizes.cut(op, edges, 0, 1)
    last = sizes.cut(op, edges, 0, -1)
    ends = op.And(op.Equal(number, last), op.Equal(high, last))
    return op.Or(op.And(op.LessOrEqual(low, number), op.Less(number, high)), ends)


def _density(op: Builder, hist: ir.Value, edges: Sequence[ir.Value]) -> ir.Value:
    result = hist / op.ReduceSum(hist, keepdims=0)
    for axis, edge in enumerate(edges):
        width = sizes.cut(op, edge, 0, 1) - sizes.cut(op, edge, 0, 0, -1)
        result = result / op.Reshape(width, [-1, *[1] * (len(edges) - 1 - axis)])
    return result
