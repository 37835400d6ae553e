"""Recorded loops, cut out of the graph again: an ONNX Loop each.

`frontends.torch.loops` records one pass between ``tonnx.loop_begin`` and ``tonnx.loop_end``. Here the nodes between the
two are lowered into the body of a Loop, which sees the values around it as they are. What it carries: the variables
that the recording names, and every outer tensor that the body writes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from torch.fx import Node

from tonnx.build import Builder
from tonnx.errors import LoweringError
from tonnx.frontends.torch import symbolic
from tonnx.frontends.torch.bind import to_onnx_dtype
from tonnx.frontends.torch.memory import mutates, written_argument

if TYPE_CHECKING:
    from tonnx.frontends.torch.walk import Walk

T = ir.DataType


@dataclass(frozen=True)
class Body:
    """What was recorded of a loop. A loop inside it is represented by its end."""

    begin: Node
    nodes: list[Node]


def kind_of(node: Node) -> str:
    """``begin``, ``end`` or ``drop`` of a recorded loop; empty for all other nodes."""
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    return name.removeprefix("tonnx::loop_") if name.startswith("tonnx::loop_") else ""


def arrange(nodes: Iterable[Node]) -> tuple[list[Node], dict[Node, Body]]:
    """The nodes outside of all loops, each loop represented by its end; and the bodies of the loops."""
    levels: list[list[Node]] = [[]]
    begins: list[Node] = []
    bodies: dict[Node, Body] = {}
    for node in nodes:
        kind = kind_of(node)
        if kind == "begin":
            begins.append(node)
            levels.append([])
        elif kind == "end":
            bodies[node] = Body(begins.pop(), levels.pop())
            levels[-1].append(node)
        elif kind == "drop":  # an attempt at recording that failed
            begins.pop()
            levels.pop()
        else:
            levels[-1].append(node)
    return levels[0], bodies


def lower_loop(walk: Walk, end: Node, body: Body) -> list[ir.Value | None]:
    """The results of ``tonnx.loop_end``, None where nobody uses one."""
    op = walk.op
    trips = op.scalar(walk.resolve(end.args[1]))
    carried, last, stacked = (list(nodes) for nodes in end.args[2:])  # type: ignore[union-attr, arg-type]
    used = {user.args[1] for user in end.users if user.users}
    last_used = [node for i, node in enumerate(last, len(carried)) if i in used]
    stacked_used = [node for i, node in enumerate(stacked, len(carried) + len(last)) if i in used]
    written = _written_outside(walk, body)
    _check_writes(walk, body)

    initial = [walk.resolve(node) for node in body.begin.args[1]]  # type: ignore[union-attr]
    initial += [walk.resolve(root) for root in written]
    initial += [_zeros(walk, node.meta["val"]) for node in last_used]
    inner = op.inner(
        "loop",
        [("iteration", T.INT64, []), ("go_on", T.BOOL, []), *[("carried", v.dtype, v.shape.dims) for v in initial]],
    )
    iteration, go_on, *states = inner.graph.inputs
    iteration.meta["tonnx.nonnegative"] = True
    with inner:
        walk.op = inner
        try:
            walk.define(body.begin, [iteration, *states[: len(carried)]])
            for root, state in zip(written, states[len(carried) :], strict=False):
                walk.write(root, state)
            walk.sequence(body.nodes)
            results = [walk.resolve(node) for node in [*carried, *written, *last_used, *stacked_used]]
            for value in [go_on, *results]:
                inner.graph.outputs.append(_own(inner, value))
        finally:
            walk.op = op
    made = _loop(op, trips, initial, inner.graph)
    for root, value in zip(written, made[len(carried) :], strict=False):
        walk.write(root, value)
    singles = iter([*made[: len(carried)], *made[len(carried) + len(written) :]])
    return [next(singles) if i < len(carried) or i in used else None for i in range(len(end.meta["val"]))]


def _loop(op: Builder, trips: ir.Value, initial: Sequence[ir.Value], body: ir.Graph) -> Sequence[ir.Value]:
    outputs: list[tuple[Any, Any]] = [(value.dtype, value.shape.dims if value.shape else None) for value in initial]
    for value in body.outputs[1 + len(initial) :]:
        shape = None if value.shape is None else [ir.SymbolicDim(None), *value.shape.dims]
        outputs.append((value.dtype, shape))
    attributes = [ir.AttrGraph("body", body)]
    return op.node("Loop", [trips, op.constant(True, T.BOOL), *initial], attributes, outputs)


def _own(inner: Builder, value: ir.Value) -> ir.Value:
    """A value that the body itself makes, and no other output is: what is handed through gets an Identity."""
    producer = value.producer()
    if producer is not None and producer.graph is inner.graph and value not in inner.graph.outputs:
        return value
    shape = None if value.shape is None else value.shape.dims
    return inner.node("Identity", [value], [], [(value.dtype, shape)])[0]


def _zeros(walk: Walk, like: torch.Tensor) -> ir.Value:
    """For a variable that each pass sets anew: the loop needs a first value of it, which nobody sees."""
    op = walk.op
    zero = op.constant(0, to_onnx_dtype(like.dtype))
    sizes = [s if isinstance(s, int) else symbolic.materialise(op, walk.dims, s) for s in like.shape]
    return op.Expand(zero, op.vector(sizes), _shape=walk.dims.of_tensor(like)) if sizes else zero


# Memory


def _flat(walk: Walk, body: Body) -> Iterator[Node]:
    for node in body.nodes:
        if (nested := walk.bodies.get(node)) is not None:
            yield from _flat(walk, nested)
        yield node


def _written_outside(walk: Walk, body: Body) -> list[Node]:
    """The tensors from outside of a loop that its body writes to."""
    nodes = list(_flat(walk, body))
    roots = [walk.root(written_argument(node)) for node in nodes if mutates(node)]
    return [root for root in dict.fromkeys(roots) if root not in set(nodes)]


def _check_writes(walk: Walk, body: Body) -> None:
    """Refuse a write to a carried variable that shows outside: the first pass has the outer tensor itself."""
    for node in _flat(walk, body):
        if not mutates(node):
            continue
        root = walk.root(written_argument(node))
        if root.args[:1] != (body.begin,):
            continue
        before = body.begin.args[1][root.args[1] - 1]  # type: ignore[operator, index]
        others = [user for user in before.users if user is not body.begin and user > body.begin]
        if walk.root(before).op == "placeholder" or others:
            raise LoweringError(
                f"the loop writes in place to {before.name}, which is used outside of it too",
                hint="write `x = x + y` instead of `x += y` in the loop, or copy the tensor before it",
            )


def in_reach(op: Builder, value: Any) -> bool:
    """Whether a value can be used where ``op`` builds: not if it belongs to the body of a loop that is done."""
    if isinstance(value, (list, tuple)):
        return all(in_reach(op, item) for item in value)
    graph = value.graph if isinstance(value, ir.Value) else None
    builder: Builder | None = op
    while graph is not None and builder is not None:
        if builder.graph is graph:
            return True
        builder = builder.parent
    return graph is None
