"""Pointwise functions of real numbers: exponentials, logarithms, trigonometry, the error function and its kin."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.lowering.ops.math import add, clamp, mul
from tonnx.lowering.rules import lower
from tonnx.lowering.values import Operand, opmath, promote, to_float

T = ir.DataType

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

log2 = lower("aten.log2")(lambda op, x: _logarithm(op, x, 2))
log10 = lower("aten.log10")(lambda op, x: _logarithm(op, x, 10))


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


def _logarithm(op: Builder, x: ir.Value, base: int) -> ir.Value:
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


# The logarithm of the gamma function

# C. Lanczos' series with g = 7, as tabulated by P. Godfrey: fifteen digits.
_LANCZOS = (
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


@lower("aten.lgamma", "aten.special_gammaln")
def lgamma(op: Builder, x: ir.Value) -> ir.Value:
    real = to_float(op, x)
    x = op.cast(real, T.DOUBLE)  # the series cancels: in single precision it keeps only four digits
    mirrored = op.Less(x, 0.5)
    z = op.Sub(op.Where(mirrored, op.Sub(1, x), x), 1)
    series = op.constant(0.99999999999980993, T.DOUBLE)
    for i, coefficient in enumerate(_LANCZOS, 1):
        series = op.Add(series, op.Div(coefficient, op.Add(z, i)))
    t = op.Add(z, 7.5)
    log = op.Add(op.Sub(op.Mul(op.Add(z, 0.5), op.Log(t)), t), op.Add(op.Log(series), math.log(2 * math.pi) / 2))
    # The reflection: gamma(x) gamma(1 - x) = pi / sin(pi x).
    sine = op.Abs(op.Sin(op.Mul(op.Sub(x, op.Floor(x)), math.pi)))
    reflected = op.Sub(math.log(math.pi), op.Add(op.Log(sine), log))
    result = op.Where(mirrored, reflected, log)
    return op.Where(op.IsInf(x), math.inf, result)


@lower("aten.mvlgamma", "aten.special_multigammaln")
def mvlgamma(op: Builder, x: ir.Value, p: int) -> ir.Value:
    x = opmath(op, x)
    result = op.constant(p * (p - 1) / 4 * math.log(math.pi), x.dtype)
    for i in range(p):
        result = add(op, result, op.cast(lgamma(op, op.Sub(x, i / 2)), x.dtype))
    return result


# psi(x) = log x - 1/2x - sum of B(2k) / 2k x^2k: seven digits from x = 6 on, where these four terms are enough.
_DIGAMMA = (-1 / 240, 1 / 252, -1 / 120, 1 / 12)


@lower("aten.digamma", "aten.special_digamma", "aten.special_psi")
def digamma(op: Builder, x: ir.Value) -> ir.Value:
    real = opmath(op, x)
    mirrored = op.Less(real, 0)
    x = op.Where(mirrored, op.Sub(1, real), real)
    below = op.Reciprocal(x)
    for i in range(1, 6):  # psi(x + 1) = psi(x) + 1/x
        below = op.Add(below, op.Reciprocal(op.Add(x, i)))
    shifted = op.Add(x, 6)
    square = op.Reciprocal(op.Mul(shifted, shifted))
    series = op.Mul(polynomial(op, square, _DIGAMMA), square)
    result = op.Sub(op.Sub(op.Log(shifted), op.Div(0.5, shifted)), op.Add(series, below))
    # psi(1 - x) = psi(x) + pi / tan(pi x), undefined at whole x; the fraction keeps the tangent exact far from 0.
    fraction = op.Mod(real, 1, fmod=1)
    cotangent = op.Where(op.Equal(fraction, 0), math.nan, op.Reciprocal(op.Tan(op.Mul(fraction, math.pi))))
    return op.Where(mirrored, op.Sub(result, op.Mul(cotangent, math.pi)), result)


# The modified Bessel functions

i0e = lower("aten.special_i0e")(lambda op, x: _bessel(op, x, odd=False, scaled=True))
i1 = lower("aten.special_i1", "aten.special_modified_bessel_i1")(lambda op, x: _bessel(op, x, odd=True, scaled=False))
i1e = lower("aten.special_i1e")(lambda op, x: _bessel(op, x, odd=True, scaled=True))


# M. Abramowitz and I. Stegun, "Handbook of Mathematical Functions", 9.8.1 to 9.8.4: seven digits. The first of each
# pair is a polynomial in (x / 3.75)² up to 3.75, the second one in 3.75 / x of sqrt(x) exp(-x) I(x) beyond.
_I0 = (
    (0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0),
    (0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565, 0.00225319, 0.01328592, 0.39894228),
)
_I1 = (
    (0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5),
    (-0.00420059, 0.01787654, -0.02895312, 0.02282967, -0.01031555, 0.00163801, -0.00362018, -0.03988024, 0.39894228),
)


def _bessel_series(odd: bool, edge: float) -> tuple[list[float], list[float]]:
    """The same two for float64: the series of powers, and the asymptotic one (9.7.1). Twelve digits with 16 as edge."""
    centre = [(edge / 2) ** (2 * k) / (math.factorial(k) * math.factorial(k + odd) * 2**odd) for k in range(30)]
    tail = [1 / math.sqrt(2 * math.pi)]
    for k in range(1, 16):
        tail.append(tail[-1] * ((2 * k - 1) ** 2 - 4 * odd) / (8 * k * edge))
    return centre[::-1], tail[::-1]


def _bessel(op: Builder, x: ir.Value, odd: bool, scaled: bool) -> ir.Value:
    x = opmath(op, x)
    size = op.Abs(x)
    edge = 16.0 if x.dtype == T.DOUBLE else 3.75
    centre, tail = _bessel_series(odd, edge) if x.dtype == T.DOUBLE else _I1 if odd else _I0
    small, large = op.Div(size, edge), op.Div(edge, op.Max(size, edge))
    inner, outer = polynomial(op, op.Mul(small, small), centre), op.Div(polynomial(op, large, tail), op.Sqrt(size))
    if odd:
        inner = op.Mul(inner, size)
    if scaled:
        inner = op.Mul(inner, op.Exp(op.Neg(size)))
    else:
        outer = op.Mul(outer, op.Exp(size))
    result = op.Where(op.Less(size, edge), inner, outer)
    return op.Mul(result, op.Sign(x)) if odd else result


@lower("aten.i0", "aten.special_i0", "aten.special_modified_bessel_i0")
def i0(op: Builder, x: ir.Value) -> ir.Value:
    return _bessel(op, x, odd=False, scaled=False)
