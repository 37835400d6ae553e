"""Pointwise arithmetic, comparisons and logic."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.bind import holding, known_sizes
from tonnx.frontends.paddle.lower.fit import aligned
from tonnx.frontends.paddle.lower.rules import Number, Value, direct, lower
from tonnx.ir import facts
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops import bessel, gamma
from tonnx.lowering.ops import compare as torch_compare
from tonnx.lowering.ops import math as like_torch
from tonnx.lowering.ops import special as torch_special
from tonnx.lowering.values import as_value, is_float, to_float

Binary = Callable[..., ir.Value]
_MOST_SIZES = 8
"""No shape has more; a longer vector holds something else."""

# Two operands

direct("logical_not(x)", lambda op, x: op.Not(op.cast(x, T.BOOL)))
direct("bitwise_not(x)", lambda op, x: op.Not(x) if x.dtype == T.BOOL else op.BitwiseNot(x))
direct("lerp(x, y, weight)", like_torch.lerp)
direct("trunc_divide(x, y)", lambda op, x, y: like_torch.div(op, x, y, "trunc"))
direct("add_n(inputs: Values)", lambda op, inputs: reduce(op.Add, inputs))
direct("equal_all(x, y)", lambda op, x, y: op.cast(op.ReduceMin(op.cast(op.Equal(x, y), T.INT32), keepdims=0), T.BOOL))
direct("bitwise_left_shift(x, y)", torch_compare.left_shift, unused="is_arithmetic")


def _binary(name: str, by: Binary) -> None:
    @lower(name)
    def binary(op: Builder, x: Value, y: Value, *, axis: int = -1) -> ir.Value:
        return by(op, *aligned(op, x, y, axis))


def _sized(size_op: Callable[..., Size], by: Binary) -> Binary:
    """Arithmetic that also follows the sizes that a vector of integers is known to hold."""

    def compute(op: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
        result = by(op, x, y)
        if x not in facts.PADDLE_SIZES and y not in facts.PADDLE_SIZES:
            return result
        a, b = known_sizes(x), known_sizes(y)
        if not a or not b or (len(a) != len(b) and 1 not in (len(a), len(b))):
            return result
        if (length := max(len(a), len(b))) > _MOST_SIZES:
            return result
        pairs = zip(a * (length // len(a)), b * (length // len(b)), strict=True)
        return holding(result, [size_op(op, p, q) for p, q in pairs])

    return compute


_binary("add", by=_sized(sizes.add, like_torch.add))
_binary("subtract", by=_sized(sizes.subtract, like_torch.sub))
_binary("multiply", by=_sized(sizes.multiply, like_torch.mul))
_binary("divide", by=lambda op, x, y: op.Div(x, y))  # integers too: towards zero, as in C
_binary("floor_divide", by=_sized(sizes.divide, like_torch.floor_divide))
_binary("remainder", by=like_torch.remainder)
_binary("elementwise_pow", by=like_torch.power)
_binary("maximum", by=like_torch.maximum)
_binary("minimum", by=like_torch.minimum)
_binary("fmax", by=partial(like_torch.unless_nan, choose=like_torch.maximum))
_binary("fmin", by=partial(like_torch.unless_nan, choose=like_torch.minimum))
_binary("heaviside", by=like_torch.heaviside)
_binary("copysign", by=like_torch.copysign)
_binary("atan2", by=torch_special.atan2)
_binary("equal", by=lambda op, x, y: op.Equal(x, y))
_binary("not_equal", by=lambda op, x, y: op.Not(op.Equal(x, y)))
_binary("less_than", by=lambda op, x, y: op.Less(x, y))
_binary("less_equal", by=lambda op, x, y: op.LessOrEqual(x, y))
_binary("greater_than", by=lambda op, x, y: op.Greater(x, y))
_binary("greater_equal", by=lambda op, x, y: op.GreaterOrEqual(x, y))
_binary("logical_and", by=lambda op, x, y: op.And(op.cast(x, T.BOOL), op.cast(y, T.BOOL)))
_binary("logical_or", by=lambda op, x, y: op.Or(op.cast(x, T.BOOL), op.cast(y, T.BOOL)))
_binary("logical_xor", by=lambda op, x, y: op.Xor(op.cast(x, T.BOOL), op.cast(y, T.BOOL)))
_binary("bitwise_and", by=lambda op, x, y: op.And(x, y) if x.dtype == T.BOOL else op.BitwiseAnd(x, y))
_binary("bitwise_or", by=lambda op, x, y: op.Or(x, y) if x.dtype == T.BOOL else op.BitwiseOr(x, y))
_binary("bitwise_xor", by=lambda op, x, y: op.Xor(x, y) if x.dtype == T.BOOL else op.BitwiseXor(x, y))


@lower("bitwise_right_shift")
def right_shift(op: Builder, x: Value, y: Value, *, is_arithmetic: bool = True) -> ir.Value:
    if not is_arithmetic:
        raise UnsupportedArgument("a logical shift of signed integers has no equivalent in ONNX")
    return torch_compare.right_shift(op, x, y)


@lower("isclose")
@lower("allclose", reduced=True)
def isclose(
    op: Builder,
    x: Value,
    y: Value,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    *,
    equal_nan: bool = False,
    reduced: bool = False,
) -> ir.Value:
    close = torch_compare.isclose(op, x, y, rtol, atol, equal_nan)
    return op.cast(op.ReduceMin(op.cast(close, T.INT32), keepdims=0), T.BOOL) if reduced else close


# A number beside the operand

direct("increment(x, *, value: float = 1.0)", lambda op, x, value: op.Add(x, _of(op, x, value)))
direct(
    "clip_by_norm(x, *, max_norm: float)",
    lambda op, x, most: x * op.Min(op.Div(most, op.ReduceL2(x, keepdims=0)), 1.0),
)


@lower("scale")
def scale(op: Builder, x: Value, scale: Number = 1.0, *, bias: Number = 0.0, bias_after_scale: bool = True) -> ir.Value:
    factor, shift = (_of(op, x, number) for number in (scale, bias))
    result = x
    if not bias_after_scale and not _is(bias, 0):
        result = op.Add(result, shift)
    if not _is(scale, 1):
        result = op.Mul(result, factor)
    if bias_after_scale and not _is(bias, 0):
        result = op.Add(result, shift)
    return _sizes_scaled(op, x, result, scale, bias, bias_after_scale)


def _of(op: Builder, x: ir.Value, number: Number) -> ir.Value:
    return as_value(op, number, x.dtype)


def _is(number: Number, value: float) -> bool:
    return not isinstance(number, ir.Value) and number == value


def _sizes_scaled(op: Builder, x: ir.Value, result: ir.Value, scale: Number, bias: Number, after: bool) -> ir.Value:
    if isinstance(scale, ir.Value) or isinstance(bias, ir.Value) or x not in facts.PADDLE_SIZES:
        return result
    factor, shift = int(scale), int(bias)
    if (factor, shift) != (scale, bias) or not after or result is x:
        return result
    scaled = (sizes.multiply(op, size, factor) for size in facts.PADDLE_SIZES[x])
    return holding(result, [sizes.add(op, size, shift) for size in scaled])


@lower("pow")
def power(op: Builder, x: Value, *, y: Number = 1.0) -> ir.Value:
    if not is_float(x.dtype) and not isinstance(y, ir.Value) and y == int(y):
        y = int(y)
    return like_torch.power(op, x, y)


@lower("clip")
def clip(op: Builder, x: Value, min: Number | None = None, max: Number | None = None) -> ir.Value:
    low, high = (None if bound is None else _of(op, x, bound) for bound in (min, max))
    return op.Clip(x, low, high)


# One operand

direct("round(x, *, decimals: int = 0)", like_torch.round_)
direct("nan_to_num(x, *, nan: float = 0.0, posinf: float = None, neginf: float = None)", like_torch.nan_to_num)


_UNARY = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan", "atanh": "Atanh",
    "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "floor": "Floor", "log": "Log",
    "reciprocal": "Reciprocal", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan",
}  # fmt: skip
_OF_INTEGERS = {"Abs", "Sign"}
_ROUNDING = {"Ceil", "Floor"}


def unary(op: Builder, x: Value, *, op_type: str) -> ir.Value:
    if op_type in _ROUNDING and not is_float(x.dtype):
        return x
    return getattr(op, op_type)(x if op_type in _OF_INTEGERS else to_float(op, x))


for _name, _op_type in _UNARY.items():
    lower(_name, op_type=_op_type)(unary)

direct("square(x)", lambda op, x: op.Mul(x, x))
direct("rsqrt(x)", like_torch.rsqrt)
direct("trunc(x)", like_torch.trunc)
direct("negative(x)", like_torch.neg)
direct("expm1(x)", torch_special.expm1)
direct("log1p(x)", torch_special.log1p)
direct("log2(x)", torch_special.log2)
direct("log10(x)", torch_special.log10)
direct("logit(x, *, eps: float = 1e-6)", lambda op, x, eps: torch_special.logit(op, x, eps or None))
direct("lgamma(x)", gamma.lgamma)
direct("gammaln(x)", gamma.lgamma)
direct("digamma(x)", gamma.digamma)
direct("erfinv(x)", torch_special.erfinv)
direct("i0(x)", bessel.i0)
direct("i0e(x)", bessel.i0e)
direct("i1(x)", bessel.i1)
direct("i1e(x)", bessel.i1e)
direct("rint(x)", lambda op, x: op.Round(x))
direct("isnan(x)", torch_compare.isnan)
direct("isinf(x)", torch_compare.isinf)
direct("isfinite(x)", torch_compare.isfinite)


@lower("polygamma")
def polygamma(op: Builder, x: Value, *, n: int) -> ir.Value:
    value = op.cast(gamma.polygamma(op, n, x), x.dtype)
    return value if n == 0 else op.Where(op.Greater(x, 0.0), value, math.nan)  # nothing is said of the other side


@lower("round_old")
def round_old(op: Builder, x: Value, *, decimals: int = 0) -> ir.Value:
    """Before Paddle 3 halves go away from zero, and since then to the even number, as in ONNX."""
    if decimals or not is_float(x.dtype):
        return like_torch.round_(op, x, decimals)
    whole = like_torch.trunc(op, x)
    far = op.GreaterOrEqual(op.Abs(x - whole), 0.5)
    return whole + op.cast(far, x.dtype) * op.Sign(x)
