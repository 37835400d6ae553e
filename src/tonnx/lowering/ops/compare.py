"""Comparisons, logic, bits, and the choice between two values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.lowering.ops.create import full_like
from tonnx.lowering.ops.math import floor_divide
from tonnx.lowering.ops.reduce import reduce
from tonnx.lowering.rules import lower
from tonnx.lowering.values import Operand, as_value, is_float, promote, result_type

T = ir.DataType

# Comparisons


def _enter_comparison(op_type: str, names: Sequence[str]) -> None:
    @lower(*(f"aten.{name}" for name in names))
    def function(op: Builder, x: Operand, other: Operand) -> ir.Value:
        return getattr(op, op_type)(*promote(op, x, other))


_enter_comparison("Equal", ["eq"])
_enter_comparison("Less", ["lt", "less"])
_enter_comparison("LessOrEqual", ["le", "less_equal"])
_enter_comparison("Greater", ["gt", "greater"])
_enter_comparison("GreaterOrEqual", ["ge", "greater_equal"])


@lower("aten.ne", "aten.not_equal")
def ne(op: Builder, x: Operand, other: Operand) -> ir.Value:
    return op.Not(op.Equal(*promote(op, x, other)))


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
    found = op.Greater(reduce(op, "ReduceSum", op.cast(matches, T.INT32), -1), 0)
    return op.Not(found) if invert else found


@lower("aten.isin.Tensor_Scalar")
def isin_number(op: Builder, elements: ir.Value, test_element: Operand, invert: bool = False) -> ir.Value:
    found = op.Equal(*promote(op, elements, test_element))
    return op.Not(found) if invert else found


@lower("aten.isin.Scalar_Tensor")
def number_isin(op: Builder, element: Operand, test_elements: ir.Value, invert: bool = False) -> ir.Value:
    return isin(op, as_value(op, element, result_type(element)), test_elements, invert)


# Kinds of numbers


@lower("aten.isnan")
def isnan(op: Builder, x: ir.Value) -> ir.Value:
    return op.IsNaN(x) if is_float(x.dtype) else full_like(op, x, False, T.BOOL)


@lower("aten.isinf")
def isinf(op: Builder, x: ir.Value) -> ir.Value:
    return op.IsInf(x) if is_float(x.dtype) else full_like(op, x, False, T.BOOL)


@lower("aten.isposinf")
def isposinf(op: Builder, x: ir.Value) -> ir.Value:
    return op.IsInf(x, detect_negative=0) if is_float(x.dtype) else full_like(op, x, False, T.BOOL)


@lower("aten.isneginf")
def isneginf(op: Builder, x: ir.Value) -> ir.Value:
    return op.IsInf(x, detect_positive=0) if is_float(x.dtype) else full_like(op, x, False, T.BOOL)


@lower("aten.isfinite")
def isfinite(op: Builder, x: ir.Value) -> ir.Value:
    # NaN is not less than anything.
    return op.Less(op.Abs(x), math.inf) if is_float(x.dtype) else full_like(op, x, True, T.BOOL)


@lower("aten.isreal")
def isreal(op: Builder, x: ir.Value) -> ir.Value:
    return full_like(op, x, True, T.BOOL)


# Logic and bits


@lower("aten.logical_not")
def logical_not(op: Builder, x: ir.Value) -> ir.Value:
    return op.Not(op.cast(x, T.BOOL))


def _enter_logic(op_type: str, name: str) -> None:
    @lower(f"aten.logical_{name}")
    def logical(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
        return getattr(op, op_type)(op.cast(x, T.BOOL), op.cast(other, T.BOOL))

    @lower(f"aten.bitwise_{name}", f"aten.__{name}__", f"aten.__i{name}__", f"aten.__r{name}__")
    def bitwise(op: Builder, x: Operand, other: Operand) -> ir.Value:
        a, b = promote(op, x, other)
        return getattr(op, op_type if a.dtype == T.BOOL else f"Bitwise{op_type}")(a, b)


_enter_logic("And", "and")
_enter_logic("Or", "or")
_enter_logic("Xor", "xor")


@lower("aten.bitwise_not")
def bitwise_not(op: Builder, x: ir.Value) -> ir.Value:
    return op.Not(x) if x.dtype == T.BOOL else op.BitwiseNot(x)


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
    found = op.NonZero(op.cast(x, T.BOOL))
    return [op.Gather(found, axis, axis=0) for axis in range(op.rank(x))]
