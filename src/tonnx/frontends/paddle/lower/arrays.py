"""Tensor arrays: lists that grow at run time, in the simplest form that does.

`Listed`: every element is a value of its own, known by its place. `Stacked`: all elements have one shape and lie in
one tensor. `Chained`: an ONNX sequence, for elements of different shapes (needs opset 11, and 13 inside of a loop).
`Growing` exists only while the body of a loop is lowered: one element is put at the end in every pass.

An array never changes: writing gives a new one, as the program's values are assigned once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.paddle.lower.bind import constant
from tonnx.ir.build import Builder, Size
from tonnx.ir.infer import UNKNOWN, Dim, Dims, dims_of, same_dim

T = ir.DataType
START = "tonnx.paddle.start"
"""Key in ``Value.meta`` of what a loop carries: the integer that it starts with."""


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
        place = position(index)
        if place is None:
            return self.flexible(op).read(op, index)
        if not -len(self.elements) <= place < len(self.elements):
            raise LoweringError(f"the element {place} of a list with {len(self.elements)} elements is read")
        return self.elements[place]

    def write(self, op: Builder, index: ir.Value, x: ir.Value) -> Array:
        place = position(index)
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
        made = parts[0] if len(parts) == 1 else op.Concat(*parts, axis=axis)
        return made, None if sizes is None else op.cast(sizes, T.INT32)

    def part(self, op: Builder, start: Size, end: Size) -> Array:
        if isinstance(start, ir.Value) or isinstance(end, ir.Value):
            return super().part(op, start, end)
        return Listed(self.elements[start:end])

    def flexible(self, op: Builder, *more: ir.Value) -> Stacked | Chained:
        """A form whose elements are chosen at run time; it can take ``more`` too."""
        dims = common([*self.elements, *more])
        if dims is not None and self.elements:
            return Stacked(self.joined(op, 0, stack=True)[0])
        return self.chained(op)

    def chained(self, op: Builder, dtype: ir.DataType | None = None) -> Chained:
        """As a sequence; ``dtype`` is that of the elements, if there is none yet."""
        dtype = self.elements[0].dtype if self.elements else dtype
        if dtype is None:
            raise LoweringError("a list is empty, and the type of what it is to hold is not known")
        made = op.SequenceConstruct(*self.elements) if self.elements else op.SequenceEmpty(dtype=int(dtype))
        dims = merged_dims([dims_of(element) for element in self.elements]) if self.elements else None
        return Chained(sequence(made, dtype), dtype, dims, empty=not self.elements)


@dataclass(frozen=True)
class Stacked(Array):
    """Elements of one shape, in one tensor along axis 0."""

    tensor: ir.Value

    @property
    def dims(self) -> Dims:
        """The shape of an element."""
        dims = dims_of(self.tensor)
        assert dims is not None
        return dims[1:]

    def length(self, op: Builder) -> ir.Value:
        return op.scalar(op.size(self.tensor, 0))

    def read(self, op: Builder, index: ir.Value) -> ir.Value:
        return op.Gather(self.tensor, number(op, index), axis=0)

    def write(self, op: Builder, index: ir.Value, x: ir.Value) -> Array:
        dims = dims_of(x)
        if dims is None or len(dims) != len(self.dims) or not all(map(same_dim, dims, self.dims)):
            return self.chained(op).write(op, index, x)
        new = op.Unsqueeze(x, [0])
        if is_length(index, self.tensor):
            return Stacked(op.Concat(self.tensor, new, axis=0))
        at = op.reshape(number(op, index), [1])
        # Behind the end there is nothing: the new element is then the last.
        before = op.Slice(self.tensor, [0], at, [0])
        behind = op.Slice(self.tensor, op.Add(at, 1), [2**62], [0])
        return Stacked(op.Concat(before, new, behind, axis=0))

    def joined(self, op: Builder, axis: int, stack: bool) -> tuple[ir.Value, ir.Value | None]:
        rank = len(self.dims)
        axis %= rank + stack
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
        moved = op.Transpose(self.tensor, perm=order) if axis else self.tensor
        if not stack:
            sizes = op.sizes(moved)
            moved = op.reshape(moved, [*sizes[:axis], op.product(sizes[axis : axis + 2]), *sizes[axis + 2 :]])
        if axis >= rank:
            return moved, None
        each = op.Expand(op.vector([op.size(self.tensor, axis + 1)]), op.vector([op.size(self.tensor, 0)]))
        return moved, op.cast(each, T.INT32)

    def part(self, op: Builder, start: Size, end: Size) -> Array:
        return Stacked(op.Slice(self.tensor, op.vector([start]), op.vector([end]), [0]))

    def chained(self, op: Builder) -> Chained:
        """As a sequence."""
        assert self.tensor.dtype is not None
        made = op.SplitToSequence(self.tensor, axis=0, keepdims=0)
        return Chained(sequence(made, self.tensor.dtype), self.tensor.dtype, self.dims)


@dataclass(frozen=True)
class Chained(Array):
    """An ONNX sequence. ``dims`` is what the shapes of all elements have in common."""

    value: ir.Value
    dtype: ir.DataType
    dims: Dims | None
    empty: bool = False
    """Whether nothing has been written yet, so that ``dims`` say nothing."""

    def length(self, op: Builder) -> ir.Value:
        return op.SequenceLength(self.value)

    def read(self, op: Builder, index: ir.Value) -> ir.Value:
        made = op.SequenceAt(self.value, number(op, index))
        made.type = ir.TensorType(self.dtype)
        made.shape = None if self.dims is None else ir.Shape(self.dims)
        return made

    def write(self, op: Builder, index: ir.Value, x: ir.Value) -> Array:
        x = op.cast(x, self.dtype)
        dims = dims_of(x) if self.empty else merged_dims([self.dims, dims_of(x)])
        if self.empty or is_length(index, self.value):
            return Chained(sequence(op.SequenceInsert(self.value, x), self.dtype), self.dtype, dims)
        at = number(op, index)
        behind = op.inner("append")
        behind.graph.outputs.append(sequence(behind.SequenceInsert(self.value, x), self.dtype))
        inside = op.inner("replace")
        without = sequence(inside.SequenceErase(self.value, at), self.dtype)
        inside.graph.outputs.append(sequence(inside.SequenceInsert(without, x, at), self.dtype))
        graphs = [ir.AttrGraph("then_branch", inside.graph), ir.AttrGraph("else_branch", behind.graph)]
        (made,) = op.node("If", [op.Less(at, self.length(op))], graphs, [(None, None)])
        return Chained(sequence(made, self.dtype), self.dtype, dims)

    def joined(self, op: Builder, axis: int, stack: bool) -> tuple[ir.Value, ir.Value | None]:
        made = op.ConcatFromSequence(self.value, axis=axis, new_axis=int(stack))
        made.type = ir.TensorType(self.dtype)
        if self.dims is not None:
            dims = list(self.dims)
            if stack:
                dims.insert(axis % (len(dims) + 1), UNKNOWN)
            else:
                dims[axis] = UNKNOWN
            made.shape = ir.Shape(dims)
        return made, None


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
        place = position(index)
        if place is not None and 0 <= place < len(self.start.elements):
            return self.start.elements[place]
        behind = self._behind(index)
        found = self.last if behind == -1 else self.added if behind == 0 else None
        if found is None:
            raise Unsuitable(self)
        return found

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
            if START not in root.meta:
                return None
            self.trusted.add(root)
            offset += root.meta[START]
        return offset - len(self.start.elements)


# Places


def position(index: ir.Value) -> int | None:
    """A place that is known now."""
    known = constant(index)
    return None if known is None else int(known.reshape(-1)[0])


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
            known = constant(right)
            if known is None or known.size != 1:
                break
            offset += int(known.reshape(-1)[0]) * (1 if node.op_type == "Add" else -1)
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


def sequence(value: ir.Value, dtype: ir.DataType) -> ir.Value:
    """A value that is a sequence of tensors."""
    value.type, value.shape = ir.SequenceType(ir.TensorType(dtype)), None
    return value


def common(values: Sequence[ir.Value]) -> Dims | None:
    """The shape that all values have for certain."""
    first, *others = [dims_of(value) for value in values] or [None]
    if first is None or any(isinstance(d, ir.SymbolicDim) and d.value is None for d in first):
        return None
    if any(value.dtype != values[0].dtype for value in values):
        return None
    for dims in others:
        if dims is None or len(dims) != len(first) or not all(map(same_dim, first, dims)):
            return None
    return first


def merged_dims(shapes: Sequence[Sequence[Dim] | None]) -> Dims | None:
    """What several shapes have in common; None if not even the rank."""
    first = shapes[0]
    for other in shapes[1:]:
        if first is None or other is None or len(first) != len(other):
            return None
        first = [a if same_dim(a, b) else UNKNOWN for a, b in zip(first, other, strict=True)]
    return None if first is None else list(first)
