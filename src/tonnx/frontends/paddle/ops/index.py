"""Reading and writing by index: slices, gathers, masks, scatters."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.frontends.paddle.lower.bind import holding
from tonnx.frontends.paddle.lower.rules import Ints, Sizes, Value, Values, direct, lower
from tonnx.frontends.paddle.read.graph import Op
from tonnx.ir import facts
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops import index as like_torch
from tonnx.lowering.ops import parts as torch_parts
from tonnx.lowering.ops import sort as torch_sort
from tonnx.lowering.values import axis_of

# Slices

direct("view_slice(input, *, begin_idx: int, end_idx: int)", lambda op, x, begin, end: sizes.cut(op, x, 0, begin, end))


@lower("slice")
def slice_(op: Builder, input: Value, starts: Sizes, ends: Sizes, *, axes: Ints, decrease_axis: Ints = ()) -> ir.Value:
    return _sliced(op, input, axes, starts, ends, [1] * len(axes), decrease_axis)


@lower("strided_slice")
def strided_slice(
    op: Builder, x: Value, starts: Sizes, ends: Sizes, strides: Sizes, *, axes: Ints, decrease_axis: Ints = (), node: Op
) -> ir.Value:
    if "." not in node.name:
        ends = [old_end(op, x, *what) for what in zip(axes, ends, strides, strict=True)]
    return _sliced(op, x, axes, starts, ends, strides, decrease_axis)


def old_end(op: Builder, x: ir.Value, axis: int, end: Size, step: Size) -> Size:
    """Backwards, Paddle 2 stops after the first element only at -1; what lies further below stops before it."""
    if not isinstance(step, int) or step > 0 or not isinstance(end, int) or end >= 0:
        return end
    return -sizes.END if end == -1 else sizes.larger(op, end, sizes.subtract(op, 0, op.size(x, axis)))


def _sliced(op: Builder, x: ir.Value, axes: Ints, starts: Sizes, ends: Sizes, strides: Sizes, gone: Ints) -> ir.Value:
    at = [axis_of(op, x, axis) for axis in axes]
    numbers = [number for number in (*starts, *ends, *strides) if isinstance(number, int)]
    if x in facts.PADDLE_SIZES and op.rank(x) == 1 and len(numbers) == 3:
        return _of_sizes(op, facts.PADDLE_SIZES[x][slice(*numbers)], bool(len(gone)), x.dtype)
    gone = [axis % op.rank(x) for axis in gone]
    if len(at) == 1 and gone == at:  # a single place, whatever the end is: -1 comes with an end of 0
        return op.Gather(x, op.scalar(starts[0]), axis=at[0])
    stops = [through_first(through_last(*cut), cut[2]) for cut in zip(starts, ends, strides, strict=True)]
    steps = None if all(isinstance(step, int) and step == 1 for step in strides) else op.vector(strides)
    y = op.Slice(x, op.vector(starts), op.vector(stops), at, steps)
    return op.Squeeze(y, gone) if gone else y


def through_last(start: Size, end: Size, step: Size) -> Size:
    """The last element by its number: from -1 to 0 means to the end."""
    single = isinstance(start, int) and isinstance(end, int) and isinstance(step, int)
    return sizes.END if single and (start, end, step) == (-1, 0, 1) else end


def through_first(end: Size, step: Size) -> Size:
    """Backwards, an end far below zero means "through the first element" in both."""
    return end if not isinstance(step, int) or step > 0 or not isinstance(end, int) or end > -(1 << 30) else -sizes.END


def _of_sizes(op: Builder, chosen: list[Size], single: bool, dtype: ir.DataType | None) -> ir.Value:
    """Some of the sizes of a shape: those that are known are constants, whatever the others are."""
    assert dtype is not None
    if all(isinstance(size, int) for size in chosen):
        return op.constant(chosen[0] if single else chosen, dtype)
    return holding(op.cast(op.scalar(chosen[0]) if single else op.vector(chosen), dtype), chosen)


# Gathers

direct("index_sample(x, index)", lambda op, x, index: op.GatherElements(x, like_torch.as_index(op, index), axis=1))
direct("index_select(x, index, *, axis: int = 0)", like_torch.index_select, order="x axis index")
direct("index_select_strided(x, index, *, axis: int = 0)", like_torch.index_select, order="x axis index")
direct(
    "take_along_axis(arr, indices, *, axis: int)",
    lambda op, x, index, axis: op.GatherElements(x, like_torch.as_index(op, index), axis=axis_of(op, x, axis)),
)
# The oldest forms take ids with a last axis of size 1, which is gone in the result or becomes that of the classes.
direct(
    "lookup_table_v1(x, weight, *, padding_idx: int = -1)",
    lambda op, x, weight, padding_idx: embedding(op, op.Squeeze(x, [-1]), weight, padding_idx=padding_idx),
)
direct(
    "one_hot_v1(x, num_classes: Size)",
    lambda op, x, num_classes: one_hot(op, op.Squeeze(x, [-1]), num_classes),
    unused="dtype allow_out_of_range",
)


@lower("gather")
def gather(op: Builder, x: Value, index: Value, axis: int = 0) -> ir.Value:
    rank = op.rank(index)
    at = axis_of(op, x, axis)
    if rank == 2 and index.shape is not None and index.shape[1] == 1:  # a column counts as a vector
        index = op.Squeeze(index, [1])
    if x in facts.PADDLE_SIZES and index.const_value is not None and op.rank(x) == 1:
        places = index.const_value.numpy()
        return _of_sizes(op, [facts.PADDLE_SIZES[x][int(i)] for i in places.reshape(-1)], places.ndim == 0, x.dtype)
    return op.Gather(x, like_torch.as_index(op, index), axis=at)


@lower("gather_nd")
def gather_nd(op: Builder, x: Value, index: Value) -> ir.Value:
    *rows, depth = op.sizes(index)
    if isinstance(depth, int) and depth == 0:  # an index of no axis names all of x
        return op.Expand(x, op.vector([*rows, *op.sizes(x)]))
    return op.GatherND(x, op.cast(index, T.INT64))


@lower("embedding", unused="sparse")
def embedding(op: Builder, x: Value, weight: Value, *, padding_idx: int = -1) -> ir.Value:
    index = like_torch.as_index(op, x)
    rows = op.Gather(weight, index, axis=0)
    if padding_idx == -1:
        return rows
    # The row of padding is zeros, whatever the table has there.
    return op.Where(op.Unsqueeze(op.Equal(index, padding_idx), [-1]), op.constant(0, weight.dtype), rows)


@lower("one_hot", unused="dtype allow_out_of_range")
def one_hot(op: Builder, x: Value, num_classes: Size) -> ir.Value:
    values = op.constant([0.0, 1.0], T.FLOAT)
    return op.OneHot(op.cast(x, T.INT64), op.scalar(num_classes), values, axis=-1)


@lower("multiplex")
def multiplex(op: Builder, inputs: Values, index: Value) -> ir.Value:
    """Row i is row i of the input that ``index[i]`` names."""
    table = torch_parts.stack(op, list(inputs), 1)
    index = op.reshape(op.cast(index, T.INT64), [-1, 1])
    return op.GatherND(table, index, batch_dims=1)


# Masks

direct("where(condition, x, y)", lambda op, condition, x, y: op.Where(op.cast(condition, T.BOOL), x, y))
direct("nonzero(condition)", like_torch.nonzero)
direct("masked_select(x, mask)", like_torch.masked_select)


@lower("sequence_mask")
def sequence_mask(op: Builder, x: Value, maxlen: Size = -1, *, out_dtype: ir.DataType | None = None) -> ir.Value:
    """For each length a row with that many ones."""
    lengths = op.cast(x, T.INT64)
    longest = op.scalar(maxlen)
    if isinstance(maxlen, int) and maxlen < 0:
        longest = op.ReduceMax(lengths, keepdims=0)
    places = op.Range(0, longest, 1)
    return op.cast(op.Less(places, op.Unsqueeze(lengths, [-1])), out_dtype or T.INT64)


# Diagonals, and what is sorted

direct("diagonal(x, *, offset: int = 0, axis1: int = 0, axis2: int = 1)", torch_parts.diagonal)
direct("diag_embed(input, *, offset: int = 0, dim1: int = -2, dim2: int = -1)", torch_parts.diag_embed)
direct("repeat_interleave_with_tensor_index(x, repeats, *, axis: int = 0)", like_torch.repeat_interleave_tensor)
direct("bincount(x, weights=None, minlength: Size = 0)", like_torch.bincount)
direct("searchsorted(sorted_sequence, values, *, right: bool = False)", torch_sort.searchsorted, unused="out_int32")


@lower("diag")
def diag(op: Builder, x: Value, *, offset: int = 0, padding_value: float = 0.0) -> ir.Value:
    matrix = torch_parts.diag(op, x, offset)
    if not padding_value or op.rank(x) != 1:
        return matrix
    rows, columns = op.sizes(matrix)
    mask = torch_parts.diagonal_mask(op, rows, columns, offset)
    return op.Where(mask, matrix, op.constant(padding_value, x.dtype))


@lower("unique", unused="return_index return_inverse return_counts")
def unique(
    op: Builder, x: Value, *, axis: Ints = (), is_sorted: bool = True, dtype: ir.DataType = T.INT64
) -> tuple[ir.Value, ...]:
    results = op.Unique(x, axis=axis[0] if len(axis) else None, sorted=int(is_sorted), _outputs=4)
    return _with_places(op, results[0], results[1:], dtype, is_vector=not len(axis))


def _with_places(
    op: Builder, values: ir.Value, places: Sequence[ir.Value], dtype: ir.DataType, is_vector: bool
) -> tuple[ir.Value, ...]:
    """The results, as vectors: programs call them numbers."""
    results = [values, *(op.cast(vector, dtype or T.INT64) for vector in places)]
    for vector in results[0 if is_vector else 1 :]:
        vector.shape = ir.Shape([None])
    return tuple(results)


@lower("unique_consecutive", unused="return_inverse return_counts")
def unique_consecutive(op: Builder, x: Value, *, axis: Ints = (), dtype: ir.DataType = T.INT64) -> tuple[ir.Value, ...]:
    values, *places = torch_sort.unique_consecutive(op, x, axis[0] if len(axis) else None)
    places = [op.Reshape(vector, [-1]) for vector in places]  # unlike torch, the places are a vector, too
    return _with_places(op, values, places, dtype, is_vector=False)


@lower("shard_index")
def shard_index(
    op: Builder, input: Value, *, index_num: int, nshards: int, shard_id: int, ignore_value: int = -1
) -> ir.Value:
    each = (index_num + nshards - 1) // nshards
    return op.Where(op.Equal(op.Div(input, each), shard_id), op.Mod(input, each), ignore_value)


@lower("crop")
def crop(op: Builder, x: Value, shape: Sizes, offsets: Sizes, *, node: Op) -> ir.Value:
    """-1 in the shape: up to the end."""
    ends: list[Size] = []
    for length, start in zip(shape, offsets, strict=True):
        ends.append(sizes.END if isinstance(length, int) and length == -1 else sizes.add(op, start, length))
    return op.Slice(x, op.vector(offsets), op.vector(ends), list(range(len(offsets))))
