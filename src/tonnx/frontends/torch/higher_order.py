"""Higher-order operators: those that take graphs. What only sets a mode is inlined; torch.cond becomes If."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from torch.fx import GraphModule, Node

from tonnx.build import Builder
from tonnx.errors import UnsupportedArgument

if TYPE_CHECKING:
    from tonnx.frontends.torch.walk import Walk


def lower_higher_order(walk: Walk, node: Node) -> Any:
    """The results of a higher-order operator; None if it has no rule."""
    name = getattr(node.target, "__name__", "")
    arguments = [_resolved(walk, argument) for argument in node.args]
    if name == "wrap_with_set_grad_enabled":
        return walk.inlined(arguments[1], arguments[2:], walk.op)
    if name == "wrap_with_autocast":
        enabled, body = arguments[2], arguments[4]
        if enabled:
            raise UnsupportedArgument(
                "torch.autocast inside the model is not supported", hint="export the model in the dtype it is to run in"
            )
        return walk.inlined(body, arguments[5:], walk.op)
    if name == "cond":
        return _cond(walk, node, *arguments[:4])
    return None


def _resolved(walk: Walk, argument: Any) -> Any:
    if isinstance(argument, (list, tuple)):
        return [walk.resolve(item) for item in argument]
    return walk.resolve(argument)


def _cond(walk: Walk, node: Node, condition: Any, on_true: GraphModule, on_false: GraphModule, operands: Any) -> Any:
    """Both branches as graphs; what they read from outside they see by name."""
    if isinstance(condition, bool):
        return walk.inlined(on_true if condition else on_false, operands, walk.op)
    op = walk.op
    branches = [_branch(walk, name, body, operands) for name, body in (("then", on_true), ("else", on_false))]
    metas = node.meta["val"]
    outputs = []
    for i, meta in enumerate(metas):
        dtype = branches[0].outputs[i].dtype
        dims = walk.dims.of_tensor(meta) if isinstance(meta, torch.Tensor) else [1]
        outputs.append((dtype, dims))
    if op.rank(condition):
        condition = op.reshape(condition, [])
    attributes = [ir.AttrGraph("then_branch", branches[0]), ir.AttrGraph("else_branch", branches[1])]
    return list(op.node("If", [op.cast(condition, ir.DataType.BOOL)], attributes, outputs))


def _branch(walk: Walk, name: str, body: GraphModule, operands: Sequence[Any]) -> ir.Graph:
    inner = walk.op.inner(name)
    with inner:
        for value in walk.inlined(body, operands, inner):
            inner.graph.outputs.append(_own(inner, value))
    return inner.graph


def _own(op: Builder, value: Any) -> ir.Value:
    """An output of a graph is made in that graph, once: what comes from outside, or twice, goes through an Identity."""
    if not isinstance(value, ir.Value):
        value = op.constant(value)
    producer = value.producer()
    if producer is None or producer.graph is not op.graph or value.is_graph_output():
        dims = None if value.shape is None else list(value.shape.dims)
        (value,) = op.node("Identity", [value], [], [(value.dtype, dims)])
    return value
