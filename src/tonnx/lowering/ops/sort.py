"""Orders: sorting, the k largest, medians, distinct values, search in sorted sequences, histograms."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from tonnx.ir.build import Builder, Size, T
from tonnx.lowering.ops.create import full
from tonnx.lowering.ops.reduce import reduce
from tonnx.lowering.regions.emit import repeat
from tonnx.lowering.rules import lower
from tonnx.lowering.values import Operand, as_value, axis_of, is_float, promote

argsort = lower("aten.argsort")(lambda op, x, dim=-1, descending=False, stable=False: sort(op, x, dim, descending)[1])
msort = lower("aten.msort")(lambda op, x: sort(op, x, 0)[0])
median = lower("aten.median.default")(lambda op, x: median_of_axis(op, op.Reshape(x, [-1]), 0)[0])
nanmedian = lower("aten.nanmedian.default")(lambda op, x: nanmedian_of_axis(op, op.Reshape(x, [-1]), 0)[0])


def _ordered(op: Builder, x: ir.Value, k: Size, axis: int, *, largest: bool, in_order: bool = True) -> list[ir.Value]:
    """The first k and where they were. Among equals the one met first comes first: that is what stable means."""
    values, places = op.TopK(x, op.vector([k]), axis=axis, largest=int(largest), sorted=int(in_order), _outputs=2)
    return [values, places]


def _only(op: Builder, x: ir.Value) -> list[ir.Value]:
    """A scalar is in order already."""
    return [x, op.constant(0, T.INT64)]


@lower("aten.topk")
def topk(op: Builder, x: ir.Value, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[ir.Value]:
    if op.rank(x) == 0:
        return _only(op, x)
    return _ordered(op, x, k, axis_of(op, x, dim), largest=largest, in_order=sorted)


@lower("aten.sort", unused="stable")
def sort(op: Builder, x: ir.Value, dim: int = -1, descending: bool = False) -> list[ir.Value]:
    if op.rank(x) == 0:
        return _only(op, x)
    axis = axis_of(op, x, dim)
    return _ordered(op, x, op.size(x, axis), axis, largest=descending)


@lower("aten.kthvalue")
def kthvalue(op: Builder, x: ir.Value, k: Size, dim: int = -1, keepdim: bool = False) -> list[ir.Value]:
    if op.rank(x) == 0:
        return _only(op, x)
    axis = axis_of(op, x, dim)
    return _last(op, _ordered(op, x, k, axis, largest=False), axis, keepdim)


def _last(op: Builder, pair: list[ir.Value], axis: int, keepdim: bool) -> list[ir.Value]:
    index = op.constant([-1] if keepdim else -1, T.INT64)
    return [op.Gather(part, index, axis=axis) for part in pair]


@lower("aten.median.dim")
def median_of_axis(op: Builder, x: ir.Value, dim: int, keepdim: bool = False) -> list[ir.Value]:
    """The lower of the two in the middle, which is torch's median."""
    if op.rank(x) == 0:
        return _only(op, x)
    axis = axis_of(op, x, dim)
    size = op.size(x, axis)
    half = op.Div(op.Add(size, 1), 2) if isinstance(size, ir.Value) else (size + 1) // 2
    return _last(op, _ordered(op, x, half, axis, largest=False), axis, keepdim)


@lower("aten.nanmedian.dim")
def nanmedian_of_axis(op: Builder, x: ir.Value, dim: int, keepdim: bool = False) -> list[ir.Value]:
    if op.rank(x) == 0:
        return _only(op, x)
    if not is_float(x.dtype):
        return median_of_axis(op, x, dim, keepdim)
    axis = axis_of(op, x, dim)
    ordered, count = _numbers_first(op, x, axis)
    middle = op.Div(op.Sub(op.Max(count, 1), 1), 2)
    value, place = (op.GatherElements(part, middle, axis=axis) for part in ordered)
    value = op.Where(op.Equal(count, 0), math.nan, value)
    return [value, place] if keepdim else [op.Squeeze(value, [axis]), op.Squeeze(place, [axis])]


def _numbers_first(op: Builder, x: ir.Value, axis: int) -> tuple[list[ir.Value], ir.Value]:
    """Sorted with every NaN behind the numbers, and how many numbers there are along the axis (kept with size 1)."""
    unknown = op.IsNaN(x)
    ordered = _ordered(op, op.Where(unknown, math.inf, x), op.size(x, axis), axis, largest=False)
    return ordered, op.ReduceSum(op.cast(op.Not(unknown), T.INT64), [axis], keepdims=1)


@lower("aten.mode")
def mode(op: Builder, x: ir.Value, dim: int = -1, keepdim: bool = False) -> list[ir.Value]:
    """The smallest of the most frequent values, and where it stands last: by comparing all with all."""
    if op.rank(x) == 0:
        return _only(op, x)
    axis = axis_of(op, x, dim)
    equal = op.Equal(op.Unsqueeze(x, [axis]), op.Unsqueeze(x, [axis + 1]))
    frequency = op.ReduceSum(op.cast(equal, T.INT32), [axis], keepdims=0)
    frequent = op.Equal(frequency, op.ReduceMax(frequency, [axis], keepdims=1))
    largest = op.ReduceMax(op.cast(x, T.INT32) if x.dtype == T.BOOL else x, [axis], keepdims=1)
    candidates = op.Where(frequent, x, op.cast(largest, x.dtype))
    value = op.ReduceMin(candidates, [axis], keepdims=1)
    place = op.ArgMax(op.cast(op.Equal(x, value), T.INT32), axis=axis, keepdims=int(keepdim), select_last_index=1)
    return [value if keepdim else op.Squeeze(value, [axis]), place]


# Quantiles


@lower("aten.quantile", of_numbers=False)
@lower("aten.nanquantile", of_numbers=True)
def quantile(
    op: Builder,
    x: ir.Value,
    q: Operand,
    dim: int | None = None,
    keepdim: bool = False,
    interpolation: str = "linear",
    *,
    of_numbers: bool,
) -> ir.Value:
    """``of_numbers``: NaN are left out."""
    last, axes = _sorted_axis_last(op, x, dim)
    many = int(isinstance(q, ir.Value) and op.rank(q) > 0)
    dtype = x.dtype
    assert dtype is not None
    if not of_numbers:
        size = op.size(last, -1)
        (ordered, _) = _ordered(op, last, size, op.rank(last) - 1, largest=False)
        rank = op.Mul(as_value(op, q, dtype), op.Sub(op.cast(op.scalar(size), dtype), 1))
        result = _interpolated(op, rank, lambda place: op.Gather(ordered, place, axis=-1), interpolation)
        return _quantiles_first(op, result, many, axes, keepdim)
    (ordered, _), count = _numbers_first(op, last, op.rank(last) - 1)
    rank = op.Mul(as_value(op, q, dtype), op.cast(op.Sub(op.Max(count, 1), 1), dtype))
    result = _interpolated(op, rank, lambda place: op.GatherElements(ordered, place, axis=-1), interpolation)
    result = op.Where(op.Equal(count, 0), math.nan, result)
    return _quantiles_first(op, result if many else op.Squeeze(result, [-1]), many, axes, keepdim)


def _sorted_axis_last(op: Builder, x: ir.Value, dim: int | None) -> tuple[ir.Value, list[int]]:
    """The axis to take quantiles of as the last one, and which axes of the input that is."""
    rank = op.rank(x)
    if dim is None or rank == 0:
        return op.Reshape(x, [-1]), list(range(rank))
    axis = axis_of(op, x, dim)
    if axis == rank - 1:
        return x, [axis]
    return op.Transpose(x, perm=[*(i for i in range(rank) if i != axis), axis]), [axis]


def _quantiles_first(op: Builder, result: ir.Value, many: int, axes: list[int], keepdim: bool) -> ir.Value:
    if many and op.rank(result) > 1:
        result = op.Transpose(result, perm=[op.rank(result) - 1, *range(op.rank(result) - 1)])
    return op.Unsqueeze(result, [axis + many for axis in axes]) if keepdim and axes else result


def _interpolated(op: Builder, rank: ir.Value, pick: Callable[[ir.Value], ir.Value], interpolation: str) -> ir.Value:
    """The value at a place that may lie between two."""

    def at(place: ir.Value) -> ir.Value:
        return pick(op.cast(place, T.INT64))

    if interpolation in _ROUNDINGS:
        return at(getattr(op, _ROUNDINGS[interpolation])(rank))
    below = op.Floor(rank)
    low, high = at(below), at(op.Ceil(rank))
    weight = op.constant(0.5, rank.dtype) if interpolation == "midpoint" else op.Sub(rank, below)
    return op.Add(low, op.Mul(op.Sub(high, low), weight))


_ROUNDINGS = {"lower": "Floor", "higher": "Ceil", "nearest": "Round"}


# Distinct values


@lower("aten._unique2", "aten._unique", unused="sorted return_inverse return_counts")
def unique(op: Builder, x: ir.Value) -> list[ir.Value]:
    values, _, inverse, counts = op.Unique(x, sorted=1, _outputs=4)
    return [values, op.reshape(inverse, op.sizes(x)), counts]


@lower("aten.unique_dim", unused="sorted return_inverse return_counts")
def unique_along_axis(op: Builder, x: ir.Value, dim: int) -> list[ir.Value]:
    values, _, inverse, counts = op.Unique(x, axis=axis_of(op, x, dim), sorted=1, _outputs=4)
    return [values, inverse, counts]


@lower("aten.unique_consecutive", unused="return_inverse return_counts")
def unique_consecutive(op: Builder, x: ir.Value, dim: int | None = None) -> list[ir.Value]:
    if dim is None:
        values, inverse, counts = _runs(op, op.Reshape(x, [-1]), 0)
        return [values, op.reshape(inverse, op.sizes(x)), counts]
    return _runs(op, x, axis_of(op, x, dim))


def _runs(op: Builder, x: ir.Value, axis: int) -> list[ir.Value]:
    """The first of every run of equal items along an axis, the run that each item is in, the lengths of the runs."""
    changed = op.Not(op.Equal(op.Slice(x, [1], [_END], [axis]), op.Slice(x, [0], [-1], [axis])))
    if op.rank(x) > 1:
        others = [i for i in range(op.rank(x)) if i != axis]
        changed = op.cast(op.ReduceMax(op.cast(changed, T.INT32), others, keepdims=0), T.BOOL)
    first = op.Slice(full(op, [op.size(x, axis)], True, T.BOOL), [0], [1], [0])  # none if there is nothing
    starts = op.Concat(first, changed, axis=0)
    inverse = op.Sub(op.CumSum(op.cast(starts, T.INT64), op.constant(0, T.INT64)), 1)
    places = op.Reshape(op.NonZero(starts), [-1])
    ends = op.Concat(op.Slice(places, [1], [_END], [0]), op.vector([op.size(x, axis)]), axis=0)
    return [op.Compress(x, starts, axis=axis), inverse, op.Sub(ends, places)]


_END = 2**62

# Search


@lower("aten.searchsorted", unused="out_int32")
def searchsorted(
    op: Builder,
    sorted_sequence: ir.Value,
    self: Operand,
    right: bool = False,
    side: str | None = None,
    sorter: ir.Value | None = None,
) -> ir.Value:
    is_given = sorted_sequence.is_graph_input() or (sorter is not None and sorter.is_graph_input())
    if sorter is not None:
        sorted_sequence = op.GatherElements(sorted_sequence, sorter, axis=-1)
    return _rank_in(op, sorted_sequence, self, right=right or side == "right", is_given=is_given)


@lower("aten.bucketize", unused="out_int32")
def bucketize(op: Builder, x: Operand, boundaries: ir.Value, right: bool = False) -> ir.Value:
    return _rank_in(op, boundaries, x, right=right, is_given=boundaries.is_graph_input())


def _rank_in(op: Builder, sequence: ir.Value, value: Operand, *, right: bool, is_given: bool) -> ir.Value:
    """How many items of a sorted sequence lie before a value: its place, found by comparing with all of them."""
    sequence, each = promote(op, sequence, value)
    if is_given:
        return _by_halves(op, sequence, each, right=right)
    if op.rank(sequence) > 1:
        sequence = op.Unsqueeze(sequence, [-2])
    before = _is_before(op, sequence, op.Unsqueeze(each, [-1]), right=right)
    return reduce(op, "ReduceSum", op.cast(before, T.INT64), -1)


def _is_before(op: Builder, item: ir.Value, value: ir.Value, *, right: bool) -> ir.Value:
    """Everything lies before NaN."""
    return op.Not(op.Greater(item, value) if right else op.GreaterOrEqual(item, value))


def _by_halves(op: Builder, sequence: ir.Value, each: ir.Value, *, right: bool) -> ir.Value:
    """PyTorch's own search: what a caller gives may not be sorted, and then it depends on which items are met."""
    count = op.size(sequence, -1)
    powers = op.constant([1 << k for k in range(62)], T.INT64)
    trips = (
        count.bit_length()
        if isinstance(count, int)
        else op.ReduceSum(op.cast(op.GreaterOrEqual(count, powers), T.INT64), [0])
    )
    start = full(op, op.sizes(each), 0, T.INT64)
    end = start + op.scalar(count)

    def step(op: Builder, states: list[ir.Value], _: ir.Value) -> list[ir.Value]:
        start, end = states
        middle = (start + end) / 2
        place = op.Min(middle, op.scalar(count) - 1)
        item = op.GatherElements(sequence, place, axis=-1) if op.rank(sequence) > 1 else op.Gather(sequence, place)
        goes_on = op.Less(start, end)
        is_before = _is_before(op, item, each, right=right)
        return [
            op.Where(op.And(goes_on, is_before), middle + 1, start),
            op.Where(op.And(goes_on, op.Not(is_before)), middle, end),
        ]

    return repeat(op, trips, [start, end], step)[0]
