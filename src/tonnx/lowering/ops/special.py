"""Pointwise functions of real numbers: exponentials, logarithms, trigonometry, the error function and its kin."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.lowering.ops.math import clamp, mul
from tonnx.lowering.rules import lower
from tonnx.lowering.values import Operand, opmath, promote, to_float

_SAME_IN_ONNX = {
    "Acos": "acos arccos", "Acosh": "acosh arccosh", "Asin": "asin arcsin", "Asinh": "asinh arcsinh",
    "Atan": "atan arctan", "Atanh": "atanh arctanh", "Cos": "cos", "Cosh": "cosh", "Erf": "erf special_erf",
    "Exp": "exp", "Log": "log", "Sigmoid": "sigmoid special_expit", "Sin": "sin", "Sinh": "sinh", "Tan": "tan",
    "Tanh": "tanh",
}  # fmt: skip


def same_in_onnx(op: Builder, x: ir.Value, *, op_type: str) -> ir.Value:
    return getattr(op, op_type)(to_float(op, x))


for _op_type, _names in _SAME_IN_ONNX.items():
    lower(*(f"aten.{name}" for name in _names.split()), op_type=_op_type)(same_in_onnx)


# Exponentials and logarithms

log2 = lower("aten.log2")(lambda op, x: logarithm(op, x, 2))
log10 = lower("aten.log10")(lambda op, x: logarithm(op, x, 10))


@lower("aten.exp2", "aten.special_exp2")
def exp2(op: Builder, x: ir.Value) -> ir.Value:
    x = to_float(op, x)
    return op.Pow(op.constant(2, x.dtype), x)


@lower("aten.expm1", "aten.special_expm1")
def expm1(op: Builder, x: ir.Value) -> ir.Value:
    # tanh(x/2) (e^x + 1): the difference e^x - 1 has no digits left near 0.
    x = opmath(op, x)
    return op.Mul(op.Tanh(op.Mul(x, 0.5)), op.Add(op.Exp(x), 1))


@lower("aten.log1p", "aten.special_log1p")
def log1p(op: Builder, x: ir.Value) -> ir.Value:
    # log(u) with u = 1 + x rounded, and to first order what the rounding took away: it is all there is of a small x.
    x = opmath(op, x)
    u = op.Add(x, 1)
    arrived = op.Sub(u, 1)
    log = op.Log(u)
    return op.Where(op.Equal(arrived, x), log, op.Sub(log, op.Div(op.Sub(arrived, x), u)))


def logarithm(op: Builder, x: ir.Value, base: int) -> ir.Value:
    """Exact at the powers of the base, as torch is: models take the floor of it, to choose a level of a pyramid."""
    x = opmath(op, x)
    quotient = op.Div(op.Log(x), math.log(base))
    whole = op.Round(quotient)
    return op.Where(op.Equal(op.Pow(op.constant(base, x.dtype), whole), x), whole, quotient)


@lower("aten.logaddexp")
def logaddexp(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
    a, b = (opmath(op, v) for v in promote(op, x, other))
    return log_add_exp(op, a, b)


def log_add_exp(op: Builder, a: ir.Value, b: ir.Value) -> ir.Value:
    """log(e^a + e^b) without overflow. Equal operands apart: the difference of two infinities is no number."""
    above = op.Softplus(op.Neg(op.Abs(op.Sub(a, b))))
    return op.Where(op.Equal(a, b), op.Add(a, math.log(2)), op.Add(op.Max(a, b), above))


@lower("aten.logaddexp2")
def logaddexp2(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
    a, b = (op.Mul(opmath(op, v), math.log(2)) for v in promote(op, x, other))
    return op.Div(log_add_exp(op, a, b), math.log(2))


@lower("aten.xlogy", "aten.special_xlogy")
def xlogy(op: Builder, x: Operand, other: Operand) -> ir.Value:
    a, b = (opmath(op, v) for v in promote(op, x, other))
    return _unless_zero(op, a, b, op.Mul(a, op.Log(b)))


@lower("aten.special_xlog1py")
def xlog1py(op: Builder, x: Operand, other: Operand) -> ir.Value:
    a, b = (opmath(op, v) for v in promote(op, x, other))
    return _unless_zero(op, a, b, op.Mul(a, log1p(op, b)))


def _unless_zero(op: Builder, a: ir.Value, b: ir.Value, product: ir.Value) -> ir.Value:
    return op.Where(op.And(op.Equal(a, 0), op.Not(op.IsNaN(b))), 0.0, product)


@lower("aten.special_entr")
def entr(op: Builder, x: ir.Value) -> ir.Value:
    x = opmath(op, x)
    inside = op.Where(op.Equal(x, 0), 0.0, op.Neg(op.Mul(x, op.Log(x))))
    return op.Where(op.Less(x, 0), -math.inf, inside)


@lower("aten.logit", "aten.special_logit")
def logit(op: Builder, x: ir.Value, eps: float | None = None) -> ir.Value:
    x = opmath(op, x)
    if eps is not None:
        x = clamp(op, x, eps, 1 - eps)
    return op.Log(op.Div(x, op.Sub(1, x)))


# Angles

deg2rad = lower("aten.deg2rad")(lambda op, x: mul(op, x, math.pi / 180))
rad2deg = lower("aten.rad2deg")(lambda op, x: mul(op, x, 180 / math.pi))


@lower("aten.atan2", "aten.arctan2")
def atan2(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
    y, x = (opmath(op, v) for v in promote(op, x, other))
    # y = 0 apart: the quotient of two zeros is no number. A division by zero alone gives the right quarter turn.
    within = op.Where(op.Equal(y, 0), 0.0, op.Atan(op.Div(y, x)))
    turn = op.Where(op.Less(y, 0), -math.pi, op.constant(math.pi, y.dtype))
    return op.Where(op.Less(x, 0), op.Add(within, turn), within)


@lower("aten.angle")
def angle(op: Builder, x: ir.Value) -> ir.Value:
    x = to_float(op, x)
    return op.Where(op.Less(x, 0), math.pi, op.Where(op.IsNaN(x), x, 0.0))


@lower("aten.sinc", "aten.special_sinc")
def sinc(op: Builder, x: ir.Value) -> ir.Value:
    turned = op.Mul(opmath(op, x), math.pi)
    return op.Where(op.Equal(turned, 0), 1.0, op.Div(op.Sin(turned), turned))


# The error function

erfc = lower("aten.erfc", "aten.special_erfc")(lambda op, x: op.Sub(1, op.Erf(opmath(op, x))))
ndtr = lower("aten.special_ndtr")(lambda op, x: op.Mul(op.Add(op.Erf(op.Mul(opmath(op, x), math.sqrt(0.5))), 1), 0.5))
ndtri = lower("aten.special_ndtri")(lambda op, x: op.Mul(erfinv(op, op.Sub(op.Mul(opmath(op, x), 2), 1)), math.sqrt(2)))


# Of the scaled complement e^(x²) erfc(x): up to _ERFCX_EDGE the series of erf, beyond it the integral of
# e^(-t²) x / (x² + t²) by the trapezoidal rule, which converges faster than any power of its step.
_ERFCX_EDGE, _ERFCX_STEP = 1.0, 0.25
_ERF_SERIES = [2 / math.sqrt(math.pi) * (-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(18)][::-1]


@lower("aten.special_erfcx")
def erfcx(op: Builder, x: ir.Value) -> ir.Value:
    x = op.cast(opmath(op, x), T.DOUBLE)
    size = op.Abs(x)
    inner, outer = op.Min(size, _ERFCX_EDGE), op.Max(size, _ERFCX_EDGE)
    near = op.Exp(inner * inner) * (1.0 - inner * polynomial(op, inner * inner, _ERF_SERIES))
    nodes = _ERFCX_STEP * np.arange(26.0)
    weights = 2 * _ERFCX_STEP / math.pi * np.exp(-(nodes**2))
    weights[0] /= 2
    wide = op.Unsqueeze(outer, [-1])
    far = op.ReduceSum(op.Div(weights, wide + op.Div(nodes**2, wide)), [-1], keepdims=0)
    positive = op.Where(op.Less(size, _ERFCX_EDGE), near, far)
    return op.Where(op.Less(x, 0), op.Exp(x * x) * 2.0 - positive, positive)


@lower("aten.special_log_ndtr")
def log_ndtr(op: Builder, x: ir.Value) -> ir.Value:
    x = op.cast(opmath(op, x), T.DOUBLE) * math.sqrt(0.5)
    complement = erfcx(op, op.Abs(x)) * 0.5  # of the half beyond |x|, times e^(x²)
    return op.Where(op.Less(x, 0), op.Log(complement) - x * x, log1p(op, -complement * op.Exp(-x * x)))


# M. Giles, "Approximating the erfinv function", GPU Computing Gems 2, 2011: two polynomials in w = -log(1 - x²).
_ERFINV_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


@lower("aten.erfinv", "aten.special_erfinv")
def erfinv(op: Builder, x: ir.Value) -> ir.Value:
    x = opmath(op, x)
    w = op.Neg(op.Log(op.Mul(op.Sub(1, x), op.Add(x, 1))))
    w = op.cast(w, T.FLOAT)  # seven digits is all that the polynomials have
    centre = polynomial(op, op.Sub(w, 2.5), _ERFINV_CENTRE)
    tail = polynomial(op, op.Sub(op.Sqrt(w), 3), _ERFINV_TAIL)
    inside = op.Mul(op.cast(op.Where(op.Less(w, 5), centre, tail), x.dtype or T.FLOAT), x)
    return op.Where(op.Equal(op.Abs(x), 1), op.Mul(x, math.inf), inside)


def polynomial(op: Builder, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """Horner's scheme, the highest power first."""
    result = op.constant(coefficients[0], x.dtype)
    for coefficient in coefficients[1:]:
        result = op.Add(op.Mul(result, x), coefficient)
    return result
