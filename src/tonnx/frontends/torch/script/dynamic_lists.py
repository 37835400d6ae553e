"""Lists whose length is known only at run time: elements along a first axis, or an ONNX sequence.

Elements of one shape are kept side by side in a tensor, which every opset can carry through a Loop; sequences are for
elements whose shapes may differ, and can be carried from opset 13 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.torch.script.values import Grown
from tonnx.ir.build import DIM, Builder, Size
from tonnx.ir.infer import UNKNOWN, Dims

T = ir.DataType


def sequence_op(op: Builder, op_type: str, inputs: Sequence[ir.Value | None], dtype: ir.DataType) -> ir.Value:
    """A node that gives a sequence."""
    attributes = [ir.AttrInt64("dtype", int(dtype))] if op_type == "SequenceEmpty" else []
    (made,) = op.node(op_type, inputs, attributes, [(dtype, None)])
    made.type = ir.SequenceType(ir.TensorType(dtype))
    return made


def gather(op: Builder, items: Sequence[Any], dtype: ir.DataType, dims: Any, stacked: bool) -> Grown:
    """A list of known elements (numbers if ``dims`` is None) in the form of one that grows."""
    if not stacked:
        value = sequence_op(op, "SequenceConstruct" if items else "SequenceEmpty", list(items), dtype)
    elif not items:
        value = _none_of(op, dtype, dims)
    else:
        parts = [number(op, item, dtype) if dims is None else op.Unsqueeze(item, [0]) for item in items]
        value = parts[0] if len(parts) == 1 else op.Concat(*parts, axis=0)
    return Grown(value, dtype, dims, stacked)


def number(op: Builder, item: Any, dtype: ir.DataType) -> ir.Value:
    """A number as a value of shape [1]."""
    return op.cast(item, dtype) if isinstance(item, ir.Value) else op.constant([item], dtype)


def _none_of(op: Builder, dtype: ir.DataType, dims: Any) -> ir.Value:
    """No element at all: a first axis of size 0."""
    return zeros(op, dtype, [0, *(dims or ())])


def zeros(op: Builder, dtype: ir.DataType, dims: Sequence[Any]) -> ir.Value:
    """Zeros; a named dimension is read where it is known."""
    sizes: list[Size] = []
    for dim in dims:
        known = dim if isinstance(dim, int) else op.known_size(dim.value) if dim.value is not None else None
        if known is None:
            known = _from_inputs(op, dim)
        sizes.append(known)
    known_sizes = [size for size in sizes if isinstance(size, int)]
    if len(known_sizes) == len(sizes) and prod(known_sizes) <= 64:
        return op.constant(np.zeros(known_sizes), dtype)
    return op.Expand(op.constant(0, dtype), op.vector(sizes), _shape=list(dims))


def _from_inputs(op: Builder, dim: ir.SymbolicDim) -> Size:
    """The size of a named dimension, read at an input of the model; of any size where that is not possible."""
    builder: Builder | None = op
    while builder is not None:
        for given in builder.graph.inputs:
            for axis, found in enumerate(given.shape or ()):
                if dim.value is not None and isinstance(found, ir.SymbolicDim) and found.value == dim.value:
                    return op.size(given, axis)
        builder = builder.parent
    return 1


def can_measure(op: Builder, dims: Sequence[Any]) -> bool:
    """Whether the sizes of all dimensions can be had at this place."""
    for dim in dims:
        if isinstance(dim, int) or (dim.value is not None and op.known_size(dim.value) is not None):
            continue
        if dim.value is None or not isinstance(_from_inputs(op, dim), ir.Value):
            return False
    return True


def nothing(op: Builder, kinds: Sequence[tuple[ir.DataType, Dims | None, bool]]) -> list[ir.Value]:
    """Values that nobody will look at, of the right types."""
    values = []
    for dtype, dims, is_sequence in kinds:
        if is_sequence:
            values.append(sequence_op(op, "SequenceEmpty", [], dtype))
        else:
            values.append(zeros(op, dtype, [UNKNOWN] if dims is None else dims))
    return values


def as_sequence(op: Builder, grown: Grown) -> Grown:
    """A stacked list as a sequence."""
    (made,) = op.node(
        "SplitToSequence",
        [grown.value],
        [ir.AttrInt64("axis", 0), ir.AttrInt64("keepdims", 0)],
        [(grown.dtype, None)],
    )
    made.type = ir.SequenceType(ir.TensorType(grown.dtype))
    return Grown(made, grown.dtype, grown.dims, False)


# What programs do with lists


def length(op: Builder, grown: Grown) -> Size:
    """How many elements there are."""
    if not grown.stacked:
        return op.Unsqueeze(op.SequenceLength(grown.value), [0])
    return op.size(grown.value, 0)


def element(op: Builder, grown: Grown, index: Size) -> ir.Value:
    """One element: a tensor, or a number of shape [1]."""
    if not grown.stacked:
        (made,) = op.node("SequenceAt", [grown.value, op.scalar(index)], [], [(grown.dtype, grown.dims)])
        return made
    if grown.dims is None:
        if isinstance(index, int):
            index = op.constant([index], T.INT64)
        return as_number(op.Gather(grown.value, index, axis=0))
    return op.Gather(grown.value, op.scalar(index), axis=0, _shape=list(grown.dims))


def as_number(value: ir.Value) -> ir.Value:
    """Say that a value of shape [1] is a number."""
    if DIM not in value.meta:
        value.meta["tonnx.number"] = True
    return value


def _element_of(op: Builder, grown: Grown, item: ir.Value | Any) -> ir.Value:
    """An element in the form in which it is put beside the others."""
    if grown.dims is None:
        return number(op, item, grown.dtype)
    if item.dtype != grown.dtype:
        raise LoweringError("a list gets an element of another dtype than it has")
    return op.Unsqueeze(item, [0]) if grown.stacked else item


def with_value(grown: Grown, value: ir.Value) -> Grown:
    """The same kind of list, with another content."""
    return Grown(value, grown.dtype, grown.dims, grown.stacked)


def append(op: Builder, grown: Grown, item: Any) -> Grown:
    """One more element at the end."""
    new = _element_of(op, grown, item)
    if grown.stacked:
        return with_value(grown, op.Concat(grown.value, new, axis=0))
    return with_value(grown, sequence_op(op, "SequenceInsert", [grown.value, new], grown.dtype))


def insert(op: Builder, grown: Grown, index: Size, item: Any) -> Grown:
    """One more element before that at ``index``."""
    new = _element_of(op, grown, item)
    if grown.stacked:
        head, tail = _slice(op, grown.value, 0, index), _slice(op, grown.value, index, None)
        longer = op.Concat(head, new, tail, axis=0)
        if grown.count is not None:
            longer.shape = ir.Shape([grown.count + 1, *(grown.dims or ())])
        return with_value(grown, longer)
    return with_value(grown, sequence_op(op, "SequenceInsert", [grown.value, new, op.scalar(index)], grown.dtype))


def replace(op: Builder, grown: Grown, index: Size, item: Any) -> Grown:
    """Another element at ``index``."""
    new = _element_of(op, grown, item)
    if grown.stacked:
        count = length(op, grown)
        at = _from_front(op, index, count)
        where = op.reshape(at, [1, 1]) if isinstance(at, ir.Value) else op.constant([[at]], T.INT64)
        return with_value(grown, op.ScatterND(grown.value, where, new))
    erased = sequence_op(op, "SequenceErase", [grown.value, op.scalar(index)], grown.dtype)
    if index == -1:
        return with_value(grown, sequence_op(op, "SequenceInsert", [erased, new], grown.dtype))
    if not isinstance(index, int) or index < 0:
        index = _from_front(op, index, length(op, grown))
    return with_value(grown, sequence_op(op, "SequenceInsert", [erased, new, op.scalar(index)], grown.dtype))


def _from_front(op: Builder, index: Size, count: Size) -> Size:
    if isinstance(index, int):
        return index if index >= 0 else op.Add(count, index) if isinstance(count, ir.Value) else count + index
    if index.meta.get("tonnx.nonnegative"):
        return index
    return op.Where(op.Less(index, 0), op.Add(index, count), index)


def pop(op: Builder, grown: Grown, index: Size) -> tuple[ir.Value, Grown]:
    """The element at ``index``, and the list without it."""
    taken = element(op, grown, index)
    if not grown.stacked:
        return taken, with_value(grown, sequence_op(op, "SequenceErase", [grown.value, op.scalar(index)], grown.dtype))
    if index == -1:
        return taken, with_value(grown, _slice(op, grown.value, 0, -1))
    at = _from_front(op, index, length(op, grown))
    behind = at + 1 if isinstance(at, int) else op.Add(at, 1)
    rest = op.Concat(_slice(op, grown.value, 0, at), _slice(op, grown.value, behind, None), axis=0)
    if grown.count is not None:
        rest.shape = ir.Shape([grown.count - 1, *(grown.dims or ())])
    return taken, with_value(grown, rest)


def sliced(op: Builder, grown: Grown, start: Any, end: Any, step: int) -> Grown:
    """``list[start:end:step]``."""
    if not grown.stacked:
        raise LoweringError(
            "a list of tensors of different shapes is sliced, and its length is known only at run time",
            hint="take its elements one by one",
        )
    return with_value(grown, _slice(op, grown.value, start, end, step))


def _slice(op: Builder, x: ir.Value, start: Any, end: Any, step: int = 1) -> ir.Value:
    beyond = 1 << 62
    low = start if start is not None else 0 if step > 0 else beyond
    high = end if end is not None else beyond if step > 0 else -beyond
    return op.Slice(x, op.vector([low]), op.vector([high]), [0], [step])


def extended(op: Builder, grown: Grown, more: Grown) -> Grown:
    """Two lists, one after the other."""
    if grown.stacked and more.stacked:
        return with_value(grown, op.Concat(grown.value, more.value, axis=0))
    raise LoweringError("two lists of tensors of different shapes are put together, of lengths known only at run time")
