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
from tonnx.frontends.torch.operators import decompose
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.complex import cast, dtype_of
from tonnx.lowering.regions.emit import LoopBody, if_node, tensor

if TYPE_CHECKING:
    from tonnx.frontends.torch.fx.walk import FxWalk


def lower_higher_order(walk: FxWalk, node: Node) -> Any:
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
    return any(node.op == "call_function" and (mutates(node) or writes(node)) for node in graph.graph.nodes)


def _graph_of(node: Node) -> GraphModule | None:
    value: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, GraphModule) else None


def _resolved(walk: FxWalk, argument: Any) -> Any:
    if isinstance(argument, (list, tuple)):
        return [walk.resolve(item) for item in argument]
    return walk.resolve(argument)


# Inlined


def _inlined(body: int, operands: Callable[[Sequence[Any]], Sequence[Any]]) -> Callable[[FxWalk, Node], Any]:
    """``body`` is the place of the graph among the arguments, ``operands`` picks what it is called with."""

    def rule(walk: FxWalk, node: Node) -> Any:
        arguments = list(operands(node.args))
        return walk.inlined(walk.resolve(node.args[body]), arguments, walk.op)

    return rule


def _autocast(walk: FxWalk, node: Node) -> Any:
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


def _cond(walk: FxWalk, node: Node) -> Any:
    """Both branches as graphs; what they read from outside they see by name."""
    condition, on_true, on_false, operands = (_resolved(walk, argument) for argument in node.args[:4])
    if isinstance(condition, bool):
        return walk.inlined(on_true if condition else on_false, operands, walk.op)
    sides = []
    for name, body in (("then", on_true), ("else", on_false)):
        inner = walk.op.inner(name)
        with inner:
            sides.append((inner, [_value(inner, value) for value in walk.inlined(body, operands, inner)]))
    results = zip(sides[0][1], node.meta["val"], strict=True)
    kinds = [tensor(dtype_of(value), _dims(walk, meta)) for value, meta in results]
    return if_node(walk.op, condition, sides, kinds)


def _value(op: Builder, value: Any) -> ir.Value:
    """What is carried: numbers have shape [1], as sizes have everywhere."""
    if isinstance(value, ir.Value):
        return value
    return op.constant([value] if isinstance(value, (bool, int, float)) else value)


# Loops


def _dims(walk: FxWalk, meta: Any) -> Any:
    return walk.dims.of_tensor(meta) if isinstance(meta, torch.Tensor) else [1]


Pass = Callable[[LoopBody], Sequence[Any]]
"""The results of one pass, in a body that carries something."""


def _loop(
    walk: FxWalk,
    body: GraphModule,
    states: Sequence[Any],
    course: tuple[Size | None, Any],
    run: Pass,
    again: Any = None,
) -> list[ir.Value]:
    """The states after a Loop, then what each pass gives beyond them, stacked.

    ``states`` come first among the arguments of ``body``; ``again`` says of the results whether there is another pass.
    """
    metas = [node.meta.get("val") for node in body.graph.nodes if node.op == "placeholder"][: len(states)]
    starts = [_value(walk.op, state) for state in states]
    kinds = [tensor(dtype_of(start), _dims(walk, meta)) for start, meta in zip(starts, metas, strict=True)]
    loop = LoopBody(walk.op, kinds)
    inner, count = loop.inner, len(starts)
    for value, meta in zip(loop.carried, metas, strict=True):
        if isinstance(meta, torch.SymInt):
            inner.name_size(value, walk.dims.text(meta))
    with inner:
        results = list(run(loop))
        go_on = loop.go_on if again is None else again(inner, results[:count])
        values = [_value(inner, result) for result in results]
        ends = [cast(inner, value, dtype_of(like)) for value, like in zip(values, starts, strict=False)]  # type: ignore[arg-type]
        trips, condition = course
        return loop.close(trips, condition, starts, go_on, ends, values[count:])


def _while_loop(walk: FxWalk, node: Node) -> Any:
    test, body, carried, others = (_resolved(walk, argument) for argument in node.args[:4])

    def holds(op: Builder, states: Sequence[Any]) -> Any:
        (condition,) = walk.inlined(test, [*states, *others], op)
        return condition

    def run(loop: LoopBody) -> list[Any]:
        return walk.inlined(body, [*loop.carried, *others], loop.inner)

    return _loop(walk, body, carried, (None, holds(walk.op, carried)), run, holds)


def _rows(loop: LoopBody, tensors: Sequence[ir.Value], first: int = 0) -> list[ir.Value]:
    """The elements of tensors along axis 0 that a pass works on."""
    index = loop.inner.Add(loop.iteration, first) if first else loop.iteration
    return [loop.inner.Gather(tensor, index, axis=0) for tensor in tensors]


def _over_rows(walk: FxWalk, body: GraphModule, states: Any, tensors: Any, others: Any) -> list[ir.Value]:
    def run(loop: LoopBody) -> list[Any]:
        return walk.inlined(body, [*loop.carried, *_rows(loop, tensors), *others], loop.inner)

    return _loop(walk, body, states, (walk.op.size(tensors[0], 0), True), run)


def _scan(walk: FxWalk, node: Node) -> Any:
    body, states, tensors, others = (_resolved(walk, argument) for argument in node.args[:4])
    return _over_rows(walk, body, states, tensors, others)


def _map(walk: FxWalk, node: Node) -> Any:
    body, tensors, others = (_resolved(walk, argument) for argument in node.args[:3])
    return _over_rows(walk, body, [], tensors, others)


def _associative_scan(walk: FxWalk, node: Node) -> Any:
    """One element after the other: the first is as it is."""
    body, tensors, others = (_resolved(walk, argument) for argument in node.args[:3])
    op = walk.op

    def run(loop: LoopBody) -> list[Any]:
        results = walk.inlined(body, [*loop.carried, *_rows(loop, tensors, 1), *others], loop.inner)
        return [*results, *results]

    firsts = [op.Gather(tensor, op.constant(0, T.INT64), axis=0) for tensor in tensors]
    passes = sizes.subtract(op, op.size(tensors[0], 0), 1)
    rest = _loop(walk, body, firsts, (passes, True), run)[len(tensors) :]
    return [op.Concat(op.Slice(x, [0], [1], [0]), y, axis=0) for x, y in zip(tensors, rest, strict=True)]


# Attention


def _flex_attention(walk: FxWalk, node: Node) -> Any:
    """As PyTorch computes it without a compiler: the functions on scores, taken to whole tensors by vmap."""
    from torch._higher_order_ops.flex_attention import math_attention

    query, key, value, score, mask, scale, options, *buffers = node.args
    score_buffers, mask_buffers = (list(group) for group in (*buffers, (), ())[:2])  # type: ignore[call-overload]
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
    others = [item for group in buffers for item in group]  # type: ignore[union-attr]
    return [n for n in (query, key, value, score, mask[-1], *others) if isinstance(n, Node)]  # type: ignore[index]


_RULES: dict[str, Callable[[FxWalk, Node], Any]] = {
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
