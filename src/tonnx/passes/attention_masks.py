"""What is said of an attention's mask by hand and the operator says itself: for runtimes that have the operator.

1. ``key <= past + query``, one of the conditions of a mask: ``is_causal``. What is left often does not know of queries.
2. Zeros for queries that see no key. ONNX's operator gives them by itself. ONNX Runtime does since 1.28; before, and
   from opset 24 on, it gives the mean of the values, so that they are dropped from there on and only if asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.ir.infer import Dim, dims_of, known_number, same_dim
from tonnx.ir.infer.dims import ints_in
from tonnx.ir.operands import attribute
from tonnx.ir.rewrite import replace_node, rewrite_each
from tonnx.passes.counting import counted
from tonnx.passes.match import made_by, only_reader

_FINITE = 24
"""The first opset whose operator gives numbers for queries without keys in every ONNX Runtime that loads it."""


def drop_zeros(model: ir.Model) -> int:
    """Leave zeros for queries without keys to every Attention of the main graph; returns to how many."""
    return rewrite_each(model, "Attention", _drop_zeros) if model.opset_imports.get("", 0) >= _FINITE else 0


def be_causal(model: ir.Model) -> int:
    """Leave it to every Attention of the main graph to hide what comes later; returns to how many."""
    masks: dict[tuple[ir.Value, ...], ir.Value | None] = {}
    return rewrite_each(model, "Attention", partial(_be_causal, masks=masks))


def _drop_zeros(op: Builder, node: ir.Node) -> bool:
    where = only_reader(node.outputs[0], "Where")
    if where is None or where.inputs[1] is not node.outputs[0] or known_number(where.inputs[2]) != 0:
        return False
    largest = made_by(_uncast(where.inputs[0]), "ReduceMax")
    if largest is None or len(node.inputs) < 4 or node.inputs[3] is None or len(largest.inputs) < 2:
        return False
    dims = dims_of(node.inputs[3])
    if dims is None or len(dims) != 4 or ints_in(largest.inputs[1]) not in ([-1], [3]):
        return False
    if _uncast(largest.inputs[0]) is not node.inputs[3] or not attribute(largest, "keepdims", 1):
        return False
    replace_node(where, [node.outputs[0]])
    return True


def _uncast(value: ir.Value | None) -> ir.Value | None:
    cast = made_by(value, "Cast")
    return cast.inputs[0] if cast is not None else value


def _be_causal(op: Builder, node: ir.Node, *, masks: dict[tuple[ir.Value, ...], ir.Value | None]) -> bool:
    """Let the operator hide keys after a query; layers share what is left of a mask."""
    if attribute(node, "is_causal", 0) or len(node.inputs) < 6:
        return False
    query, mask, past = node.inputs[0], node.inputs[3], node.inputs[4]
    dims, sizes, past_dims = dims_of(mask), dims_of(query), dims_of(past)
    if query is None or mask is None or mask.dtype != T.BOOL or past is None or past_dims is None:
        return False
    if any(use.node.op_type != "Attention" for use in mask.uses()):
        return False  # it has to be made anyway
    if dims is None or len(dims) != 4 or sizes is None or not same_dim(dims[2], sizes[-2]):
        return False
    leaves = list(conditions(mask))
    others = tuple(leaf for leaf in leaves if not is_causal(leaf, past_dims[2]))
    if len(others) == len(leaves) or not _are_masks(others, dims):
        return False
    if others not in masks:
        with op.at(node):
            masks[others] = _joined(op, others, query, dims)
    node.replace_input_with(3, masks[others])
    node.attributes["is_causal"] = ir.AttrInt64("is_causal", 1)
    return True


def _are_masks(conditions: tuple[ir.Value, ...], dims: list[Dim]) -> bool:
    """Whether they make a mask without what is left out, but for the number of queries."""
    shapes = [dims_of(each) or [] for each in conditions]
    all_axes = all(len(shape) == len(dims) for shape in shapes)
    return all_axes and (not shapes or any(same_dim(shape[3], dims[3]) for shape in shapes))


def _joined(op: Builder, leaves: tuple[ir.Value, ...], query: ir.Value, dims: list[Dim]) -> ir.Value | None:
    """All of them, for as many queries as there are: ONNX Runtime wants that axis whole."""
    if not leaves:
        return None
    mask = leaves[0]
    for leaf in leaves[1:]:
        mask = op.And(mask, leaf)
    shape = dims_of(mask)
    if shape is not None and same_dim(shape[2], dims[2]):
        return mask
    return op.Expand(mask, op.vector([1, 1, op.size(query, op.rank(query) - 2), 1]), _shape=dims)


def conditions(mask: ir.Value | None) -> Iterator[ir.Value]:
    """All of what has to hold where a mask is true."""
    node = made_by(mask, "And", "Expand", "Identity")
    if node is None:
        if mask is not None:
            yield mask
        return
    for operand in node.inputs if node.op_type == "And" else node.inputs[:1]:
        yield from conditions(operand)


def is_causal(condition: ir.Value, past: Dim) -> bool:
    """Whether it is ``key <= past + query``, with any axes of 1 in front."""
    raised = made_by(condition, "Unsqueeze")
    if raised is not None and raised.inputs[0] is not None:
        axes = ints_in(raised.inputs[1])
        return axes == list(range(len(axes or ()))) and is_causal(raised.inputs[0], past)
    node = made_by(condition, "LessOrEqual", "GreaterOrEqual")
    if node is None:
        return False
    keys, queries = map(counted, node.inputs if node.op_type == "LessOrEqual" else reversed(node.inputs))
    if keys is None or queries is None or (keys.axis, queries.axis) != (-1, -2):
        return False
    return not keys.added and len(queries.added) == 1 and same_dim(queries.added[0], past)
