"""Nodes that only move numbers or rename axes, one after the other, become one.

1. Transpose of a Transpose.
2. Reshape, Squeeze, Unsqueeze, Flatten, or a Transpose that moves only axes of size 1, after one of these: one Reshape.
   Its target is the second one's own, or the resulting shape if at most one size of that is unknown.
3. Unsqueeze of an Unsqueeze where several sizes are unknown.
4. Slice of a Slice along other axes.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.ir.infer import constant, dims_of, same_dims
from tonnx.ir.infer.dims import ints_in
from tonnx.ir.rewrite import replace_node

_RESHAPING = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
_SHAPE_IS_INPUT = 5  # opsets; before, a Reshape has its target as an attribute
_SLICE_HAS_INPUTS = 10


def join_moves(op: Builder, node: ir.Node) -> bool:
    """Join a node with the one before it; that one goes with the dead code if nobody else reads it."""
    x = node.inputs[0]
    before = x.producer() if x is not None else None
    if before is None or before.domain != "" or before.graph is not node.graph:
        return False
    source = before.inputs[0] if before.inputs else None
    if source is None:
        return False
    if node.op_type == before.op_type == "Transpose":
        return _join_transposes(op, node, before, source)
    if node.op_type == before.op_type == "Slice":
        return op.opset >= _SLICE_HAS_INPUTS and _join_slices(op, node, before, source)
    if op.opset >= _SHAPE_IS_INPUT and _keeps_order(node) and _keeps_order(before):
        return _join_reshapes(op, node, source) or _join_unsqueezes(op, node, before, source)
    return False


def _join_transposes(op: Builder, node: ir.Node, before: ir.Node, source: ir.Value) -> bool:
    first, second = before.attributes.get("perm"), node.attributes.get("perm")
    if first is None or second is None:
        return False
    perm = [first.as_ints()[p] for p in second.as_ints()]
    if perm == sorted(perm):
        return _use_source(node, source)
    with op.at(node):
        replace_node(node, [op.Transpose(source, perm=perm)])
    return True


def _keeps_order(node: ir.Node) -> bool:
    """Whether the numbers stay in their order in memory."""
    if node.op_type in _RESHAPING:
        return True
    if node.op_type != "Transpose" or "perm" not in node.attributes:
        return False
    dims = dims_of(node.inputs[0]) or ()
    moved = [axis for axis in node.attributes["perm"].as_ints() if axis >= len(dims) or dims[axis] != 1]
    return moved == sorted(moved)


def _join_reshapes(op: Builder, node: ir.Node, source: ir.Value) -> bool:
    before, after = dims_of(source), dims_of(node.outputs[0])
    if before is not None and after is not None and same_dims(before, after):
        return _use_source(node, source)
    target = _own_target(node) if node.op_type == "Reshape" else None
    if target is None:
        sizes = [dim if isinstance(dim, int) else -1 for dim in after or (-1, -1)]
        if sizes.count(-1) > 1 or 0 in sizes:
            return False
        target = np.array(sizes, np.int64)
    with op.at(node):
        replace_node(node, [op.Reshape(source, target, _shape=after)])
    return True


def _join_unsqueezes(op: Builder, node: ir.Node, before: ir.Node, source: ir.Value) -> bool:
    """Give a value all its new axes at once; where the axes are attributes, before opset 13, it stays as it is."""
    if not node.op_type == before.op_type == "Unsqueeze" or min(len(node.inputs), len(before.inputs)) < 2:
        return False
    first, second, dims = ints_in(before.inputs[1]), ints_in(node.inputs[1]), dims_of(node.outputs[0])
    if first is None or second is None or dims is None:
        return False
    last = {axis % len(dims) for axis in second}
    kept = [axis for axis in range(len(dims)) if axis not in last]
    axes = sorted(last | {kept[axis % len(kept)] for axis in first})
    with op.at(node):
        replace_node(node, [op.Unsqueeze(source, axes, _shape=dims)])
    return True


def _own_target(node: ir.Node) -> np.ndarray | None:
    """The constant that a Reshape has as its target, if it says the same of an input of another shape."""
    target = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    return None if target is None or (target == 0).any() else target


def _join_slices(op: Builder, node: ir.Node, before: ir.Node, source: ir.Value) -> bool:
    if len(node.inputs[0].uses()) > 1 or node.inputs[0].is_graph_output():  # type: ignore[union-attr]
        return False  # what both cut off would be cut off twice
    one, other = _bounds(before), _bounds(node)
    dims = dims_of(source)
    if one is None or other is None or dims is None:
        return False
    if {int(axis) % len(dims) for axis in one[2]} & {int(axis) % len(dims) for axis in other[2]}:
        return False
    with op.at(node):
        parts = [np.concatenate(pair).astype(np.int64) for pair in zip(one, other, strict=True)]
        replace_node(node, [op.Slice(source, *parts, _shape=dims_of(node.outputs[0]))])
    return True


def _bounds(node: ir.Node) -> list[np.ndarray] | None:
    """Starts, ends, axes and steps of a Slice, if they are constants."""
    parts = [constant(value) for value in node.inputs[1:]]
    if len(parts) < 3 or any(part is None for part in parts):
        return None
    steps = [] if len(parts) > 3 else [np.ones_like(parts[0])]  # type: ignore[arg-type]
    return [part.reshape(-1) for part in (*parts, *steps) if part is not None]


def _use_source(node: ir.Node, source: ir.Value) -> bool:
    """Whoever reads the node reads what was there before, unless an output needs a node to have its name of."""
    if names_the_output(node, source):
        return False
    replace_node(node, [source])
    return True


def names_the_output(node: ir.Node, source: ir.Value) -> bool:
    """An Identity that gives an input or a constant the name of an output has to stay."""
    if not node.outputs[0].is_graph_output():
        return False
    producer = source.producer()
    return producer is None or source.is_graph_output() or producer.graph is not node.graph
