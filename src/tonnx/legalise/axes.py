"""The one negative-axis rule: before opset 11 an axis counts from the front, and so does an index.

Registered for every operator whose step to 11 brought negative axes or indices.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.call import Blocked, Call, constant_of

# Attribute, and by how much the rank that it counts in exceeds that of the first input.
_AXIS_ATTRIBUTES = ("axis", "axes")


def count_from_front(op: Builder, node: Call) -> None:
    """Negative axes are counted from the front."""
    for name in _AXIS_ATTRIBUTES:
        value = node.attr(name)
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        if all(axis >= 0 for axis in values):
            continue
        rank = _rank_of_first(node)
        if node.op_type == "Unsqueeze":
            rank += len(values)
        elif node.op_type == "OneHot":
            rank += 1
        front = [axis % rank for axis in values]
        if name == "axes":
            front = sorted(front)
        attribute = ir.AttrInt64s(name, front) if isinstance(value, list) else ir.AttrInt64(name, front[0])
        node.node.attributes.add(attribute)


def _rank_of_first(node: Call) -> int:
    value = node.inputs[0]
    if value is None or value.shape is None:
        raise Blocked("the rank of its input is not known, and negative axes came with opset 11")
    return value.shape.rank()


def indices_from_front(op: Builder, indices: ir.Value, size: ir.Value | int) -> ir.Value:
    """Negative indices counted from the front: at once if they are constant."""
    known = constant_of(indices)
    if known is not None:
        if (known >= 0).all():
            return indices
        if isinstance(size, int):
            return op.constant(np.where(known < 0, known + size, known).astype(known.dtype))
    elif never_negative(indices):
        return indices
    if indices.dtype is None:
        raise Blocked("the element type of its indices is not known")
    if isinstance(size, ir.Value):
        scalar = indices.shape is not None and not indices.shape.rank()
        length = op.cast(op.scalar(size) if scalar else size, indices.dtype)
    else:
        length = op.constant(size, indices.dtype)
    return op.Where(op.Less(indices, op.constant(0, indices.dtype)), indices + length, indices)


_PASSING = {
    "Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "Transpose", "Slice", "Gather", "Expand", "Tile", "Flatten",
    "Concat",
}  # fmt: skip
_COUNTING = {"Shape", "Size", "ArgMax", "ArgMin", "NonZero"}


def never_negative(value: ir.Value, depth: int = 8) -> bool:
    """Whether the numbers in a value can be seen to be sizes, positions or the like."""
    if value.meta.get("tonnx.nonnegative"):
        return True
    if (known := constant_of(value)) is not None:
        return bool((known >= 0).all())
    node = value.producer()
    if node is None or node.domain != "" or depth == 0:
        return False
    if node.op_type in _COUNTING:
        return True
    if node.op_type == "TopK":
        return value is node.outputs[1]
    if node.op_type == "Concat":
        return all(x is not None and never_negative(x, depth - 1) for x in node.inputs)
    if node.op_type in _PASSING:
        first = node.inputs[0]
        return first is not None and never_negative(first, depth - 1)
    return False
