"""Pointwise arithmetic: sums, products, powers, rounding, the larger and the smaller of two, parts of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, T
from tonnx.ir.infer import known_number
from tonnx.lowering.regions.emit import repeat
from tonnx.lowering.rules import lower
from tonnx.lowering.values import (
    Number,
    Operand,
    as_value,
    is_float,
    is_integer,
    opmath,
    promote,
    result_type,
    to_float,
)

_UNSIGNED = (T.UINT8, T.UINT16, T.UINT32, T.UINT64)
_SHORT = (T.INT8, T.INT16)

# Sums and products

rsub = lower("aten.rsub")(lambda op, x, other, alpha=1: sub(op, other, x, alpha))
square = lower("aten.square")(lambda op, x: power(op, x, 2))
addcmul = lower("aten.addcmul")(lambda op, x, tensor1, tensor2, value=1: add(op, x, mul(op, tensor1, tensor2), value))
addcdiv = lower("aten.addcdiv")(lambda op, x, tensor1, tensor2, value=1: add(op, x, div(op, tensor1, tensor2), value))
lerp = lower("aten.lerp")(lambda op, x, end, weight: add(op, x, mul(op, op.Sub(end, x), weight)))
neg = lower("aten.neg", "aten.negative")(lambda op, x: op.Sub(0, x) if x.dtype in _UNSIGNED else op.Neg(x))
absolute = lower("aten.abs", "aten.absolute")(lambda op, x: op.Abs(x))
sign = lower("aten.sign", "aten.sgn")(lambda op, x: x if x.dtype == T.BOOL else op.Sign(x))


@lower("aten.add")
def add(op: Builder, x: Operand, other: Operand, alpha: Operand = 1) -> ir.Value:
    a, b = promote(op, x, other if alpha == 1 else mul(op, other, alpha))
    return op.Or(a, b) if a.dtype == T.BOOL else op.Add(a, b)


@lower("aten.sub", "aten.subtract")
def sub(op: Builder, x: Operand, other: Operand, alpha: Operand = 1) -> ir.Value:
    a, b = promote(op, x, other if alpha == 1 else mul(op, other, alpha))
    return op.Sub(a, b)


@lower("aten.mul", "aten.multiply")
def mul(op: Builder, x: Operand, other: Operand) -> ir.Value:
    a, b = promote(op, x, other)
    return op.And(a, b) if a.dtype == T.BOOL else op.Mul(a, b)


# Quotients

floor_divide = lower("aten.floor_divide")(lambda op, x, other: _floor_quotient(op, *promote(op, x, other)))
reciprocal = lower("aten.reciprocal")(lambda op, x: op.Reciprocal(to_float(op, x)))


@lower("aten.div", "aten.divide", "aten.true_divide")
def div(op: Builder, x: Operand, other: Operand, rounding_mode: str | None = None) -> ir.Value:
    a, b = promote(op, x, other)
    if rounding_mode is None:
        return op.Div(to_float(op, a), to_float(op, b))
    if rounding_mode == "trunc":
        return trunc(op, op.Div(a, _divisor(op, a, b)))  # ONNX divides integers towards zero
    return _floor_quotient(op, a, b)


def _divisor(op: Builder, a: ir.Value, b: ir.Value) -> ir.Value:
    """A divisor with which integers can be divided also where there are none: runtimes refuse a zero even then.

    ``rows % len(rows)`` is as empty as the rows are.
    """
    one = b.shape is not None and all(dim == 1 for dim in b.shape)
    some = a.shape is not None and a.shape.is_static() and 0 not in a.shape
    if not is_integer(a.dtype) or b.const_value is not None or some or not one:
        return b
    return op.Where(op.Equal(b, 0), 1, b)


def _floor_quotient(op: Builder, a: ir.Value, b: ir.Value) -> ir.Value:
    b = _divisor(op, a, b)
    if a.dtype in _UNSIGNED:
        return op.Div(a, b)
    if a.dtype in _SHORT:  # -128 minus its remainder has no room in eight bits
        return op.cast(_floor_quotient(op, op.cast(a, T.INT32), op.cast(b, T.INT32)), a.dtype)
    if is_integer(a.dtype):
        return op.Div(op.Sub(a, op.Mod(a, b)), b)
    divisor = known_number(b)
    if divisor is not None and abs(math.frexp(divisor)[0]) == 0.5:  # a power of two divides exactly
        return op.Floor(op.Div(a, b))
    # Not Floor(a / b): the quotient of 1 and 0.1 rounds up to 10, but 0.1 goes into 1 only nine times.
    rest = op.Mod(a, b, fmod=1)
    quotient = op.Round(op.Div(op.Sub(a, rest), b))
    quotient = op.Sub(quotient, op.cast(_other_sign(op, rest, b), a.dtype))
    return quotient if divisor else op.Where(op.Equal(b, 0), op.Div(a, b), quotient)


def _other_sign(op: Builder, rest: ir.Value, divisor: ir.Value) -> ir.Value:
    """Where a remainder has not the sign of its divisor, which Python's and torch's ``%`` gives it."""
    number = known_number(divisor)
    if number is not None:
        return op.Less(rest, 0) if number > 0 else op.Greater(rest, 0)
    return op.And(op.Not(op.Equal(rest, 0)), op.Xor(op.Less(rest, 0), op.Less(divisor, 0)))


@lower("aten.remainder")
def remainder(op: Builder, x: Operand, other: Operand) -> ir.Value:
    a, b = promote(op, x, other)
    if not is_float(a.dtype):
        return op.Mod(a, _divisor(op, a, b))
    rest = op.Mod(a, b, fmod=1)
    return op.Where(_other_sign(op, rest, b), op.Add(rest, b), rest)


@lower("aten.fmod")
def fmod(op: Builder, x: Operand, other: Operand) -> ir.Value:
    a, b = promote(op, x, other)
    return op.Mod(a, _divisor(op, a, b), fmod=1)


# Powers

sqrt = lower("aten.sqrt")(lambda op, x: op.Sqrt(to_float(op, x)))
rsqrt = lower("aten.rsqrt")(lambda op, x: op.Reciprocal(op.Sqrt(to_float(op, x))))
ldexp = lower("aten.ldexp")(lambda op, x, other: mul(op, x, op.Pow(2.0, to_float(op, other))))


@lower("aten.pow")
def power(op: Builder, x: Operand, exponent: Operand) -> ir.Value:
    if isinstance(exponent, ir.Value) or not isinstance(x, ir.Value):
        a, b = promote(op, x, exponent)
        if is_float(a.dtype):
            return op.Pow(a, b)
        if a.dtype == T.BOOL:
            return op.LessOrEqual(b, a)  # False ** True is the only False
        return op.cast(op.Pow(op.cast(a, T.INT64), op.cast(b, T.INT64)), a.dtype)
    base = as_value(op, x, result_type(x, exponent))
    if is_float(base.dtype):
        return _real_power(op, base, exponent)  # type: ignore[arg-type]
    if base.dtype == T.BOOL:
        return op.Or(base, op.constant(not exponent, T.BOOL))
    return _whole_power(op, base, int(exponent))  # type: ignore[arg-type]


def _real_power(op: Builder, base: ir.Value, exponent: float) -> ir.Value:
    if exponent == 1:
        return base
    if exponent == -1:
        return op.Reciprocal(base)
    if exponent == 0.5:
        return op.Sqrt(base)
    if exponent == -0.5:
        return op.Reciprocal(op.Sqrt(base))
    return op.Pow(base, op.constant(exponent, base.dtype))


def _whole_power(op: Builder, base: ir.Value, exponent: int) -> ir.Value:
    """Square and multiply: it wraps around like torch's, while Pow goes through float64."""
    if not 1 <= exponent <= 64:
        return op.Pow(base, op.constant(exponent, base.dtype))
    result: ir.Value | None = None
    while True:
        if exponent & 1:
            result = base if result is None else op.Mul(result, base)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        base = op.Mul(base, base)


@lower("aten.float_power")
def float_power(op: Builder, x: Operand, exponent: Operand) -> ir.Value:
    if isinstance(exponent, ir.Value):
        return op.Pow(as_value(op, x, T.DOUBLE), op.cast(exponent, T.DOUBLE))
    return _real_power(op, as_value(op, x, T.DOUBLE), exponent)  # type: ignore[arg-type]


@lower("aten.hypot")
def hypot(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
    a, b = (opmath(op, v) for v in promote(op, x, other))
    return op.Sqrt(op.Add(op.Mul(a, a), op.Mul(b, b)))


# Rounding

floor = lower("aten.floor")(lambda op, x: op.Floor(x) if is_float(x.dtype) else x)
ceil = lower("aten.ceil")(lambda op, x: op.Ceil(x) if is_float(x.dtype) else x)
frac = lower("aten.frac")(lambda op, x: op.Mod(x, 1, fmod=1))


@lower("aten.trunc", "aten.fix")
def trunc(op: Builder, x: ir.Value) -> ir.Value:
    return op.Where(op.Less(x, 0), op.Ceil(x), op.Floor(x)) if is_float(x.dtype) else x


@lower("aten.round")
def round_(op: Builder, x: ir.Value, decimals: int = 0) -> ir.Value:
    if not is_float(x.dtype):
        return x
    if decimals == 0:
        return op.Round(x)  # both round halves to even
    x, scale = opmath(op, x), 10.0 ** abs(decimals)
    return op.Div(op.Round(op.Mul(x, scale)), scale) if decimals > 0 else op.Mul(op.Round(op.Div(x, scale)), scale)


# The larger and the smaller


@lower("aten.maximum", "aten.max.other")
def maximum(op: Builder, x: ir.Value, other: Operand) -> ir.Value:
    a, b = promote(op, x, other)
    return op.Or(a, b) if a.dtype == T.BOOL else op.Max(a, b)


@lower("aten.minimum", "aten.min.other")
def minimum(op: Builder, x: ir.Value, other: Operand) -> ir.Value:
    a, b = promote(op, x, other)
    return op.And(a, b) if a.dtype == T.BOOL else op.Min(a, b)


@lower("aten.fmax", choose=maximum)
@lower("aten.fmin", choose=minimum)
def unless_nan(op: Builder, x: ir.Value, other: ir.Value, *, choose: Callable[..., ir.Value]) -> ir.Value:
    """The larger or the smaller, but the other one where one of both is not a number."""
    a, b = promote(op, x, other)
    chosen = choose(op, a, b)
    if not is_float(a.dtype):
        return chosen
    return op.Where(op.IsNaN(a), b, op.Where(op.IsNaN(b), a, chosen))


@lower("aten.clamp", "aten.clip", "aten.clamp_min", "aten.clamp_max")
def clamp(op: Builder, x: ir.Value, min: Operand | None = None, max: Operand | None = None) -> ir.Value:
    bounds = [bound for bound in (min, max) if bound is not None]
    if not bounds:
        raise UnsupportedArgument("clamp needs a minimum or a maximum")
    dtype = result_type(x, *bounds)
    x = op.cast(x, dtype)
    low, high = (None if bound is None else as_value(op, bound, dtype) for bound in (min, max))
    # With one bound only, a runtime's Clip takes the largest finite number for the other, and infinity would not pass.
    if low is not None and high is not None and op.rank(low) == op.rank(high) == 0:
        return op.Clip(x, low, high)
    if low is not None:
        x = op.Max(x, low)
    return x if high is None else op.Min(x, high)


@lower("aten.copysign")
def copysign(op: Builder, x: ir.Value, other: Operand) -> ir.Value:
    size, giver = (to_float(op, v) for v in promote(op, x, other))
    size = op.Abs(size)
    return op.Where(signbit(op, giver), op.Neg(size), size)


@lower("aten.signbit")
def signbit(op: Builder, x: ir.Value) -> ir.Value:
    if not is_float(x.dtype):
        return op.Less(x, 0)
    return op.Or(op.Less(x, 0), op.Less(op.Reciprocal(x), 0))  # only the reciprocal tells -0 from 0


@lower("aten.heaviside")
def heaviside(op: Builder, x: ir.Value, values: ir.Value) -> ir.Value:
    return op.Where(op.Equal(x, 0), values, op.cast(op.Greater(x, 0), x.dtype))


@lower("aten.nan_to_num")
def nan_to_num(
    op: Builder, x: ir.Value, nan: Number | None = None, posinf: Number | None = None, neginf: Number | None = None
) -> ir.Value:
    if not is_float(x.dtype):
        return x
    largest = _LARGEST[x.dtype]  # type: ignore[index]
    number = op.Where(op.IsNaN(x), nan or 0.0, x)
    if posinf is None and neginf is None:
        return op.Clip(number, -largest, largest)
    number = op.Where(op.Equal(x, math.inf), largest if posinf is None else posinf, number)
    return op.Where(op.Equal(x, -math.inf), -largest if neginf is None else neginf, number)


_LARGEST = {
    T.DOUBLE: math.ldexp(2 - 2**-52, 1023),
    T.FLOAT: math.ldexp(2 - 2**-23, 127),
    T.BFLOAT16: math.ldexp(2 - 2**-7, 127),
    T.FLOAT16: 65504.0,
}


# What numbers are made of: common divisors and multiples, exponents and neighbours of floats


# Integers


gcd = lower("aten.gcd")(lambda op, x, other: _common_divisor(op, *_wide(op, x, other)))


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
