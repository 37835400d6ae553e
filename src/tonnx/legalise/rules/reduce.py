"""Reductions: axes as an input (18, ReduceSum 13); ArgMax and ArgMin's choice among equals (12)."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.node_view import NodeView, constant_of
from tonnx.legalise.table import attributes_become_inputs, down
from tonnx.legalise.versioned_ops import END, cut, reduce, unsqueeze

REDUCTIONS = tuple(f"Reduce{kind}" for kind in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split())
_SINCE_18 = tuple(name for name in REDUCTIONS if name != "ReduceSum")


def _axes_to_attribute(op: Builder, node: NodeView) -> ir.Value:
    """The axes become an attribute."""
    x, axes = node.need("data"), node["axes"]
    emit = getattr(op, node.op_type)
    if axes is not None and axes.shape != (0,) and constant_of(axes) is None:
        return _over_axes_at_run_time(op, node, x, axes)
    fixed_axes = None if axes is None or axes.shape == (0,) else node.ints("axes")
    if fixed_axes:
        return emit(x, axes=fixed_axes, keepdims=node.attr("keepdims"))
    if node.attr("noop_with_empty_axes", 0):
        # Nothing is summed, but the logarithm or square still applies: reduce over a new axis of size 1.
        rank = node.rank("data")
        return emit(op.Reshape(x, op.vector([*[0] * rank, 1])), axes=[rank], keepdims=0)
    return emit(x, keepdims=node.attr("keepdims"))


# Reductions as others before and after which each axis can be reduced by itself.
_BEFORE = {"ReduceSumSquare": lambda op, x: op.Mul(x, x)}
_AFTER = {"ReduceLogSum": lambda op, x: op.Log(x)}
_AXIS_BY_AXIS = {"ReduceSumSquare": "ReduceSum", "ReduceLogSum": "ReduceSum"}


def _over_axes_at_run_time(op: Builder, node: NodeView, x: ir.Value, axes: ir.Value) -> ir.Value:
    """Every axis is reduced, one after the other; of what comes out and what was before it, one is cut off."""
    rank, kind = node.rank("data"), node.op_type
    places = op.constant(list(range(rank)), ir.DataType.INT64)
    axes = op.Where(op.Less(axes, op.constant(0, ir.DataType.INT64)), axes + rank, axes)
    hits = op.Equal(unsqueeze(op, op.Concat(axes, op.constant([rank], ir.DataType.INT64), axis=0), 1), places)
    chosen = reduce(op, "ReduceMax", op.Cast(hits, to=int(ir.DataType.INT32)), [0], keepdims=False)
    if not node.attr("noop_with_empty_axes", 0):  # no axes: all of them
        none = op.Equal(op.Size(axes), op.constant(0, ir.DataType.INT64))
        chosen = op.Max(chosen, op.Cast(none, to=int(ir.DataType.INT32)))
    result = _BEFORE[kind](op, x) if kind in _BEFORE else x
    for axis in range(rank):
        wanted = op.Cast(op.Gather(chosen, op.constant([axis], ir.DataType.INT64), axis=0), to=int(ir.DataType.BOOL))
        reduced = reduce(op, _AXIS_BY_AXIS.get(kind, kind), result, [axis])
        start, end = (
            op.Where(wanted, *(op.constant([at], ir.DataType.INT64) for at in choice)) for choice in ((0, 1), (1, END))
        )
        result = cut(op, op.Concat(reduced, result, axis=axis), axis, start, end)
    result = _AFTER[kind](op, result) if kind in _AFTER else result
    if node.attr("keepdims", 1):
        return result
    is_left = op.Not(op.Cast(chosen, to=int(ir.DataType.BOOL)))
    return op.Reshape(result, op.Compress(op.Shape(result), is_left, axis=0))


down(_SINCE_18, 18)(_axes_to_attribute)
down("ReduceSum", 13)(_axes_to_attribute)
attributes_become_inputs(_SINCE_18, 18, "axes")
attributes_become_inputs("ReduceSum", 13, "axes")


@down(("ReduceMax", "ReduceMin"), 20)
def extremum_of_booleans(op: Builder, node: NodeView) -> ir.Value | None:
    """Booleans as numbers; the maximum of nothing, the smallest number, is false."""
    if node.dtype("data") != ir.DataType.BOOL:
        return None
    numbers = op.Cast(node.need("data"), to=int(ir.DataType.INT32))
    result = getattr(op, node.op_type)(numbers, node["axes"], **node.attributes())
    return op.Greater(result, op.constant(0, ir.DataType.INT32))


@down(("ArgMax", "ArgMin"), 12, up="the first of equals is the default")
def arg_last_index(op: Builder, node: NodeView) -> ir.Value | None:
    """The last of equals is the first of the reversed axis."""
    if not node.attr("select_last_index", 0):
        return None
    x = node.need("data")
    axis = node.attr("axis", 0) % node.rank("data")
    reverse = op.Slice(x, [-1], [-END], [axis], [-1])
    last = op.scalar(op.size(x, axis)) - 1
    return last - getattr(op, node.op_type)(reverse, axis=axis, keepdims=node.attr("keepdims"))
