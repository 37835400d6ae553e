"""Interpolation along one axis, written out: gather the neighbours of every output position and weigh them.

For versions of Resize and Upsample that lack a coordinate mode. With fixed sizes the builder folds positions and
weights to constants, so that what is left is one Gather for each neighbour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, Size, T
from tonnx.legalise.node_view import Blocked
from tonnx.legalise.versioned_ops import arange


@dataclass(frozen=True)
class Style:
    """How Resize-11 looks up its input; the defaults are those of Resize-10."""

    mode: str = "nearest"
    coordinates: str = "asymmetric"
    nearest: str = "floor"
    cubic: float = -0.75
    exclude_outside: bool = False


def resize_axis(
    op: Builder, x: ir.Value, axis: int, out: Size, scale: ir.Value | float | None, style: Style
) -> ir.Value:
    """``x`` with ``out`` elements along ``axis``. ``scale`` is out / in unless it was given as such."""
    size = op.size(x, axis)
    if isinstance(size, int) and isinstance(out, int) and size == out and scale in (None, 1.0):
        return x
    length, new_length = _as_float(op, size), _as_float(op, out)
    factor = new_length / length if scale is None else _as_float(op, scale)
    at = _coordinates(op, arange(op, out), length, new_length, factor, style.coordinates)
    last = length - 1.0
    if style.mode == "nearest":
        return op.Gather(x, _index(op, _rounded(op, at, style.nearest), last), axis=axis)
    dtype = x.dtype or T.FLOAT
    if dtype not in (T.FLOAT, T.DOUBLE):
        wide = op.cast(x, T.FLOAT)
        return op.cast(_weighted(op, wide, axis, at, last, style), dtype)
    return _weighted(op, x, axis, at, last, style)


def _as_float(op: Builder, value: Size | float) -> ir.Value:
    if isinstance(value, ir.Value):
        return op.cast(value, T.FLOAT)
    return op.constant([value], T.FLOAT)


def _coordinates(op: Builder, steps: ir.Value, length: ir.Value, out: ir.Value, scale: ir.Value, kind: str) -> ir.Value:
    """The place in the input that every output element looks at."""
    i = op.cast(steps, T.FLOAT)
    if kind == "half_pixel":
        return (i + 0.5) / scale - 0.5
    if kind == "half_pixel_symmetric":  # the image stays centred when its exact size is not whole
        return (i + 0.5) / scale - 0.5 + length * 0.5 * (1.0 - out / (length * scale))
    if kind == "pytorch_half_pixel":
        return ((i + 0.5) / scale - 0.5) * op.cast(op.Less(op.constant([1.0]), out), T.FLOAT)
    if kind == "asymmetric":
        return i / scale
    if kind == "align_corners":
        return i * (length - 1.0) / op.Max(out - 1.0, op.constant([1.0]))
    raise Blocked(f"the coordinates {kind} have no older form")


def _rounded(op: Builder, at: ir.Value, how: str) -> ir.Value:
    if how == "floor":
        return op.Floor(at)
    if how == "ceil":
        return op.Ceil(at)
    return op.Ceil(at - 0.5) if how == "round_prefer_floor" else op.Floor(at + 0.5)


def _within(op: Builder, at: ir.Value, last: ir.Value) -> ir.Value:
    return op.Max(op.Min(at, last), op.constant([0.0]))


def _index(op: Builder, at: ir.Value, last: ir.Value) -> ir.Value:
    return op.Cast(_within(op, at, last), to=int(T.INT64))


def _weighted(op: Builder, x: ir.Value, axis: int, at: ir.Value, last: ir.Value, style: Style) -> ir.Value:
    if style.mode == "linear":
        at = _within(op, at, last)
        low = op.Floor(at)
        share = at - low
        places, weights = [low, low + 1.0], [1.0 - share, share]
    else:
        low = op.Floor(at)
        places, weights = [low + float(k) for k in range(-1, 3)], cubic_weights(at - low, style.cubic)
        if style.exclude_outside:
            weights = [w * _is_inside(op, place, last) for w, place in zip(weights, places, strict=True)]
            total = weights[0] + weights[1] + weights[2] + weights[3]
            weights = [w / total for w in weights]
    along = [-1] + [1] * (op.rank(x) - 1 - axis)
    columns = [op.cast(op.Reshape(weight, along), x.dtype or T.FLOAT) for weight in weights]
    neighbours = [op.Gather(x, _index(op, place, last), axis=axis) for place in places]
    return reduce(op.Add, map(op.Mul, neighbours, columns))


def _is_inside(op: Builder, place: ir.Value, last: ir.Value) -> ir.Value:
    outside = op.Or(op.Less(place, op.constant([0.0])), op.Less(last, place))
    return op.cast(op.Not(outside), T.FLOAT)


def cubic_weights(t: ir.Value, a: float) -> list[ir.Value]:
    """Keys' cubic convolution: the weights of the four neighbours at distance 1+t, t, 1−t, 2−t."""

    def near(d: ir.Value) -> ir.Value:
        return ((d * (a + 2)) - (a + 3)) * d * d + 1.0

    def far(d: ir.Value) -> ir.Value:
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


# Antialiasing: many neighbours, so a matrix.


def antialias_axis(
    op: Builder, x: ir.Value, axis: int, out: Size, scale: ir.Value | float | None, style: Style
) -> ir.Value:
    """Downscale one axis with a filter as wide as the step; of a fixed size, with weights that are known now."""
    size = op.size(x, axis)
    if isinstance(size, int) and isinstance(out, int) and not isinstance(scale, ir.Value):
        matrix = _filter_matrix(size, out, scale if scale is not None else out / size, style)
        weights = op.constant(matrix.T.astype(np.float32))
    else:
        x, weights = _filter_at_run_time(op, x, axis, out, scale, style)
    rank = op.rank(x)
    order = [*range(rank)]
    order[axis], order[-1] = order[-1], order[axis]
    dtype = x.dtype or T.FLOAT
    moved = op.cast(x if axis == rank - 1 else op.Transpose(x, perm=order), T.FLOAT)
    result = op.cast(op.MatMul(moved, weights), dtype)
    return result if axis == rank - 1 else op.Transpose(result, perm=order)


def _filter_at_run_time(
    op: Builder, x: ir.Value, axis: int, out: Size, scale: ir.Value | float | None, style: Style
) -> tuple[ir.Value, ir.Value]:
    """The weights of every input position for every output, as nodes; and the input with as much of its border
    repeated as the filter reaches beyond it."""
    size = op.size(x, axis)
    length, new_length = _as_float(op, size), _as_float(op, out)
    factor = new_length / length if scale is None else _as_float(op, scale)
    at = _coordinates(op, arange(op, out), length, new_length, factor, style.coordinates)
    stretch = op.Max(op.constant([1.0]), op.Reciprocal(factor))
    if style.exclude_outside:
        places = op.cast(arange(op, size), T.FLOAT)
    else:
        beyond = op.Floor(stretch * (1.0 if style.mode == "linear" else 2.0)) + 1.0
        places = op.cast(arange(op, op.cast(length + beyond * 2.0, T.INT64)), T.FLOAT) - beyond
        x = op.Gather(x, _index(op, places, length - 1.0), axis=axis)
    distance = op.Abs(op.Reshape(places, [-1, 1]) - op.Reshape(at, [1, -1])) / stretch
    weights = _kernel_nodes(op, distance, style)
    return x, weights / op.ReduceSum(weights, [0], keepdims=1)


def _kernel_nodes(op: Builder, d: ir.Value, style: Style) -> ir.Value:
    if style.mode == "linear":
        return op.Max(1.0 - d, op.constant([0.0]))
    a, one, two = style.cubic, op.constant([1.0]), op.constant([2.0])
    near, far = op.Min(d, one), op.Max(op.Min(d, two), one)  # each piece is 0 outside of its own range
    inner = ((near * (a + 2)) - (a + 3)) * near * near + 1.0
    return inner + ((far * a - 5 * a) * far + 8 * a) * far - 4 * a


def _filter_matrix(size: int, out: int, scale: float, style: Style) -> np.ndarray:
    stretch = max(1.0, 1.0 / scale)
    support = (1.0 if style.mode == "linear" else 2.0) * stretch
    matrix = np.zeros((out, size))
    for i in range(out):
        at = _coordinate(i, size, out, scale, style.coordinates)
        for j in range(math.floor(at - support), math.ceil(at + support) + 1):
            weight = _kernel(abs(j - at) / stretch, style)
            if weight and (0 <= j < size or not style.exclude_outside):
                matrix[i, min(max(j, 0), size - 1)] += weight
        matrix[i] /= matrix[i].sum()
    return matrix


def _coordinate(i: int, size: int, out: int, scale: float, kind: str) -> float:
    if kind in ("half_pixel", "half_pixel_symmetric"):
        return (i + 0.5) / scale - 0.5
    if kind == "pytorch_half_pixel":
        return (i + 0.5) / scale - 0.5 if out > 1 else 0.0
    if kind == "asymmetric":
        return i / scale
    if kind == "align_corners":
        return i * (size - 1) / (out - 1) if out > 1 else 0.0
    raise Blocked(f"antialiasing with the coordinates {kind} has no older form")


def _kernel(distance: float, style: Style) -> float:
    d, a = distance, style.cubic
    if style.mode == "linear":
        return max(0.0, 1.0 - d)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0
