"""Which integers are sizes, positions, or computed from those: numbers that float64 holds exactly.

Before opset 6 there is no arithmetic of integers, and before 4 and 5 they are neither joined nor reshaped. An int64 in
general does not fit a float64; a number of elements does, and so does what was a float before.
"""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.call import constant_of

T = ir.DataType
COUNT = "tonnx.count"
"""Key in ``Value.meta``: the value holds sizes or positions."""

_EXACT = 2**53
_NARROW = frozenset(
    (T.BOOL, T.INT8, T.UINT8, T.INT16, T.UINT16, T.INT32, T.UINT32, T.FLOAT16, T.BFLOAT16, T.FLOAT, T.DOUBLE)
)
_COUNTING = frozenset(("Shape", "Size", "ArgMax", "ArgMin", "NonZero"))
_PASSING = frozenset(
    "Identity Reshape Squeeze Unsqueeze Transpose Slice Gather Expand Tile Flatten Split Neg Abs Cast "
    "ReduceMax ReduceMin ReduceSum ReduceProd".split()
)
_COMPUTING = frozenset("Add Sub Mul Div Concat Max Min Sum".split())


def is_count(value: ir.Value, depth: int = 16) -> bool:
    """Whether all numbers in an integer value can be seen to fit a float64."""
    if value.dtype in _NARROW or value.meta.get(COUNT):
        return True
    if (known := constant_of(value)) is not None:
        return not known.size or (int(known.max()) <= _EXACT and int(known.min()) >= -_EXACT)
    node = value.producer()
    if node is None or node.domain != "" or depth == 0:
        return False
    if node.op_type in _COUNTING:
        return True
    if node.op_type == "TopK":
        return value is node.outputs[1]
    if node.op_type in _PASSING:
        return node.inputs[0] is not None and is_count(node.inputs[0], depth - 1)
    return node.op_type in _COMPUTING and all(x is not None and is_count(x, depth - 1) for x in node.inputs)


def positions(op: Builder, indices: ir.Value) -> ir.Value:
    """The same indices, said to be positions: whatever is read by them has that many elements."""
    if is_count(indices):
        return indices
    said = op.Identity(indices)
    said.meta[COUNT] = True
    return said
