"""Higher-order operators: those that take graphs.

What only sets a mode, or says how to compile, is inlined; torch.cond becomes If; while_loop, scan, map and
associative_scan become Loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from torch.fx import GraphModule, Node

from tonnx.errors import LoweringError
from tonnx.frontends.torch.fx.memory import mutates
from tonnx.frontends.torch.fx.recorded_flow import loop_node, own_output
from tonnx.frontends.torch.operators import decompose
from tonnx.ir.build import Builder

if TYPE_CHECKING:
    from tonnx.frontends.torch.fx.walk import Walk

T = ir.DataType


def lower_higher_order(walk: Walk, node: Node) -> Any:
    """The results of a higher-order operator; None if it has no rule."""
    rule = _RULES.get(getattr(node.target, "__name__", ""))
    return None if rule is None else rule(walk, node)


def writes(node: Node) -> bool:
    """Whether a graph that the operator takes writes to memory."""
    if not isinstance(node.target, torch._ops.HigherOrderOperator):
        return False
    graphs = [_graph_of(argument) for argument in node.all_input_nodes if argument.op == "get_attr"]
    return any(graph is not None and graph_writes(graph) for graph in graphs)


def graph_writes(graph: GraphModule) -> bool:
    """Whether a graph writes to memory, or one inside it does."""
    nodes = [n for module in graph.modules() if isinstance(module, GraphModule) for n in module.graph.nodes]
    return any(node.op == "call_function" and mutates(node) for node in nodes)


def _graph_of(node: Node) -> GraphModule | None:
    value: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, GraphModule) else None


def _resolved(walk: Walk, argument: Any) -> Any:
    if isinstance(argument, (list, tuple)):
        return [walk.resolve(item) for item in argument]
    return walk.resolve(argument)


# Inlined


def _inlined(body: int, operands: Callable[[Sequence[Any]], Sequence[Any]]) -> Callable[[Walk, Node], Any]:
    """``body`` is the place of the graph among the arguments, ``operands`` picks what it is called with."""

    def rule(walk: Walk, node: Node) -> Any:
        given = list(operands(node.args))
        return walk.inlined(walk.resolve(node.args[body]), given, walk.op)

    return rule


def _autocast(walk: Walk, node: Node) -> Any:
    """``with torch.autocast``: the casts that it hides are made visible by tracing its body once more."""
    device, dtype, enabled, _cache, body_node, *operands = node.args
    body = walk.resolve(body_node)
    if enabled:
        metas = [operand.meta["val"] if isinstance(operand, Node) else operand for operand in operands]
        context = torch.autocast(str(device), dtype=dtype)  # type: ignore[arg-type]
        traced = decompose.retrace(body, metas, context)
        if traced is None:
            raise LoweringError(
                "the body of torch.autocast cannot be traced once more, to see what it casts",
                hint="export the model in the dtype it is to run in",
            )
        body = traced
    return walk.inlined(body, operands, walk.op)


# torch.cond


def _cond(walk: Walk, node: Node) -> Any:
    """Both branches as graphs; what they read from outside they see by name."""
    condition, on_true, on_false, operands = (_resolved(walk, argument) for argument in node.args[:4])
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
    return list(op.node("If", [op.cast(condition, T.BOOL)], attributes, outputs))


def _branch(walk: Walk, name: str, body: GraphModule, operands: Sequence[Any]) -> ir.Graph:
    inner = walk.op.inner(name)
    with inner:
        for value in walk.inlined(body, operands, inner):
            inner.graph.outputs.append(own_output(inner, _value(inner, value)))
    return inner.graph


def _value(op: Builder, value: Any) -> ir.Value:
    """What is carried: numbers have shape [1], as sizes have everywhere."""
    if isinstance(value, ir.Value):
        return value
    return op.constant([value] if isinstance(value, (bool, int, float)) else value)


# Loops


def _placeholders(body: GraphModule) -> list[Any]:
    return [node.meta.get("val") for node in body.graph.nodes if node.op == "placeholder"]


def _dims(walk: Walk, meta: Any) -> Any:
    return walk.dims.of_tensor(meta) if isinstance(meta, torch.Tensor) else [1]


class _Loop:
    """A Loop whose body is a graph of torch's. ``states`` come first among the graph's arguments."""

    def __init__(self, walk: Walk, body: GraphModule, states: Sequence[Any]) -> None:
        self.walk, self.body = walk, body
        self.metas = _placeholders(body)[: len(states)]
        self.states = [(_value(walk.op, s), _dims(walk, meta)) for s, meta in zip(states, self.metas, strict=True)]
        inputs: list[Any] = [("carried", value.dtype, dims) for value, dims in self.states]
        self.inner = walk.op.inner("loop", [("iteration", T.INT64, []), ("go_on", T.BOOL, []), *inputs])
        self.iteration, self.go_on, *self.inside = self.inner.graph.inputs
        for value, meta in zip(self.inside, self.metas, strict=True):
            if isinstance(meta, torch.SymInt):
                self.inner.name_size(value, walk.dims.text(meta))

    def results(self, operands: Sequence[Any]) -> list[Any]:
        """One pass."""
        return self.walk.inlined(self.body, [*self.inside, *operands], self.inner)

    def finish(self, trips: ir.Value | None, go_on: Any, again: Any, results: Sequence[Any]) -> list[ir.Value]:
        """The node's outputs: the states, then what each pass gives, stacked."""
        op, inner = self.walk.op, self.inner
        for i, result in enumerate(results):
            value = _value(inner, result)
            if i < len(self.states):
                value = inner.cast(value, self.states[i][0].dtype)  # type: ignore[arg-type]
            inner.graph.outputs.append(own_output(inner, value))
        inner.graph.outputs.insert(0, own_output(inner, _truth(inner, again)))
        return list(loop_node(op, [trips, _truth(op, go_on)], self.states, inner.graph))


def _truth(op: Builder, value: Any) -> ir.Value:
    if isinstance(value, bool):
        return op.constant(value, T.BOOL)
    value = op.cast(value, T.BOOL)
    return op.reshape(value, []) if op.rank(value) else value


def _while_loop(walk: Walk, node: Node) -> Any:
    test, body, carried, others = (_resolved(walk, argument) for argument in node.args[:4])
    (go_on,) = walk.inlined(test, [*carried, *others], walk.op)
    loop = _Loop(walk, body, carried)
    with loop.inner:
        results = loop.results(others)
        (again,) = walk.inlined(test, [*results, *others], loop.inner)
        return loop.finish(None, go_on, again, results)


def _rows(loop: _Loop, tensors: Sequence[ir.Value], first: int = 0) -> list[ir.Value]:
    """The elements of tensors along axis 0 that a pass works on."""
    inner = loop.inner
    index = inner.Add(loop.iteration, first) if first else loop.iteration
    return [inner.Gather(tensor, index, axis=0) for tensor in tensors]


def _scan(walk: Walk, node: Node) -> Any:
    body, states, tensors, others = (_resolved(walk, argument) for argument in node.args[:4])
    op = walk.op
    loop = _Loop(walk, body, states)
    with loop.inner:
        results = loop.results([*_rows(loop, tensors), *others])
        return loop.finish(op.scalar(op.size(tensors[0], 0)), True, loop.go_on, results)


def _map(walk: Walk, node: Node) -> Any:
    body, tensors, others = (_resolved(walk, argument) for argument in node.args[:3])
    op = walk.op
    loop = _Loop(walk, body, [])
    with loop.inner:
        results = loop.results([*_rows(loop, tensors), *others])
        return loop.finish(op.scalar(op.size(tensors[0], 0)), True, loop.go_on, results)


def _associative_scan(walk: Walk, node: Node) -> Any:
    """One element after the other: the first is as it is."""
    body, tensors, others = (_resolved(walk, argument) for argument in node.args[:3])
    op = walk.op
    loop = _Loop(walk, body, [op.Gather(tensor, op.constant(0, T.INT64), axis=0) for tensor in tensors])
    with loop.inner:
        results = loop.results([*_rows(loop, tensors, 1), *others])
        length = op.scalar(op.size(tensors[0], 0))
        made = loop.finish(op.Sub(length, 1), True, loop.go_on, [*results, *results])
    rest = made[len(tensors) :]
    return [op.Concat(op.Slice(x, [0], [1], [0]), y, axis=0) for x, y in zip(tensors, rest, strict=True)]


# Attention


def _flex_attention(walk: Walk, node: Node) -> Any:
    """As PyTorch computes it without a compiler: the functions on scores, taken to whole tensors by vmap."""
    from torch._higher_order_ops.flex_attention import math_attention

    query, key, value, score, mask, scale, options, *buffers = node.args
    score_buffers, mask_buffers = (list(found) for found in (*buffers, (), ())[:2])  # type: ignore[call-overload]
    modify, hide = walk.resolve(score), walk.resolve(mask[-1])  # type: ignore[index]
    operands = [query, key, value, *score_buffers, *mask_buffers]
    count = len(score_buffers)

    def compute(q: Any, k: Any, v: Any, *others: Any) -> Any:
        blocks = (*[None] * (len(mask) - 1), hide)  # type: ignore[arg-type]
        return math_attention(q, k, v, modify, blocks, scale, options, others[:count], others[count:])  # type: ignore[arg-type]

    metas = [operand.meta["val"] if isinstance(operand, Node) else operand for operand in operands]
    traced = decompose.retrace(compute, metas)
    return None if traced is None else walk.inlined(traced, operands, walk.op)


def needed(node: Node) -> list[Node]:
    """The inputs of a node that its lowering reads: not the blocks that tell a kernel what it may skip."""
    if getattr(node.target, "__name__", "") != "flex_attention" or node.op != "call_function":
        return node.all_input_nodes
    query, key, value, score, mask, _scale, _options, *buffers = node.args
    others = [item for found in buffers for item in found]  # type: ignore[union-attr]
    return [n for n in (query, key, value, score, mask[-1], *others) if isinstance(n, Node)]  # type: ignore[index]


_RULES: dict[str, Callable[[Walk, Node], Any]] = {
    "wrap_with_set_grad_enabled": _inlined(1, lambda args: args[2:]),
    "hints_wrapper": _inlined(0, lambda args: args[1]),
    "invoke_subgraph": _inlined(0, lambda args: args[2:]),
    "tag_activation_checkpoint": _inlined(0, lambda args: args[1:]),
    "wrap_activation_checkpoint": _inlined(0, lambda args: args[1:]),
    "wrap": _inlined(0, lambda args: args[1:]),
    "strict_mode": _inlined(0, lambda args: args[1]),
    "wrap_with_autocast": _autocast,
    "cond": _cond,
    "while_loop": _while_loop,
    "scan": _scan,
    "map_impl": _map,
    "associative_scan": _associative_scan,
    "flex_attention": _flex_attention,
}
