"""Comparisons, logic, bits, and the choice between two values."""

from __future__ import annotations

import math

import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.lowering.ops.create import full_like
from tonnx.lowering.ops.math import floor_divide
from tonnx.lowering.ops.reduce import reduce
from tonnx.lowering.rules import lower
from tonnx.lowering.values import Operand, as_value, is_float, promote, result_type

# Comparisons

ne = lower("aten.ne", "aten.not_equal")(lambda op, x, other: op.Not(op.Equal(*promote(op, x, other))))


@lower("aten.eq", op_type="Equal")
@lower("aten.lt", "aten.less", op_type="Less")
@lower("aten.le", "aten.less_equal", op_type="LessOrEqual")
@lower("aten.gt", "aten.greater", op_type="Greater")
@lower("aten.ge", "aten.greater_equal", op_type="GreaterOrEqual")
def compare(op: Builder, x: Operand, other: Operand, *, op_type: str) -> ir.Value:
    return getattr(op, op_type)(*promote(op, x, other))


@lower("aten.isclose")
def isclose(
    op: Builder, x: ir.Value, other: ir.Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> ir.Value:
    a, b = promote(op, x, other)
    equal = op.Equal(a, b)
    if not is_float(a.dtype):
        a, b = op.cast(a, T.DOUBLE), op.cast(b, T.DOUBLE)
    error = op.Abs(op.Sub(a, b))
    allowed = op.Add(op.Mul(op.Abs(b), rtol), atol)
    close = op.Or(equal, op.And(op.LessOrEqual(error, allowed), op.Less(error, math.inf)))
    return op.Or(close, op.And(isnan(op, a), isnan(op, b))) if equal_nan else close


@lower("aten.isin.Tensor_Tensor")
def isin(op: Builder, elements: ir.Value, test_elements: ir.Value, invert: bool = False) -> ir.Value:
    a, b = promote(op, elements, test_elements)
    matches = op.Equal(op.Unsqueeze(a, [-1]), op.Reshape(b, [-1]))
    # Counted rather than compared with Or: among no elements at all there is no match.
    is_member = op.Greater(reduce(op, "ReduceSum", op.cast(matches, T.INT32), -1), 0)
    return op.Not(is_member) if invert else is_member


@lower("aten.isin.Tensor_Scalar")
def isin_number(op: Builder, elements: ir.Value, test_element: Operand, invert: bool = False) -> ir.Value:
    is_equal = op.Equal(*promote(op, elements, test_element))
    return op.Not(is_equal) if invert else is_equal


@lower("aten.isin.Scalar_Tensor")
def number_isin(op: Builder, element: Operand, test_elements: ir.Value, invert: bool = False) -> ir.Value:
    return isin(op, as_value(op, element, result_type(element)), test_elements, invert)


# Kinds of numbers

isnan = lower("aten.isnan")(lambda op, x: op.IsNaN(x) if is_float(x.dtype) else full_like(op, x, False, T.BOOL))
isreal = lower("aten.isreal")(lambda op, x: full_like(op, x, True, T.BOOL))


@lower("aten.isinf")
@lower("aten.isposinf", detect_negative=0)
@lower("aten.isneginf", detect_positive=0)
def isinf(
    op: Builder, x: ir.Value, *, detect_negative: int | None = None, detect_positive: int | None = None
) -> ir.Value:
    if not is_float(x.dtype):
        return full_like(op, x, False, T.BOOL)
    return op.IsInf(x, detect_negative=detect_negative, detect_positive=detect_positive)


@lower("aten.isfinite")
def isfinite(op: Builder, x: ir.Value) -> ir.Value:
    # NaN is not less than anything.
    return op.Less(op.Abs(x), math.inf) if is_float(x.dtype) else full_like(op, x, True, T.BOOL)


# Logic and bits

logical_not = lower("aten.logical_not")(lambda op, x: op.Not(op.cast(x, T.BOOL)))
bitwise_not = lower("aten.bitwise_not")(lambda op, x: op.Not(x) if x.dtype == T.BOOL else op.BitwiseNot(x))


@lower("aten.logical_and", op_type="And")
@lower("aten.logical_or", op_type="Or")
@lower("aten.logical_xor", op_type="Xor")
def logical(op: Builder, x: ir.Value, other: ir.Value, *, op_type: str) -> ir.Value:
    return getattr(op, op_type)(op.cast(x, T.BOOL), op.cast(other, T.BOOL))


@lower("aten.bitwise_and", "aten.__and__", "aten.__iand__", "aten.__rand__", op_type="And")
@lower("aten.bitwise_or", "aten.__or__", "aten.__ior__", "aten.__ror__", op_type="Or")
@lower("aten.bitwise_xor", "aten.__xor__", "aten.__ixor__", "aten.__rxor__", op_type="Xor")
def bitwise(op: Builder, x: Operand, other: Operand, *, op_type: str) -> ir.Value:
    a, b = promote(op, x, other)
    return getattr(op, op_type if a.dtype == T.BOOL else f"Bitwise{op_type}")(a, b)


@lower("aten.bitwise_left_shift", "aten.__lshift__", "aten.__ilshift__")
def left_shift(op: Builder, x: Operand, other: Operand) -> ir.Value:
    # ONNX shifts unsigned integers only; a multiplication wraps around just the same.
    value, factor = _shifted(op, x, other)
    return op.cast(op.Mul(value, factor), result_type(x, other))


@lower("aten.bitwise_right_shift", "aten.__rshift__", "aten.__irshift__")
def right_shift(op: Builder, x: Operand, other: Operand) -> ir.Value:
    value, divisor = _shifted(op, x, other)
    return op.cast(floor_divide(op, value, divisor), result_type(x, other))


def _shifted(op: Builder, x: Operand, places: Operand) -> tuple[ir.Value, ir.Value]:
    """Both in int64, where the power of two has room even if everything is shifted out."""
    exponent = as_value(op, places, T.INT64)
    return as_value(op, x, T.INT64), op.Pow(op.constant(2, T.INT64), op.Min(exponent, 62))


# Choice


@lower("aten.where")
def where(op: Builder, condition: ir.Value, self: Operand, other: Operand) -> ir.Value:
    return op.Where(op.cast(condition, T.BOOL), *promote(op, self, other))


@lower("aten.where.default", "aten.nonzero_numpy")
def where_true(op: Builder, x: ir.Value) -> list[ir.Value]:
    """The indices of what is not zero, axis by axis."""
    if op.rank(x) == 0:
        x = op.Unsqueeze(x, [0])
    places = op.NonZero(op.cast(x, T.BOOL))
    return [op.Gather(places, axis, axis=0) for axis in range(op.rank(x))]
