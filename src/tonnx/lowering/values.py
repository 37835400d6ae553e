"""What rules share: torch's type promotion, and numbers as operands."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder, T

Number = bool | int | float | complex
Operand = ir.Value | Number

_RANK = {
    T.BOOL: 0, T.UINT8: 1, T.INT8: 1, T.INT16: 2, T.INT32: 3, T.INT64: 4, T.UINT16: 2, T.UINT32: 3, T.UINT64: 4,
    T.FLOAT8E4M3FN: 9, T.FLOAT8E5M2: 9, T.FLOAT16: 10, T.BFLOAT16: 10, T.FLOAT: 11, T.DOUBLE: 12,
    T.COMPLEX64: 20, T.COMPLEX128: 21,
}  # fmt: skip


def is_float(dtype: ir.DataType | None) -> bool:
    """Whether a dtype is a real floating-point type."""
    return dtype is not None and 9 <= _RANK.get(dtype, 0) < 20


def is_integer(dtype: ir.DataType | None) -> bool:
    """Whether a dtype is an integer type; bool is not one."""
    return dtype is not None and 1 <= _RANK.get(dtype, 0) < 9


def _category(dtype: ir.DataType) -> int:
    rank = _RANK[dtype]
    return 0 if rank == 0 else 1 if rank < 9 else 2 if rank < 20 else 3


def _join(a: ir.DataType, b: ir.DataType) -> ir.DataType:
    if a == b:
        return a
    if {a, b} == {T.FLOAT16, T.BFLOAT16}:
        return T.FLOAT
    if {a, b} == {T.UINT8, T.INT8}:
        return T.INT16
    return a if _RANK[a] > _RANK[b] else b


def _number_dtype(number: Number) -> ir.DataType:
    if isinstance(number, bool):
        return T.BOOL
    if isinstance(number, int):
        return T.INT64
    return T.COMPLEX64 if isinstance(number, complex) else T.FLOAT


def result_type(*operands: Operand) -> ir.DataType:
    """torch.result_type: tensors with dimensions decide; scalar tensors, then numbers, only lift the category."""
    groups: list[ir.DataType | None] = [None, None, None]  # tensors, tensors of rank 0, numbers
    for operand in operands:
        if isinstance(operand, ir.Value):
            assert operand.dtype is not None
            group, dtype = (1 if operand.shape is not None and operand.shape.rank() == 0 else 0), operand.dtype
            if operand in facts.WRAPPED:
                group = 2
        else:
            group, dtype = 2, _number_dtype(operand)
        before = groups[group]
        groups[group] = dtype if before is None else _join(before, dtype)
    result: ir.DataType | None = None
    for lifted in groups:
        if lifted is not None and (result is None or _category(lifted) > _category(result)):
            result = lifted
    assert result is not None
    return result


def as_value(op: Builder, operand: Operand, dtype: ir.DataType | None) -> ir.Value:
    if isinstance(operand, ir.Value):
        return op.cast(operand, dtype)
    return op.constant(operand, dtype)


def promote(op: Builder, *operands: Operand) -> list[ir.Value]:
    """All operands as values of their common dtype."""
    dtype = result_type(*operands)
    return [as_value(op, operand, dtype) for operand in operands]


def to_float(op: Builder, x: Operand) -> ir.Value:
    """Integers and bools as float32, which is what torch computes transcendental functions in."""
    if not isinstance(x, ir.Value):
        return op.constant(x, T.FLOAT)
    return x if x.dtype is not None and _category(x.dtype) >= 2 else op.cast(x, T.FLOAT)


def opmath(op: Builder, x: Operand) -> ir.Value:
    """A real number in the precision that torch computes formulas of several steps in: halves as float32."""
    x = to_float(op, x)
    return op.cast(x, T.FLOAT) if x.dtype in (T.FLOAT16, T.BFLOAT16) else x


def axis_of(op: Builder, x: ir.Value, dim: int) -> int:
    """A non-negative axis; on a scalar, 0 and -1 both mean its only element."""
    return dim % max(op.rank(x), 1)


def axes_of(op: Builder, x: ir.Value, dims: Sequence[int] | int | None) -> list[int]:
    """Non-negative axes; None and an empty list mean all of them, as torch's reductions take it."""
    rank = op.rank(x)
    if dims is None or dims == []:
        return list(range(rank))
    return [d % max(rank, 1) for d in ([dims] if isinstance(dims, int) else dims)]
