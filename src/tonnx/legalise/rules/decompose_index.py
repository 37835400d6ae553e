"""Gathering and scattering by element: flat indices and the plain Gather or Scatter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder, Size, T
from tonnx.legalise.axes import never_negative
from tonnx.legalise.exact_integers import positions
from tonnx.legalise.node_view import Blocked, NodeView, constant_of
from tonnx.legalise.table import down, impossible
from tonnx.legalise.versioned_ops import arange, counted_by_loop, number, reduce, select, unsqueeze


@down("GatherElements", 11)
def gather_elements(op: Builder, node: NodeView) -> ir.Value:
    """Every element's place in the flat data: its own place along the other axes, the index along this one."""
    data, indices = node.need("data"), node.need("indices")
    rank = node.rank("data")
    axis = node.attr("axis", 0) % rank
    sizes = op.sizes(data)
    index = not_negative(op, indices, sizes[axis])
    if rank == 1:
        return op.Gather(data, index, axis=0)
    flat = index if axis == rank - 1 else op.Mul(index, op.vector([op.product(sizes[axis + 1 :])]))
    places = None  # along the other axes, added up first: that much is often known
    for other in range(rank):
        if other != axis and sizes[other] != 1:
            own = arange(op, op.size(indices, other))
            step = op.product(sizes[other + 1 :])
            own = own if step == 1 else op.Mul(own, op.vector([step]))
            own = own if other == rank - 1 else unsqueeze(op, own, *range(1, rank - other))
            places = own if places is None else places + own
    return op.Gather(op.Reshape(data, [-1]), flat if places is None else flat + places, axis=0)


@down("GatherND", 11)
def gather_nd(op: Builder, node: NodeView) -> ir.Value:
    """The indexed axes as one, and a Gather along it."""
    data = node.need("data")
    depth, sizes = _depth(node), op.sizes(data) if node.rank("data") else []
    rows = op.Reshape(data, op.vector([-1, *sizes[depth:]])) if depth > 1 else data
    return op.Gather(rows, _flat(op, node.need("indices"), sizes[:depth]), axis=0)


@down("ScatterElements", 11)
def scatter_elements(op: Builder, node: NodeView) -> ir.Value:
    """The same under its old name, which does not count from the back."""
    data = node.need("data")
    axis = node.attr("axis", 0) % node.rank("data")
    index = not_negative(op, node.need("indices"), op.size(data, axis), cast=False)
    return op.Scatter(data, index, node.need("updates"), axis=axis)


@down("ScatterND", 11)
def scatter_nd(op: Builder, node: NodeView) -> ir.Value:
    """The indexed axes as one and the others as another, and a Scatter along the first."""
    data, indices, updates = node.need("data"), node.need("indices"), node.need("updates")
    depth, sizes = _depth(node), op.sizes(data)
    width = op.product(sizes[depth:])
    flat = op.Reshape(_flat(op, indices, sizes[:depth]), [-1, 1])
    if width != 1:
        flat = op.Expand(flat, op.vector([1, width]))
    changed = op.Scatter(
        op.Reshape(data, op.vector([-1, width])), flat, op.Reshape(updates, op.vector([-1, width])), axis=0
    )
    return op.Reshape(changed, op.vector(sizes))


impossible("Scatter", 9, "nothing older writes to places that an input names")


def not_negative(op: Builder, indices: ir.Value, size: Size, *, cast: bool = True) -> ir.Value:
    """Indices that count from the front: counting from the back came with opset 11."""
    array = constant_of(indices)
    if array is not None and (array >= 0).all():
        return op.cast(indices, T.INT64) if cast else indices
    if array is not None and isinstance(size, int):
        return op.constant(np.where(array < 0, array + size, array).astype(np.int64))
    index = positions(op, op.cast(indices, T.INT64))
    if never_negative(index):
        return index
    return select(op, op.Less(index, number(op, 0, index)), op.Add(index, op.vector([size])), index)


def _depth(node: NodeView) -> int:
    """How many axes an index of GatherND or ScatterND goes through."""
    dims = node.dims("indices")
    depth = dims[-1] if dims else None
    if not isinstance(depth, int):
        raise Blocked("the last dimension of its indices is not known")
    return depth


def _flat(op: Builder, indices: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """Σ index·stride over the last axis."""
    array = constant_of(indices)
    if array is None or (array < 0).any():
        index = positions(op, op.cast(indices, T.INT64))
        if not never_negative(index):
            negative = op.Less(index, number(op, 0, index))
            index = select(op, negative, op.Add(index, op.vector(sizes)), index)
    else:
        index = op.cast(indices, T.INT64)
    rank = op.rank(index)
    if len(sizes) > 1:
        strides = op.vector([op.product(sizes[i + 1 :]) for i in range(len(sizes))])
        index = index * strides
    return reduce(op, "ReduceSum", index, [rank - 1], keepdims=False)


@down("ReverseSequence", 10)
def reverse_sequence(op: Builder, node: NodeView) -> ir.Value:
    """Step t reads step length−1−t while t is below the length, and itself from there on."""
    x, lengths = node.need("input"), node.need("sequence_lens")
    rank, time_axis, batch_axis = node.rank("input"), node.attr("time_axis", 0), node.attr("batch_axis", 1)
    turn = [1, 0, *range(2, rank)]
    if time_axis == 0:
        x = op.Transpose(x, perm=turn)
    batch, steps = op.size(x, 0), op.size(x, 1)
    length = unsqueeze(op, lengths, 1)
    step = arange(op, steps)
    source = op.Where(op.Less(step, length), length - step - 1, step)
    source = source + unsqueeze(op, op.Mul(arange(op, batch), op.vector([steps])), 1)
    rows = op.Reshape(x, op.vector([-1, *(op.size(x, a) for a in range(2, rank))]))
    result = op.Gather(rows, source, axis=0)
    assert {time_axis, batch_axis} == {0, 1}
    return op.Transpose(result, perm=turn) if time_axis == 0 else result


@down("Compress", 9)
def compress(op: Builder, node: NodeView) -> ir.Value:
    """A Gather, when the condition is known."""
    condition = node.const("condition")
    assert condition is not None
    x, axis = node.need("input"), node.attr("axis", None)
    where = op.constant(np.flatnonzero(condition).astype(np.int64))
    if axis is None:
        return op.Gather(op.Reshape(x, [-1]), where, axis=0)
    return op.Gather(x, where, axis=axis % node.rank("input"))


@down("OneHot", 9)
def one_hot(op: Builder, node: NodeView) -> ir.Value:
    """Indices compared with 0 … depth−1."""
    depth = node.ints("depth")
    assert depth is not None
    indices, values = node.need("indices"), node.need("values")
    rank, axis = node.rank("indices"), node.attr("axis", -1)
    axis %= rank + 1
    classes = op.constant(np.arange(depth[0], dtype=np.int64).reshape([-1] + [1] * (rank - axis)))
    hot = op.Equal(unsqueeze(op, op.cast(indices, T.INT64), axis), classes)
    array = constant_of(values)
    dtype = node.dtype("values")
    if array is not None and [float(v) for v in array.reshape(-1)] == [0.0, 1.0]:
        return op.Cast(hot, to=int(dtype))
    off, on = (op.Gather(values, [i], axis=0) for i in range(2))
    return select(op, hot, on, off)


@down("NonZero", 9)
def non_zero(op: Builder, node: NodeView) -> ir.Value:
    """Where it only serves to count, a Loop counts."""
    if node.node not in facts.COUNTS:
        raise Blocked("nothing older has an output whose size depends on the values")
    return unsqueeze(op, counted_by_loop(op, op.scalar(op.size(node.need("X"), 0))), 0)


impossible("Unique", 11, "nothing older has an output whose size depends on the values and is sorted")
impossible("MaxUnpool", 9, "nothing older writes to places that an input names")
