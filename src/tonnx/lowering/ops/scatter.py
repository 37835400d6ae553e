"""Writing by index, the functional way: scatters, index_put, writes of slices and diagonals."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size, T
from tonnx.ir.fold import LIMIT
from tonnx.lowering import sizes
from tonnx.lowering.ops.index import Advanced, as_index, flat_mask, nearest_places, single_mask, without_scalar_masks
from tonnx.lowering.ops.parts import diagonal_mask, on_rows
from tonnx.lowering.ops.reduce import vector_norm
from tonnx.lowering.ops.shape import broadcast_sizes, expand, movedim, transposed
from tonnx.lowering.rules import lower
from tonnx.lowering.sizes import END
from tonnx.lowering.values import Operand, as_value, axis_of, is_float

# Masks


@lower("aten.masked_fill")
def masked_fill(op: Builder, x: ir.Value, mask: ir.Value, value: Operand) -> ir.Value:
    return op.Where(op.cast(mask, T.BOOL), as_value(op, value, x.dtype), x)


@lower("aten.masked_scatter")
def masked_scatter(op: Builder, x: ir.Value, mask: ir.Value, source: ir.Value) -> ir.Value:
    both = broadcast_sizes(op, x, mask)
    x = expand(op, x, both)
    # The n-th marked element takes the n-th of the source; the source may be longer.
    places = op.NonZero(flat_mask(op, expand(op, mask, both)))
    count = op.Shape(places, start=1, end=2)
    taken = sizes.cut(op, op.reshape(source, [-1]), 0, 0, count)
    flat = op.ScatterND(op.reshape(x, [-1]), op.Transpose(places, perm=[1, 0]), taken)
    return op.reshape(flat, both)


# Elements


def _elements(op: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduction: str = "none") -> ir.Value:
    """ScatterElements, with torch's scalars, and with sources larger than the index."""
    index = as_index(op, index)
    if op.rank(x) == 0 or op.rank(index) == 0:
        flat = [op.reshape(v, [-1]) for v in (x, index, src)]
        return op.reshape(_elements(op, flat[0], 0, flat[1], flat[2], reduction), op.sizes(x))
    for axis in range(op.rank(index)):
        length, available = op.size(index, axis), op.size(src, axis)
        if length is not available and length != available:
            src = sizes.cut(op, src, axis, 0, length)
    return _reducing(op, "ScatterElements", x, index, src, reduction, axis=axis_of(op, x, dim))


def _reducing(
    op: Builder, op_type: str, x: ir.Value, index: ir.Value, src: ir.Value, reduction: str, **attributes: int
) -> ir.Value:
    """ScatterElements or ScatterND; ONNX Runtime reduces neither half floats nor bools there."""
    assert x.dtype is not None
    if reduction == "none":
        return getattr(op, op_type)(x, index, op.cast(src, x.dtype), **attributes)
    wider = {T.FLOAT16: T.FLOAT, T.BFLOAT16: T.FLOAT, T.BOOL: T.INT32}.get(x.dtype, x.dtype)
    operands = (op.cast(x, wider), index, op.cast(src, wider))
    return op.cast(getattr(op, op_type)(*operands, reduction=reduction, **attributes), x.dtype)


@lower("aten.scatter.src", "aten.scatter.reduce")
@lower("aten.scatter_add", reduce="add")
def scatter(op: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduce: str | None = None) -> ir.Value:
    return _elements(op, x, dim, index, src, _OLD_REDUCTIONS[reduce])


@lower("aten.scatter.value", "aten.scatter.value_reduce")
def scatter_value(
    op: Builder, x: ir.Value, dim: int, index: ir.Value, value: Operand, reduce: str | None = None
) -> ir.Value:
    src = expand(op, as_value(op, value, x.dtype), op.sizes(index))
    return _elements(op, x, dim, index, src, _OLD_REDUCTIONS[reduce])


_OLD_REDUCTIONS = {None: "none", "add": "add", "multiply": "mul"}
_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@lower("aten.scatter_reduce.two")
def scatter_reduce(
    op: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduce: str, include_self: bool = True
) -> ir.Value:
    if reduce == "mean":
        return _scatter_mean(op, x, dim, index, src, include_self)
    if not include_self:  # what is written to starts from the neutral element
        x = scatter_value(op, x, dim, index, _neutral(op, reduce, x))
    return _elements(op, x, dim, index, src, _REDUCTIONS[reduce])


def _scatter_mean(op: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, include_self: bool) -> ir.Value:
    dtype = T.FLOAT if x.dtype in (T.FLOAT16, T.BFLOAT16) else x.dtype
    start = x if include_self else scatter_value(op, x, dim, index, 0)
    total = _elements(op, op.cast(start, dtype), dim, index, op.cast(src, dtype), "add")
    one = op.constant(1, dtype)
    base = expand(op, one if include_self else op.constant(0, dtype), op.sizes(x))
    count = op.Max(_elements(op, base, dim, index, expand(op, one, op.sizes(index)), "add"), one)
    if is_float(dtype):
        return op.cast(op.Div(total, count), x.dtype)
    # Integers round down: ONNX rounds towards zero.
    remainder = op.Mod(total, count)
    return op.Div(op.Sub(total, remainder), count)


def _neutral(op: Builder, reduce: str, x: ir.Value) -> ir.Value:
    assert x.dtype is not None
    if reduce in ("sum", "prod"):
        return op.constant(0 if reduce == "sum" else 1, x.dtype)
    lowest = reduce == "amax"
    if is_float(x.dtype):
        return op.constant(-np.inf if lowest else np.inf, x.dtype)
    if x.dtype == T.BOOL:
        return op.constant(not lowest, T.BOOL)
    info = ml_dtypes.iinfo(x.dtype.numpy())
    return op.constant(np.asarray(info.min if lowest else info.max, dtype=x.dtype.numpy()))


# Whole rows along one axis

index_copy = lower("aten.index_copy")(lambda op, x, dim, index, source: _rows(op, x, dim, index, source))


def _rows(op: Builder, x: ir.Value, dim: int, index: ir.Value, source: ir.Value, reduction: str = "none") -> ir.Value:
    """Write row i of ``source`` to row index[i] of ``x``."""
    if op.rank(x) == 0:
        return _elements(op, x, 0, index, source, reduction)
    axis = axis_of(op, x, dim)
    index = op.reshape(as_index(op, index), [-1]) if op.rank(index) == 0 else as_index(op, index)
    if op.rank(source) < op.rank(x):
        source = op.reshape(source, [1])
    if axis == 0:
        return _reducing(op, "ScatterND", x, op.Unsqueeze(index, [-1]), source, reduction)
    return _elements(op, x, axis, _along(op, index, axis, source), source, reduction)


def _along(op: Builder, index: ir.Value, axis: int, like: ir.Value) -> ir.Value:
    """A vector of positions on ``axis``, as often as ``like`` has other elements."""
    own = op.sizes(like)
    column = op.reshape(index, [-1, *[1] * (len(own) - axis - 1)])
    return expand(op, column, own)


@lower("aten.index_add")
def index_add(op: Builder, x: ir.Value, dim: int, index: ir.Value, source: ir.Value, alpha: Operand = 1) -> ir.Value:
    from tonnx.lowering.ops.math import mul

    if isinstance(alpha, ir.Value) or alpha != 1:
        source = op.cast(mul(op, source, alpha), x.dtype)
    return _rows(op, x, dim, index, source, "add")


@lower("aten.index_fill")
def index_fill(op: Builder, x: ir.Value, dim: int, index: ir.Value, value: Operand) -> ir.Value:
    if op.rank(x) == 0:
        return scatter_value(op, x, 0, index, value)
    axis = axis_of(op, x, dim)
    own = op.sizes(x)
    count: Size = op.size(index, 0) if op.rank(index) else 1
    rows = expand(op, as_value(op, value, x.dtype), [*own[:axis], count, *own[axis + 1 :]])
    return _rows(op, x, axis, index, rows)


@lower("aten.index_reduce")
def index_reduce(
    op: Builder, x: ir.Value, dim: int, index: ir.Value, source: ir.Value, reduce: str, include_self: bool = True
) -> ir.Value:
    axis = axis_of(op, x, dim)
    index = as_index(op, op.reshape(index, [-1]))
    spread = _along(op, index, axis, source) if op.rank(x) else index
    return scatter_reduce(op, x, axis, spread, source, reduce, include_self)


@lower("aten.embedding_renorm")
def embedding_renorm(op: Builder, x: ir.Value, indices: ir.Value, max_norm: float, norm_type: float) -> ir.Value:
    # The rows that are looked up, and only they, are scaled down to the largest norm allowed.
    index = op.reshape(as_index(op, indices), [-1])
    rows = op.Gather(x, index, axis=0)
    norm = vector_norm(op, rows, norm_type, 1, keepdim=True)
    scale = op.Div(op.constant(max_norm, x.dtype), op.Add(norm, 1e-7))
    scaled = op.Where(op.Greater(norm, max_norm), op.Mul(rows, scale), rows)
    return op.ScatterND(x, op.Unsqueeze(index, [-1]), scaled)


# Advanced indexing


@lower("aten.index_put", "aten._unsafe_index_put", "aten._index_put_impl_", unused="unsafe")
def index_put(
    op: Builder, x: ir.Value, indices: Sequence[ir.Value | None], values: ir.Value, accumulate: bool = False
) -> ir.Value:
    own = op.sizes(x)
    x, indices = without_scalar_masks(op, x, indices)
    if all(i is None for i in indices):
        raise UnsupportedArgument("index_put without an index")
    if not accumulate and (masked := single_mask(indices)) is not None:
        axis, mask = masked
        if (chosen := _masked_put(op, x, mask, axis, values)) is not None:
            return op.reshape(chosen, own)
    place = Advanced(op, x, indices)
    tuples = place.tuples(op)
    count = op.rank(tuples) - 1
    picked = [*[op.size(tuples, i) for i in range(count)], *[op.size(x, axis) for axis in place.rest]]
    # The values are shaped like x[indices]; ScatterND wants the axes of the indices first.
    like = [*picked[count : count + place.at], *picked[:count], *picked[count + place.at :]]
    updates = movedim(op, expand(op, values, like), list(range(place.at, place.at + count)), list(range(count)))
    target = transposed(op, x, place.order)
    written = _reducing(op, "ScatterND", target, tuples, updates, "add" if accumulate else "none")
    back = [place.order.index(i) for i in range(len(place.order))]
    return op.reshape(transposed(op, written, back), own)


def _masked_put(op: Builder, x: ir.Value, mask: ir.Value, axis: int, values: ir.Value) -> ir.Value | None:
    """``x[:, mask] = values`` where all marked places get the same: a choice instead of a scatter."""
    behind = op.rank(x) - axis - op.rank(mask)
    if op.rank(values) > behind:
        # The axis of x[:, mask] that counts the marked places becomes the axes of the mask.
        at = op.rank(values) - behind - 1
        assert values.shape is not None
        if values.shape[at] != 1:
            return None
        own = op.sizes(values)
        values = op.reshape(values, [*own[:at], *[1] * op.rank(mask), *own[at + 1 :]])
    mask = op.cast(mask, T.BOOL)
    shaped = op.Unsqueeze(mask, list(range(op.rank(mask), op.rank(mask) + behind))) if behind else mask
    return op.Where(shaped, values, x)


@lower("aten._unsafe_masked_index_put_accumulate")
def unsafe_masked_index_put_accumulate(
    op: Builder, x: ir.Value, mask: ir.Value, indices: Sequence[ir.Value | None], values: ir.Value
) -> ir.Value:
    kept = op.Where(mask, values, op.constant(0, x.dtype))
    return index_put(op, x, nearest_places(op, x, indices, from_end=True), kept, accumulate=True)


@lower("aten.put")
def put(op: Builder, x: ir.Value, index: ir.Value, source: ir.Value, accumulate: bool = False) -> ir.Value:
    flat = _rows(
        op, op.reshape(x, [-1]), 0, op.reshape(index, [-1]), op.reshape(source, [-1]), "add" if accumulate else "none"
    )
    return op.reshape(flat, op.sizes(x))


# Slices, rows and diagonals


@lower("aten.slice_scatter")
def slice_scatter(
    op: Builder,
    x: ir.Value,
    src: ir.Value,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> ir.Value:
    axis = axis_of(op, x, dim)
    size = op.size(x, axis)
    first: Size = 0 if start is None else start
    stop: Size = END if end is None else end
    src = op.cast(src, x.dtype)
    if isinstance(size, int) and isinstance(first, int) and isinstance(stop, int) and isinstance(step, int):
        first, stop, _ = slice(first, stop, step).indices(size)
        if step == 1 and (first, stop) == (0, size):
            return expand(op, src, op.sizes(x))
        if first >= stop:
            return x
        if (value := _uniform(op, src)) is not None:
            # One choice by a constant mask, instead of cutting x into parts.
            mask = np.zeros((size, *[1] * (op.rank(x) - axis - 1)), dtype=bool)
            mask[first:stop:step] = True
            return op.Where(op.constant(mask), value, x)
    if step == 1 and not _may_cross(first, stop):
        parts = [] if isinstance(first, int) and first == 0 else [sizes.cut(op, x, axis, 0, first)]
        parts.append(_as_slice(op, src, x, axis))
        if not isinstance(stop, int) or stop != (size if isinstance(size, int) else END):
            if len(parts) > 1 and (isinstance(first, ir.Value) or isinstance(stop, ir.Value)):
                # Of x[1:n // 2] the end lies before the start where n is 1: what is left of x begins at the start.
                stop = sizes.add(op, *(op.size(part, axis) for part in parts))
            parts.append(sizes.cut(op, x, axis, stop))
        return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=axis)
    # All rows of x, then all of src, and for each row of the result the one of these that it is.
    src = _as_slice(op, src, x, axis)
    rows = sizes.arange(op, size)
    written = sizes.cut(op, rows, 0, first, stop, step)
    replaced = sizes.arange(op, sizes.add(op, size, op.size(src, axis)), size)
    order = op.ScatterElements(rows, written, replaced, axis=0)
    return op.Gather(op.Concat(x, src, axis=axis), order, axis=axis)


_NO_WHERE = (T.BOOL, T.INT16, T.UINT16, T.BFLOAT16)  # where ONNX Runtime would need casts around it


def _uniform(op: Builder, x: ir.Value) -> ir.Value | None:
    """The one number that all elements of ``x`` are, if that is plain from how it was made."""
    producer = x.producer()
    while producer is not None and producer.op_type in ("Unsqueeze", "Reshape"):
        x = producer.inputs[0]  # type: ignore[assignment]
        producer = x.producer()
    if x.dtype in _NO_WHERE:
        return None
    if producer is not None and producer.op_type == "Expand":
        x = producer.inputs[0]  # type: ignore[assignment]
        return x if op.rank(x) == 0 else None
    if producer is not None and producer.op_type == "ConstantOfShape":
        return op.constant(producer.attributes["value"].as_tensor().numpy().reshape(()))
    if x.const_value is not None and 0 < x.const_value.size <= LIMIT:
        elements = x.const_value.numpy().reshape(-1)
        return op.constant(elements[0], x.dtype) if (elements == elements[0]).all() else None
    return None


def _may_cross(start: Size, end: Size) -> bool:
    """Whether the end may lie before the start at some size, so that x[:start] and x[end:] overlap."""
    if isinstance(start, int) and isinstance(end, int):
        return start > end if (start < 0) == (end < 0) else start != 0
    return False  # bounds that only the run knows are looked at there


def _as_slice(op: Builder, src: ir.Value, x: ir.Value, axis: int) -> ir.Value:
    """``src`` broadcast to ``x`` on all axes but one."""
    own: list[Size] = op.sizes(x)
    own[axis] = -1
    return expand(op, src, own) if op.rank(src) == op.rank(x) else src


@lower("aten.select_scatter")
def select_scatter(op: Builder, x: ir.Value, src: ir.Value, dim: int, index: Size) -> ir.Value:
    axis = axis_of(op, x, dim)
    end: Size | None = sizes.add(op, index, 1)
    if isinstance(end, int) and end == 0:
        end = None
    return slice_scatter(op, x, src=op.Unsqueeze(src, [axis]), dim=axis, start=index, end=end)


@lower("aten.diagonal_scatter")
def diagonal_scatter(
    op: Builder, x: ir.Value, src: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> ir.Value:
    matrices = movedim(op, x, [dim1, dim2], [-2, -1])
    rows, columns = op.size(matrices, -2), op.size(matrices, -1)
    mask = diagonal_mask(op, rows, columns, offset)
    written = op.Where(mask, on_rows(op, op.cast(src, x.dtype), rows, offset), matrices)
    return movedim(op, written, [-2, -1], [dim1, dim2])


@lower("aten.fill_diagonal")
def fill_diagonal(op: Builder, x: ir.Value, fill_value: Operand, wrap: bool = False) -> ir.Value:
    rank = op.rank(x)
    # An element lies on the diagonal where all its positions are equal; with wrap, the diagonal of a tall matrix
    # starts again one row after it ended.
    along = [op.reshape(sizes.arange(op, op.size(x, i)), [-1, *[1] * (rank - 1 - i)]) for i in range(rank)]
    rows = op.Mod(along[0], op.vector([sizes.add(op, op.size(x, 1), 1)])) if wrap and rank == 2 else along[0]
    mask = op.Equal(rows, along[1])
    for positions in along[2:]:
        mask = op.And(mask, op.Equal(rows, positions))
    return op.Where(mask, as_value(op, fill_value, x.dtype), x)
