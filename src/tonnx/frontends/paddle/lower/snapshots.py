"""The values of a Paddle program at the border of a branch or loop: noted, and made again of what came across."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.paddle.lower.arrays import Array, Dynamic, Growing, Listed, Unsuitable
from tonnx.frontends.paddle.read.graph import Kind, Type
from tonnx.ir.build import Builder
from tonnx.ir.infer import Dim, joined_dims, known_number
from tonnx.lowering.regions import forms
from tonnx.lowering.regions.forms import UNSET, Container, Form, PartsForm, Same, Snapshot, TensorForm, widen
from tonnx.lowering.regions.lists import DynamicList
from tonnx.lowering.values import is_float, is_integer

Thing = ir.Value | Array | None
"""What a value of the program is: a tensor, an array, or nothing where it was not assigned."""

_NO_VALUE = 1.77113e27
"""What Paddle's tracer gives a variable that is not assigned yet, as a float, whatever it will hold later."""


def assigned_value(thing: Thing, declared: Type) -> Thing:
    """A thing, where a variable without a value is None and an array without one is empty."""
    if thing is None and declared.kind is Kind.ARRAY:
        return Listed()
    number = known_number(thing)
    return None if isinstance(number, float) and np.isclose(number, _NO_VALUE, rtol=1e-6) else thing


def snapshot(thing: Any) -> Snapshot:
    if thing is None:
        return Snapshot(UNSET)
    if isinstance(thing, Growing):
        raise Unsuitable(thing)
    if isinstance(thing, Listed):
        return Snapshot(thing, parts=tuple(map(snapshot, thing.elements)), container=Container("list"))
    if isinstance(thing, Dynamic):
        return Snapshot(thing, thing.items)
    if not isinstance(thing, ir.Value):
        raise LoweringError("a list of tensors crosses the border of a loop or a branch")
    return Snapshot(thing, thing)


def carried_form(thing: Thing) -> Form:
    """The form in which a loop carries a thing if each pass may change it."""
    form = widen(Same(snapshot(thing)))
    return PartsForm(form.container, tuple(map(widen, form.parts))) if isinstance(form, PartsForm) else form


def thing_of(crossed: Any) -> Thing:
    """What came across, where a variable without a value is None."""
    return None if crossed is UNSET else crossed


class PaddleMaker:
    """Makes things of what came across."""

    def tensor(self, value: ir.Value, sides: Sequence[Snapshot]) -> Thing:
        return value

    def dynamic_list(self, value: DynamicList, sides: Sequence[Snapshot]) -> Thing:
        return Dynamic(value)

    def container(self, container: Container, parts: list[Any], sides: Sequence[Snapshot]) -> Thing:
        return Listed(tuple(parts))

    def number(self, value: ir.Value) -> Thing:
        raise AssertionError("programs of Paddle have tensors only")

    def optional(self, present: ir.Value, inner: Any) -> Thing:
        raise AssertionError("programs of Paddle have no None")


class PaddleRules(forms.Rules):
    """Where two values of one variable meet, of which the program says ``declared``.

    ``sums``: an integer that it begins with may become what a pass makes of it, as in a sum of floats from 0 on.
    """

    def __init__(self, op: Builder, declared: Type, *, sums: bool = False) -> None:
        super().__init__(op)
        self._declared, self._sums = declared, sums

    def is_inner(self, thing: Any) -> bool:
        return isinstance(thing, Array)

    def dtype(self, one: ir.DataType, other: ir.DataType) -> ir.DataType:
        if one == other:
            return one
        if (is_integer(one) and is_integer(other)) or (is_float(one) and is_float(other)):
            return max(one, other, key=lambda dtype: dtype.itemsize)
        if self._sums and is_integer(one) and is_float(other):
            return other
        raise LoweringError(
            f"a variable holds {one.name.lower()} here and {other.name.lower()} there",
            why="a loop or branch of ONNX gives one type, whichever way it goes",
            hint="cast it to one type in the model",
        )

    def dims(self, one: Sequence[Dim] | None, other: Sequence[Dim] | None) -> tuple[Dim, ...] | None:
        if {one, other} == {(), (1,)}:  # a single number, once as a vector of one: Paddle does not mind
            return () if self._declared.shape == () else (1,)
        return joined_dims(one, other)


# Is the program right about shapes?


def has_lost_sizes(old: Form, new: Form) -> bool:
    """Whether a size that was fixed is not so in the wider form."""
    if isinstance(old, PartsForm) and isinstance(new, PartsForm):
        return any(has_lost_sizes(a, b) for a, b in zip(old.parts, new.parts, strict=False))
    if not isinstance(old, TensorForm) or not isinstance(new, TensorForm) or old.dims is None or new.dims is None:
        return False
    return any(isinstance(a, int) and _unknown(b) for a, b in zip(old.dims, new.dims, strict=False))


def contradicts(form: Form, declared: Type) -> bool:
    """Whether a size is fixed in the program that differs from case to case."""
    if not isinstance(form, TensorForm) or form.dims is None or declared.shape is None:
        return False
    return any(said >= 0 and _unknown(dim) for dim, said in zip(form.dims, declared.shape, strict=False))


def _unknown(dim: Dim) -> bool:
    return not isinstance(dim, int) and dim.value is None
