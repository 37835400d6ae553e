"""Old branches as PIR has them: one operator with two sides.

An old program writes ``y = a if c else b`` as a block that runs if c, a block that runs if not c, and ``select_input``,
which takes the value of the one that ran. Joined, they become one If without stand-ins for what did not run.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tonnx.frontends.paddle.read.graph import BRANCHES, POSITIONAL, Block, Op, Value, Write
from tonnx.ir.reach import reached

JOINED = "pd_op.if"


@dataclass(eq=False)
class _Group:
    """What belongs to one decision."""

    condition: Value
    sides: list[Op | None]
    """The block for true, the block for false."""
    selects: list[Op] = field(default_factory=list)


def join_branches(root: Block) -> None:
    for block in reached([root], Block.inside):
        for group in _groups(block):
            _join(block, group)


def _groups(block: Block) -> list[_Group]:
    makers = {value: op for op in block.ops for value in _made(op)}
    groups: list[_Group] = []
    for op in block.ops:
        if op.name != "select_input" or len(op.inputs.get("X", [])) != 2 or len(op.outputs.get("Out", [])) != 1:
            continue
        mask = _only(op.inputs.get("Mask"))
        condition = _of(mask, makers, "cast")
        if condition is None:
            continue
        no, yes = op.inputs["X"]
        sides = [_side(yes, condition, makers, False), _side(no, condition, makers, True)]
        if sides == [None, None]:
            continue
        group = next((g for g in groups if g.condition is condition and _fits(g, sides)), None)
        if group is None:
            group = _Group(condition, [None, None])
            groups.append(group)
        group.sides = [old or new for old, new in zip(group.sides, sides, strict=True)]
        group.selects.append(op)
    return groups


def _fits(group: _Group, sides: list[Op | None]) -> bool:
    pairs = list(zip(group.sides, sides, strict=True))
    shared = any(old is new is not None for old, new in pairs)
    return shared and all(old is None or new is None or old is new for old, new in pairs)


def _side(value: Value | None, condition: Value, makers: dict[Value, Op], negated: bool) -> Op | None:
    """The block that assigns a value if the condition is true, or if it is false."""
    op = makers.get(value) if value is not None else None
    if op is None or op.name not in BRANCHES or len(op.blocks) != 1 or len(op.operands) != 1:
        return None
    if not op.attributes.get("is_scalar_condition", True):
        return None
    operand = op.operands[0]
    runs_if = _of(operand, makers, "logical_not") if negated else operand
    return op if runs_if is condition else None


def _of(value: Value | None, makers: dict[Value, Op], name: str) -> Value | None:
    """The operand of the operator ``name`` that made a value."""
    op = makers.get(value) if value is not None else None
    return _only(op.inputs.get("X")) if op is not None and op.name == name else None


def _only(values: list[Value | None] | None) -> Value | None:
    return values[0] if values is not None and len(values) == 1 else None


def _join(block: Block, group: _Group) -> None:
    """Put one operator in the place of a group, unless something between its parts keeps them apart."""
    joined = _joined(group)
    members = {op for op in (*group.sides, *group.selects) if op is not None}
    ops = []
    for op in block.ops:
        if op is group.selects[0]:
            ops.append(joined)
        elif op not in members:
            ops.append(op)
    ordered = _ordered(ops)
    if ordered is None:
        return
    block.ops = ordered
    for side in joined.blocks:
        side.parent = block
        for inner in (inner for op in side.ops for inner in op.blocks):
            inner.parent = side


def _joined(group: _Group) -> Op:
    selects, sides = group.selects, group.sides
    outputs = [select.outputs["Out"][0] for select in selects]
    results_of = [[_inner(side, select.inputs["X"][1 - at]) for select in selects] for at, side in enumerate(sides)]
    writes, earlier = list[Write](), dict[Value, tuple[Value | None, Value | None]]()
    for at, side in enumerate(sides):
        for place, write in enumerate(side.writes if side is not None else ()):
            assert side is not None
            result = side.blocks[0].results[place]
            # A variable that both sides write: the second one finds what was there before the first.
            before, other = earlier.get(write.before, (write.before, write.before)) if write.before else (None, None)
            if at == 0:
                earlier[write.after] = (before, result)
            writes.append(Write(before, write.after))
            results_of[at].append(result)
            results_of[1 - at].append(other)
    names = {after: before for after, (before, _) in earlier.items() if before is not None}
    blocks = []
    for at, side in enumerate(sides):
        inner = side.blocks[0] if side is not None else Block([])
        inner = _renamed(inner, names) if at else inner
        results = [names.get(value, value) if at and value is not None else value for value in results_of[at]]
        blocks.append(replace(inner, results=results))
    first = next(op for op in sides if op is not None)
    inputs: dict[str, list[Value | None]] = {POSITIONAL: [group.condition]}
    return Op(JOINED, inputs, {POSITIONAL: outputs}, {}, blocks, writes, first.place, first.source)


def _inner(side: Op | None, value: Value | None) -> Value | None:
    """What a value is inside of the block that assigns it."""
    if side is not None:
        for write, result in zip(side.writes, side.blocks[0].results, strict=True):
            if write.after is value:
                return result
    return value


def _renamed(block: Block, names: dict[Value, Value]) -> Block:
    if not names or not any(value in names for op in block.ops for value in _read(op)):
        return block

    def new(value: Value | None) -> Value | None:
        return names.get(value, value) if value is not None else None

    ops = []
    for op in block.ops:
        inputs = {slot: [new(value) for value in values] for slot, values in op.inputs.items()}
        blocks = [_renamed(inner, names) for inner in op.blocks]
        blocks = [replace(inner, results=[new(value) for value in inner.results]) for inner in blocks]
        writes = [Write(new(write.before), write.after) for write in op.writes]
        ops.append(replace(op, inputs=inputs, blocks=blocks, writes=writes))
    return replace(block, ops=ops)


def _made(op: Op) -> Iterator[Value]:
    yield from (value for values in op.outputs.values() for value in values if value is not None)
    yield from (write.after for write in op.writes)


def _read(op: Op) -> Iterator[Value]:
    """Everything that an operator reads, itself or in its blocks."""
    yield from (value for values in op.inputs.values() for value in values if value is not None)
    yield from (write.before for write in op.writes if write.before is not None)
    for block in op.blocks:
        yield from (value for value in block.results if value is not None)
        for inner in block.ops:
            yield from _read(inner)


def _ordered(ops: list[Op]) -> list[Op] | None:
    """The operators in an order in which everything is made before it is read, if there is one."""
    makers = {value: i for i, op in enumerate(ops) for value in _made(op)}
    needs = [{makers[value] for value in _read(op) if value in makers} for op in ops]
    users: list[list[int]] = [[] for _ in ops]
    for i, needed in enumerate(needs):
        for other in needed:
            users[other].append(i)
    ready = [i for i, needed in enumerate(needs) if not needed]
    order: list[Op] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(ops[i])
        for user in users[i]:
            needs[user].discard(i)
            if not needs[user]:
                heapq.heappush(ready, user)
    return order if len(order) == len(ops) else None
