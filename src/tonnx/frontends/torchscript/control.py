"""prim::If and prim::Loop: followed where their course is known, If and Loop where it is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.build import Builder
from tonnx.errors import LoweringError
from tonnx.frontends.torchscript import growing, numbers
from tonnx.frontends.torchscript.graphs import always_raises, nodes_of
from tonnx.frontends.torchscript.store import Frame
from tonnx.frontends.torchscript.templates import (
    Border,
    Frozen,
    Same,
    Template,
    Unjoinable,
    assign,
    contents,
    freeze,
    join,
    kinds,
    pack,
    unpack,
)
from tonnx.frontends.torchscript.things import Cell, Object, Tensor

if TYPE_CHECKING:
    from tonnx.frontends.torchscript.walk import Walk

T = ir.DataType
UNROLLED = 600
"""Nodes of a loop's body times its passes, up to which the passes are written one after the other."""
FOREVER = 1 << 62
MOST_PASSES = 4096
"""A loop that must be unrolled (it picks from lists by its index) is refused beyond this."""


@dataclass
class Side:
    """What one path gave: its results, and the contents of the older cells that it wrote to."""

    builder: Builder
    results: list[Frozen]
    written: dict[Cell, Frozen]


def run_aside(walk: Walk, builder: Builder, block: Any, inputs: Sequence[Any], cells: Sequence[Cell] = ()) -> Side:
    """Run a block in a graph of its own; all that it wrote is taken back, and noted. ``cells`` are noted anyway."""
    frame = walk.store.enter()
    outer, walk.op = walk.op, builder
    try:
        with builder:
            results = [freeze(builder, walk.store, thing) for thing in walk.block(block, inputs)]
            written = {cell: contents(builder, walk.store, cell) for cell in {**dict.fromkeys(cells), **_changed(frame)}}
    finally:
        walk.op = outer
        walk.store.leave(frame)
    return Side(builder, results, written)


def _changed(frame: Frame) -> dict[Cell, None]:
    """The older cells that a path wrote to. Views follow their root, and what was spoilt is not read again."""
    changed: dict[Cell, None] = {}
    for cell in frame.outer():
        if cell.poison or cell.state() == frame.before[cell]:
            continue
        if not isinstance(cell, Tensor) or (cell.parent is None and cell.version != frame.before[cell][1]):
            changed[cell] = None
    return changed


# If


def lower_if(walk: Walk, node: Any, condition: Any) -> list[Any]:
    """The results of prim::If."""
    then, other = node.blocks()
    condition = numbers.known(condition)
    if not isinstance(condition, ir.Value):
        return walk.block(then if condition else other, [])
    for block, instead in ((then, other), (other, then)):
        if always_raises(block):
            walk.note_once(f"an exception is not raised in the file: {walk.line(node) or 'in a branch'}")
            return walk.block(instead, [])
    op = walk.op
    start = Frame().start
    sides = [run_aside(walk, op.inner(name), block, []) for name, block in (("then", then), ("else", other))]
    results, cells = _joined(walk, sides, Border(op, start), node)
    count = len(results)
    templates = [*results, *cells.values()]
    for side in sides:
        with side.builder:
            frozen = [*side.results, *(side.written[cell] for cell in cells)]
            _finish(side.builder, [v for f, t in zip(frozen, templates, strict=True) for v in pack(side.builder, f, t)])
    made: list[ir.Value] = []
    crossing = [kind for template in templates for kind in kinds(template)]
    if crossing:
        made = _if(op, condition, sides, crossing)
    values = iter(made)
    alternatives = list(zip(*(side.results for side in sides), strict=True))
    things = [unpack(t, values, pair) for t, pair in zip(templates[:count], alternatives, strict=True)]
    for cell, template in cells.items():
        assign(walk.store, cell, unpack(template, values, [side.written[cell] for side in sides]), template)
    if not crossing:
        for side in sides:
            discard(side.builder)
    return things


def _joined(
    walk: Walk, sides: Sequence[Side], border: Border, node: Any
) -> tuple[list[Template], dict[Cell, Template]]:
    for cell in {**sides[0].written, **sides[1].written}:
        for side in sides:
            if cell not in side.written:
                side.written[cell] = contents(border.op, walk.store, cell)
        _same_attributes(walk, cell, sides)
    try:
        results = [join(Same(a), Same(b), border) for a, b in zip(*(side.results for side in sides), strict=True)]
        cells = {
            cell: join(Same(sides[0].written[cell]), Same(sides[1].written[cell]), border) for cell in sides[0].written
        }
    except Unjoinable as error:
        error.where = error.where or walk.where(node)
        raise
    return results, cells


def _same_attributes(walk: Walk, cell: Cell, sides: Sequence[Side]) -> None:
    """An attribute that only one path set has its old value on the other."""
    if not isinstance(cell, Object):
        return
    names = list(dict.fromkeys(name for side in sides for name in side.written[cell].thing))
    for side in sides:
        frozen = side.written[cell]
        parts = dict(zip(frozen.thing, frozen.parts, strict=True))
        things = dict(frozen.thing)
        for name in names:
            if name not in parts:
                things[name] = walk.attribute(cell, name)
                parts[name] = freeze(walk.op, walk.store, things[name])
        side.written[cell] = Frozen({n: things[n] for n in names}, tuple(parts[n] for n in names))


def _if(op: Builder, condition: ir.Value, sides: Sequence[Side], crossing: Sequence[Any]) -> list[ir.Value]:
    attributes = [
        ir.AttrGraph("then_branch", sides[0].builder.graph),
        ir.AttrGraph("else_branch", sides[1].builder.graph),
    ]
    outputs = [(dtype, dims) for dtype, dims, _ in crossing]
    made = op.node("If", [op.Squeeze(condition, [0])], attributes, outputs)
    return _typed(made, crossing)


def _typed(values: Sequence[ir.Value], crossing: Sequence[Any]) -> list[ir.Value]:
    for value, (dtype, _, is_sequence) in zip(values, crossing, strict=True):
        if is_sequence:
            value.type = ir.SequenceType(ir.TensorType(dtype))
    return list(values)


def _finish(builder: Builder, values: Sequence[ir.Value]) -> None:
    """The outputs of a body: each made in it, and once."""
    for value in values:
        producer = value.producer()
        if producer is None or producer.graph is not builder.graph or value in builder.graph.outputs:
            dims = None if value.shape is None else list(value.shape.dims)
            kind = value.type
            (value,) = builder.node("Identity", [value], [], [(value.dtype, dims)])
            value.type = kind
        builder.graph.outputs.append(value)


def discard(builder: Builder) -> None:
    """Forget a graph: nothing outside may look as if it were used there."""
    graph = builder.graph
    graph.outputs.clear()
    for node in reversed(list(graph)):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                _clear(attribute.as_graph())
        graph.remove(node, safe=True)


def _clear(graph: ir.Graph) -> None:
    graph.outputs.clear()
    for node in reversed(list(graph)):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                _clear(attribute.as_graph())
        graph.remove(node, safe=True)


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
    op = walk.op
    before = len(op.graph)
    sizes, constants = dict(op._named_sizes), dict(op._constants)
    try:
        result = work()
    except LoweringError:
        walk.store.leave(frame)
        walk.op = op
        for made in reversed(list(op.graph)[before:]):
            for attribute in made.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    _clear(attribute.as_graph())
            op.graph.remove(made, safe=True)
        op._named_sizes, op._constants = sizes, constants
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
    _same_attributes(walk, cell, pair)
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
    _typed(states, crossing)
    values = iter(states)
    frame = walk.store.enter()
    outer, walk.op = walk.op, inner
    try:
        with inner:
            index = inner.Unsqueeze(iteration, [0])
            if first:
                index = inner.Add(index, first)
            index.meta["tonnx.nonnegative"] = True
            growing.as_number(index)
            things = [unpack(t, values, [f]) for t, f in zip(templates, initial, strict=True)]
            for cell, (before, template) in cells.items():
                made = unpack(template, values, [before])
                if not isinstance(template, Same):
                    assign(walk.store, cell, made, template)
            side = run_here(walk, inner, body, [index, *things], list(cells))
    finally:
        walk.op = outer
        walk.store.leave(frame)
    return side, things


def run_here(walk: Walk, inner: Builder, body: Any, inputs: Sequence[Any], cells: Sequence[Cell]) -> Side:
    """Run a block in the frame that is open, and note what it gave and wrote."""
    results = [freeze(inner, walk.store, thing) for thing in walk.block(body, inputs)]
    changed = _changed(walk.store.frame)
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
        _finish(inner, [scalar, *ends])
    begin = [*initial, *(before for before, _ in cells.values())]
    starts = [v for frozen, template in zip(begin, both, strict=True) for v in pack(op, frozen, template)]
    crossing = [kind for template in both for kind in kinds(template)]
    limit = None if isinstance(trips, int) and trips >= FOREVER else op.scalar(trips)
    begins = op.Squeeze(condition, [0]) if isinstance(condition, ir.Value) else op.constant(bool(condition), T.BOOL)
    outputs = [(dtype, dims) for dtype, dims, _ in crossing]
    made = op.node("Loop", [limit, begins, *starts], [ir.AttrGraph("body", inner.graph)], outputs)
    values = iter(_typed(made, crossing))
    things = [
        unpack(template, values, pair)
        for template, *pair in zip(templates, initial, results, strict=True)
    ]
    for cell, (before, template) in cells.items():
        crossed = unpack(template, values, [before, side.written[cell]])
        assign(walk.store, cell, crossed, template)
    return things
