"""prim::Loop: passes written one after the other where they are known, an ONNX Loop where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.torch.capture.script_graphs import nodes_of
from tonnx.frontends.torch.script import numbers
from tonnx.frontends.torch.script.control import Side, aside, assigned, names_of, run, same_attributes
from tonnx.frontends.torch.script.snapshots import ScriptMaker, ScriptRules, contents, snapshot
from tonnx.frontends.torch.script.values import Cell, Object, Tensor
from tonnx.ir import facts
from tonnx.ir.build import Builder
from tonnx.lowering.regions.emit import LoopBody
from tonnx.lowering.regions.forms import Form, Same, Snapshot, join
from tonnx.lowering.regions.lists import as_number
from tonnx.lowering.regions.settle import MOST_PASSES, UNROLLED, at_start, close_loop, loop_body, settle

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.walk import ScriptWalk

FOREVER = 1 << 62
Carried = dict[int | Cell, tuple[Snapshot, Form]]
"""What a loop carries, variables by their place and cells that it writes to: as it begins, and in which form."""


def lower_loop(walk: ScriptWalk, node: Any, trips: Any, condition: Any, carried: Sequence[Any]) -> list[Any]:
    (body,) = node.blocks()
    trips, condition = numbers.as_constant(trips), numbers.as_constant(condition)
    if condition is False or (isinstance(trips, int) and trips <= 0):
        return list(carried)
    if isinstance(trips, ir.Value) or isinstance(condition, ir.Value):
        return _rolled(walk, body, trips, condition, carried)
    size = sum(1 for inner in nodes_of(body) if inner.kind() not in ("prim::Constant", "prim::GetAttr"))
    if trips * size <= UNROLLED:
        return _unrolled(walk, body, trips, carried)
    try:
        return _attempt(walk, lambda: _rolled(walk, body, trips, condition, carried))
    except LoweringError as error:
        if walk.unsupported:
            raise
        try:
            return _unrolled(walk, body, min(trips, MOST_PASSES + 1), carried)
        except TooLong:
            raise error from None


class TooLong(LoweringError):
    """A loop has too many passes to write them one after the other."""


def _attempt(walk: ScriptWalk, work: Any) -> Any:
    """Do something; if it fails, nothing was done."""
    frame = walk.store.enter()
    try:
        with walk.op.transaction():
            result = work()
    except LoweringError:
        walk.store.leave(frame)
        raise
    walk.store.keep(frame)
    return result


def _unrolled(walk: ScriptWalk, body: Any, trips: int, carried: Sequence[Any]) -> list[Any]:
    """Pass after pass, as long as it is known whether there is another."""
    done = 0
    state = list(carried)
    if _may_stop(body):
        inner = walk.op.inner("probe")
        with aside(walk, inner):
            probe = run(walk, body, [0, *state])
        inner.discard()
        if isinstance(numbers.as_constant(probe.results[0].thing), ir.Value):
            return _rolled(walk, body, trips, True, state)
    while done < trips:
        go_on, *state = walk.block(body, [done, *state])
        done += 1
        go_on = numbers.as_constant(go_on)
        if go_on is False:
            break
        if done > MOST_PASSES:
            raise TooLong("a loop has too many passes to write them one after the other")
        if isinstance(go_on, ir.Value):
            return _rolled(walk, body, trips - done, go_on, state, done)
    return state


def _may_stop(body: Any) -> bool:
    """Whether a loop can end before its last pass."""
    go_on = next(body.outputs())
    return not (go_on.node().kind() == "prim::Constant" and go_on.toIValue() is True)


def _rolled(
    walk: ScriptWalk, body: Any, trips: Any, condition: Any, variables: Sequence[Any], first: int = 0
) -> list[Any]:
    """An ONNX Loop: first all is taken to stay as it is; what does not is carried, with the sizes that stay."""
    op, rules = walk.op, ScriptRules(walk.op)
    starts = (snapshot(op, walk.store, thing) for thing in variables)

    def attempt(carried: Carried) -> tuple[Carried, Builder, tuple[LoopBody, Side]]:
        loop, side = _pass(walk, body, carried, first)
        wider: Carried = {}
        for key, end in _ends(side).items():
            before, form = carried.get(key) or _as_before(walk, key)
            if isinstance(key, Object) and names_of(before) != names_of(end):
                before, form, end = _first_set(walk, key, before, side)
            wider[key] = before, join(form, Same(end), rules)
        return _believed(carried, wider), loop.inner, (loop, side)

    begin: Carried = {i: (start, Same(start)) for i, start in enumerate(starts)}
    carried, (loop, side) = settle(begin, attempt)
    limit = None if isinstance(trips, int) and trips >= FOREVER else trips
    course = limit, condition, numbers.as_constant(side.results[0].thing)
    after, _ = close_loop(loop, carried, _ends(side), course, ScriptMaker())
    return assigned(walk, after, spoil=True)


def _ends(side: Side) -> dict[int | Cell, Snapshot]:
    """What a pass gives to the next one: without whether there is one."""
    ends: dict[int | Cell, Snapshot] = dict(enumerate(side.results[1:]))
    return ends | side.written


def _as_before(walk: ScriptWalk, cell: Any) -> tuple[Snapshot, Form]:
    before = contents(walk.op, walk.store, cell)
    return before, Same(before)


def _first_set(walk: ScriptWalk, cell: Object, before: Snapshot, side: Side) -> tuple[Snapshot, Form, Snapshot]:
    """Attributes that the body sets for the first time have their old values before the loop."""
    outside = Side(walk.op, [], {cell: before})
    same_attributes(walk, cell, [outside, side])
    return outside.written[cell], Same(outside.written[cell]), side.written[cell]


def _believed(carried: Carried, wider: Carried) -> Carried:
    """What turns out to be another value in each pass was not written to in place after all."""
    changed = [key for key, state in wider.items() if carried.get(key) != state]
    if any(not isinstance(key, Cell) for key in changed):
        return {key: state for key, state in wider.items() if not isinstance(key, Cell)}
    if any(not isinstance(key, Tensor) for key in changed):
        return {key: state for key, state in wider.items() if not isinstance(key, Tensor)}
    return wider


def _pass(walk: ScriptWalk, body: Any, carried: Carried, first: int) -> tuple[LoopBody, Side]:
    """One pass through the body, in a graph of its own."""
    loop = loop_body(walk.op, carried)
    inner = loop.inner
    with aside(walk, inner):
        index = inner.Unsqueeze(loop.iteration, [0])
        if first:
            index = inner.Add(index, first)
        facts.NONNEGATIVE.add(index)
        begun = at_start(loop, carried, ScriptMaker())
        for key, (form, _) in list(begun.items()):
            if isinstance(key, Cell) and isinstance(form, Same):  # so far nothing writes to it
                del begun[key]
        inputs = [as_number(index), *assigned(walk, begun, spoil=True)]
        return loop, run(walk, body, inputs, [key for key in carried if isinstance(key, Cell)])
