"""Which integers are sizes, positions, or computed from those: numbers that float64 holds exactly.

Before opset 6 there is no arithmetic of integers, and before 4 and 5 they are neither joined nor reshaped. An int64 in
general does not fit a float64; a number of elements does, and so does what was a float before.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder, T
from tonnx.legalise.node_view import constant_of

_EXACT = 2**53
_NARROW = frozenset(
    (T.BOOL, T.INT8, T.UINT8, T.INT16, T.UINT16, T.INT32, T.UINT32, T.FLOAT16, T.BFLOAT16, T.FLOAT, T.DOUBLE)
)
_COUNTING = frozenset(("Shape", "Size", "ArgMax", "ArgMin", "NonZero"))
"""Operators whose results are sizes and positions."""
_PASSING = frozenset(
    "Identity Reshape Squeeze Unsqueeze Transpose Slice Gather Expand Tile Flatten Split Neg Abs Cast "
    "ReduceMax ReduceMin ReduceSum ReduceProd".split()
)
_COMPUTING = frozenset("Add Sub Mul Div Concat Max Min Sum".split())


def is_count(value: ir.Value) -> bool:
    """Whether all numbers in an integer value can be seen to fit a float64."""

    def fits(value: ir.Value) -> bool | None:
        if value.dtype in _NARROW or value in facts.COUNT:
            return True
        array = constant_of(value)
        return None if array is None else not array.size or max(int(array.max()), -int(array.min())) <= _EXACT

    return counts(value, fits, _PASSING, _COMPUTING, depth=16)


def counts(
    value: ir.Value,
    decide: Callable[[ir.Value], bool | None],
    passing: frozenset[str],
    computing: frozenset[str],
    depth: int,
) -> bool:
    """Whether a value is a size or a position, or comes from those: through the first operand of ``passing`` operators,
    through all operands of ``computing`` ones. Where ``decide`` says something of a value, that counts."""
    if (answer := decide(value)) is not None:
        return answer
    node = value.producer()
    if node is None or node.domain != "" or depth == 0:
        return False
    if node.op_type in _COUNTING:
        return True
    if node.op_type == "TopK":
        return value is node.outputs[1]
    operands = node.inputs if node.op_type in computing else node.inputs[:1] if node.op_type in passing else ()
    through = [x is not None and counts(x, decide, passing, computing, depth - 1) for x in operands]
    return bool(through) and all(through)


def positions(op: Builder, indices: ir.Value) -> ir.Value:
    """The same indices, said to be positions: whatever is read by them has that many elements."""
    if is_count(indices):
        return indices
    said = op.Identity(indices)
    facts.COUNT.add(said)
    return said
