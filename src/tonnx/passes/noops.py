"""Nodes that change nothing, and pairs of them that undo each other.

1. Identity; Cast to the dtype it has; Transpose that keeps the order; Reshape, Expand or Tile to the shape it has;
   Slice of everything; Concat or Sum of one; Pad by nothing; Dropout in inference; Add 0, Sub 0, Mul 1, Div 1, Pow 1.
2. Expand before what broadcasts by itself.
3. Transpose of a Transpose becomes one; Reshape of a Reshape (or Squeeze, Unsqueeze, Flatten) becomes one.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, Names
from tonnx.ir.infer import constant, dims_of, same_dim
from tonnx.ir.provenance import forget
from tonnx.ir.rewrite import all_graphs, names_in, replace_node

_UNIT = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1, "Pow": 1}
_RESHAPING = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")
_BROADCASTING = frozenset("Add Sub Mul Div Pow Max Min Where Equal Less Greater And Or Xor".split())
_FAR = 2**31 - 1


def remove_noops(model: ir.Model) -> int:
    """Remove what changes nothing; returns how many nodes went."""
    removed = 0
    names = Names(names_in(model))
    for graph in all_graphs(model):
        builder = Builder(graph, names=names, opset=model.opset_imports.get("", 0))
        for node in list(graph):
            if node.domain != "" or not node.inputs or node.inputs[0] is None or node.graph is None:
                continue
            source = _passes_through(node)
            if source is not None and not _names_the_output(node, source):
                if source.shape is None:
                    source.shape = node.outputs[0].shape
                if node.op_type == "Expand" and not _same_shape(node):
                    forget(node.outputs[0])
                replace_node(node, [source])
                removed += 1
            elif _merged(builder, node):
                removed += 1
    return removed


def _names_the_output(node: ir.Node, source: ir.Value) -> bool:
    """An Identity that gives an input or a constant the name of an output has to stay."""
    if not node.outputs[0].is_graph_output():
        return False
    producer = source.producer()
    return producer is None or source.is_graph_output() or producer.graph is not node.graph


def _same_shape(node: ir.Node) -> bool:
    before, after = dims_of(node.inputs[0]), dims_of(node.outputs[0])
    return before is not None and after is not None and len(before) == len(after) and all(map(same_dim, before, after))


def _passes_through(node: ir.Node) -> ir.Value | None:
    """The input that the node only hands on."""
    x = node.inputs[0]
    assert x is not None
    kind = node.op_type
    if kind == "Identity" or (kind in ("Concat", "Sum", "Max", "Min", "Mean") and len(node.inputs) == 1):
        return x
    if kind == "Cast":
        to = node.attributes["to"].value  # a word before opset 6
        return x if x.dtype is not None and to in (int(x.dtype), x.dtype.name) else None
    if kind == "Transpose":
        perm = node.attributes.get("perm")
        return x if perm is not None and list(perm.as_ints()) == sorted(perm.as_ints()) else None
    if kind in ("Reshape", "Expand", "Tile", "Flatten"):
        return x if _same_shape(node) or (kind == "Expand" and _broadcast_anyhow(node)) else None
    if kind == "Slice":
        return x if _whole_slice(node) else None
    if kind == "Pad":
        pads = constant(node.inputs[1]) if len(node.inputs) > 1 else None
        return x if pads is not None and not pads.any() else None
    if kind == "Dropout":
        return x if len(node.outputs) == 1 and _is_inference_dropout(node) else None
    if kind in _UNIT and len(node.inputs) == 2:
        return _unit_operand(node)
    return None


def _broadcast_anyhow(node: ir.Node) -> bool:
    """Whether all that read an Expand would broadcast by themselves: the other operand has its shape already."""
    expanded = node.outputs[0]
    shape = dims_of(expanded)
    if shape is None or expanded.is_graph_output() or dims_of(node.inputs[0]) is None:
        return False
    for user, place in expanded.uses():
        if user.op_type not in _BROADCASTING or user.domain != "" or "broadcast" in user.attributes:
            return False
        others = [dims_of(value) for i, value in enumerate(user.inputs) if i != place and value is not expanded]
        if not any(o is not None and len(o) == len(shape) and all(map(same_dim, o, shape)) for o in others):
            return False
    return True


def _is_inference_dropout(node: ir.Node) -> bool:
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return True
    mode = constant(node.inputs[2])
    return mode is not None and not mode.any()


def _whole_slice(node: ir.Node) -> bool:
    parts = [constant(value) for value in node.inputs[1:]]
    if len(parts) < 2 or any(part is None for part in parts):
        return False
    starts, ends = parts[0], parts[1]
    steps = parts[3] if len(parts) > 3 else np.ones(1)
    assert starts is not None and ends is not None and steps is not None
    return bool((starts == 0).all() and (ends >= _FAR).all() and (steps == 1).all())


def _unit_operand(node: ir.Node) -> ir.Value | None:
    unit = _UNIT[node.op_type]
    pairs = [(0, 1), (1, 0)] if node.op_type in ("Add", "Mul") else [(0, 1)]
    for kept, other in pairs:
        x, number = node.inputs[kept], node.inputs[other]
        if x is None or number is None or number.const_value is None or number.const_value.size != 1:
            continue
        array = constant(number)
        assert array is not None
        ranks = [None if v.shape is None else v.shape.rank() for v in (x, number)]
        # A unit of higher rank would still change the shape.
        if array.reshape(-1)[0] == unit and None not in ranks and ranks[1] <= ranks[0]:  # type: ignore[operator]
            return x
    return None


def _merged(op: Builder, node: ir.Node) -> bool:
    """Join a node with the one before it, when nobody else reads that one."""
    if node.op_type not in ("Transpose", "Reshape"):
        return False
    x = node.inputs[0]
    before = x.producer() if x is not None else None
    if before is None or before.domain != "" or before.graph is not node.graph:
        return False
    if not before.inputs or before.inputs[0] is None:
        return False
    if node.op_type == "Transpose" and before.op_type == "Transpose":
        first, second = before.attributes.get("perm"), node.attributes.get("perm")
        if first is None or second is None:
            return False
        perm = [first.as_ints()[p] for p in second.as_ints()]
        source = before.inputs[0]
        with op.at(node):
            joined = source if perm == sorted(perm) else op.Transpose(source, perm=perm)
        if joined is source and _names_the_output(node, source):
            return False
        replace_node(node, [joined])
        return True
    if node.op_type == "Reshape" and before.op_type in _RESHAPING and len(x.uses()) == 1:  # type: ignore[union-attr]
        if len(node.inputs) < 2:  # its shape is an attribute, before opset 5
            return False
        target = constant(node.inputs[1])
        if x.is_graph_output() or target is None or (target == 0).any() or "allowzero" in node.attributes:  # type: ignore[union-attr]
            return False
        with op.at(node):
            replace_node(node, [op.Reshape(before.inputs[0], node.inputs[1], _shape=dims_of(node.outputs[0]))])
        return True
    return False
