"""Reading by index: slices, gathers, advanced indexing, masks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise

import onnx_ir as ir

from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops.shape import broadcast_sizes, expand, merge, movedim, transposed
from tonnx.lowering.rules import lower
from tonnx.lowering.sizes import END
from tonnx.lowering.values import axis_of


def as_index(op: Builder, index: ir.Value) -> ir.Value:
    """ONNX takes int32 and int64 indices only."""
    return index if index.dtype in (T.INT32, T.INT64) else op.cast(index, T.INT64)


# Slices


@lower("aten.select.int", "aten.select_copy.int")
def select(op: Builder, x: ir.Value, dim: int, index: Size) -> ir.Value:
    return op.Gather(x, op.scalar(index), axis=axis_of(op, x, dim))


@lower("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(
    op: Builder, x: ir.Value, dim: int = 0, start: Size | None = None, end: Size | None = None, step: Size = 1
) -> ir.Value:
    return sizes.cut(op, x, axis_of(op, x, dim), 0 if start is None else start, END if end is None else end, step)


@lower("aten.narrow", "aten.narrow_copy")
def narrow(op: Builder, x: ir.Value, dim: int, start: Size, length: Size) -> ir.Value:
    axis = axis_of(op, x, dim)
    if isinstance(start, ir.Value):
        start = op.cast(op.reshape(start, [1]), T.INT64)  # a tensor of rank 0
        start = op.Where(op.Less(start, 0), sizes.add(op, start, op.size(x, axis)), start)
    elif start < 0:
        start = sizes.add(op, op.size(x, axis), start)
    return sizes.cut(op, x, axis, start, sizes.add(op, start, length))


# Gathers

take = lower("aten.take")(lambda op, x, index: op.Gather(op.reshape(x, [-1]), as_index(op, index), axis=0))


@lower("aten.embedding", unused="padding_idx scale_grad_by_freq sparse")
def embedding(op: Builder, x: ir.Value, indices: ir.Value) -> ir.Value:
    return op.Gather(x, as_index(op, indices), axis=0)  # all other arguments are about gradients


@lower("aten.index_select")
def index_select(op: Builder, x: ir.Value, dim: int, index: ir.Value) -> ir.Value:
    index = as_index(op, op.reshape(index, [-1])) if op.rank(index) == 0 else as_index(op, index)
    if op.rank(x) == 0:
        return op.reshape(x, [])
    return op.Gather(x, index, axis=axis_of(op, x, dim))


@lower("aten.gather", unused="sparse_grad")
def gather(op: Builder, x: ir.Value, dim: int, index: ir.Value) -> ir.Value:
    index = as_index(op, index)
    if op.rank(x) == 0 or op.rank(index) == 0:
        return op.reshape(op.Gather(op.reshape(x, [-1]), op.reshape(index, [-1]), axis=0), op.sizes(index))
    if op.rank(x) == 1:
        return op.Gather(x, index, axis=0)
    return op.GatherElements(x, index, axis=axis_of(op, x, dim))


@lower("aten.take_along_dim")
def take_along_dim(op: Builder, x: ir.Value, indices: ir.Value, dim: int | None = None) -> ir.Value:
    if dim is None:
        return take(op, x, op.reshape(indices, [-1]))
    axis = axis_of(op, x, dim)
    both = broadcast_sizes(op, x, indices)
    x = expand(op, x, [*both[:axis], -1, *both[axis + 1 :]])
    return gather(op, x, axis, expand(op, indices, [*both[:axis], -1, *both[axis + 1 :]]))


# Masks


def flat_mask(op: Builder, mask: ir.Value) -> ir.Value:
    return op.cast(op.reshape(mask, [-1]), T.BOOL)


@lower("aten.masked_select")
def masked_select(op: Builder, x: ir.Value, mask: ir.Value) -> ir.Value:
    both = broadcast_sizes(op, x, mask) or [1]
    return op.Compress(expand(op, x, both), flat_mask(op, expand(op, mask, both)))


@lower("aten.nonzero", "aten.argwhere")
def nonzero(op: Builder, x: ir.Value) -> ir.Value:
    if op.rank(x) == 0:  # a table without columns, with one row if the number is not 0
        rows = op.cast(op.cast(op.reshape(x, [1]), T.BOOL), T.INT64)
        return op.Expand(op.constant([], T.INT64), op.Concat(rows, [0], axis=0))
    return op.Transpose(op.NonZero(op.cast(x, T.BOOL)), perm=[1, 0])


@lower("aten.nonzero_static")
def nonzero_static(op: Builder, x: ir.Value, size: Size, fill_value: int = -1) -> ir.Value:
    rank = op.rank(x)
    filler = op.Expand(op.constant(fill_value, T.INT64), op.vector([size, rank]))
    if rank == 0:
        return filler
    return sizes.cut(op, op.Concat(nonzero(op, x), filler, axis=0), 0, 0, size)


# Advanced indexing


class Advanced:
    """``x[i, :, j]``: the indices with masks resolved, what they index, and where the result's new axes go."""

    def __init__(self, op: Builder, x: ir.Value, indices: Sequence[ir.Value | None]) -> None:
        self.axes: list[int] = []
        self.indices: list[ir.Value] = []
        axis = 0
        for index in indices:
            if index is None:
                axis += 1
            elif index.dtype in (T.BOOL, T.UINT8):
                places = op.NonZero(op.cast(index, T.BOOL))
                for i in range(op.rank(index)):
                    self._add(axis, op.Gather(places, i, axis=0))
                    axis += 1
            else:
                self._add(axis, as_index(op, index))
                axis += 1
        self.rest = [i for i in range(op.rank(x)) if i not in self.axes]
        adjacent = self.axes == list(range(self.axes[0], self.axes[-1] + 1))
        self.at = self.axes[0] if adjacent else 0
        """The axis of the result where the axes of the indices begin."""

    def _add(self, axis: int, index: ir.Value) -> None:
        self.axes.append(axis)
        self.indices.append(index)

    @property
    def order(self) -> list[int]:
        """The axes of ``x`` with the indexed ones first, as GatherND and ScatterND want them."""
        return [*self.axes, *self.rest]

    def tuples(self, op: Builder) -> ir.Value:
        """The indices side by side: the last axis holds one position of the indexed axes."""
        if len(self.indices) == 1:
            return op.Unsqueeze(self.indices[0], [-1])
        width = T.INT64 if any(index.dtype == T.INT64 for index in self.indices) else T.INT32
        shape = broadcast_sizes(op, *self.indices)
        columns = [op.Unsqueeze(expand(op, op.cast(index, width), shape), [-1]) for index in self.indices]
        return op.Concat(*columns, axis=-1)


def single_mask(indices: Sequence[ir.Value | None]) -> tuple[int, ir.Value] | None:
    """The axis and the mask, if one mask is the only index."""
    present = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(present) == 1 and present[0][1].dtype in (T.BOOL, T.UINT8):
        return present[0]
    return None


def without_scalar_masks(
    op: Builder, x: ir.Value, indices: Sequence[ir.Value | None]
) -> tuple[ir.Value, list[ir.Value | None]]:
    """``x[True]``: a mask of rank 0 looks at a new axis of size 1."""
    result: list[ir.Value | None] = []
    axis = 0
    for index in indices:
        if index is not None and index.dtype in (T.BOOL, T.UINT8) and op.rank(index) == 0:
            x = op.Unsqueeze(x, [axis])
            index = op.reshape(index, [1])
        axis += op.rank(index) if index is not None and index.dtype in (T.BOOL, T.UINT8) else 1
        result.append(index)
    return x, result


@lower("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(op: Builder, x: ir.Value, indices: Sequence[ir.Value | None]) -> ir.Value:
    x, indices = without_scalar_masks(op, x, indices)
    if all(i is None for i in indices):
        return x
    if (masked := single_mask(indices)) is not None:
        axis, mask = masked
        if op.rank(mask) == op.rank(x):
            return op.Compress(x, flat_mask(op, mask))
        merged = merge(op, x, axis, axis + op.rank(mask))
        return op.Compress(merged, flat_mask(op, mask), axis=axis)
    advanced = Advanced(op, x, indices)
    if len(advanced.indices) == 1:
        return op.Gather(x, advanced.indices[0], axis=advanced.axes[0])
    if (outer := _outer(op, advanced)) is not None:
        for axis, vector in zip(advanced.axes, outer, strict=True):
            x = op.Gather(x, vector, axis=axis)
        return x
    picked = op.GatherND(transposed(op, x, advanced.order), advanced.tuples(op))
    count = op.rank(picked) - len(advanced.rest)
    return movedim(op, picked, list(range(count)), list(range(advanced.at, advanced.at + count)))


def _outer(op: Builder, advanced: Advanced) -> list[ir.Value] | None:
    """The indices as vectors, if each of them varies along its own axis of the result, as with ``numpy.ix_``.

    Picking rows and then columns keeps the image's layout, which the general form has to transpose twice.
    """
    count = len(advanced.indices)
    rank = max(op.rank(index) for index in advanced.indices)
    if rank != count or advanced.axes != list(range(advanced.axes[0], advanced.axes[0] + count)):
        return None
    for i, index in enumerate(advanced.indices):
        assert index.shape is not None
        others = [d for at, d in enumerate(index.shape.dims) if at != i - rank + op.rank(index)]
        if op.rank(index) < rank - i or any(d != 1 for d in others):
            return None
    return [op.reshape(index, [-1]) for index in advanced.indices]


@lower("aten._unsafe_masked_index")
def unsafe_masked_index(
    op: Builder, x: ir.Value, mask: ir.Value, indices: Sequence[ir.Value | None], fill: ir.Value | float
) -> ir.Value:
    filler = op.cast(fill, x.dtype) if isinstance(fill, ir.Value) else op.constant(fill, x.dtype)
    return op.Where(mask, index(op, x, nearest_places(op, x, indices)), filler)


def nearest_places(
    op: Builder, x: ir.Value, indices: Sequence[ir.Value | None], *, from_end: bool = False
) -> list[ir.Value | None]:
    """Where a mask is false, an index may be out of range: torch takes the nearest element there.

    ``from_end``: negative ones count from the end.
    """
    safe: list[ir.Value | None] = []
    for axis, places in enumerate(indices):
        count = op.size(x, axis)
        first = op.scalar(sizes.multiply(op, count, -1)) if from_end else 0
        last = op.scalar(sizes.add(op, count, -1))
        safe.append(None if places is None else op.Clip(op.cast(places, T.INT64), first, last))
    return safe


# Counting and repeating


@lower("aten.one_hot")
def one_hot(op: Builder, x: ir.Value, num_classes: Size = -1) -> ir.Value:
    if op.rank(x) == 0:
        return op.Squeeze(one_hot(op, op.reshape(x, [1]), num_classes), [0])
    depth = op.scalar(num_classes)
    if isinstance(num_classes, int) and num_classes < 0:
        depth = op.Add(op.ReduceMax(op.cast(x, T.INT64), keepdims=0), 1)
    return op.OneHot(op.cast(x, T.INT64), depth, op.constant([0, 1], T.INT64), axis=-1)


@lower("aten.combinations")
def combinations(op: Builder, x: ir.Value, r: int = 2, with_replacement: bool = False) -> ir.Value:
    """Rows whose places in ``x`` ascend: of a table of all rows, those are kept."""
    if r < 2:
        return op.Unsqueeze(x, [1]) if r else op.constant([], x.dtype)
    places = sizes.arange(op, op.size(x, 0))
    columns = [op.Unsqueeze(places, [axis for axis in range(r) if axis != i]) for i in range(r)]
    ascends = op.LessOrEqual if with_replacement else op.Less
    kept = reduce(op.And, (ascends(left, right) for left, right in pairwise(columns)))
    return op.Gather(x, nonzero(op, kept), axis=0)


@lower("aten.repeat_interleave.Tensor", unused="output_size")
def repeated_positions(op: Builder, x: ir.Value) -> ir.Value:
    """Position i as often as the i-th number says: the rows of a table whose row i has that many marks."""
    longest = op.ReduceMax(op.Concat(op.cast(x, T.INT64), [0], axis=0), keepdims=0)
    marks = op.Less(op.Range(op.scalar(0), longest, op.scalar(1)), op.Unsqueeze(op.cast(x, T.INT64), [1]))
    return op.cast(op.Gather(op.NonZero(marks), 0, axis=0), x.dtype)


@lower("aten.repeat_interleave.self_Tensor", unused="output_size")
def repeat_interleave_tensor(op: Builder, x: ir.Value, repeats: ir.Value, dim: int | None = None) -> ir.Value:
    if dim is None or op.rank(x) == 0:
        x, dim = op.reshape(x, [-1]), 0
    axis = axis_of(op, x, dim)
    if op.rank(repeats) == 0 or repeats.shape[0] == 1:  # type: ignore[index]
        repeats = expand(op, op.reshape(repeats, [1]), [op.size(x, axis)])
    return op.Gather(x, as_index(op, repeated_positions(op, repeats)), axis=axis)


@lower("aten.bincount")
def bincount(op: Builder, x: ir.Value, weights: ir.Value | None = None, minlength: Size = 0) -> ir.Value:
    values = op.cast(x, T.INT64)
    last = op.vector([sizes.subtract(op, minlength, 1)])
    length = op.Add(op.ReduceMax(op.Concat(values, last, axis=0), [0]), 1)
    if weights is None:
        weights = op.Expand(op.constant(1, T.INT64), op.vector(op.sizes(x)))
    elif weights.dtype != T.FLOAT:
        weights = op.cast(weights, T.DOUBLE)
    start = op.Expand(op.constant(0, weights.dtype), length)
    return op.ScatterElements(start, values, weights, axis=0, reduction="add")
