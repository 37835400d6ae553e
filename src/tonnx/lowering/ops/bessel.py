"""Bessel and Airy functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.lowering.ops.special import polynomial
from tonnx.lowering.rules import lower
from tonnx.lowering.values import opmath

# Of the first kind, modified: I0 and I1

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


# Of the second kind, modified: K0 and K1


@lower("aten.special_modified_bessel_k0", order=0, scaled=False)
@lower("aten.special_modified_bessel_k1", order=1, scaled=False)
@lower("aten.special_scaled_modified_bessel_k0", order=0, scaled=True)
@lower("aten.special_scaled_modified_bessel_k1", order=1, scaled=True)
def modified_second(op: Builder, x: ir.Value, *, order: int, scaled: bool) -> ir.Value:
    """Up to _K_EDGE by the series around 0, beyond it by an integral. Infinite at 0, not defined below."""
    x = op.cast(opmath(op, x), T.DOUBLE)
    near, far = _second_series(op, op.Min(x, _K_EDGE), _K_EDGE, order, 1), _k_integral(op, op.Max(x, _K_EDGE), order)
    if scaled:
        near = near * op.Exp(op.Min(x, _K_EDGE))
    else:
        far = far * op.Exp(-x)
    result = op.Where(op.LessOrEqual(x, _K_EDGE), near, far)
    return op.Where(op.Equal(x, 0), math.inf, op.Where(op.Less(x, 0), math.nan, result))


_K_EDGE, _K_STEP = 2.0, 0.3


def _k_integral(op: Builder, x: ir.Value, order: float) -> ir.Value:
    """e^x K(x), the integral of e^(x - x cosh t) cosh(order t) over t > 0, and of e^-u² with u² = x (cosh t - 1).

    By the trapezoidal rule, which converges faster than any power of its step.
    """
    nodes = _K_STEP * np.arange(21.0)
    weights = math.sqrt(2) * _K_STEP * np.exp(-(nodes**2))
    weights[0] /= 2
    x = op.Unsqueeze(x, [-1])
    square = op.Div(nodes**2, x)
    if order in (0, 1):
        cosh = square + 1.0 if order else None
    else:
        t = op.Log(square + 1.0 + op.Sqrt(square * (square + 2.0))) * order
        cosh = (op.Exp(t) + op.Exp(-t)) * 0.5
    terms = op.Div(weights, op.Sqrt(x * (square * 0.5 + 1.0)))
    return op.ReduceSum(terms if cosh is None else terms * cosh, [-1], keepdims=0)


_EULER = 0.57721566490153286


def _power_series(op: Builder, x: ir.Value, edge: float, numbers: Sequence[float]) -> ir.Value:
    """The sum of numbers[k] x^k for |x| up to ``edge``; in x / edge, which keeps the numbers from growing tiny."""
    scaled = [number * edge**k for k, number in enumerate(numbers)]
    largest = max(map(abs, scaled))
    while abs(scaled[-1]) < 1e-18 * largest:
        scaled.pop()
    return polynomial(op, x * (1 / edge), scaled[::-1])


def _first_numbers(order: int, sign: int) -> list[float]:
    return [sign**k / (4**k * math.factorial(k) * math.factorial(k + order)) for k in range(50)]


def _first_series(op: Builder, x: ir.Value, edge: float, order: int, sign: int) -> ir.Value:
    """J (sign -1) or I (sign 1) of order 0 or 1: the sum of (sign x²/4)^k (x/2)^order / k! (k + order)!."""
    total = _power_series(op, x * x, edge**2, _first_numbers(order, sign))
    return total * x * 0.5 if order else total


def _second_series(op: Builder, x: ir.Value, edge: float, order: int, sign: int) -> ir.Value:
    """pi/2 Y (sign -1) or K (sign 1) of order 0 or 1: log(x/2) times the first kind, and a series of its own."""
    harmonic = [sum(1 / i for i in range(1, k + 1)) for k in range(52)]
    psi = [(harmonic[k] + harmonic[k + order]) / 2 - _EULER for k in range(50)]
    numbers = [a * b for a, b in zip(psi, _first_numbers(order, sign), strict=True)]
    own = _power_series(op, x * x, edge**2, numbers)
    own = own * x * 0.5 if order else own
    by_log = op.Log(x * 0.5) * _first_series(op, x, edge, order, sign) - own
    if not order:
        return -by_log if sign > 0 else by_log
    return by_log + sign / x


# Of the first and second kind: J0, J1, Y0, Y1

_J_EDGE = 12.0


@lower("aten.special_bessel_j0", order=0, second=False)
@lower("aten.special_bessel_j1", order=1, second=False)
@lower("aten.special_bessel_y0", order=0, second=True)
@lower("aten.special_bessel_y1", order=1, second=True)
def bessel(op: Builder, x: ir.Value, *, order: int, second: bool) -> ir.Value:
    """Up to _J_EDGE by the series around 0, beyond it by Hankel's."""
    x = op.cast(opmath(op, x), T.DOUBLE)
    size = x if second else op.Abs(x)
    inner, outer = op.Min(size, _J_EDGE), op.Max(size, _J_EDGE)
    if second:
        near = _second_series(op, inner, _J_EDGE, order, -1) * (2 / math.pi)
    else:
        near = _first_series(op, inner, _J_EDGE, order, -1)
    angle = outer - (2 * order + 1) * math.pi / 4
    even, odd = _hankel(op, outer, order)
    cosine, sine = op.Cos(angle), op.Sin(angle)
    wave = even * sine + odd * cosine if second else even * cosine - odd * sine
    far = op.Sqrt(2 / math.pi / outer) * wave
    result = op.Where(op.LessOrEqual(size, _J_EDGE), near, far)
    if second:
        return op.Where(op.Equal(x, 0), -math.inf, op.Where(op.Less(x, 0), math.nan, result))
    return result * op.Sign(x) if order else result


def _hankel(op: Builder, x: ir.Value, order: int) -> tuple[ir.Value, ir.Value]:
    """The two asymptotic series, of even and odd powers of 1/x (Abramowitz and Stegun, 9.2.9 and 9.2.10)."""
    numbers = [1.0]
    for k in range(1, 22):
        numbers.append(numbers[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    return _alternating(op, 1.0 / x, 1 / _J_EDGE, numbers)


def _alternating(op: Builder, x: ir.Value, edge: float, numbers: Sequence[float]) -> tuple[ir.Value, ir.Value]:
    """The even and the odd part of a series, each with alternating signs."""
    even, odd = (
        _power_series(op, x * x, edge**2, [(-1) ** k * number for k, number in enumerate(numbers[start::2])])
        for start in (0, 1)
    )
    return even, odd * x


@lower("aten.special_spherical_bessel_j0")
def spherical_j0(op: Builder, x: ir.Value) -> ir.Value:
    x = op.cast(opmath(op, x), T.DOUBLE)
    infinite = op.IsInf(x)
    inside = op.Where(op.Or(infinite, op.Equal(x, 0)), 1.0, x)
    return op.Where(infinite, 0.0, op.Where(op.Equal(x, 0), 1.0, op.Sin(inside) / inside))


# Airy's function

_AIRY_LOW, _AIRY_HIGH = -7.0, 2.1


@lower("aten.special_airy_ai")
def airy_ai(op: Builder, x: ir.Value) -> ir.Value:
    """In the middle the series around 0; above it is K of order 1/3, below a wave (10.4.2, 10.4.14, 10.4.60)."""
    x = op.cast(opmath(op, x), T.DOUBLE)
    middle, high, low = (op.Min(op.Max(x, _AIRY_LOW), _AIRY_HIGH), op.Max(x, _AIRY_HIGH), op.Max(-x, -_AIRY_LOW))
    cube = middle * middle * middle
    even, odd = (_power_series(op, cube, abs(_AIRY_LOW) ** 3, _airy_numbers(start)) for start in (0, 1))
    series = even - middle * odd
    argument = high * op.Sqrt(high) * (2 / 3)
    above = op.Sqrt(high / 3.0) * _k_integral(op, argument, 1 / 3) * op.Exp(-argument) * (1 / math.pi)
    argument = low * op.Sqrt(low) * (2 / 3)
    numbers = [math.gamma(3 * k + 0.5) / (54**k * math.factorial(k) * math.gamma(k + 0.5)) for k in range(22)]
    even, odd = _alternating(op, 1.0 / argument, 1 / (abs(_AIRY_LOW) ** 1.5 * 2 / 3), numbers)
    angle = argument + math.pi / 4
    wave = op.Sin(angle) * even - op.Cos(angle) * odd
    below = wave / (op.Sqrt(op.Sqrt(low)) * math.sqrt(math.pi))
    return op.Where(op.Less(x, _AIRY_LOW), below, op.Where(op.Greater(x, _AIRY_HIGH), above, series))


def _airy_numbers(start: int) -> list[float]:
    """Of x^(3k) and x^(3k + 1): each is the one before over its place and the next; the first are Ai(0) and -Ai'(0)."""
    numbers = [3 ** (-2 / 3) / math.gamma(2 / 3) if start == 0 else 3 ** (-1 / 3) / math.gamma(1 / 3)]
    for k in range(1, 40):
        place = 3 * k + start
        numbers.append(numbers[-1] / (place * (place - 1)))
    return numbers
