"""How a value that differs between two paths crosses the border of an If or a Loop.

A branch ends with some `Frozen` value. The template of two such values says what both can be turned into: nothing but
themselves if they are the same, else tensors that the If or Loop hands over (see `crossing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.torch.script import dynamic_lists
from tonnx.frontends.torch.script.store import Store
from tonnx.frontends.torch.script.values import (
    UNINITIALIZED,
    Cell,
    Dict,
    Grown,
    List,
    Maybe,
    Object,
    Tensor,
    is_number,
)
from tonnx.ir.build import Builder
from tonnx.ir.infer import UNKNOWN, dims_of, same_dim

T = ir.DataType


class Unjoinable(LoweringError):
    """Two paths give values that no ONNX type covers."""


@dataclass(frozen=True)
class Frozen:
    """A value as it is at the end of a path: ``parts`` are the values inside, ``held`` is what a tensor holds."""

    thing: Any
    parts: tuple[Frozen, ...] = ()
    held: ir.Value | None = None


def freeze(op: Builder, store: Store, thing: Any) -> Frozen:
    """Note what a value is now."""
    if isinstance(thing, Tensor):
        return Frozen(thing, held=store.read(op, thing))
    if isinstance(thing, (List, Dict)):
        return Frozen(thing, contents(op, store, thing).parts)
    if isinstance(thing, tuple):
        return Frozen(thing, tuple(freeze(op, store, item) for item in thing))
    if isinstance(thing, Maybe):
        return Frozen(thing, (freeze(op, store, thing.inner),))
    return Frozen(thing)


def contents(op: Builder, store: Store, cell: Cell) -> Frozen:
    """Note what a cell holds, apart from which cell it is."""
    if isinstance(cell, Tensor):
        return Frozen(None, held=store.read(op, cell))
    if isinstance(cell, List):
        content = store.elements(cell)
        if isinstance(content, Grown):
            return Frozen(content)
        return Frozen(list(content), tuple(freeze(op, store, item) for item in content))
    if isinstance(cell, Dict):
        items = store.items(cell)
        return Frozen(dict(items), tuple(freeze(op, store, item) for item in items.values()))
    assert isinstance(cell, Object)
    return Frozen(dict(cell.written), tuple(freeze(op, store, item) for item in cell.written.values()))


# Templates


@dataclass(frozen=True)
class Border:
    """Where values cross: ``op`` builds outside of it, and cells that are younger than ``start`` belong to one side."""

    op: Builder
    start: int


@dataclass(frozen=True)
class Same:
    """Nothing crosses: it is the same value on both sides."""

    frozen: Frozen


@dataclass(frozen=True)
class OfNumber:
    dtype: ir.DataType


@dataclass(frozen=True)
class OfTensor:
    dtype: ir.DataType
    dims: tuple[Any, ...] | None


@dataclass(frozen=True)
class OfParts:
    """A tuple, a list of fixed length, or a dict; ``like`` says which."""

    like: Any
    parts: tuple[Template, ...]


@dataclass(frozen=True)
class OfGrown:
    """A list of any length, or of the length ``count``."""

    dtype: ir.DataType
    dims: tuple[Any, ...] | None
    numbers: bool
    stacked: bool
    count: int | None = None


@dataclass(frozen=True)
class OfMaybe:
    inner: Template


Template = Same | OfNumber | OfTensor | OfParts | OfGrown | OfMaybe


def number_dtype(thing: Any) -> ir.DataType:
    """The dtype of a number at run time."""
    if isinstance(thing, ir.Value):
        assert thing.dtype is not None
        return thing.dtype
    return T.BOOL if isinstance(thing, bool) else T.INT64 if isinstance(thing, int) else T.DOUBLE


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same on every path."""
    if one is other:
        return True
    if isinstance(one, Cell) or isinstance(other, Cell) or type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return isinstance(one, (bool, int, float, str, bytes)) and (one == other or (one != one and other != other))


def widen(template: Template) -> Template:
    """The template of a value that may become another of its kind."""
    if not isinstance(template, Same):
        return template
    frozen = template.frozen
    thing = frozen.thing
    if frozen.held is not None:
        assert frozen.held.dtype is not None
        dims = dims_of(frozen.held)
        return OfTensor(frozen.held.dtype, None if dims is None else tuple(dims))
    if is_number(thing):
        return OfNumber(number_dtype(thing))
    content = thing.content if isinstance(thing, List) else thing
    if isinstance(content, Grown):
        numbers = content.dims is None
        dims_of_one = None if numbers else tuple(content.dims or ())
        return OfGrown(content.dtype, dims_of_one, numbers, content.stacked, content.count)
    if isinstance(content, (tuple, list, Dict, dict)):
        return OfParts(thing, tuple(Same(part) for part in frozen.parts))
    if isinstance(thing, Maybe):
        return OfMaybe(widen(Same(frozen.parts[0])))
    return template


def join(one: Template, other: Template, border: Border) -> Template:
    """What two templates have in common."""
    if isinstance(one, Same) and isinstance(other, Same):
        thing = one.frozen.thing
        young = isinstance(thing, Cell) and thing.born > border.start
        if one.frozen.held is None or thing is not None:
            if is_same(thing, other.frozen.thing) and not young:
                return one
        elif one.frozen.held is other.frozen.held:
            return one
    one, other = (widen(t) if isinstance(t, Same) and isinstance(t.frozen.thing, Maybe) else t for t in (one, other))
    for this, that in ((one, other), (other, one)):
        if isinstance(this, Same) and this.frozen.thing is UNINITIALIZED:
            return _settled(that, border)
        if isinstance(this, Same) and this.frozen.thing is None and this.frozen.held is None:
            that = _settled(that, border)
            return that if isinstance(that, OfMaybe) else OfMaybe(that)
        if isinstance(this, OfMaybe):
            return OfMaybe(join(this.inner, that.inner if isinstance(that, OfMaybe) else that, border))
    return _join_wide(widen(one), widen(other), border)


def _settled(template: Template, border: Border) -> Template:
    """The template of a value that only one path has: what that path made must cross."""
    if isinstance(template, Same):
        thing = template.frozen.thing
        old = thing.born < border.start if isinstance(thing, Cell) else not isinstance(thing, (ir.Value, tuple, Maybe))
        if old:
            return template
        template = widen(template)
    if isinstance(template, OfParts):
        return OfParts(template.like, tuple(_settled(part, border) for part in template.parts))
    return template


def _join_wide(one: Template, other: Template, border: Border) -> Template:
    if isinstance(one, OfNumber) and isinstance(other, OfNumber) and one.dtype == other.dtype:
        return one
    if isinstance(one, OfTensor) and isinstance(other, OfTensor):
        if one.dtype != other.dtype:
            raise Unjoinable(
                f"a tensor is {one.dtype.name.lower()} on one path and {other.dtype.name.lower()} on the other",
                hint="convert both to one dtype, for example with .to(torch.float32)",
            )
        return OfTensor(one.dtype, _join_dims(one.dims, other.dims))
    if isinstance(one, OfGrown) or isinstance(other, OfGrown) or _lists_of_other_lengths(one, other):
        return growing_join(one, other, border)
    if isinstance(one, OfParts) and isinstance(other, OfParts) and _alike(one.like, other.like):
        parts = tuple(join(a, b, border) for a, b in zip(one.parts, other.parts, strict=True))
        return OfParts(one.like, parts)
    raise Unjoinable(f"a variable is {_describe(one)} on one path and {_describe(other)} on the other")


def _describe(template: Template) -> str:
    if isinstance(template, Same):
        return repr(template.frozen.thing)
    names = {OfNumber: "a number", OfTensor: "a tensor", OfGrown: "a list", OfMaybe: "an Optional"}
    if isinstance(template, OfParts):
        return f"a {_kind(template.like)} of {len(template.parts)}"
    name = names[type(template)]
    dtype = getattr(template, "dtype", None)
    return f"{name} ({dtype.name.lower()})" if dtype is not None else name


def _kind(like: Any) -> str:
    return "list" if isinstance(like, (List, list)) else "tuple" if isinstance(like, tuple) else "dict"


def _alike(one: Any, other: Any) -> bool:
    if _kind(one) != _kind(other):
        return False
    if _kind(one) == "dict":
        return list(items_of(one)) == list(items_of(other))
    return True


def items_of(like: Any) -> Any:
    """The content of a dict, whether it is the program's or Python's."""
    return like.items if isinstance(like, Dict) else like


def _lists_of_other_lengths(one: Template, other: Template) -> bool:
    both = [t for t in (one, other) if isinstance(t, OfParts) and _kind(t.like) == "list"]
    return len(both) == 2 and len(both[0].parts) != len(both[1].parts)


def _join_dims(one: Any, other: Any) -> tuple[Any, ...] | None:
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(a if same_dim(a, b) else UNKNOWN for a, b in zip(one, other, strict=True))


def growing_join(one: Template, other: Template, border: Border) -> OfGrown:
    """A list whose length differs: its elements must be of one kind."""
    numbers: set[bool] = set()
    dtypes: set[ir.DataType] = set()
    shapes: list[tuple[Any, ...] | None] = []
    counts: set[int | None] = set()
    stacked = True
    for template in (one, other):
        if isinstance(template, OfGrown):
            numbers.add(template.numbers)
            dtypes.add(template.dtype)
            stacked = stacked and template.stacked
            counts.add(template.count)
            if not template.numbers:
                shapes.append(template.dims)
            continue
        if not isinstance(template, OfParts):
            raise Unjoinable(f"a list is {_describe(one)} on one path and {_describe(other)} on the other")
        counts.add(len(template.parts))
        for part in map(widen, template.parts):
            if not isinstance(part, (OfNumber, OfTensor)):
                raise Unjoinable(
                    f"a list grows whose elements are {_describe(part)}",
                    why="at run time a list holds tensors or numbers",
                    hint="keep one list for each element of the tuples",
                )
            numbers.add(isinstance(part, OfNumber))
            dtypes.add(part.dtype)
            if isinstance(part, OfTensor):
                shapes.append(part.dims)
    if len(numbers) != 1 or len(dtypes) != 1:
        raise Unjoinable("a list grows whose elements are of different types")
    dims: tuple[Any, ...] | None = shapes[0] if shapes else None
    for shape in shapes[1:]:
        dims = _join_dims(dims, shape)
    if not numbers.pop():
        stacked = stacked and dims is not None and dynamic_lists.can_measure(border.op, dims)
        return OfGrown(dtypes.pop(), dims, False, stacked, _one_of(counts) if stacked else None)
    return OfGrown(dtypes.pop(), None, True, True, _one_of(counts))


def _one_of(counts: set[int | None]) -> int | None:
    return next(iter(counts)) if len(counts) == 1 else None
