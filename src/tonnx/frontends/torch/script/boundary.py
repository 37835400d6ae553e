"""Values on their way across the border of an If or a Loop: packed into tensors on each side, and made one again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import onnx_ir as ir

from tonnx.frontends.torch.script import dynamic_lists
from tonnx.frontends.torch.script.join import (
    Frozen,
    OfGrown,
    OfMaybe,
    OfNumber,
    OfParts,
    OfTensor,
    Same,
    Template,
    items_of,
)
from tonnx.frontends.torch.script.store import Store, holds, link
from tonnx.frontends.torch.script.values import UNINITIALIZED, Cell, Dict, Fields, Grown, List, Maybe, Object, Tensor
from tonnx.ir.build import Builder
from tonnx.ir.infer import UNKNOWN, Dims

T = ir.DataType


# Across the border


def pack(op: Builder, frozen: Frozen, template: Template) -> list[ir.Value]:
    """The tensors that hand ``frozen`` over."""
    thing = frozen.thing
    if isinstance(template, Same):
        return []
    if isinstance(template, OfMaybe):
        if isinstance(thing, Maybe):
            return [thing.present, *pack(op, frozen.parts[0], template.inner)]
        absent = thing is None and frozen.held is None
        return [op.constant([not absent], T.BOOL), *pack(op, frozen, template.inner)]
    if (thing is None and frozen.held is None) or thing is UNINITIALIZED:
        return dynamic_lists.nothing(op, list(kinds(template)))
    if isinstance(template, OfTensor):
        assert frozen.held is not None
        return [frozen.held]
    if isinstance(template, OfNumber):
        return [thing if isinstance(thing, ir.Value) else op.constant([thing], template.dtype)]
    if isinstance(template, OfGrown):
        content = thing.content if isinstance(thing, List) else thing
        if not isinstance(content, Grown):
            held = [part.thing if template.numbers else part.held for part in frozen.parts]
            content = dynamic_lists.gather(op, held, template.dtype, template.dims, template.stacked)
        elif content.stacked and not template.stacked:
            content = dynamic_lists.as_sequence(op, content)
        return [content.value]
    values: list[ir.Value] = []
    for part, inner in zip(frozen.parts, template.parts, strict=True):
        values += pack(op, part, inner)
    return values


def kinds(template: Template) -> Iterator[tuple[ir.DataType, Dims | None, bool]]:
    """dtype, shape and whether it is a sequence, of each tensor that crosses."""
    if isinstance(template, OfMaybe):
        yield T.BOOL, [1], False
        yield from kinds(template.inner)
    elif isinstance(template, OfTensor):
        yield template.dtype, None if template.dims is None else list(template.dims), False
    elif isinstance(template, OfNumber):
        yield template.dtype, [1], False
    elif isinstance(template, OfGrown):
        dims = [UNKNOWN if template.count is None else template.count, *(template.dims or ())]
        yield template.dtype, dims if template.stacked else None, not template.stacked
    elif isinstance(template, OfParts):
        for part in template.parts:
            yield from kinds(part)


def unpack(template: Template, values: Iterator[ir.Value], sides: Sequence[Frozen]) -> Any:
    """One value of what crossed. ``sides`` are what it may be: it shares their memory, perhaps."""
    if isinstance(template, Same):
        return template.frozen.thing
    made: Any
    if isinstance(template, OfMaybe):
        present = next(values)
        present.meta["tonnx.number"] = True
        inner = [s.parts[0] if isinstance(s.thing, Maybe) else s for s in sides]
        return Maybe(present, unpack(template.inner, values, inner))
    if isinstance(template, OfTensor):
        made = Tensor(next(values))
        for side in sides:
            if isinstance(side.thing, Tensor):
                link(made, side.thing.root)
        return made
    if isinstance(template, OfNumber):
        value = next(values)
        value.meta["tonnx.number"] = True
        return value
    if isinstance(template, OfGrown):
        dims = None if template.numbers else template.dims or ()
        made = List(Grown(next(values), template.dtype, dims, template.stacked))
        for part in (part.thing for side in sides for part in side.parts):
            if isinstance(part, Tensor):
                holds(made, part)
    else:
        made = _rebuilt(template, values, sides)
    for side in sides:
        if isinstance(made, Cell) and isinstance(side.thing, Cell):
            link(made, side.thing)
    return made


def _rebuilt(template: OfParts, values: Iterator[ir.Value], sides: Sequence[Frozen]) -> Any:
    count = len(template.parts)
    parts = []
    for i, part in enumerate(template.parts):
        parts.append(unpack(part, values, [side.parts[i] for side in sides if len(side.parts) == count]))
    like = template.like
    if isinstance(like, Fields):
        return Fields.of(parts, like.names)
    if isinstance(like, tuple):
        return tuple(parts)
    if isinstance(like, (List, list)):
        return List(parts)
    return Dict(dict(zip(items_of(like), parts, strict=True)))


def assign(store: Store, cell: Cell, made: Any, template: Template, spoil: bool) -> None:
    """A cell holds what crossed. ``made`` is what `unpack` made of its content.

    ``spoil``: what may share its memory is not known any more. So it is with a loop, where the write of one pass comes
    after what the pass before left behind. What a side of a branch wrote, it has spoilt itself.
    """
    if isinstance(template, Same):
        frozen = template.frozen
        if isinstance(cell, Tensor):
            assert frozen.held is not None
            store.set_root(cell, frozen.held, spoil)
        elif isinstance(cell, List):
            store.set_elements(cell, frozen.thing, spoil)
        elif isinstance(cell, Dict):
            store.set_items(cell, dict(frozen.thing), spoil)
        elif isinstance(cell, Object):
            store.set_attributes(cell, dict(frozen.thing))
    elif isinstance(cell, Tensor):
        store.set_root(cell, made.value, spoil)
    elif isinstance(cell, List):
        store.set_elements(cell, made.content, spoil)
        link(cell, made)
    elif isinstance(cell, Dict):
        store.set_items(cell, made.items, spoil)
    elif isinstance(cell, Object):
        store.set_attributes(cell, made.items)
