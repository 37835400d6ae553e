"""prim::If: followed where its course is known, an ONNX If where it is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from tonnx.frontends.torch.capture.script_graphs import always_raises
from tonnx.frontends.torch.script import numbers
from tonnx.frontends.torch.script.snapshots import ScriptMaker, ScriptRules, assign, contents, snapshot
from tonnx.frontends.torch.script.store import Frame
from tonnx.frontends.torch.script.values import Cell, Object, Tensor
from tonnx.ir.build import Builder
from tonnx.lowering.regions.forms import Container, Form, Same, Snapshot
from tonnx.lowering.regions.settle import choose

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.walk import ScriptWalk


@dataclass
class Side:
    """What one path gave: its results, and the contents of the older cells that it wrote to."""

    builder: Builder
    results: list[Snapshot]
    written: dict[Cell, Snapshot]


@contextmanager
def aside(walk: ScriptWalk, builder: Builder) -> Iterator[None]:
    """Lower into a graph of its own; all that is written meanwhile is taken back."""
    frame = walk.store.enter()
    outer, walk.op = walk.op, builder
    try:
        with builder:
            yield
    finally:
        walk.op = outer
        walk.store.leave(frame)


def run(walk: ScriptWalk, block: Any, inputs: Sequence[Any], cells: Sequence[Cell] = ()) -> Side:
    """Run a block `aside`, and note what it gave and wrote. ``cells`` are noted anyway."""
    op = walk.op
    results = [snapshot(op, walk.store, thing) for thing in walk.block(block, inputs)]
    changed = {**dict.fromkeys(cells), **_changed(walk.store.frame)}
    return Side(op, results, {cell: contents(op, walk.store, cell) for cell in changed})


def _changed(frame: Frame) -> dict[Cell, None]:
    """The older cells that a path wrote to. Views follow their root, and what was spoilt is not read again."""
    changed: dict[Cell, None] = {}
    for cell in frame.outer():
        if cell.poison or cell.state() == frame.before[cell]:
            continue
        if not isinstance(cell, Tensor) or (cell.parent is None and cell.version != frame.before[cell][1]):
            changed[cell] = None
    return changed


def lower_if(walk: ScriptWalk, node: Any, condition: Any) -> list[Any]:
    then, other = node.blocks()
    condition = numbers.as_constant(condition)
    if not isinstance(condition, ir.Value):
        return walk.block(then if condition else other, [])
    for block, instead in ((then, other), (other, then)):
        if always_raises(block):
            walk.note_once(f"the file raises no exception where the model does: {walk.line(node)}".rstrip(": "))
            return walk.block(instead, [])
    rules, sides = ScriptRules(walk.op), []
    for name, block in (("then", then), ("else", other)):
        inner = walk.op.inner(name)
        with aside(walk, inner):
            sides.append(run(walk, block, []))
    _complete(walk, sides)
    ends: list[tuple[Builder, dict[int | Cell, Snapshot]]] = [
        (side.builder, {**dict(enumerate(side.results)), **side.written})  # type: ignore[dict-item]
        for side in sides
    ]
    return assigned(walk, choose(walk.op, condition, ends, lambda key: rules, ScriptMaker()), spoil=False)


def assigned(walk: ScriptWalk, crossed: Mapping[int | Cell, tuple[Form, Any]], spoil: bool) -> list[Any]:
    """Let cells hold what came across; gives the other values, in order."""
    for key, (form, value) in crossed.items():
        if isinstance(key, Cell):
            assign(walk.store, key, value, form, spoil)
    return [value for key, (_, value) in crossed.items() if not isinstance(key, Cell)]


def _complete(walk: ScriptWalk, sides: Sequence[Side]) -> None:
    """Note on each side what only the other has written."""
    for cell in {**sides[0].written, **sides[1].written}:
        for side in sides:
            if cell not in side.written:
                with _at_the_end(walk, side):
                    side.written[cell] = contents(side.builder, walk.store, cell)
        same_attributes(walk, cell, sides)


@contextmanager
def _at_the_end(walk: ScriptWalk, side: Side) -> Iterator[None]:
    """The cells as a side left them: a list that it did not change may hold a tensor that it wrote to."""
    frame = walk.store.enter()
    try:
        for cell, held in side.written.items():
            assign(walk.store, cell, None, Same(held), spoil=False)
        with side.builder:
            yield
    finally:
        walk.store.leave(frame)


def same_attributes(walk: ScriptWalk, cell: Cell, sides: Sequence[Side]) -> None:
    """An attribute that only one path set has its old value on the other."""
    if not isinstance(cell, Object):
        return
    names = tuple(dict.fromkeys(name for side in sides for name in names_of(side.written[cell])))
    for side in sides:
        held = side.written[cell]
        parts = dict(zip(names_of(held), held.parts, strict=True))
        for name in names:
            if name not in parts:
                with _at_the_end(walk, side):
                    parts[name] = snapshot(side.builder, walk.store, walk.attribute(cell, name))
        side.written[cell] = replace(
            held, parts=tuple(parts[name] for name in names), container=Container("dict", names)
        )


def names_of(held: Snapshot) -> tuple[Any, ...]:
    """The attributes that were noted of an object."""
    assert held.container is not None
    return held.container.keys
