"""The one negative-axis rule: before opset 11 an axis counts from the front, and so does an index.

Registered for every operator whose step to 11 brought negative axes or indices.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder
from tonnx.legalise.exact_integers import counts
from tonnx.legalise.node_view import Blocked, NodeView, constant_of


def count_from_front(op: Builder, node: NodeView) -> None:
    """Negative axes are counted from the front."""
    for name in ("axis", "axes"):
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


def _rank_of_first(node: NodeView) -> int:
    value = node.inputs[0]
    if value is None or value.shape is None:
        raise Blocked("the rank of its input is not known, and negative axes came with opset 11")
    return value.shape.rank()


def indices_from_front(op: Builder, indices: ir.Value, size: ir.Value | int) -> ir.Value:
    """Negative indices counted from the front: at once if they are constant."""
    array = constant_of(indices)
    if array is not None:
        if (array >= 0).all():
            return indices
        if isinstance(size, int):
            return op.constant(np.where(array < 0, array + size, array).astype(array.dtype))
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


_PASSING = frozenset(
    "Identity Cast Reshape Unsqueeze Squeeze Transpose Slice Gather Expand Tile Flatten ReduceProd".split()
)


def never_negative(value: ir.Value) -> bool:
    """Whether the numbers in a value can be seen to be sizes, positions or the like."""

    def decide(value: ir.Value) -> bool | None:
        if value in facts.NONNEGATIVE:
            return True
        array = constant_of(value)
        return None if array is None else bool((array >= 0).all())

    return counts(value, decide, _PASSING, frozenset(("Concat",)), depth=8)
