"""Lists whose length is known only at run time: elements along a first axis, or an ONNX sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.ir import facts
from tonnx.ir.build import Builder, Size, T
from tonnx.ir.infer import UNKNOWN, Dim, Dims, dims_of, joined_dims, same_dim, same_dims
from tonnx.lowering.regions.emit import if_node

_BEYOND = 1 << 62
"""Behind the end of every list."""


@dataclass(frozen=True)
class DynamicList:
    """A list that a graph computes; it never changes: what a program writes gives a new one.

    ``stacked``: the elements have one shape and lie side by side in one tensor, which every opset can carry through a
    Loop. If not, ``value`` is a sequence, whose elements may have any shape: from opset 11 on, and 13 inside of a loop.
    """

    value: ir.Value
    dtype: ir.DataType
    dims: tuple[Dim, ...] | None
    """What the shapes of all elements have in common; None: not even the rank."""
    stacked: bool = True
    numbers: bool = False
    """Whether elements are numbers of the program: values of shape [1] outside of the list."""

    @property
    def count(self) -> int | None:
        """The number of elements, where the shape tells it."""
        size = self.value.shape[0] if self.stacked and self.value.shape is not None else None
        return size if isinstance(size, int) else None

    def length(self, op: Builder) -> Size:
        return op.size(self.value, 0) if self.stacked else op.Unsqueeze(op.SequenceLength(self.value), [0])

    def element(self, op: Builder, index: Size) -> ir.Value:
        """One element: a tensor, or a number of shape [1]."""
        if not self.stacked:
            (element,) = op.node("SequenceAt", [self.value, op.scalar(index)], [], [(self.dtype, self.dims)])
            return element
        if self.numbers:
            return as_number(op.Gather(self.value, op.vector([index]), axis=0))
        return op.Gather(self.value, op.scalar(index), axis=0, _shape=list(self.dims or ()))

    def append(self, op: Builder, item: Any) -> DynamicList:
        new = self._entry(op, item)
        if self.stacked:
            return self._with(op.Concat(self.value, new, axis=0))
        return self._with(_sequence_node(op, "SequenceInsert", [self.value, new], self.dtype))

    def insert(self, op: Builder, index: Size, item: Any) -> DynamicList:
        """One more element before that at ``index``."""
        new = self._entry(op, item)
        if not self.stacked:
            return self._with(_sequence_node(op, "SequenceInsert", [self.value, new, op.scalar(index)], self.dtype))
        head, tail = _cut(op, self.value, 0, index), _cut(op, self.value, index, None)
        return self._with(op.Concat(head, new, tail, axis=0), None if self.count is None else self.count + 1)

    def replace(self, op: Builder, index: Size, item: Any) -> DynamicList:
        new = self._entry(op, item)
        if self.stacked:
            at = _from_front(op, index, self.length(op))
            where = op.reshape(at, [1, 1]) if isinstance(at, ir.Value) else op.constant([[at]], T.INT64)
            return self._with(op.ScatterND(self.value, where, new))
        erased = _sequence_node(op, "SequenceErase", [self.value, op.scalar(index)], self.dtype)
        if index == -1:
            return self._with(_sequence_node(op, "SequenceInsert", [erased, new], self.dtype))
        at = _from_front(op, index, self.length(op))
        return self._with(_sequence_node(op, "SequenceInsert", [erased, new, op.scalar(at)], self.dtype))

    def put(self, op: Builder, at: ir.Value, item: Any) -> DynamicList:
        """An element at a place (of rank 0) that may be the end: replaced, or one more."""
        if self.stacked:
            place = op.reshape(at, [1])
            # Behind the end there is nothing: the new element is then the last.
            head, tail = _cut(op, self.value, 0, place), _cut(op, self.value, op.Add(place, 1), None)
            return self._with(op.Concat(head, self._entry(op, item), tail, axis=0))
        inside, behind = op.inner("replace"), op.inner("append")
        sides = [(inside, [self.replace(inside, at, item).value]), (behind, [self.append(behind, item).value])]
        kind = ir.SequenceType(ir.TensorType(self.dtype)), None
        (value,) = if_node(op, op.Less(at, op.scalar(self.length(op))), sides, [kind])
        return self._with(value)

    def pop(self, op: Builder, index: Size) -> tuple[ir.Value, DynamicList]:
        """The element at ``index``, and the list without it."""
        taken = self.element(op, index)
        if not self.stacked:
            rest = _sequence_node(op, "SequenceErase", [self.value, op.scalar(index)], self.dtype)
            return taken, self._with(rest)
        if index == -1:
            return taken, self._with(_cut(op, self.value, 0, -1))
        at = _from_front(op, index, self.length(op))
        behind = at + 1 if isinstance(at, int) else op.Add(at, 1)
        rest = op.Concat(_cut(op, self.value, 0, at), _cut(op, self.value, behind, None), axis=0)
        return taken, self._with(rest, None if self.count is None else self.count - 1)

    def part(self, op: Builder, start: Size | None, end: Size | None, step: int = 1) -> DynamicList:
        """``list[start:end:step]``."""
        if not self.stacked:
            raise LoweringError(
                "a list of tensors of different shapes is sliced, and its length is known only at run time",
                hint="take its elements one by one",
            )
        return self._with(_cut(op, self.value, start, end, step))

    def extend(self, op: Builder, more: DynamicList) -> DynamicList:
        if not (self.stacked and more.stacked):
            raise LoweringError(
                "two lists of tensors of different shapes are put together, of lengths known only at run time"
            )
        return self._with(op.Concat(self.value, more.value, axis=0))

    def joined(self, op: Builder, axis: int, stack: bool) -> ir.Value:
        """All elements as one tensor, along an axis that they have or a new one."""
        if not self.stacked:
            whole = op.ConcatFromSequence(self.value, axis=axis, new_axis=int(stack))
            whole.type = ir.TensorType(self.dtype)
            if self.dims is not None:
                at = axis % max(len(self.dims) + stack, 1)
                whole.shape = ir.Shape([*self.dims[:at], UNKNOWN, *self.dims[at + (not stack) :]])
            return whole
        rank = len(self.dims or ())
        axis %= max(rank + stack, 1)
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
        moved = op.Transpose(self.value, perm=order) if axis else self.value
        if stack:
            return moved
        sizes = op.sizes(moved)
        return op.reshape(moved, [*sizes[:axis], op.product(sizes[axis : axis + 2]), *sizes[axis + 2 :]])

    def as_sequence(self, op: Builder) -> DynamicList:
        if not self.stacked:
            return self
        split = op.SplitToSequence(self.value, axis=0, keepdims=0)
        return replace(self, value=sequence(split, self.dtype), stacked=False)

    def taking(self, op: Builder, item: ir.Value) -> DynamicList:
        """A list that can take ``item``: a sequence, if the shape of the item is not that of the others."""
        dims = dims_of(item)
        if same_dims(dims, self.dims):
            return self
        return replace(self.as_sequence(op), dims=joined_dims(self.dims, dims))

    def _entry(self, op: Builder, item: Any) -> ir.Value:
        """An element in the form in which it is put beside the others."""
        if self.numbers:
            return number_value(op, item, self.dtype)
        if item.dtype != self.dtype:
            raise LoweringError("a list gets an element of another dtype than it has")
        return op.Unsqueeze(item, [0]) if self.stacked else item

    def _with(self, value: ir.Value, count: int | None = None) -> DynamicList:
        if count is not None:
            value.shape = ir.Shape([count, *(self.dims or ())])
        return replace(self, value=value)


def gathered(
    op: Builder, items: Sequence[Any], dtype: ir.DataType, dims: Sequence[Dim] | None, stacked: bool, numbers: bool
) -> DynamicList:
    """Known elements in the form of a list that grows."""
    if not stacked:
        value = _sequence_node(op, "SequenceConstruct" if items else "SequenceEmpty", list(items), dtype)
    elif not items:
        value = zeros(op, dtype, [0, *(dims or ())])
    else:
        as_row = number_value if numbers else lambda op, item, dtype: op.Unsqueeze(op.cast(item, dtype), [0])
        parts = [as_row(op, item, dtype) for item in items]
        value = parts[0] if len(parts) == 1 else op.Concat(*parts, axis=0)
    return DynamicList(value, dtype, None if dims is None else tuple(dims), stacked, numbers)


# Numbers


def as_number(value: ir.Value) -> ir.Value:
    """Say that a value of shape [1] is a number of the program."""
    if value not in facts.DIM:
        facts.NUMBER.add(value)
    return value


def number_value(op: Builder, item: Any, dtype: ir.DataType) -> ir.Value:
    return op.cast(item, dtype) if isinstance(item, ir.Value) else op.constant([item], dtype)


# Shapes


def measured(op: Builder, dim: Dim) -> Size | None:
    """The size of a dimension, read where it is known: at a size made before, or at an input of a graph around."""
    if isinstance(dim, int) or dim.value is None:
        return dim if isinstance(dim, int) else None
    if (size := op.known_size(dim.value)) is not None:
        return size
    builder: Builder | None = op
    while builder is not None:
        for value in builder.graph.inputs:
            for axis, other in enumerate(value.shape or ()):
                if same_dim(dim, other):
                    return op.size(value, axis)
        builder = builder.parent
    return None


def zeros(op: Builder, dtype: ir.DataType, dims: Sequence[Dim]) -> ir.Value:
    """Zeros, for values that nobody looks at and lists without elements; none along an axis of unknown size."""
    sizes = [0 if (size := measured(op, dim)) is None else size for dim in dims]
    fixed = [size for size in sizes if isinstance(size, int)]
    if len(fixed) == len(sizes) and prod(fixed) <= 64:
        return op.constant(np.zeros(fixed), dtype)
    return op.Expand(op.constant(0, dtype), op.vector(sizes), _shape=list(dims))


# Nodes


def sequence(value: ir.Value, dtype: ir.DataType) -> ir.Value:
    value.type, value.shape = ir.SequenceType(ir.TensorType(dtype)), None
    return value


def _sequence_node(op: Builder, op_type: str, inputs: Sequence[ir.Value], dtype: ir.DataType) -> ir.Value:
    attributes = [ir.AttrInt64("dtype", int(dtype))] if op_type == "SequenceEmpty" else []
    (output,) = op.node(op_type, inputs, attributes, [(dtype, None)])
    return sequence(output, dtype)


def empty_sequence(op: Builder, dtype: ir.DataType) -> ir.Value:
    return _sequence_node(op, "SequenceEmpty", [], dtype)


def _from_front(op: Builder, index: Size, count: Size) -> Size:
    if isinstance(index, int):
        return index if index >= 0 else op.Add(count, index) if isinstance(count, ir.Value) else count + index
    if index in facts.NONNEGATIVE:
        return index
    return op.Where(op.Less(index, 0), op.Add(index, count), index)


def _cut(op: Builder, x: ir.Value, start: Size | None, end: Size | None, step: int = 1) -> ir.Value:
    low = start if start is not None else 0 if step > 0 else _BEYOND
    high = end if end is not None else _BEYOND if step > 0 else -_BEYOND
    return op.Slice(x, op.vector([low]), op.vector([high]), [0], [step])


def shape_of(value: ir.Value) -> tuple[Dim, ...] | None:
    """The dimensions of a value, to be compared."""
    dims: Dims | None = dims_of(value)
    return None if dims is None else tuple(dims)
