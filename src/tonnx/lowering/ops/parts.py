"""Tensors taken apart and put together: cat, stack, split, chunk, unbind and their like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops.shape import atleast_1d, atleast_2d, atleast_3d, meshgrid, movedim
from tonnx.lowering.rules import lower
from tonnx.lowering.values import axis_of, promote

# Together

dstack = lower("aten.dstack")(lambda op, tensors: cat(op, [atleast_3d(op, tensor) for tensor in tensors], 2))


@lower("aten.cat", "aten.concat", "aten.concatenate")
def cat(op: Builder, tensors: Sequence[ir.Value], dim: int = 0) -> ir.Value:
    parts = promote(op, *tensors)
    # torch skips tensors of shape [0] among others of a higher rank.
    rank = max(op.rank(part) for part in parts)
    parts = [part for part in parts if op.rank(part) == rank] or parts
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=axis_of(op, parts[0], dim))


@lower("aten.stack")
def stack(op: Builder, tensors: Sequence[ir.Value], dim: int = 0) -> ir.Value:
    axis = dim % (op.rank(tensors[0]) + 1)
    return cat(op, [op.Unsqueeze(tensor, [axis]) for tensor in tensors], axis)


@lower("aten.hstack")
def hstack(op: Builder, tensors: Sequence[ir.Value]) -> ir.Value:
    parts = [atleast_1d(op, tensor) for tensor in tensors]
    return cat(op, parts, 0 if op.rank(parts[0]) == 1 else 1)


@lower("aten.vstack", "aten.row_stack")
def vstack(op: Builder, tensors: Sequence[ir.Value]) -> ir.Value:
    return cat(op, [atleast_2d(op, tensor) for tensor in tensors], 0)


@lower("aten.column_stack")
def column_stack(op: Builder, tensors: Sequence[ir.Value]) -> ir.Value:
    columns = [op.reshape(t, [-1, 1]) if op.rank(t) <= 1 else t for t in tensors]
    return cat(op, columns, 1)


@lower("aten.atleast_1d.Sequence", grow=atleast_1d)
@lower("aten.atleast_2d.Sequence", grow=atleast_2d)
@lower("aten.atleast_3d.Sequence", grow=atleast_3d)
def each(op: Builder, tensors: Sequence[ir.Value], *, grow: Callable[..., ir.Value]) -> list[ir.Value]:
    return [grow(op, tensor) for tensor in tensors]


@lower("aten.cartesian_prod")
def cartesian_prod(op: Builder, tensors: Sequence[ir.Value]) -> ir.Value:
    if len(tensors) == 1:
        return tensors[0]
    return stack(op, [op.reshape(grid, [-1]) for grid in meshgrid(op, tensors)], 1)


@lower("aten.block_diag")
def block_diag(op: Builder, tensors: Sequence[ir.Value]) -> ir.Value:
    blocks = [atleast_2d(op, block) for block in promote(op, *tensors)]
    widths = [op.size(block, 1) for block in blocks]
    rows = []
    for i, block in enumerate(blocks):
        before: Size = 0
        after: Size = 0
        for width in widths[:i]:
            before = sizes.add(op, before, width)
        for width in widths[i + 1 :]:
            after = sizes.add(op, after, width)
        rows.append(op.Pad(block, op.vector([0, before, 0, after])))
    return cat(op, rows, 0)


@lower("aten.kron")
def kron(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
    from tonnx.lowering.ops.math import mul

    rank = max(op.rank(x), op.rank(other))
    a = [*[1] * (rank - op.rank(x)), *op.sizes(x)]
    b = [*[1] * (rank - op.rank(other)), *op.sizes(other)]
    # Each axis of the one beside the same axis of the other, multiplied, and both merged.
    left = op.reshape(x, [size for pair in zip(a, [1] * rank, strict=True) for size in pair])
    right = op.reshape(other, [size for pair in zip([1] * rank, b, strict=True) for size in pair])
    return op.reshape(mul(op, left, right), [op.product(pair) for pair in zip(a, b, strict=True)])


# Apart


def _split(op: Builder, x: ir.Value, lengths: Sequence[Size], axis: int) -> list[ir.Value]:
    if len(lengths) == 1:
        return [x]
    return list(op.Split(x, op.vector(lengths), axis=axis, _outputs=len(lengths)))


def _count(parts: int | None) -> int:
    """How many parts the capture saw: the size of a dynamic axis does not say."""
    if parts is None:
        raise UnsupportedArgument("the number of parts that a dynamic axis is split into is not known")
    return parts


@lower("aten.split.Tensor", "aten.unsafe_split.Tensor", "aten.split_copy.Tensor")
def split(op: Builder, x: ir.Value, split_size: Size, dim: int = 0, parts: int | None = None) -> list[ir.Value]:
    axis = axis_of(op, x, dim)
    size = op.size(x, axis)
    if isinstance(size, int) and isinstance(split_size, int):
        if size == 0 or split_size >= size:
            return [x]
        full, rest = divmod(size, split_size)
        return _split(op, x, [split_size] * full + [rest] * (rest > 0), axis)
    count = _count(parts)
    last = sizes.subtract(op, size, op.product([split_size, count - 1]))
    return _split(op, x, [split_size] * (count - 1) + [last], axis)


@lower("aten.split_with_sizes", "aten.unsafe_split_with_sizes", "aten.split_with_sizes_copy")
@lower("aten.split.sizes", renamed="split_size=split_sizes")
def split_with_sizes(op: Builder, x: ir.Value, split_sizes: Sequence[Size], dim: int = 0) -> list[ir.Value]:
    return _split(op, x, split_sizes, axis_of(op, x, dim))


@lower("aten.chunk", "aten.unsafe_chunk")
def chunk(op: Builder, x: ir.Value, chunks: int, dim: int = 0, parts: int | None = None) -> list[ir.Value]:
    axis = axis_of(op, x, dim)
    size = op.size(x, axis)
    if isinstance(size, int):
        if size == 0:
            return _split(op, x, [0] * chunks, axis)
        return split(op, x, -(-size // chunks), axis)
    count = _count(parts)
    # Split by number makes all parts ⌈size/number⌉ long and the last one shorter: what torch does.
    if count == chunks:
        return list(op.Split(x, axis=axis, num_outputs=chunks, _outputs=chunks))
    return split(op, x, sizes.divide(op, sizes.add(op, size, chunks - 1), chunks), axis, parts)


@lower("aten.tensor_split.sections")
def tensor_split(op: Builder, x: ir.Value, sections: int, dim: int = 0) -> list[ir.Value]:
    axis = axis_of(op, x, dim)
    size = op.size(x, axis)
    # The first (size mod sections) parts are one longer than the others.
    lengths = [sizes.divide(op, sizes.add(op, size, sections - 1 - i), sections) for i in range(sections)]
    return _split(op, x, lengths, axis)


@lower("aten.tensor_split.indices")
def tensor_split_at(op: Builder, x: ir.Value, indices: Sequence[Size], dim: int = 0) -> list[ir.Value]:
    axis = axis_of(op, x, dim)
    return [sizes.cut(op, x, axis, start, end) for start, end in pairwise([0, *indices, sizes.END])]


@lower("aten.tensor_split.tensor_indices_or_sections", renamed="tensor_indices_or_sections=where")
def tensor_split_by(op: Builder, x: ir.Value, where: ir.Value, dim: int = 0) -> list[ir.Value]:
    """A vector says where to split, which the run may decide; a number says into how many parts, which it may not."""
    count = op.size(where, 0) if op.rank(where) else where.const_value
    if count is None or isinstance(count, ir.Value):
        raise UnsupportedArgument("tensor_split into a number of parts that only the run knows")
    if not isinstance(count, int):
        return tensor_split(op, x, int(count.numpy()), dim)
    places = op.cast(where, T.INT64)
    return tensor_split_at(op, x, [op.Slice(places, [i], [i + 1], [0]) for i in range(count)], dim)


@lower("aten.hsplit.int", dim=1)
@lower("aten.vsplit.int", dim=0)
@lower("aten.dsplit.int", dim=2)
def split_along(op: Builder, x: ir.Value, sections: int, *, dim: int) -> list[ir.Value]:
    return tensor_split(op, x, sections, min(dim, op.rank(x) - 1))


@lower("aten.hsplit.array", dim=1)
@lower("aten.vsplit.array", dim=0)
@lower("aten.dsplit.array", dim=2)
def split_along_at(op: Builder, x: ir.Value, indices: Sequence[int], *, dim: int) -> list[ir.Value]:
    return tensor_split_at(op, x, indices, min(dim, op.rank(x) - 1))


@lower("aten.unbind", "aten.unbind_copy.int")
def unbind(op: Builder, x: ir.Value, dim: int = 0, parts: int | None = None) -> list[ir.Value]:
    axis = axis_of(op, x, dim)
    size = op.size(x, axis)
    return [op.Gather(x, i, axis=axis) for i in range(size if isinstance(size, int) else _count(parts))]


# Diagonals

diagflat = lower("aten.diagflat")(lambda op, x, offset=0: diag_embed(op, op.reshape(x, [-1]), offset))


def diagonal_length(op: Builder, rows: Size, columns: Size, offset: int) -> Size:
    """How many elements the diagonal of a matrix has."""
    rows = sizes.add(op, rows, min(offset, 0)) if offset < 0 else rows
    columns = sizes.add(op, columns, -offset) if offset > 0 else columns
    return sizes.larger(op, sizes.smaller(op, rows, columns), 0)


def diagonal_mask(op: Builder, rows: Size, columns: Size, offset: int) -> ir.Value:
    """A bool matrix that is true on one diagonal."""
    row = op.Unsqueeze(sizes.arange(op, sizes.add(op, rows, offset), offset), [1])
    return op.Equal(row, sizes.arange(op, columns))


@lower("aten.diagonal", "aten.diagonal_copy")
def diagonal(op: Builder, x: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> ir.Value:
    x = movedim(op, x, [dim1, dim2], [-2, -1])
    *batch, rows, columns = op.sizes(x)
    # In the flattened matrix the elements of a diagonal lie one row and one column apart.
    length = diagonal_length(op, rows, columns, offset)
    step = sizes.add(op, columns, 1)
    first = offset if offset >= 0 else sizes.multiply(op, columns, -offset)
    position = op.Add(op.Mul(sizes.arange(op, length), op.vector([step])), op.vector([first]))
    flat = op.reshape(x, [*batch, op.product([rows, columns])])
    return op.Gather(flat, position, axis=len(batch))


@lower("aten.linalg_diagonal")
def linalg_diagonal(op: Builder, x: ir.Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> ir.Value:
    return diagonal(op, x, offset, dim1, dim2)


@lower("aten.diag_embed")
def diag_embed(op: Builder, x: ir.Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> ir.Value:
    rank = op.rank(x)
    size = sizes.add(op, op.size(x, -1), abs(offset))
    rows = on_rows(op, x, size, offset)
    mask = diagonal_mask(op, size, size, offset)
    zero = op.constant(0, x.dtype)
    return movedim(op, op.Where(mask, rows, zero), [rank - 1, rank], [dim1, dim2])


def on_rows(op: Builder, x: ir.Value, rows: Size, offset: int) -> ir.Value:
    """The last axis of ``x``, a diagonal, as a column of ``rows`` rows with each element in its row."""
    before = max(-offset, 0)
    after = sizes.subtract(op, sizes.subtract(op, rows, before), op.size(x, -1))
    if before or not isinstance(after, int) or after:
        none = [0] * (op.rank(x) - 1)
        x = op.Pad(x, op.vector([*none, before, *none, after]))
    return op.Unsqueeze(x, [-1])


@lower("aten.diag")
def diag(op: Builder, x: ir.Value, diagonal: int = 0) -> ir.Value:
    return diag_embed(op, x, diagonal) if op.rank(x) == 1 else _diagonal(op, x, diagonal)


_diagonal = diagonal  # the argument of diag has the same name
