"""The values of a TorchScript program at the border of a branch or loop: noted, and made again of what came across."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from tonnx.frontends.torch.script.store import Store, holds, link
from tonnx.frontends.torch.script.values import Cell, Dict, Fields, List, Maybe, Object, Tensor, tick
from tonnx.ir.build import Builder
from tonnx.lowering.regions.forms import NO_IDENTITY, Container, Form, Rules, Same, Snapshot
from tonnx.lowering.regions.lists import DynamicList, as_number


def snapshot(op: Builder, store: Store, thing: Any) -> Snapshot:
    if isinstance(thing, (Tensor, List, Dict)):
        held = contents(op, store, thing)
        return Snapshot(thing, held.held, held.parts, held.container)
    if isinstance(thing, tuple):
        container = Container("tuple", thing.names if isinstance(thing, Fields) else ())
        return Snapshot(thing, parts=_all(op, store, thing), container=container)
    if isinstance(thing, Maybe):
        return Snapshot(thing, parts=(snapshot(op, store, thing.inner),), present=thing.present)
    return Snapshot(thing)


def contents(op: Builder, store: Store, cell: Cell) -> Snapshot:
    """Note what a cell holds, apart from which cell it is."""
    if isinstance(cell, Tensor):
        return Snapshot(NO_IDENTITY, store.read(op, cell))
    if isinstance(cell, List):
        content = store.content(cell)
        if isinstance(content, DynamicList):
            return Snapshot(NO_IDENTITY, content)
        return Snapshot(NO_IDENTITY, parts=_all(op, store, content), container=Container("list"))
    assert isinstance(cell, (Dict, Object))
    items = store.content(cell) if isinstance(cell, Dict) else cell.content
    return Snapshot(NO_IDENTITY, parts=_all(op, store, items.values()), container=Container("dict", tuple(items)))


def _all(op: Builder, store: Store, things: Any) -> tuple[Snapshot, ...]:
    return tuple(snapshot(op, store, thing) for thing in things)


def items_of(held: Snapshot) -> dict[Any, Any]:
    """The items of a dict, or the attributes of an object, that were noted."""
    assert held.container is not None
    return dict(zip(held.container.keys, (part.thing for part in held.parts), strict=True))


class ScriptRules(Rules):
    """Cells that are younger than the rules belong to one side."""

    def __init__(self, op: Builder) -> None:
        super().__init__(op)
        self._start = tick()

    def is_inner(self, thing: Any) -> bool:
        return isinstance(thing, Cell) and thing.born > self._start


class ScriptMaker:
    """What came across shares its memory with what it may be."""

    def number(self, value: ir.Value) -> ir.Value:
        return as_number(value)

    def optional(self, present: ir.Value, inner: Any) -> Maybe:
        return Maybe(as_number(present), inner)

    def tensor(self, value: ir.Value, sides: Sequence[Snapshot]) -> Tensor:
        tensor = Tensor(value)
        for side in sides:
            if isinstance(side.thing, Tensor):
                link(tensor, side.thing.root)
        return tensor

    def dynamic_list(self, value: DynamicList, sides: Sequence[Snapshot]) -> List:
        cell = List(value)
        for part in (part.thing for side in sides for part in side.parts):
            if isinstance(part, Tensor):
                holds(cell, part)
        return _linked(cell, sides)

    def container(self, container: Container, parts: list[Any], sides: Sequence[Snapshot]) -> Any:
        if container.kind == "tuple":
            return Fields.of(parts, container.keys) if container.keys else tuple(parts)
        cell = List(parts) if container.kind == "list" else Dict(dict(zip(container.keys, parts, strict=True)))
        return _linked(cell, sides)


def _linked(cell: Any, sides: Sequence[Snapshot]) -> Any:
    for side in sides:
        if isinstance(side.thing, Cell):
            link(cell, side.thing)
    return cell


def assign(store: Store, cell: Cell, crossed: Any, form: Form, spoil: bool) -> None:
    """A cell holds what came across. ``crossed`` is what was made of its content.

    ``spoil``: what may share its memory is not known any more. So it is with a loop, where the write of one pass comes
    after what the pass before left behind. What a side of a branch wrote, it has spoilt itself.
    """
    stays = form.snapshot if isinstance(form, Same) else None
    if isinstance(cell, Tensor):
        store.set_root(cell, crossed.value if stays is None else stays.held, spoil)  # type: ignore[arg-type]
    elif isinstance(cell, List) and stays is not None:
        store.set_content(cell, stays.held or [part.thing for part in stays.parts], spoil)
    elif isinstance(cell, List):
        store.set_content(cell, crossed.content, spoil)
        link(cell, crossed)
    elif isinstance(cell, (Dict, Object)):
        items = crossed.content if stays is None else items_of(stays)
        store.set_content(cell, items, spoil and isinstance(cell, Dict))
