"""Writing by index: slices, rows, elements, masks."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.frontends.paddle.lower.rules import Floats, Ints, Sizes, Value, direct, lower
from tonnx.frontends.paddle.ops.index import old_end, through_first, through_last
from tonnx.frontends.paddle.read.graph import Op
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops import scatter as like_torch
from tonnx.lowering.ops import shape as torch_shape
from tonnx.lowering.values import axis_of

# Slices


@lower("set_value", unused="dtype")
@lower("set_value_with_tensor", operands="x value_tensor starts ends steps")
def set_value(
    op: Builder,
    x: Value,
    starts: Sizes,
    ends: Sizes,
    steps: Sizes,
    *,
    value_tensor: Value | None = None,
    axes: Ints,
    decrease_axes: Ints = (),
    none_axes: Ints = (),
    shape: Ints = (),
    values: Floats = (),
    node: Op,
) -> ir.Value:
    """``x[slices] = values``: a view is taken slice by slice, and put back in the opposite order."""
    assert x.dtype is not None
    if "." not in node.name:
        ends = [old_end(op, x, *what) for what in zip(axes, ends, steps, strict=True)]
    if value_tensor is None:
        value_tensor = op.constant(np.asarray(list(values)).reshape(list(shape)).astype(x.dtype.numpy()))
    written = op.cast(value_tensor, x.dtype)
    at = [axis_of(op, x, axis) for axis in axes]
    fixed = sizes.known("writing to a slice by a step", *steps)
    ends = [through_last(*cut) for cut in zip(starts, ends, fixed, strict=True)]
    cuts = list(zip(at, starts, ends, fixed, strict=True))
    whole = list[ir.Value]([x])
    for axis, start, end, step in cuts:
        whole.append(op.Slice(whole[-1], op.vector([start]), op.vector([through_first(end, step)]), [axis], [step]))
    if len(none_axes):
        written = op.Squeeze(written, [axis for axis in none_axes if axis < op.rank(written)])
    if len(decrease_axes) and op.rank(written):
        # The value has not the axes that were indexed by a number; there they have size 1.
        rank, gone = op.rank(x), sorted({axis % op.rank(x) for axis in decrease_axes})
        short = rank - len(gone)
        if op.rank(written) < short:
            written = op.Unsqueeze(written, list(range(short - op.rank(written))))
        written = op.Unsqueeze(written, gone)
    part = op.Expand(written, op.Shape(whole[-1]), _shape=whole[-1].shape.dims if whole[-1].shape is not None else None)
    for (axis, start, end, step), around in zip(cuts[::-1], whole[-2::-1], strict=True):
        part = _put(op, around, part, axis, start, end, step)
    return part


def _put(op: Builder, x: ir.Value, part: ir.Value, axis: int, start: Size, end: Size, step: int) -> ir.Value:
    """The rows of ``part`` in the places of a slice along one axis."""
    if step > 0:
        return like_torch.slice_scatter(op, x, part, axis, start, end, step)
    all_places = sizes.arange(op, op.size(x, axis))
    places = op.Slice(all_places, op.vector([start]), op.vector([through_first(end, step)]), [0], [step])
    order = [axis, *(i for i in range(op.rank(x)) if i != axis)]
    back = [order.index(i) for i in range(op.rank(x))]
    moved = op.ScatterND(
        torch_shape.transposed(op, x, order), op.Unsqueeze(places, [1]), torch_shape.transposed(op, part, order)
    )
    return torch_shape.transposed(op, moved, back)


# Rows and elements

direct("fill_diagonal_tensor(x, y, *, offset: int = 0, dim1: int = 0, dim2: int = 1)", like_torch.diagonal_scatter)
direct("index_put(x, indices: Values, value, *, accumulate: bool = False)", like_torch.index_put)
direct("masked_fill(x, mask, value: Number)", like_torch.masked_fill)
direct("index_add(x, index, add_value, *, axis: int = 0)", like_torch.index_add, order="x axis index add_value")
direct("index_fill(x, index, value: Number, *, axis: int = 0)", like_torch.index_fill, order="x axis index value")
direct(
    "scatter_nd_add(x, index, updates)",
    lambda op, x, index, updates: op.ScatterND(x, op.cast(index, T.INT64), updates, reduction="add"),
)


@lower("scatter")
def scatter(op: Builder, x: Value, index: Value, updates: Value, *, overwrite: bool = True) -> ir.Value:
    index = op.reshape(op.cast(index, T.INT64), [-1])
    places = op.Unsqueeze(index, [1])
    if op.rank(updates) < op.rank(x):
        updates = op.Unsqueeze(updates, [0])
    if overwrite:
        return op.ScatterND(x, places, updates)
    # Rows that are written to start from zero, then everything adds up.
    zeros = op.Expand(op.constant(0, x.dtype), op.Shape(updates))
    return op.ScatterND(op.ScatterND(x, places, zeros), places, updates, reduction="add")


_REDUCTIONS = {"add": "sum", "mul": "prod", "multiply": "prod"}


@lower("put_along_axis")
def put_along_axis(
    op: Builder,
    arr: Value,
    indices: Value,
    values: Value,
    *,
    axis: int,
    reduce: str = "assign",
    include_self: bool = True,
) -> ir.Value:
    if op.rank(values) == 0:
        values = op.Expand(values, op.Shape(indices), _shape=indices.shape.dims if indices.shape is not None else None)
    index = op.cast(indices, T.INT64)
    if reduce == "assign":
        return op.ScatterElements(arr, index, op.cast(values, arr.dtype), axis=axis_of(op, arr, axis))
    return like_torch.scatter_reduce(op, arr, axis, index, values, _REDUCTIONS.get(reduce, reduce), include_self)


direct("fill_diagonal(x, *, value: float = 0.0, wrap: bool = False)", like_torch.fill_diagonal)
