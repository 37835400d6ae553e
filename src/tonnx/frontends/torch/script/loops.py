"""prim::Loop: passes written one after the other where they are known, an ONNX Loop where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.torch.script import dynamic_lists, numbers
from tonnx.frontends.torch.script.boundary import assign, kinds, pack, unpack
from tonnx.frontends.torch.script.control import (
    Side,
    changed_in,
    discard,
    finish,
    run_aside,
    same_attributes,
    typed,
)
from tonnx.frontends.torch.script.graphs import nodes_of
from tonnx.frontends.torch.script.join import Border, Frozen, Same, Template, Unjoinable, contents, freeze, join
from tonnx.frontends.torch.script.store import Frame
from tonnx.frontends.torch.script.values import Cell, Object, Tensor
from tonnx.ir.build import Builder

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.walk import Walk

T = ir.DataType


UNROLLED = 600
"""Nodes of a loop's body times its passes, up to which the passes are written one after the other."""

FOREVER = 1 << 62

MOST_PASSES = 4096
"""A loop that must be unrolled (it picks from lists by its index) is refused beyond this."""


# Loop


def lower_loop(walk: Walk, node: Any, trips: Any, condition: Any, carried: Sequence[Any]) -> list[Any]:
    """The results of prim::Loop."""
    (body,) = node.blocks()
    trips, condition = numbers.known(trips), numbers.known(condition)
    if condition is False or (isinstance(trips, int) and trips <= 0):
        return list(carried)
    if isinstance(trips, ir.Value) or isinstance(condition, ir.Value):
        return _rolled(walk, node, body, trips, condition, carried)
    size = sum(1 for inner in nodes_of(body) if inner.kind() not in ("prim::Constant", "prim::GetAttr"))
    if trips * size <= UNROLLED:
        return _unrolled(walk, node, body, trips, carried)
    try:
        return _attempt(walk, lambda: _rolled(walk, node, body, trips, condition, carried))
    except LoweringError as error:
        if walk.unsupported:
            raise
        try:
            return _unrolled(walk, node, body, min(trips, MOST_PASSES + 1), carried)
        except TooLong:
            raise error from None


class TooLong(LoweringError):
    """A loop has too many passes to write them one after the other."""


def _attempt(walk: Walk, work: Any) -> Any:
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


def _unrolled(walk: Walk, node: Any, body: Any, trips: int, carried: Sequence[Any]) -> list[Any]:
    """Pass after pass, as long as it is known whether there is another."""
    done = 0
    state = list(carried)
    if _may_stop(body):
        probe = run_aside(walk, walk.op.inner("probe"), body, [0, *state])
        discard(probe.builder)
        if isinstance(numbers.known(probe.results[0].thing), ir.Value):
            return _rolled(walk, node, body, trips, True, state)
    while done < trips:
        go_on, *state = walk.block(body, [done, *state])
        done += 1
        go_on = numbers.known(go_on)
        if go_on is False:
            break
        if done > MOST_PASSES:
            raise TooLong("a loop has too many passes to write them one after the other")
        if isinstance(go_on, ir.Value):
            return _rolled(walk, node, body, trips - done, go_on, state, done)
    return state


def _may_stop(body: Any) -> bool:
    """Whether a loop can end before its last pass."""
    go_on = next(body.outputs())
    return not (go_on.node().kind() == "prim::Constant" and go_on.toIValue() is True)


def _rolled(
    walk: Walk, node: Any, body: Any, trips: Any, condition: Any, carried: Sequence[Any], first: int = 0
) -> list[Any]:
    """An ONNX Loop.

    What it carries is found by running the body until that no longer changes: first all is taken to stay as it is,
    then what does not becomes a tensor, and sizes that change become unknown.
    """
    op = walk.op
    border = Border(op, Frame().start)
    initial = [freeze(op, walk.store, thing) for thing in carried]
    templates: list[Template] = [Same(frozen) for frozen in initial]
    cells: dict[Cell, tuple[Frozen, Template]] = {}
    for _ in range(32):
        side, entered = _pass(walk, body, templates, initial, cells, first)
        state, results = side.results[0], side.results[1:]
        try:
            joined = [join(a, Same(b), border) for a, b in zip(templates, results, strict=True)]
            found: dict[Cell, tuple[Frozen, Template]] = {}
            for cell in side.written:
                before, template = cells.get(cell) or _content_before(walk, cell, side)
                before, template = _grown_attributes(walk, cell, side, before, template)
                found[cell] = (before, join(template, Same(side.written[cell]), border))
        except Unjoinable as error:
            error.where = error.where or walk.where(node)
            raise
        if joined == templates and found == cells:
            return _loop(walk, side, entered, templates, initial, cells, (trips, condition, state.thing), results)
        discard(side.builder)
        # What turns out to be another value in each pass was not written to in place after all.
        if joined != templates:
            found = {}
        elif any(cells.get(cell) != found[cell] for cell in found if not isinstance(cell, Tensor)):
            found = {cell: content for cell, content in found.items() if not isinstance(cell, Tensor)}
        templates, cells = joined, found
    raise LoweringError("what a loop carries does not settle", where=walk.where(node))


def _content_before(walk: Walk, cell: Cell, side: Side) -> tuple[Frozen, Template]:
    before = contents(walk.op, walk.store, cell)
    return before, Same(before)


def _grown_attributes(
    walk: Walk, cell: Cell, side: Side, before: Frozen, template: Template
) -> tuple[Frozen, Template]:
    """Attributes that the body sets for the first time have their old values before the loop."""
    if not isinstance(cell, Object) or list(before.thing) == list(side.written[cell].thing):
        return before, template
    pair = [Side(walk.op, [], {cell: before}), side]
    same_attributes(walk, cell, pair)
    return pair[0].written[cell], Same(pair[0].written[cell])


def _pass(
    walk: Walk,
    body: Any,
    templates: Sequence[Template],
    initial: Sequence[Frozen],
    cells: dict[Cell, tuple[Frozen, Template]],
    first: int,
) -> tuple[Side, Any]:
    """One pass through the body, in a graph of its own."""
    crossing = [kind for template in (*templates, *(t for _, t in cells.values())) for kind in kinds(template)]
    inputs: list[Any] = [("iteration", T.INT64, []), ("go_on", T.BOOL, [])]
    inputs += [("carried", dtype, dims) for dtype, dims, _ in crossing]
    inner = walk.op.inner("loop", inputs)
    iteration, _, *states = inner.graph.inputs
    typed(states, crossing)
    values = iter(states)
    frame = walk.store.enter()
    outer, walk.op = walk.op, inner
    try:
        with inner:
            index = inner.Unsqueeze(iteration, [0])
            if first:
                index = inner.Add(index, first)
            index.meta["tonnx.nonnegative"] = True
            dynamic_lists.as_number(index)
            things = [unpack(t, values, [f]) for t, f in zip(templates, initial, strict=True)]
            for cell, (before, template) in cells.items():
                made = unpack(template, values, [before])
                if not isinstance(template, Same):
                    assign(walk.store, cell, made, template, True)
            side = run_here(walk, inner, body, [index, *things], list(cells))
    finally:
        walk.op = outer
        walk.store.leave(frame)
    return side, things


def run_here(walk: Walk, inner: Builder, body: Any, inputs: Sequence[Any], cells: Sequence[Cell]) -> Side:
    """Run a block in the frame that is open, and note what it gave and wrote."""
    results = [freeze(inner, walk.store, thing) for thing in walk.block(body, inputs)]
    changed = changed_in(walk.store.frame)
    written = {cell: contents(inner, walk.store, cell) for cell in {**dict.fromkeys(cells), **changed}}
    return Side(inner, results, written)


def _loop(
    walk: Walk,
    side: Side,
    entered: Sequence[Any],
    templates: Sequence[Template],
    initial: Sequence[Frozen],
    cells: dict[Cell, tuple[Frozen, Template]],
    course: tuple[Any, Any, Any],
    results: Sequence[Frozen],
) -> list[Any]:
    op, inner = walk.op, side.builder
    trips, condition, go_on = course
    both = [*templates, *(template for _, template in cells.values())]
    with inner:
        last = [*results, *(side.written[cell] for cell in cells)]
        ends = [v for frozen, template in zip(last, both, strict=True) for v in pack(inner, frozen, template)]
        go_on = numbers.known(go_on)
        scalar = inner.Squeeze(go_on, [0]) if isinstance(go_on, ir.Value) else inner.constant(bool(go_on), T.BOOL)
        finish(inner, [scalar, *ends])
    begin = [*initial, *(before for before, _ in cells.values())]
    starts = [v for frozen, template in zip(begin, both, strict=True) for v in pack(op, frozen, template)]
    crossing = [kind for template in both for kind in kinds(template)]
    limit = None if isinstance(trips, int) and trips >= FOREVER else op.scalar(trips)
    begins = op.Squeeze(condition, [0]) if isinstance(condition, ir.Value) else op.constant(bool(condition), T.BOOL)
    outputs = [(dtype, dims) for dtype, dims, _ in crossing]
    made = op.node("Loop", [limit, begins, *starts], [ir.AttrGraph("body", inner.graph)], outputs)
    values = iter(typed(made, crossing))
    things = [unpack(template, values, pair) for template, *pair in zip(templates, initial, results, strict=True)]
    for cell, (before, template) in cells.items():
        crossed = unpack(template, values, [before, side.written[cell]])
        assign(walk.store, cell, crossed, template, True)
    return things
