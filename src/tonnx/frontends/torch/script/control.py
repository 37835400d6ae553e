"""prim::If and prim::Loop: followed where their course is known, If and Loop where it is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.frontends.torch.script import numbers
from tonnx.frontends.torch.script.boundary import assign, kinds, pack, unpack
from tonnx.frontends.torch.script.graphs import always_raises
from tonnx.frontends.torch.script.join import Border, Frozen, Same, Template, Unjoinable, contents, freeze, join
from tonnx.frontends.torch.script.store import Frame
from tonnx.frontends.torch.script.values import Cell, Object, Tensor
from tonnx.ir.build import Builder

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.walk import Walk

T = ir.DataType


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
            written = {
                cell: contents(builder, walk.store, cell) for cell in {**dict.fromkeys(cells), **changed_in(frame)}
            }
    finally:
        walk.op = outer
        walk.store.leave(frame)
    return Side(builder, results, written)


def changed_in(frame: Frame) -> dict[Cell, None]:
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
            walk.note_once(f"the file raises no exception where the model does: {walk.line(node)}".rstrip(": "))
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
            finish(side.builder, [v for f, t in zip(frozen, templates, strict=True) for v in pack(side.builder, f, t)])
    made: list[ir.Value] = []
    crossing = [kind for template in templates for kind in kinds(template)]
    if crossing:
        made = _if(op, condition, sides, crossing)
    values = iter(made)
    alternatives = list(zip(*(side.results for side in sides), strict=True))
    things = [unpack(t, values, pair) for t, pair in zip(templates[:count], alternatives, strict=True)]
    for cell, template in cells.items():
        assign(walk.store, cell, unpack(template, values, [side.written[cell] for side in sides]), template, False)
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
                with at_the_end(walk, side):
                    side.written[cell] = contents(side.builder, walk.store, cell)
        same_attributes(walk, cell, sides)
    try:
        results = [join(Same(a), Same(b), border) for a, b in zip(*(side.results for side in sides), strict=True)]
        cells = {
            cell: join(Same(sides[0].written[cell]), Same(sides[1].written[cell]), border) for cell in sides[0].written
        }
    except Unjoinable as error:
        error.where = error.where or walk.where(node)
        raise
    return results, cells


@contextmanager
def at_the_end(walk: Walk, side: Side) -> Iterator[None]:
    """The cells as a side left them: a list that it did not change may hold a tensor that it wrote to."""
    frame = walk.store.enter()
    try:
        for cell, frozen in side.written.items():
            assign(walk.store, cell, None, Same(frozen), False)
        with side.builder:
            yield
    finally:
        walk.store.leave(frame)


def same_attributes(walk: Walk, cell: Cell, sides: Sequence[Side]) -> None:
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
                with at_the_end(walk, side):
                    parts[name] = freeze(side.builder, walk.store, things[name])
        side.written[cell] = Frozen({n: things[n] for n in names}, tuple(parts[n] for n in names))


def _if(op: Builder, condition: ir.Value, sides: Sequence[Side], crossing: Sequence[Any]) -> list[ir.Value]:
    attributes = [
        ir.AttrGraph("then_branch", sides[0].builder.graph),
        ir.AttrGraph("else_branch", sides[1].builder.graph),
    ]
    outputs = [(dtype, dims) for dtype, dims, _ in crossing]
    made = op.node("If", [op.Squeeze(condition, [0])], attributes, outputs)
    return typed(made, crossing)


def typed(values: Sequence[ir.Value], crossing: Sequence[Any]) -> list[ir.Value]:
    for value, (dtype, _, is_sequence) in zip(values, crossing, strict=True):
        if is_sequence:
            value.type = ir.SequenceType(ir.TensorType(dtype))
    return list(values)


def finish(builder: Builder, values: Sequence[ir.Value]) -> None:
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
                clear(attribute.as_graph())
        graph.remove(node, safe=True)


def clear(graph: ir.Graph) -> None:
    graph.outputs.clear()
    for node in reversed(list(graph)):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                clear(attribute.as_graph())
        graph.remove(node, safe=True)
