"""What of a program its outputs depend on, through loops and branches.

A loop computes and carries only what somebody needs: old programs list every variable that a body assigns, most of
them of use only inside, some of them never defined.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tonnx.frontends.paddle.read.graph import LOOPS, Block, Op, Value
from tonnx.ir.reach import reached

_JOINS = ("tensor_array_to_tensor", "pd_op.array_to_tensor")


@dataclass(frozen=True)
class Counters:
    """What the condition of a loop is computed from: operators of its body, and places of what it carries."""

    ops: list[Op]
    places: list[int]


class Needed:
    """The values and operators that ``outputs`` depend on."""

    def __init__(self, root: Block, outputs: Iterable[Value]) -> None:
        self._makers: dict[Value, tuple[Op, int]] = {}
        self._arguments: dict[Value, tuple[Op, int]] = {}
        self._users: dict[Value, list[Op | None]] = {}
        self._values: set[Value] = set()
        self._ops: set[Op] = set()
        self._list(root)
        self._work = list(outputs)
        while self._work:
            self._visit(self._work.pop())

    def ops(self, block: Block) -> list[Op]:
        """Those of a block, in order."""
        return [op for op in block.ops if op in self._ops]

    def kept(self, op: Op) -> list[int]:
        """Which results of a loop or branch are needed: places among its outputs and then its writes."""
        inside = op.blocks[0].arguments if op.name in LOOPS else []
        results = results_of(op)
        return [
            i
            for i, value in enumerate(results)
            if value in self._values or (i < len(inside) and inside[i] in self._values)
        ]

    def reads(self, value: Value | None) -> bool:
        return value in self._values

    def counters(self, loop: Op) -> Counters | None:
        """What the condition depends on; None if that takes another loop or branch."""
        (body,) = loop.blocks
        places = {argument: i for i, argument in enumerate(body.arguments)}
        seen: set[Value] = set()
        ops: set[Op] = set()
        work = [body.results[0]]
        while work:
            value = work.pop()
            if value is None or value in seen:
                continue
            seen.add(value)
            if value in places:
                work.append(body.results[1 + places[value]])
                continue
            op, _ = self._makers.get(value, (None, 0))
            if op is None or op in ops:
                continue
            if op.blocks:
                return None
            ops.add(op)
            work.extend(operand for slot in op.inputs.values() for operand in slot)
        carried = sorted(places[value] for value in seen if value in places)
        return Counters([op for op in body.ops if op in ops], carried)

    def is_only_stacked(self, array: Value | None) -> bool:
        """Whether all that is done with an array is to stack its elements, which then have one shape."""
        users = self._users.get(array, []) if array is not None else []
        return bool(users) and all(
            user is not None and user.name in _JOINS and bool(user.attributes.get("use_stack")) for user in users
        )

    def _list(self, root: Block) -> None:
        for block in reached([root], Block.inside):
            for value in block.results:
                if value is not None:
                    self._users.setdefault(value, []).append(None)
            for op in block.ops:
                read = [*(v for slot in op.inputs.values() for v in slot), *(write.before for write in op.writes)]
                for value in read:
                    if value is not None:
                        self._users.setdefault(value, []).append(op)
                values = results_of(op) if op.blocks else [v for slot in op.outputs.values() for v in slot]
                for i, value in enumerate(values):
                    if value is not None:
                        self._makers[value] = (op, i)
                if op.name in LOOPS:
                    for i, argument in enumerate(op.blocks[0].arguments):
                        self._arguments[argument] = (op, i)

    def _visit(self, value: Value) -> None:
        if value in self._values:
            return
        self._values.add(value)
        maker = self._makers.get(value) or self._arguments.get(value)
        if maker is None:
            return
        op, i = maker
        if op not in self._ops:
            self._ops.add(op)
            if op.name in LOOPS:
                self._need([op.operands[0], op.blocks[0].results[0]])
            elif op.blocks:
                self._need(op.operands)
            else:
                self._need(operand for slot in op.inputs.values() for operand in slot)
        if op.blocks:
            first = 1 if op.name in LOOPS else 0
            self._need([before_of(op, i), *(block.results[first + i] for block in op.blocks)])

    def _need(self, values: Iterable[Value | None]) -> None:
        self._work.extend(value for value in values if value is not None)


def results_of(op: Op) -> list[Value | None]:
    """What a loop or branch gives: its outputs, then what it has written."""
    return [*op.results, *(write.after for write in op.writes)]


def before_of(op: Op, place: int) -> Value | None:
    """What a result of a loop or branch was before it: a start value, or a variable that is written to."""
    outputs = len(op.results)
    if place >= outputs:
        return op.writes[place - outputs].before
    return op.operands[1 + place] if op.name in LOOPS else None
