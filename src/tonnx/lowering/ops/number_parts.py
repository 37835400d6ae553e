"""What numbers are made of: common divisors and multiples of integers, exponents and neighbours of floats."""

from __future__ import annotations

import math

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.lowering.regions.emit import repeat
from tonnx.lowering.rules import lower
from tonnx.lowering.values import promote

T = ir.DataType

# Integers


@lower("aten.gcd")
def gcd(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
    return _common_divisor(op, *_wide(op, x, other))


@lower("aten.lcm")
def lcm(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
    a, b = _wide(op, x, other)
    divisor = _common_divisor(op, a, b)
    return op.Abs(op.Div(a, op.Where(op.Equal(divisor, 0), 1, divisor)) * b)


def _wide(op: Builder, x: ir.Value, other: ir.Value) -> tuple[ir.Value, ir.Value]:
    a, b = (op.cast(v, T.INT64) for v in promote(op, x, other))
    return op.Expand(a, op.Shape(b)), op.Expand(b, op.Shape(a))


def _common_divisor(op: Builder, a: ir.Value, b: ir.Value) -> ir.Value:
    """Euclid's: the divisor and the remainder, until nothing remains anywhere."""

    def step(op: Builder, states: list[ir.Value], i: ir.Value) -> list[ir.Value]:
        a, b = states
        ready = op.Equal(b, 0)
        return [op.Where(ready, a, b), op.Where(ready, b, op.Mod(a, op.Where(ready, 1, b)))]

    def remains(op: Builder, states: list[ir.Value]) -> ir.Value:
        return op.Greater(op.ReduceSum(op.cast(op.cast(states[1], T.BOOL), T.INT64), keepdims=0), 0)

    divisor, _ = repeat(op, None, [op.Abs(a), op.Abs(b)], step, remains)
    return divisor


# Floats

_DIGITS = {T.FLOAT16: (10, -24), T.BFLOAT16: (7, -133), T.FLOAT: (23, -149), T.DOUBLE: (52, -1074)}
"""The bits of a mantissa after its first, and the exponent of the smallest number."""


def _exponent(op: Builder, size: ir.Value) -> ir.Value:
    """e of 2^e <= size < 2^(e + 1), as a double; ``size`` is a double above 0."""
    rough = op.Floor(op.Log(size) * (1 / math.log(2)))  # which may be beside it by one
    above = op.LessOrEqual(_power_of_two(op, rough + 1.0), size)
    below = op.Greater(_power_of_two(op, rough), size)
    return rough + op.cast(above, T.DOUBLE) - op.cast(below, T.DOUBLE)


def _power_of_two(op: Builder, exponent: ir.Value) -> ir.Value:
    return op.Pow(op.constant(2.0, T.DOUBLE), exponent)


@lower("aten.frexp")
def frexp(op: Builder, x: ir.Value) -> list[ir.Value]:
    """x = mantissa · 2^exponent, the mantissa from 1/2 on and below 1."""
    wide = op.cast(x, T.DOUBLE)
    is_plain = op.And(op.Not(op.Equal(wide, 0)), op.Less(op.Abs(wide), math.inf))
    exponent = op.Where(is_plain, _exponent(op, op.Where(is_plain, op.Abs(wide), 1.0)) + 1.0, 0.0)
    # In two steps: 2^1074 is beyond what a double can be.
    first = op.Floor(exponent * 0.5)
    mantissa = wide * _power_of_two(op, -first) * _power_of_two(op, first - exponent)
    return [op.cast(mantissa, x.dtype), op.cast(exponent, T.INT32)]


@lower("aten.nextafter")
def nextafter(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
    """The next number that the dtype has, on the way to the other."""
    x, other = promote(op, x, other)
    digits, smallest = _DIGITS[x.dtype or T.FLOAT]
    a, b = op.cast(x, T.DOUBLE), op.cast(other, T.DOUBLE)
    size = op.Abs(a)
    is_plain = op.And(op.Greater(size, 0), op.Less(size, math.inf))
    exponent = _exponent(op, op.Where(is_plain, size, 1.0))
    to_zero = op.Less(b * op.Sign(a), size)
    # Below a power of two the numbers are twice as close.
    halved = op.And(to_zero, op.Equal(size, _power_of_two(op, exponent)))
    place = op.Max(exponent - op.cast(halved, T.DOUBLE) - float(digits), float(smallest))
    step = _power_of_two(op, op.Where(op.Equal(a, 0), float(smallest), place))
    moved = a + op.Where(op.Greater(b, a), step, -step)
    largest = op.Sign(a) * ((2 - 2.0**-digits) * 2.0 ** (1 - digits - smallest))
    moved = op.Where(op.IsInf(a), largest, moved)
    unknown = op.Or(op.IsNaN(a), op.IsNaN(b))
    return op.Where(unknown, math.nan, op.Where(op.Equal(a, b), b, moved))
