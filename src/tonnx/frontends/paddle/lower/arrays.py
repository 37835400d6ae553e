"""Tensor arrays: lists that grow at run time, in the simplest form that does.

`Listed`: every element is a value of its own, known by its place. `Dynamic`: how many there are is known at run time.
`Growing` exists only while the body of a loop is lowered: one element is put at the end in every pass.

An array never changes: writing gives a new one, as the program's values are assigned once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.ir import facts
from tonnx.ir.build import Builder, Size, T
from tonnx.ir.infer import Dim, constant, joined_dims, known_number, same_dims
from tonnx.lowering.regions.lists import DynamicList, gathered, shape_of


class Unsuitable(Exception):
    """A loop does something with an array that it was thought not to do; its body is lowered again."""

    def __init__(self, array: Growing) -> None:
        super().__init__("an array is used in a way that its form does not allow")
        self.array = array


class Array:
    """What all forms can do."""

    def length(self, op: Builder) -> ir.Value:
        """How many elements there are: int64, rank 0."""
        raise NotImplementedError

    def read(self, op: Builder, index: ir.Value) -> ir.Value:
        """One element."""
        raise NotImplementedError

    def write(self, op: Builder, index: ir.Value, x: ir.Value) -> Array:
        """With ``x`` in one place, which may be the end."""
        raise NotImplementedError

    def joined(self, op: Builder, axis: int, stack: bool) -> tuple[ir.Value, ir.Value | None]:
        """All elements as one tensor, and the size of each along the axis."""
        raise NotImplementedError

    def part(self, op: Builder, start: Size, end: Size) -> Array:
        """The elements between two places."""
        raise LoweringError("a part of a list whose length is known only at run time is not supported")


@dataclass(frozen=True)
class Listed(Array):
    """Elements known by their place."""

    elements: tuple[ir.Value, ...] = ()

    def length(self, op: Builder) -> ir.Value:
        return op.constant(len(self.elements), T.INT64)

    def read(self, op: Builder, index: ir.Value) -> ir.Value:
        place = known_number(index)
        if place is None:
            return self.flexible(op).read(op, index)
        if not -len(self.elements) <= place < len(self.elements):
            raise LoweringError(f"the element {place} of a list with {len(self.elements)} elements is read")
        return self.elements[place]

    def write(self, op: Builder, index: ir.Value, x: ir.Value) -> Array:
        place = known_number(index)
        if place is None and not self.elements:
            place = 0  # nowhere else: Paddle would leave elements without a value before it
        if place is None:
            return self.flexible(op, x).write(op, index, x)
        if not 0 <= place <= len(self.elements):
            raise LoweringError(
                f"the element {place} of a list with {len(self.elements)} elements is written",
                why="the elements before it would have no value",
            )
        return Listed((*self.elements[:place], x, *self.elements[place + 1 :]))

    def joined(self, op: Builder, axis: int, stack: bool) -> tuple[ir.Value, ir.Value | None]:
        if not self.elements:
            raise LoweringError("a list without elements is made into a tensor")
        rank = op.rank(self.elements[0])
        parts, axis = list(self.elements), axis % (rank + stack)
        sizes = None if rank == 0 or axis == rank else op.vector([op.size(part, axis) for part in parts])
        if stack:
            parts = [op.Unsqueeze(part, [axis]) for part in parts]
        whole = parts[0] if len(parts) == 1 else op.Concat(*parts, axis=axis)
        return whole, None if sizes is None else op.cast(sizes, T.INT32)

    def part(self, op: Builder, start: Size, end: Size) -> Array:
        if isinstance(start, ir.Value) or isinstance(end, ir.Value):
            return super().part(op, start, end)
        return Listed(self.elements[start:end])

    def flexible(self, op: Builder, *more: ir.Value) -> Dynamic:
        """A form whose elements are chosen at run time; it can take ``more`` too."""
        dims, values = common([*self.elements, *more]), self.elements
        if not values or values[0].dtype is None:
            raise LoweringError("a list is empty, and the type of what it is to hold is not known")
        shape = reduce(joined_dims, map(shape_of, values))
        return Dynamic(gathered(op, values, values[0].dtype, shape, stacked=dims is not None, numbers=False))


@dataclass(frozen=True)
class Dynamic(Array):
    """Elements whose number only the run knows: all of one shape, or in an ONNX sequence."""

    items: DynamicList

    def length(self, op: Builder) -> ir.Value:
        return op.scalar(self.items.length(op))

    def read(self, op: Builder, index: ir.Value) -> ir.Value:
        return self.items.element(op, number(op, index))

    def write(self, op: Builder, index: ir.Value, x: ir.Value) -> Array:
        x = op.cast(x, self.items.dtype)
        items = self.items.taking(op, x)
        if is_length(index, self.items.value):
            return Dynamic(items.append(op, x))
        return Dynamic(items.put(op, number(op, index), x))

    def joined(self, op: Builder, axis: int, stack: bool) -> tuple[ir.Value, ir.Value | None]:
        whole, dims = self.items.joined(op, axis, stack), self.items.dims
        if not self.items.stacked or dims is None or (at := axis % (len(dims) + stack)) >= len(dims):
            return whole, None
        each = op.Expand(op.vector([op.size(self.items.value, at + 1)]), op.vector([self.items.length(op)]))
        return whole, op.cast(each, T.INT32)

    def part(self, op: Builder, start: Size, end: Size) -> Array:
        return Dynamic(self.items.part(op, start, end)) if self.items.stacked else super().part(op, start, end)


@dataclass(frozen=True)
class Growing(Array):
    """Inside of a loop: the elements of ``start``, then one of each pass so far."""

    start: Listed
    passes: ir.Value
    """How many passes were done: the loop's own number."""
    last: ir.Value | None = None
    """The element at the end when the pass began."""
    added: ir.Value | None = None
    """What this pass put behind it."""
    trusted: set[ir.Value] = field(default_factory=set)
    """Values carried by the loop which were taken to be one more in every pass. The loop checks that."""

    def length(self, op: Builder) -> ir.Value:
        return op.Add(self.passes, op.constant(len(self.start.elements) + (self.added is not None), T.INT64))

    def read(self, op: Builder, index: ir.Value) -> ir.Value:
        place = known_number(index)
        if place is not None and 0 <= place < len(self.start.elements):
            return self.start.elements[place]
        behind = self._behind(index)
        element = self.last if behind == -1 else self.added if behind == 0 else None
        if element is None:
            raise Unsuitable(self)
        return element

    def write(self, op: Builder, index: ir.Value, x: ir.Value) -> Array:
        if self.added is not None or self._behind(index) != 0:
            raise Unsuitable(self)
        return replace(self, added=x)

    def joined(self, op: Builder, axis: int, stack: bool) -> tuple[ir.Value, ir.Value | None]:
        raise Unsuitable(self)

    def part(self, op: Builder, start: Size, end: Size) -> Array:
        raise Unsuitable(self)

    def _behind(self, index: ir.Value) -> int | None:
        """How far behind the last element a place is; None if that differs from pass to pass."""
        root, offset = counted(index)
        if root is not self.passes:
            if root not in facts.PADDLE_START:
                return None
            self.trusted.add(root)
            offset += facts.PADDLE_START[root]
        return offset - len(self.start.elements)


# Places


def number(op: Builder, index: ir.Value) -> ir.Value:
    """A place as int64 of rank 0."""
    index = op.cast(index, T.INT64)
    return op.reshape(index, []) if index.shape is None or op.rank(index) else index


def counted(value: ir.Value) -> tuple[ir.Value, int]:
    """A value as another one plus a number that is known now."""
    offset = 0
    while (node := value.producer()) is not None and node.inputs and node.inputs[0] is not None:
        if node.op_type in ("Add", "Sub"):
            left, right = node.inputs
            assert left is not None and right is not None
            if constant(left) is not None and node.op_type == "Add":
                left, right = right, left
            if (number := known_number(right)) is None:
                break
            offset += number if node.op_type == "Add" else -number
            value = left
        elif node.op_type in ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Cast"):
            value = node.inputs[0]
        else:
            break
    return value, offset


def is_length(index: ir.Value, of: ir.Value) -> bool:
    """Whether a place is the length of the tensor or sequence ``of``, so that writing there appends."""
    root, offset = counted(index)
    node = root.producer()
    if offset or node is None or not node.inputs or node.inputs[0] is not of:
        return False
    if node.op_type == "SequenceLength":
        return True
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    return node.op_type == "Shape" and start is not None and end is not None and (start.value, end.value) == (0, 1)


# Shapes


def common(values: Sequence[ir.Value]) -> tuple[Dim, ...] | None:
    """The shape that all values have for certain, if they have one dtype too."""
    if not values or any(value.dtype != values[0].dtype for value in values):
        return None
    shapes = [shape_of(value) for value in values]
    return shapes[0] if all(same_dims(shapes[0], shape) for shape in shapes) else None
