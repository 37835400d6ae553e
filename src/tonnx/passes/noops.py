"""Nodes that change nothing, and those that only move numbers (`tonnx.passes.moves`).

1. Identity; Cast to the dtype it has; Transpose that keeps the order; Reshape, Expand or Tile to the shape it has;
   Slice of everything; Concat or Sum of one; Pad by nothing; Dropout in inference; Add 0, Sub 0, Mul 1, Div 1, Pow 1,
   And True, Or False.
   Weights of a model count as what they may become: adding a parameter of zeros stays.
2. Expand before what broadcasts by itself.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder, Names
from tonnx.ir.infer import constant, dims_of, same_dim, same_dims
from tonnx.ir.provenance import forget
from tonnx.ir.rewrite import all_graphs, names_in, replace_node
from tonnx.passes.moves import join_moves, names_the_output

_UNIT = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1, "Pow": 1, "And": True, "Or": False}
_BROADCASTING = frozenset("Add Sub Mul Div Pow Max Min Where Equal Less Greater And Or Xor".split())
_FAR = 2**31 - 1


def remove_noops(model: ir.Model) -> int:
    """Remove what changes nothing; returns how many nodes went."""
    removed = 0
    names = Names(names_in(model))
    opset, has_functions, main = model.opset_imports.get("", 0), bool(model.functions), None
    for graph in all_graphs(model):
        # Bodies have no initializers of their own before IR 4, and functions, which are younger, never.
        place = {"constants_as_nodes": main is not None} if has_functions else {"parent": main}
        builder = Builder(graph, names=names, opset=opset, **place)
        main = main or builder
        for node in list(graph):
            if node.domain != "" or not node.inputs or node.inputs[0] is None or node.graph is None:
                continue
            source = _passes_through(node)
            if source is not None and not names_the_output(node, source):
                if source.shape is None:
                    source.shape = node.outputs[0].shape
                if node.op_type == "Expand" and not _same_shape(node):
                    forget(node.outputs[0])
                replace_node(node, [source])
                removed += 1
            elif join_moves(builder, node):
                removed += 1
    return removed


def _same_shape(node: ir.Node) -> bool:
    before, after = dims_of(node.inputs[0]), dims_of(node.outputs[0])
    return before is not None and after is not None and same_dims(before, after)


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
    if not (steps == 1).all() or not (starts == 0).all():
        return False
    return all(end >= size for end, size in zip(ends.reshape(-1), _sliced_sizes(node, parts), strict=False))


def _sliced_sizes(node: ir.Node, parts: list[np.ndarray | None]) -> list[int]:
    """The sizes along the axes of a Slice; the largest there is where they are not known."""
    dims = dims_of(node.inputs[0]) or []
    axes = range(len(parts[0].reshape(-1))) if len(parts) < 3 else parts[2].reshape(-1)  # type: ignore[union-attr]
    sizes = [dims[axis] if -len(dims) <= axis < len(dims) else None for axis in axes]
    return [dim if isinstance(dim, int) else _FAR for dim in sizes]


def _unit_operand(node: ir.Node) -> ir.Value | None:
    unit = _UNIT[node.op_type]
    pairs = [(0, 1), (1, 0)] if node.op_type in ("Add", "Mul", "And", "Or") else [(0, 1)]
    for kept, other in pairs:
        x, number = node.inputs[kept], node.inputs[other]
        if x is None or number is None or (number.shape and "axis" in node.attributes):  # before opset 7
            continue
        if _is_all(number, unit) and _leaves_shape(number, x):
            return x
    return None


def _is_all(value: ir.Value, number: int) -> bool:
    tensor = value.const_value
    if tensor is None or tensor.size == 0 or facts.stays_in_file(value):
        return False
    if tensor.size > 1 and value in facts.WEIGHT:
        return False
    array = constant(value)
    return array is not None and array.flat[0] == number and bool((array == number).all())


def _leaves_shape(operand: ir.Value, x: ir.Value) -> bool:
    """Whether broadcasting with an operand leaves ``x`` as it is."""
    own, dims = dims_of(operand), dims_of(x)
    if own is None or dims is None or len(own) > len(dims):
        return False
    return all(size == 1 or same_dim(size, dim) for size, dim in zip(own, dims[len(dims) - len(own) :], strict=True))
