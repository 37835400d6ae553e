"""How tensors and arrays cross the border of a loop's or branch's graph: as which values of which types.

Both branches of an If, and the start and the next value of a Loop, have to have one form. `join` finds the narrowest
one for two things; ``values`` brings a thing into it, ``thing`` makes a thing of values again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.paddle.lower.arrays import (
    Array,
    Chained,
    Growing,
    Listed,
    Stacked,
    Unsuitable,
    common,
    merged_dims,
    sequence,
)
from tonnx.frontends.paddle.lower.bind import constant
from tonnx.frontends.paddle.read.graph import Kind, Type
from tonnx.ir.build import Builder, Size
from tonnx.ir.infer import UNKNOWN, Dim, Dims, dims_of, same_dim
from tonnx.lowering.values import is_float, is_integer

T = ir.DataType
Thing = ir.Value | Array | None
"""What a value of the program is: a tensor, an array, or nothing where it was not assigned."""

_NO_VALUE = 1.77113e27
"""What Paddle's tracer gives a variable that is not assigned yet, as a float, whatever it will hold later."""


@dataclass(frozen=True)
class TensorForm:
    """One tensor. Without ``dims``, its rank differs from case to case."""

    dtype: ir.DataType
    dims: tuple[Dim, ...] | None

    @property
    def types(self) -> list[tuple[ir.TypeProtocol, tuple[Dim, ...] | None]]:
        return [(ir.TensorType(self.dtype), self.dims)]

    def values(self, op: Builder, thing: Thing) -> list[ir.Value]:
        if thing is None:  # not assigned: nobody reads it, but it has to be something
            sizes = [dim if isinstance(dim, int) else 0 for dim in self.dims or ()]
            return [op.constant(np.zeros(sizes), self.dtype)]
        assert isinstance(thing, ir.Value)
        value = op.cast(thing, self.dtype)
        own = dims_of(value)
        if self.dims is not None and own is not None and len(own) != len(self.dims):
            value = op.reshape(value, [1] * len(self.dims))
        return [value]

    def thing(self, values: Sequence[ir.Value]) -> Thing:
        return values[0]


@dataclass(frozen=True)
class ListForm:
    """An array of a fixed length: its elements one by one."""

    elements: tuple[TensorForm, ...]

    @property
    def types(self) -> list[tuple[ir.TypeProtocol, tuple[Dim, ...] | None]]:
        return [found for element in self.elements for found in element.types]

    def values(self, op: Builder, thing: Thing) -> list[ir.Value]:
        assert isinstance(thing, Listed)
        pairs = zip(self.elements, thing.elements, strict=True)
        return [value for form, element in pairs for value in form.values(op, element)]

    def thing(self, values: Sequence[ir.Value]) -> Thing:
        return Listed(tuple(values))


@dataclass(frozen=True)
class StackForm:
    """An array of elements of one shape: one tensor."""

    dtype: ir.DataType
    dims: tuple[Dim, ...]

    @property
    def types(self) -> list[tuple[ir.TypeProtocol, tuple[Dim, ...] | None]]:
        return [(ir.TensorType(self.dtype), (UNKNOWN, *self.dims))]

    def values(self, op: Builder, thing: Thing) -> list[ir.Value]:
        if isinstance(thing, Stacked):
            return [op.cast(thing.tensor, self.dtype)]
        assert isinstance(thing, Listed)
        if thing.elements:
            return [op.cast(thing.joined(op, 0, stack=True)[0], self.dtype)]
        sizes: list[Size] = [0, *(dim if isinstance(dim, int) else _named(op, str(dim.value)) for dim in self.dims)]
        return [op.Expand(op.constant(0, self.dtype), op.vector(sizes), _shape=[0, *self.dims])]

    def thing(self, values: Sequence[ir.Value]) -> Thing:
        return Stacked(values[0])


@dataclass(frozen=True)
class ChainForm:
    """An array of any elements: a sequence."""

    dtype: ir.DataType
    dims: tuple[Dim, ...] | None
    empty: bool = False

    @property
    def types(self) -> list[tuple[ir.TypeProtocol, tuple[Dim, ...] | None]]:
        return [(ir.SequenceType(ir.TensorType(self.dtype)), None)]

    def values(self, op: Builder, thing: Thing) -> list[ir.Value]:
        if isinstance(thing, Listed):
            thing = thing.chained(op, self.dtype)
        elif isinstance(thing, Stacked):
            thing = thing.chained(op)
        assert isinstance(thing, Chained)
        return [thing.value]

    def thing(self, values: Sequence[ir.Value]) -> Thing:
        dims = None if self.dims is None else list(self.dims)
        return Chained(sequence(values[0], self.dtype), self.dtype, dims, self.empty)


@dataclass(frozen=True)
class NoForm:
    """Nothing: the variable is not assigned."""

    @property
    def types(self) -> list[tuple[ir.TypeProtocol, tuple[Dim, ...] | None]]:
        return []

    def values(self, op: Builder, thing: Thing) -> list[ir.Value]:
        return []

    def thing(self, values: Sequence[ir.Value]) -> Thing:
        return None


Form = TensorForm | ListForm | StackForm | ChainForm | NoForm


def given(thing: Thing, declared: Type) -> Thing:
    """A thing, where a variable without a value is None and an array without one is empty."""
    if thing is None and declared.kind is Kind.ARRAY:
        return Listed()
    known = constant(thing) if isinstance(thing, ir.Value) and is_float(thing.dtype) else None
    if known is not None and known.size == 1 and np.isclose(float(known.reshape(-1)[0]), _NO_VALUE, rtol=1e-6):
        return None
    return thing


def form_of(thing: Any) -> Form:
    """The narrowest form of one thing."""
    if thing is None:
        return NoForm()
    if isinstance(thing, Growing):
        raise Unsuitable(thing)
    if isinstance(thing, Listed):
        return ListForm(tuple(_tensor(element) for element in thing.elements))
    if isinstance(thing, Stacked):
        assert thing.tensor.dtype is not None
        return StackForm(thing.tensor.dtype, tuple(thing.dims))
    if isinstance(thing, Chained):
        return ChainForm(thing.dtype, _fixed(thing.dims), thing.empty)
    if not isinstance(thing, ir.Value):
        raise LoweringError("a list of tensors crosses the border of a loop or a branch")
    return _tensor(thing)


def _tensor(value: ir.Value) -> TensorForm:
    assert value.dtype is not None
    return TensorForm(value.dtype, _fixed(dims_of(value)))


def _fixed(dims: Dims | None) -> tuple[Dim, ...] | None:
    return None if dims is None else tuple(dims)


def join(a: Form, b: Form, declared: Type) -> Form:
    """A form for both."""
    if isinstance(a, NoForm) or isinstance(b, NoForm):
        return _loose(b if isinstance(a, NoForm) else a)
    if isinstance(a, TensorForm) and isinstance(b, TensorForm):
        return TensorForm(_dtype(a.dtype, b.dtype), _dims(a.dims, b.dims, declared))
    if isinstance(a, TensorForm) or isinstance(b, TensorForm):
        raise LoweringError("a variable is a tensor here and a list there")
    if isinstance(a, ListForm) and isinstance(b, ListForm) and len(a.elements) == len(b.elements):
        plain = Type(Kind.TENSOR)
        pairs = zip(a.elements, b.elements, strict=True)
        return ListForm(tuple(element for pair in pairs if isinstance(element := join(*pair, plain), TensorForm)))
    return flexible([a, b])


def flexible(forms: Sequence[Form]) -> Form:
    """One tensor if all elements have one shape, else a sequence."""
    elements: list[TensorForm] = []
    for form in forms:
        if isinstance(form, ListForm):
            elements += form.elements
        elif isinstance(form, StackForm) or (isinstance(form, ChainForm) and not form.empty):
            elements.append(TensorForm(form.dtype, form.dims))
    if not elements:
        return forms[0]
    shapes = [None if element.dims is None else ir.Shape(element.dims) for element in elements]
    values = [ir.Value(type=ir.TensorType(e.dtype), shape=shape) for e, shape in zip(elements, shapes, strict=True)]
    same = common(values)
    if same is not None and not any(isinstance(form, ChainForm) for form in forms):
        return StackForm(elements[0].dtype, tuple(same))
    return ChainForm(elements[0].dtype, _fixed(merged_dims([e.dims for e in elements])))


def _loose(form: Form) -> Form:
    """A form for something that may be missing: what stands in for it has no rows where sizes are dynamic."""
    if isinstance(form, TensorForm) and form.dims is not None:
        return TensorForm(form.dtype, tuple(dim if isinstance(dim, int) else UNKNOWN for dim in form.dims))
    return form


def _dtype(a: ir.DataType, b: ir.DataType) -> ir.DataType:
    if a == b:
        return a
    if (is_integer(a) and is_integer(b)) or (is_float(a) and is_float(b)):
        return max(a, b, key=lambda dtype: dtype.itemsize)
    raise LoweringError(
        f"a variable holds {a.name.lower()} here and {b.name.lower()} there",
        why="a loop or branch of ONNX gives one type, whichever way it goes",
        hint="cast it to one type in the model",
    )


def _dims(a: Sequence[Dim] | None, b: Sequence[Dim] | None, declared: Type) -> tuple[Dim, ...] | None:
    if a is not None and b is not None and len(a) != len(b):
        # A single number, once as a vector of one: Paddle does not mind.
        if all(dims in ((), (1,)) for dims in (tuple(a), tuple(b))):
            return () if declared.shape == () else (1,)
        return None
    return _fixed(merged_dims([a, b]))


def has_lost_sizes(old: Form, new: Form) -> bool:
    """Whether a size that was fixed is not so in the wider form."""
    if isinstance(old, ListForm) and isinstance(new, ListForm):
        return any(has_lost_sizes(a, b) for a, b in zip(old.elements, new.elements, strict=False))
    if not isinstance(old, TensorForm) or not isinstance(new, TensorForm) or old.dims is None or new.dims is None:
        return False
    return any(isinstance(a, int) and _unknown(b) for a, b in zip(old.dims, new.dims, strict=False))


def contradicts(form: Form, declared: Type) -> bool:
    """Whether a size is fixed in the program that differs from case to case."""
    if not isinstance(form, TensorForm) or form.dims is None or declared.shape is None:
        return False
    pairs = zip(form.dims, declared.shape, strict=False)
    return any(said >= 0 and not isinstance(dim, int) and dim.value is None for dim, said in pairs)


def same(a: Form, b: Form) -> bool:
    """Whether two forms are one."""
    if isinstance(a, TensorForm) and isinstance(b, TensorForm):
        return a.dtype == b.dtype and _same_dims(a.dims, b.dims)
    if isinstance(a, ListForm) and isinstance(b, ListForm):
        pairs = zip(a.elements, b.elements, strict=False)
        return len(a.elements) == len(b.elements) and all(same(x, y) for x, y in pairs)
    if isinstance(a, (StackForm, ChainForm)) and type(a) is type(b):
        return a.dtype == b.dtype and _same_dims(a.dims, b.dims)
    return type(a) is type(b)


def _same_dims(a: Sequence[Dim] | None, b: Sequence[Dim] | None) -> bool:
    if a is None or b is None:
        return a is b
    return len(a) == len(b) and all(same_dim(x, y) or (_unknown(x) and _unknown(y)) for x, y in zip(a, b, strict=True))


def _unknown(dim: Dim) -> bool:
    return not isinstance(dim, int) and dim.value is None


def _named(op: Builder, dim: str) -> Size:
    """The size of a named dimension, wherever a graph input has it."""
    if (known := op.known_size(dim)) is not None:
        return known
    builder = op
    while builder.parent is not None:
        builder = builder.parent
    for value in builder.graph.inputs:
        for axis, found in enumerate(value.shape or ()):
            if isinstance(found, ir.SymbolicDim) and found.value == dim:
                return op.size(value, axis)
    return 0
