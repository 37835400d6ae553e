"""The gamma function: its logarithm, its derivatives, its incomplete kin, and Hurwitz' zeta function."""

from __future__ import annotations

import math

import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.lowering.ops.math import add
from tonnx.lowering.ops.special import polynomial
from tonnx.lowering.regions.emit import repeat
from tonnx.lowering.rules import lower
from tonnx.lowering.values import Operand, opmath, promote, to_float

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


# Hurwitz' zeta function: the sum of (q + k)^-s, the first terms one by one, the rest by Euler and Maclaurin's formula

polygamma = lower("aten.polygamma", "aten.special_polygamma")(lambda op, n, self: _polygamma(op, n, self))

_BEGUN = 10.0
"""Where the rest of the sum starts, at least: there the terms below leave less than 1e-13 of it."""
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


@lower("aten.special_zeta")
def zeta(op: Builder, x: Operand, other: Operand) -> ir.Value:
    s, q = (op.cast(opmath(op, v), T.DOUBLE) for v in promote(op, x, other))
    s, q = op.Expand(s, op.Shape(q)), op.Expand(q, op.Shape(s))
    at_pole = op.And(op.LessOrEqual(q, 0), op.Equal(q, op.Floor(q)))
    no_power = op.And(op.Less(q, 0), op.Not(op.Equal(s, op.Floor(s))))
    result = op.Where(no_power, math.nan, _hurwitz(op, s, op.Where(at_pole, 1.0, q)))
    result = op.Where(op.Or(at_pole, op.Equal(s, 1)), math.inf, result)
    return op.Where(op.Less(s, 1), math.nan, result)


def _hurwitz(op: Builder, s: ir.Value, q: ir.Value) -> ir.Value:
    """Of double values of one shape; no q is 0 or a negative whole number."""
    numbers = op.Reshape(op.Where(op.IsNaN(q), 0.0, q), [-1])
    lowest = op.ReduceMin(op.Concat(numbers, op.constant([0.0], T.DOUBLE), axis=0), keepdims=0)
    terms = op.cast(op.Ceil(_BEGUN - lowest), T.INT64)

    def step(op: Builder, states: list[ir.Value], i: ir.Value) -> list[ir.Value]:
        total, at = states
        return [total + op.Pow(at, -s), at + 1.0]

    total, at = repeat(op, op.reshape(terms, [1]), [q * 0.0, q], step)
    power = op.Pow(at, -s)
    total = total + power * at / (s - 1.0) + power * 0.5
    rising, power = s, power / at
    for i, number in enumerate(_BERNOULLI, 1):
        total = total + rising * power * (number / math.factorial(2 * i))
        rising, power = rising * (s + (2 * i - 1)) * (s + 2 * i), power / (at * at)
    return total


def _polygamma(op: Builder, n: int, x: ir.Value) -> ir.Value:
    """The n-th derivative of psi."""
    if n == 0:
        return digamma(op, x)
    x = opmath(op, x)
    order, scale = op.constant(float(n + 1), T.DOUBLE), float((-1) ** (n + 1) * math.factorial(n))
    if n > 1:
        return zeta(op, order, op.cast(x, T.DOUBLE)) * scale
    # torch takes the reflection for this one, and so a large number for the infinity at whole numbers below 0.
    mirrored = op.Less(x, 0.5)
    result = zeta(op, order, op.cast(op.Where(mirrored, 1.0 - x, x), T.DOUBLE))
    sine = op.Sin(x * math.pi)
    return op.Where(mirrored, op.cast(math.pi**2 / (sine * sine), T.DOUBLE) - result, result)


# The incomplete gamma functions: a series up to x = a + 1, beyond it a continued fraction, which is that of 1 - P

_STEPS, _ENOUGH = 2000, 1e-15
"""How many terms, at most, and the part of the sum that a term must reach for the next one to be looked at."""


@lower("aten.igamma", "aten.special_gammainc", upper=False)
@lower("aten.igammac", "aten.special_gammaincc", upper=True)
def incomplete_gamma(op: Builder, x: ir.Value, other: ir.Value, *, upper: bool) -> ir.Value:
    a, x = (op.cast(opmath(op, v), T.DOUBLE) for v in promote(op, x, other))
    a, x = op.Expand(a, op.Shape(x)), op.Expand(x, op.Shape(a))
    unusual = op.Or(op.Not(op.Greater(a, 0)), op.Or(op.Not(op.Greater(x, 0)), op.Or(op.IsInf(a), op.IsInf(x))))
    one_a, one_x = op.Where(unusual, 1.0, a), op.Where(unusual, 1.0, x)
    beyond = op.Greater(one_x, one_a + 1.0)
    # x^a e^-x / gamma(a)
    factor = op.Exp(one_a * op.Log(one_x) - one_x - lgamma(op, one_a))
    below = factor * _series(op, one_a, op.Where(beyond, one_a, one_x))
    above = factor * _fraction(op, one_a, op.Where(beyond, one_x, one_a + 2.0))
    result = op.Where(beyond, above, 1.0 - below) if upper else op.Where(beyond, 1.0 - above, below)
    # P(a, 0) and P(inf, x) are 0; P(0, x) and P(a, inf) are 1
    none, all_ = (op.constant(float(part == upper), T.DOUBLE) for part in (True, False))
    zero_a, zero_x = op.Equal(a, 0), op.Equal(x, 0)
    edge = op.Where(op.Or(zero_x, op.IsInf(a)), op.Where(op.Or(zero_a, op.IsInf(x)), math.nan, none), all_)
    edge = op.Where(op.And(op.GreaterOrEqual(a, 0), op.GreaterOrEqual(x, 0)), edge, math.nan)
    return op.Where(unusual, edge, result)


def _series(op: Builder, a: ir.Value, x: ir.Value) -> ir.Value:
    """1/a + x/a(a+1) + x²/a(a+1)(a+2) + …"""

    def step(op: Builder, states: list[ir.Value], i: ir.Value) -> list[ir.Value]:
        total, term = states
        term = term * x / (a + (op.cast(i, T.DOUBLE) + 1.0))
        return [total + term, term]

    first = 1.0 / a
    total, _ = repeat(op, _STEPS, [first, first], step, lambda op, states: _counts(op, states[1], states[0]))
    return total


def _fraction(op: Builder, a: ir.Value, x: ir.Value) -> ir.Value:
    """1/(x+1-a - 1(1-a)/(x+3-a - 2(2-a)/(x+5-a - …))), from the front (Lentz)."""

    def step(op: Builder, states: list[ir.Value], i: ir.Value) -> list[ir.Value]:
        total, c, d, _ = states
        k = op.cast(i, T.DOUBLE) + 1.0
        numerator, denominator = k * (a - k), x - a + (k * 2.0 + 1.0)
        d, c = 1.0 / (denominator + numerator * d), denominator + numerator / c
        after = total * c * d
        return [after, c, d, after - total]

    first = 1.0 / (x - a + 1.0)
    start = [first, first * 0.0 + 1e300, first, first]
    total, *_ = repeat(op, _STEPS, start, step, lambda op, states: _counts(op, states[3], states[0]))
    return total


def _counts(op: Builder, term: ir.Value, total: ir.Value) -> ir.Value:
    """Whether a term changes the total anywhere."""
    count = op.cast(op.Greater(op.Abs(term), op.Abs(total) * _ENOUGH), T.INT64)
    return op.Greater(op.ReduceSum(count, keepdims=0), 0)
