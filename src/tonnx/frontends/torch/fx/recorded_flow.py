"""Recorded loops and branches, cut out of the graph again: an ONNX Loop or If each.

What was recorded between two of the `operators` is lowered into the inner graph of a node, which sees the values around
it as they are. A Loop carries the variables that the recording names, and every outer tensor that its body writes to;
an If gives the results that the recording names, and the outer tensors that one of its sides writes to.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch
from torch.fx import Node

from tonnx.errors import LoweringError
from tonnx.frontends.torch.capture.python_flow.operators import MARKERS
from tonnx.frontends.torch.fx.memory import mutates, written_arguments
from tonnx.frontends.torch.operators import symbolic_sizes
from tonnx.frontends.torch.operators.bind import to_onnx_dtype
from tonnx.ir.build import Builder
from tonnx.lowering.complex import REAL_OF, as_pairs, cast, dtype_of
from tonnx.lowering.regions.emit import LoopBody, if_node, kind_like, tensor

if TYPE_CHECKING:
    from tonnx.frontends.torch.fx.walk import FxWalk


@dataclass(frozen=True)
class Block:
    """What was recorded of a loop or branch. One inside it is represented by its end."""

    begin: Node
    parts: list[list[Node]] = field(default_factory=lambda: [[]])
    """The body of a loop; or the sides of a branch, and what is computed for their results outside."""


def kind_of(node: Node) -> str:
    """The name of one of our operators; empty for all other nodes."""
    name = str(getattr(getattr(node.target, "_schema", None), "name", ""))
    name = name.removeprefix("tonnx::") if name.startswith("tonnx::") else ""
    return name if name in MARKERS else ""


def arrange(nodes: Iterable[Node]) -> tuple[list[Node], dict[Node, Block]]:
    """The nodes outside of all loops and branches, each represented by its end; and what was recorded of them."""
    top: list[Node] = []
    open_blocks: list[Block] = []
    blocks: dict[Node, Block] = {}

    def level() -> list[Node]:
        return open_blocks[-1].parts[-1] if open_blocks else top

    for node in nodes:
        kind = kind_of(node)
        if kind in ("loop_begin", "if_begin", "try_begin"):
            open_blocks.append(Block(node))
        elif kind in ("if_else", "if_join"):
            open_blocks[-1].parts.append([])
        elif kind in ("loop_end", "if_end"):
            blocks[node] = block = open_blocks.pop()
            if kind == "if_end":
                level().extend(block.parts.pop())
            level().append(node)
        elif kind == "keep":
            level_before = open_blocks.pop()
            level().extend(level_before.parts[0])
        elif kind == "drop":  # an attempt at recording that failed
            open_blocks.pop()
        else:
            level().append(node)
    return top, blocks


def lower_block(walk: FxWalk, end: Node, block: Block) -> list[ir.Value | None]:
    """The results of a recorded loop or branch, None where nobody uses one."""
    return _lower_loop(walk, end, block) if kind_of(end) == "loop_end" else _lower_branch(walk, end, block)


def _used(end: Node) -> set[Any]:
    return {user.args[1] for user in end.users if user.users}


# Loops


def _lower_loop(walk: FxWalk, end: Node, block: Block) -> list[ir.Value | None]:
    op = walk.op
    trips = None if end.args[1] is None else walk.resolve(end.args[1])
    condition = walk.resolve(block.begin.args[1])
    carried, last, stacked = (list(nodes) for nodes in end.args[3:6])  # type: ignore[union-attr, arg-type]
    used = _used(end)
    last_used = [node for i, node in enumerate(last, len(carried)) if i in used]
    stacked_used = [node for i, node in enumerate(stacked, len(carried) + len(last)) if i in used]
    written = _written_outside(walk, block)
    _check_writes(walk, block)

    starts = [walk.resolve(node) for node in block.begin.args[2]]  # type: ignore[union-attr]
    metas = block.begin.meta["val"][1:]
    kinds = [tensor(dtype_of(v), walk.dims.of_tensor(meta)) for v, meta in zip(starts, metas, strict=True)]
    others = [*map(walk.resolve, written), *(_zeros(walk, node.meta["val"]) for node in last_used)]
    kinds += map(kind_like, others)
    starts += others
    loop = LoopBody(op, kinds)
    inner, go_on = loop.inner, loop.go_on
    with walk.inside(inner):
        walk.define(block.begin, [loop.iteration, *loop.carried[: len(carried)]])
        for root, state in zip(written, loop.carried[len(carried) :], strict=False):
            walk.write(root, state)
        walk.sequence(block.parts[0])
        if end.args[2] is not None:
            go_on = walk.resolve(end.args[2])
        ends = [walk.resolve(node) for node in [*carried, *written, *last_used]]
        ends = [cast(inner, value, dtype_of(start)) for value, start in zip(ends, starts, strict=True)]
        values = loop.close(trips, condition, starts, go_on, ends, [walk.resolve(node) for node in stacked_used])
    for root, value in zip(written, values[len(carried) :], strict=False):
        walk.write(root, value)
    singles = iter([*values[: len(carried)], *values[len(carried) + len(written) :]])
    return [next(singles) if i < len(carried) or i in used else None for i in range(len(end.meta["val"]))]


def _zeros(walk: FxWalk, like: torch.Tensor) -> ir.Value:
    """For a variable that each pass sets anew: the loop needs a first value of it, which nobody sees."""
    op = walk.op
    dtype = to_onnx_dtype(like.dtype)
    zero = op.constant(0, REAL_OF.get(dtype, dtype))
    sizes = [s if isinstance(s, int) else symbolic_sizes.materialise(op, walk.dims, s) for s in like.shape]
    zeros = op.Expand(zero, op.vector(sizes), _shape=walk.dims.of_tensor(like)) if sizes else zero
    return as_pairs(op, zeros) if dtype in REAL_OF else zeros


# Branches


def _lower_branch(walk: FxWalk, end: Node, block: Block) -> list[ir.Value | None]:
    used = sorted(_used(end))
    written = _written_outside(walk, block)
    metas = [end.meta["val"][i] for i in used]
    dtypes = [to_onnx_dtype(meta.dtype) for meta in metas]
    sides = []
    for name, nodes, results in zip(("then", "else"), block.parts, end.args[1:], strict=True):
        inner = walk.op.inner(name)
        with walk.inside(inner), walk.memory_kept():
            walk.sequence(nodes)
            values = [cast(inner, walk.resolve(results[i]), d) for i, d in zip(used, dtypes, strict=True)]  # type: ignore[index]
            sides.append((inner, [*values, *map(walk.resolve, written)]))
    kinds = [tensor(dtype, walk.dims.of_tensor(meta)) for dtype, meta in zip(dtypes, metas, strict=True)]
    kinds += map(kind_like, map(walk.resolve, written))
    outputs = if_node(walk.op, walk.resolve(block.begin.args[0]), sides, kinds)
    for root, value in zip(written, outputs[len(used) :], strict=True):
        walk.write(root, value)
    singles = iter(outputs)
    return [next(singles) if i in used else None for i in range(len(end.meta["val"]))]


# Memory


def _flat(walk: FxWalk, block: Block) -> Iterator[Node]:
    for nodes in block.parts:
        for node in nodes:
            if (nested := walk.blocks.get(node)) is not None:
                yield from _flat(walk, nested)
            yield node


def _written_outside(walk: FxWalk, block: Block) -> list[Node]:
    """The tensors from outside of a loop or branch that are written to inside."""
    nodes = list(_flat(walk, block))
    roots = [walk.root(written) for node in nodes if mutates(node) for written in written_arguments(node)]
    return [root for root in dict.fromkeys(roots) if root not in set(nodes)]


def _check_writes(walk: FxWalk, block: Block) -> None:
    """Refuse a write to a carried variable that shows outside: the first pass has the outer tensor itself."""
    writes = [written for node in _flat(walk, block) if mutates(node) for written in written_arguments(node)]
    for root in map(walk.root, writes):
        if root.args[:1] != (block.begin,):
            continue
        before = block.begin.args[2][root.args[1] - 1]  # type: ignore[operator, index]
        others = [user for user in before.users if user is not block.begin and user > block.begin]
        if walk.root(before).op == "placeholder" or others:
            raise LoweringError(
                f"the loop writes in place to {before.name}, which is used outside of it too",
                hint="write `x = x + y` instead of `x += y` in the loop, or copy the tensor before it",
            )


def check_result(walk: FxWalk, root: Node, at: Node) -> None:
    """Refuse a write to what a branch gave, if that may be a tensor from before it that is still used.

    In PyTorch the two are one; the result of an If is always a tensor of its own.
    """
    is_item = root.op == "call_function" and root.target is operator.getitem
    end = root.args[0] if is_item else None
    if not isinstance(end, Node) or kind_of(end) != "if_end":
        return
    inside = set(_flat(walk, walk.blocks[end]))
    for side in end.args[1:]:
        before = walk.root(side[root.args[1]])  # type: ignore[index]
        if before in inside:
            continue
        later = [user for user in before.users if user > at]
        if before.op == "placeholder" or later:
            raise LoweringError(
                f"a tensor that a branch chose is written in place, and {before.name}, which it may be, is used too",
                hint="write `y = y + z` instead of `y += z`, or copy the tensor in the branch",
            )


def in_reach(op: Builder, value: Any) -> bool:
    """Whether a value can be used where ``op`` builds: not if it belongs to an inner graph that is done."""
    if isinstance(value, (list, tuple)):
        return all(in_reach(op, item) for item in value)
    graph = value.graph if isinstance(value, ir.Value) else None
    builder: Builder | None = op
    while graph is not None and builder is not None:
        if builder.graph is graph:
            return True
        builder = builder.parent
    return graph is None
