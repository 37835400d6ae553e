"""How a value crosses the border of an If or a Loop, and what two paths have in common.

A path ends with a `Snapshot` of every value that it leaves. The `Form` of two of them says what both can be turned
into: nothing but themselves if they are the same, else tensors and sequences that the node hands over. `join` finds
the narrowest one, `pack` brings a snapshot into it on each side, `unpack` makes one value of what came across.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.ir.build import Builder, T
from tonnx.ir.infer import UNKNOWN, Dim, dims_of, joined_dims
from tonnx.lowering.regions.emit import Kind
from tonnx.lowering.regions.lists import (
    DynamicList,
    empty_sequence,
    gathered,
    measured,
    number_value,
    shape_of,
    zeros,
)

NO_IDENTITY = object()
"""In the place of a thing: this is what something holds, apart from what it is."""


class Unset:
    """The value of a variable that no path reads before it is set."""

    def __repr__(self) -> str:
        return "<unset>"


UNSET = Unset()


class Unjoinable(LoweringError):
    """Two paths give values that no ONNX type covers."""


@dataclass(frozen=True)
class Container:
    """What parts are put together to: a list, a tuple (with ``keys``: a named one) or a dict."""

    kind: str
    keys: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """A value as it is at the end of a path."""

    thing: Any
    """The front end's own object, by which values are told to be the same; numbers and texts are themselves."""
    held: ir.Value | DynamicList | None = None
    """What a tensor, or a list that grows, holds."""
    parts: tuple[Snapshot, ...] = ()
    container: Container | None = None
    present: ir.Value | None = None
    """Of an Optional, whose only part is what it may be: whether it is that."""


@dataclass(frozen=True)
class Same:
    """The same value on every path: it does not cross."""

    snapshot: Snapshot


@dataclass(frozen=True)
class NumberForm:
    """A number: a value of shape [1]."""

    dtype: ir.DataType


@dataclass(frozen=True)
class TensorForm:
    """One tensor. Without ``dims``, its rank differs from path to path."""

    dtype: ir.DataType
    dims: tuple[Dim, ...] | None


@dataclass(frozen=True)
class PartsForm:
    """A fixed number of values, each in a form of its own."""

    container: Container
    parts: tuple[Form, ...]


@dataclass(frozen=True)
class ListForm:
    """A list of any length, or of the length ``count``: see `DynamicList`."""

    dtype: ir.DataType
    dims: tuple[Dim, ...] | None
    stacked: bool
    numbers: bool = False
    count: int | None = None


@dataclass(frozen=True)
class OptionalForm:
    """What may be None: a flag, and a value that is of no use without it."""

    inner: Form


Form = Same | NumberForm | TensorForm | PartsForm | ListForm | OptionalForm


class Rules:
    """What front ends differ in where two paths meet. ``op`` builds around the node."""

    def __init__(self, op: Builder) -> None:
        self.op = op

    def is_inner(self, thing: Any) -> bool:
        """Whether a thing was made on one of the paths."""
        return False

    def dtype(self, one: ir.DataType, other: ir.DataType) -> ir.DataType:
        if one == other:
            return one
        raise Unjoinable(
            f"a tensor is {one.name.lower()} on one path and {other.name.lower()} on the other",
            hint="convert both to one dtype, for example with .to(torch.float32)",
        )

    def dims(self, one: Sequence[Dim] | None, other: Sequence[Dim] | None) -> tuple[Dim, ...] | None:
        """The shape of what has one or the other."""
        return joined_dims(one, other)


# What two paths have in common


def is_number(thing: Any) -> bool:
    """Whether a thing is a number, now or at run time."""
    return isinstance(thing, (bool, int, float, ir.Value))


def number_dtype(thing: Any) -> ir.DataType:
    """The dtype of a number at run time."""
    if isinstance(thing, ir.Value):
        assert thing.dtype is not None
        return thing.dtype
    return T.BOOL if isinstance(thing, bool) else T.INT64 if isinstance(thing, int) else T.DOUBLE


def widen(form: Form) -> Form:
    """The form of a value that may become another of its kind."""
    if not isinstance(form, Same):
        return form
    snapshot = form.snapshot
    held = snapshot.held
    if isinstance(held, DynamicList):
        return ListForm(held.dtype, held.dims, held.stacked, held.numbers, held.count)
    if held is not None:
        assert held.dtype is not None
        return TensorForm(held.dtype, shape_of(held))
    if snapshot.present is not None:
        return OptionalForm(widen(Same(snapshot.parts[0])))
    if snapshot.container is not None:
        return PartsForm(snapshot.container, tuple(Same(part) for part in snapshot.parts))
    return NumberForm(number_dtype(snapshot.thing)) if is_number(snapshot.thing) else form


def join(one: Form, other: Form, rules: Rules) -> Form:
    """The narrowest form for both."""
    if isinstance(one, Same) and isinstance(other, Same) and _is_same(one.snapshot, other.snapshot, rules):
        return one
    one, other = (widen(f) if isinstance(f, Same) and f.snapshot.present is not None else f for f in (one, other))
    for this, that in ((one, other), (other, one)):
        if isinstance(this, Same) and this.snapshot.thing is UNSET:
            return _crossing(that, rules)
        if isinstance(this, Same) and this.snapshot.thing is None:
            that = _crossing(that, rules)
            return that if isinstance(that, OptionalForm) else OptionalForm(that)
    if isinstance(one, OptionalForm) or isinstance(other, OptionalForm):
        a, b = (form.inner if isinstance(form, OptionalForm) else form for form in (one, other))
        return OptionalForm(join(a, b, rules))
    return _join_wide(widen(one), widen(other), rules)


def _is_same(one: Snapshot, other: Snapshot, rules: Rules) -> bool:
    if one.thing is NO_IDENTITY:
        return one.held is not None and one.held is other.held
    return _same_thing(one.thing, other.thing) and not rules.is_inner(one.thing)


def _same_thing(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same_thing, one, other))
    return isinstance(one, (bool, int, float, str, bytes)) and (one == other or (one != one and other != other))


def _crossing(form: Form, rules: Rules) -> Form:
    """The form of a value that only one path has: what that path made must cross."""
    if isinstance(form, Same):
        snapshot, thing = form.snapshot, form.snapshot.thing
        by_value = thing is NO_IDENTITY or isinstance(thing, (ir.Value, tuple)) or snapshot.present is not None
        if not by_value and not rules.is_inner(thing):
            return form
        form = widen(form)
    if isinstance(form, PartsForm):
        return PartsForm(form.container, tuple(_crossing(part, rules) for part in form.parts))
    return form


def _join_wide(one: Form, other: Form, rules: Rules) -> Form:
    if isinstance(one, NumberForm) and isinstance(other, NumberForm) and one.dtype == other.dtype:
        return one
    if isinstance(one, TensorForm) and isinstance(other, TensorForm):
        return TensorForm(rules.dtype(one.dtype, other.dtype), rules.dims(one.dims, other.dims))
    if isinstance(one, PartsForm) and isinstance(other, PartsForm) and _alike(one, other):
        pairs = zip(one.parts, other.parts, strict=True)
        return PartsForm(one.container, tuple(join(a, b, rules) for a, b in pairs))
    if _is_list(one) and _is_list(other):
        return list_form([one, other], rules)
    raise Unjoinable(f"a variable is {_described(one)} on one path and {_described(other)} on the other")


def _alike(one: PartsForm, other: PartsForm) -> bool:
    kind = one.container.kind
    if kind != other.container.kind:
        return False
    return one.container == other.container if kind == "dict" else len(one.parts) == len(other.parts)


def _is_list(form: Form) -> bool:
    return isinstance(form, ListForm) or (isinstance(form, PartsForm) and form.container.kind == "list")


def _described(form: Form) -> str:
    if isinstance(form, Same):
        return repr(form.snapshot.thing)
    if isinstance(form, PartsForm):
        return f"a {form.container.kind} of {len(form.parts)}"
    if isinstance(form, OptionalForm):
        return "an Optional"
    name = {NumberForm: "a number", TensorForm: "a tensor", ListForm: "a list"}[type(form)]
    return f"{name} ({form.dtype.name.lower()})"


def list_form(lists: Sequence[Form], rules: Rules) -> ListForm:
    """The form of a list that is one of several: of any length, but with elements of one kind."""
    elements: list[NumberForm | TensorForm] = []
    counts: set[int | None] = set()
    for form in lists:
        if isinstance(form, ListForm):
            elements.append(NumberForm(form.dtype) if form.numbers else TensorForm(form.dtype, form.dims))
            counts.add(form.count)
            continue
        assert isinstance(form, PartsForm)
        counts.add(len(form.parts))
        for part in map(widen, form.parts):
            if not isinstance(part, (NumberForm, TensorForm)):
                raise Unjoinable(
                    f"a list grows whose elements are {_described(part)}",
                    why="at run time a list holds tensors or numbers",
                    hint="keep one list for each element of the tuples",
                )
            elements.append(part)
    count = counts.pop() if len(counts) == 1 else None
    if len({type(element) for element in elements}) != 1:
        raise Unjoinable("a list grows whose elements are of different types")
    dtype = reduce(rules.dtype, (element.dtype for element in elements))
    if isinstance(elements[0], NumberForm):
        return ListForm(dtype, (), True, True, count)
    dims = reduce(joined_dims, (element.dims for element in elements if isinstance(element, TensorForm)))
    stacked = not any(isinstance(form, ListForm) and not form.stacked for form in lists)
    # An empty list has to have the shape of the elements that it may get.
    stacked = stacked and dims is not None and all(measured(rules.op, dim) is not None for dim in dims)
    return ListForm(dtype, dims, stacked, False, count if stacked else None)


# Across the border


def kinds(form: Form) -> Iterator[Kind]:
    """The type and the shape of each value that crosses."""
    if isinstance(form, OptionalForm):
        yield ir.TensorType(T.BOOL), [1]
        yield from kinds(form.inner)
    elif isinstance(form, PartsForm):
        for part in form.parts:
            yield from kinds(part)
    elif isinstance(form, ListForm) and not form.stacked:
        yield ir.SequenceType(ir.TensorType(form.dtype)), None
    elif isinstance(form, ListForm):
        yield ir.TensorType(form.dtype), [UNKNOWN if form.count is None else form.count, *(form.dims or ())]
    elif isinstance(form, NumberForm):
        yield ir.TensorType(form.dtype), [1]
    elif isinstance(form, TensorForm):
        yield ir.TensorType(form.dtype), form.dims


def pack(op: Builder, snapshot: Snapshot, form: Form) -> list[ir.Value]:
    if isinstance(form, Same):
        return []
    if isinstance(form, OptionalForm):
        if snapshot.present is not None:
            return [snapshot.present, *pack(op, snapshot.parts[0], form.inner)]
        return [op.constant([snapshot.thing is not None], T.BOOL), *pack(op, snapshot, form.inner)]
    if snapshot.thing is None or snapshot.thing is UNSET:
        return [_stand_in(op, kind) for kind in kinds(form)]
    if isinstance(form, PartsForm):
        pairs = zip(snapshot.parts, form.parts, strict=True)
        return [value for part, inner in pairs for value in pack(op, part, inner)]
    if isinstance(form, ListForm):
        return [_packed_list(op, snapshot, form)]
    if isinstance(form, NumberForm):
        return [number_value(op, snapshot.thing, form.dtype)]
    assert isinstance(snapshot.held, ir.Value)
    value = op.cast(snapshot.held, form.dtype)
    own = dims_of(value)
    if form.dims is not None and own is not None and len(own) != len(form.dims):
        value = op.reshape(value, [1] * len(form.dims))  # a single number, once of rank 0 and once not
    return [value]


def _packed_list(op: Builder, snapshot: Snapshot, form: ListForm) -> ir.Value:
    held = snapshot.held
    if isinstance(held, DynamicList):
        return op.cast(held.value, form.dtype) if form.stacked else held.as_sequence(op).value
    items = [part.thing if form.numbers else part.held for part in snapshot.parts]
    return gathered(op, items, form.dtype, form.dims, form.stacked, form.numbers).value


def _stand_in(op: Builder, kind: Kind) -> ir.Value:
    """A value that nobody will look at, of the right type."""
    type_, dims = kind
    if isinstance(type_, ir.SequenceType):
        return empty_sequence(op, type_.dtype)
    return zeros(op, type_.dtype, dims or ())


class Maker(Protocol):
    """Makes a front end's values of what came across. ``sides`` are what each may be."""

    def number(self, value: ir.Value) -> Any: ...

    def tensor(self, value: ir.Value, sides: Sequence[Snapshot]) -> Any: ...

    def dynamic_list(self, value: DynamicList, sides: Sequence[Snapshot]) -> Any: ...

    def container(self, container: Container, parts: list[Any], sides: Sequence[Snapshot]) -> Any: ...

    def optional(self, present: ir.Value, inner: Any) -> Any: ...


def unpack(form: Form, values: Iterator[ir.Value], make: Maker, sides: Sequence[Snapshot] = ()) -> Any:
    """One value of what came across."""
    if isinstance(form, Same):
        return form.snapshot.thing
    if isinstance(form, OptionalForm):
        present = next(values)
        inner = [side.parts[0] if side.present is not None else side for side in sides]
        return make.optional(present, unpack(form.inner, values, make, inner))
    if isinstance(form, NumberForm):
        return make.number(next(values))
    if isinstance(form, TensorForm):
        return make.tensor(next(values), sides)
    if isinstance(form, ListForm):
        return make.dynamic_list(DynamicList(next(values), form.dtype, form.dims, form.stacked, form.numbers), sides)
    count = len(form.parts)
    parts = [
        unpack(part, values, make, [side.parts[i] for side in sides if len(side.parts) == count])
        for i, part in enumerate(form.parts)
    ]
    return make.container(form.container, parts, sides)
