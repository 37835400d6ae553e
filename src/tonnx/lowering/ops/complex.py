"""Complex numbers: making them, taking them apart, and what is computed with them. They are pairs; see `pairs`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, T
from tonnx.lowering import sizes
from tonnx.lowering.complex import (
    REAL_OF,
    as_pairs,
    beside_zero,
    cast,
    is_complex,
    join,
    marked,
    part,
    split,
    unmarked,
    with_pairs,
)
from tonnx.lowering.ops import create, linear, parts, special
from tonnx.lowering.rules import lower
from tonnx.lowering.values import Number, Operand, axes_of, to_float

# Made, and taken apart

view_as_real = lower("aten.view_as_real@complex", "aten.view_as_real_copy@complex")(lambda op, x: unmarked(op, x))
sym_size = lower("aten.sym_size.int@complex", "aten.size.int@complex")(
    lambda op, x, dim: op.size(x, dim if dim >= 0 else dim - 1)
)
sym_numel = lower("aten.sym_numel@complex", "aten.numel@complex")(lambda op, x: op.product(op.sizes(x)[:-1]))
abs_ = lower("aten.abs@complex")(lambda op, x: op.ReduceL2(x, [-1], keepdims=0))
angle = lower("aten.angle@complex")(lambda op, x: special.atan2(op, part(op, x, 1), part(op, x, 0)))
neg_view = lower("aten._neg_view@complex")(lambda op, x: marked(op, op.Neg(x)))


@lower("aten.complex@complex")
def complex_(op: Builder, real: ir.Value, imag: ir.Value) -> ir.Value:
    if real.shape == imag.shape:
        return join(op, real, imag)
    both = (beside_zero(op, op.Unsqueeze(x, [-1]), which) for which, x in enumerate((real, imag)))
    return marked(op, op.Add(*both))  # they broadcast


@lower("aten.polar@complex")
def polar(op: Builder, abs: ir.Value, angle: ir.Value) -> ir.Value:
    return join(op, op.Mul(abs, op.Cos(angle)), op.Mul(abs, op.Sin(angle)))


@lower("aten.view_as_complex@complex", "aten.view_as_complex_copy@complex")
def view_as_complex(op: Builder, x: ir.Value) -> ir.Value:
    return marked(op, op.Identity(x))


@lower("aten.view.dtype@complex")
def view_dtype(op: Builder, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """Pairs read as twice as many reals, or the other way round."""
    own, target = x.dtype, REAL_OF.get(dtype, dtype)
    if own != target:
        raise UnsupportedArgument(f"the bits of complex numbers of two {own} cannot be read as {dtype}")
    if is_complex(x) == (dtype in REAL_OF):
        return x
    *lead, last = op.sizes(x)
    if not is_complex(x):
        return marked(op, op.reshape(x, [*lead, sizes.divide(op, last, 2), 2]))
    return op.reshape(unmarked(op, x), [*lead[:-1], sizes.multiply(op, lead[-1], 2)])


@lower("aten.copy@complex")
def copy(op: Builder, x: ir.Value, src: ir.Value) -> ir.Value:
    """A real tensor takes the real part."""
    if is_complex(x):
        return marked(op, create.copy(op, x, as_pairs(op, src)))
    return create.copy(op, x, part(op, src, 0))


@lower("aten.real@complex", which=0)
@lower("aten.imag@complex", which=1)
def real_or_imag(op: Builder, x: ir.Value, *, which: int) -> ir.Value:
    return part(op, x, which) if is_complex(x) else x


@lower("aten.conj@complex", "aten._conj@complex", "aten.conj_physical@complex", "aten._conj_physical@complex")
def conj(op: Builder, x: ir.Value) -> ir.Value:
    return marked(op, op.Mul(x, op.constant([1.0, -1.0], x.dtype)))


@lower("aten.adjoint@complex", "aten.mH@complex", "aten.matrix_H@complex")
def adjoint(op: Builder, x: ir.Value) -> ir.Value:
    rank = op.rank(x) - 1
    turned = op.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2, rank])
    return conj(op, turned)


@lower("aten.to@complex", "aten._to_copy@complex", "aten.type_as@complex")
def to(op: Builder, x: ir.Value, dtype: ir.DataType | None = None, other: ir.Value | None = None) -> ir.Value:
    if dtype is not None:
        return cast(op, x, dtype)
    if is_complex(x if other is None else other):
        return as_pairs(op, x)
    return part(op, x, 0) if is_complex(x) else x


# Arithmetic

square = lower("aten.square@complex")(lambda op, x: mul(op, x, x))
log = lower("aten.log@complex")(lambda op, x: join(op, op.Log(abs_(op, x)), angle(op, x)))


def _operand(op: Builder, x: Operand, like: ir.DataType) -> ir.Value:
    """An operand that meets pairs: pairs, or reals with a last axis of size 1."""
    if isinstance(x, complex):
        return marked(op, op.Identity(op.constant([x.real, x.imag], like)))
    if not isinstance(x, ir.Value):
        return op.constant([float(x)], like)
    x = op.cast(x, like)
    return x if is_complex(x) else op.Unsqueeze(x, [-1])


def _both(op: Builder, x: Operand, other: Operand) -> tuple[ir.Value, ir.Value, bool, bool]:
    """Two operands, and which of them are pairs."""
    kinds = [v.dtype for v in (x, other) if isinstance(v, ir.Value) and (is_complex(v) or v.dtype == T.DOUBLE)]
    dtype = T.DOUBLE if T.DOUBLE in kinds else (kinds[0] if kinds else T.FLOAT)
    flags = [is_complex(v) or isinstance(v, complex) for v in (x, other)]
    operands = []
    for v, flag in zip((x, other), flags, strict=True):
        if flag and isinstance(v, ir.Value) and v.dtype != dtype:
            v = marked(op, op.cast(v, dtype or T.FLOAT))
        operands.append(_operand(op, v, dtype or T.FLOAT))
    return operands[0], operands[1], flags[0], flags[1]


def _extended(op: Builder, x: ir.Value, is_pair: bool) -> ir.Value:
    return x if is_pair else beside_zero(op, x)


@lower("aten.add@complex", sign=1)
@lower("aten.sub@complex", sign=-1)
def add(op: Builder, x: Operand, other: Operand, alpha: Number = 1, *, sign: int) -> ir.Value:
    if alpha != 1:
        other = mul(op, other, alpha)
    a, b, first, second = _both(op, x, other)
    a = _extended(op, a, first)
    b = b if second else op.Mul(b, op.constant([1.0, 0.0], b.dtype))  # as PyTorch: times alpha, NaN beside infinity
    return marked(op, op.Add(a, b) if sign > 0 else op.Sub(a, b))


@lower("aten.rsub@complex")
def rsub(op: Builder, x: Operand, other: Operand, alpha: Number = 1) -> ir.Value:
    return add(op, other, x if alpha == 1 else mul(op, x, alpha), sign=-1)


@lower("aten.mul@complex", "aten.multiply@complex")
def mul(op: Builder, x: Operand, other: Operand) -> ir.Value:
    a, b, first, second = _both(op, x, other)
    if not (first and second):
        return marked(op, op.Mul(a, b)) if first or second else op.Mul(a, b)
    (p, q), (r, s) = split(op, a), split(op, b)
    return marked(op, op.Concat(op.Sub(op.Mul(p, r), op.Mul(q, s)), op.Add(op.Mul(p, s), op.Mul(q, r)), axis=-1))


@lower("aten.div@complex", "aten.true_divide@complex", "aten.divide@complex")
def div(op: Builder, x: Operand, other: Operand) -> ir.Value:
    a, b, _, second = _both(op, x, other)
    if not second:
        return marked(op, op.Div(a, b))
    b = marked(op, b)
    return marked(op, op.Div(mul(op, x, conj(op, b)), op.ReduceSumSquare(b, [-1])))


@lower("aten.reciprocal@complex")
def reciprocal(op: Builder, x: ir.Value) -> ir.Value:
    return marked(op, op.Div(conj(op, x), op.ReduceSumSquare(x, [-1])))


@lower("aten.pow@complex")
def pow_(op: Builder, x: Operand, exponent: Operand) -> ir.Value:
    if isinstance(exponent, (int, float)) and float(exponent).is_integer() and 1 <= exponent <= 8:
        assert isinstance(x, ir.Value)
        power = x
        for _ in range(int(exponent) - 1):
            power = mul(op, power, x)
        return power
    base = _number(op, x)
    if isinstance(exponent, (int, float)) and exponent == 0:  # of 0 as well, which has no logarithm
        return marked(op, op.Expand(op.constant([1.0, 0.0], base.dtype), op.vector(op.sizes(base))))
    return exp(op, mul(op, log(op, base), exponent))


def _number(op: Builder, x: Operand) -> ir.Value:
    if isinstance(x, ir.Value):
        return as_pairs(op, x)
    number = complex(x)
    return marked(op, op.Identity(op.constant([number.real, number.imag], T.FLOAT)))


@lower("aten.exp@complex")
def exp(op: Builder, x: ir.Value) -> ir.Value:
    real, imaginary = split(op, x)
    size = op.Exp(real)
    return marked(op, op.Concat(op.Mul(size, op.Cos(imaginary)), op.Mul(size, op.Sin(imaginary)), axis=-1))


@lower("aten.sqrt@complex")
def sqrt(op: Builder, x: ir.Value) -> ir.Value:
    """The root in the right half: its real part is never negative."""
    size, real, imaginary = abs_(op, x), part(op, x, 0), part(op, x, 1)
    nothing = op.constant(0.0, x.dtype)
    over = op.Sqrt(op.Max(op.Mul(op.Add(size, real), 0.5), nothing))
    up = op.Sqrt(op.Max(op.Mul(op.Sub(size, real), 0.5), nothing))
    return join(op, over, op.Where(op.Less(imaginary, nothing), op.Neg(up), up))


@lower("aten.sgn@complex")
def sgn(op: Builder, x: ir.Value) -> ir.Value:
    size = op.ReduceL2(x, [-1])
    zero = op.Equal(size, op.constant(0.0, x.dtype))
    return marked(op, op.Div(x, op.Where(zero, op.constant(1.0, x.dtype), size)))


@lower("aten.sigmoid@complex")
def sigmoid(op: Builder, x: ir.Value) -> ir.Value:
    return reciprocal(op, add(op, exp(op, marked(op, op.Neg(x))), 1, sign=1))


@lower("aten.cosh@complex", kinds=("Cosh", "Cos", "Sinh", "Sin"))
@lower("aten.sinh@complex", kinds=("Sinh", "Cos", "Cosh", "Sin"))
def cosh_or_sinh(op: Builder, x: ir.Value, *, kinds: Sequence[str]) -> ir.Value:
    """f(a)·g(b) + i·h(a)·k(b)."""
    a, b = split(op, x)
    f, g, h, k = (getattr(op, kind) for kind in kinds)
    return marked(op, op.Concat(op.Mul(f(a), g(b)), op.Mul(h(a), k(b)), axis=-1))


@lower("aten.cos@complex", kinds=("Cos", "Cosh", "Sin", "Sinh"), sign=-1.0)
@lower("aten.sin@complex", kinds=("Sin", "Cosh", "Cos", "Sinh"), sign=1.0)
def cos_or_sin(op: Builder, x: ir.Value, *, kinds: Sequence[str], sign: float) -> ir.Value:
    value = cosh_or_sinh(op, x, kinds=kinds)
    return value if sign > 0 else conj(op, value)


@lower("aten.tanh@complex")
def tanh(op: Builder, x: ir.Value) -> ir.Value:
    """(sinh 2a + i·sin 2b) / (cosh 2a + cos 2b), times 2·exp(-2|a|): so nothing overflows."""
    a, b = split(op, x)
    small = op.Exp(op.Mul(op.Abs(a), -2.0))
    twice, square, one = op.Mul(b, 2.0), op.Mul(small, small), op.constant(1.0, x.dtype)
    below = op.Add(op.Add(one, square), op.Mul(op.Mul(small, 2.0), op.Cos(twice)))
    over = op.Mul(op.Sign(a), op.Sub(one, square)), op.Mul(op.Mul(small, 2.0), op.Sin(twice))
    return marked(op, op.Div(op.Concat(*over, axis=-1), below))


@lower("aten.eq@complex", negated=False)
@lower("aten.ne@complex", negated=True)
def eq(op: Builder, x: Operand, other: Operand, *, negated: bool) -> ir.Value:
    a, b, first, second = _both(op, x, other)
    same = op.Equal(_extended(op, a, first), _extended(op, b, second))
    equal = op.cast(op.ReduceMin(op.cast(same, T.INT32), [-1], keepdims=0), T.BOOL)
    return op.Not(equal) if negated else equal


@lower("aten.isnan@complex")
def isnan(op: Builder, x: ir.Value) -> ir.Value:
    return op.cast(op.ReduceMax(op.cast(op.IsNaN(x), T.INT32), [-1], keepdims=0), T.BOOL)


@lower("aten.isfinite@complex")
def isfinite(op: Builder, x: ir.Value) -> ir.Value:
    return op.Not(op.IsNaN(op.ReduceSum(op.Mul(x, 0.0), [-1], keepdims=0)))


# Products of matrices

vdot = lower("aten.vdot@complex")(lambda op, x, other: matmul(op, conj(op, x), other))
outer = lower("aten.outer@complex")(lambda op, x, vec2: _products(op, x, vec2, lambda a, b: linear.outer(op, a, b)))


def _products(op: Builder, x: ir.Value, other: ir.Value, multiply: Any) -> ir.Value:
    """(a + ib)(c + id), each product that of reals."""
    if not is_complex(other):
        return join(op, *(multiply(part(op, x, i), op.cast(other, x.dtype or T.FLOAT)) for i in (0, 1)))
    if not is_complex(x):
        return join(op, *(multiply(op.cast(x, other.dtype or T.FLOAT), part(op, other, i)) for i in (0, 1)))
    a, b, c, d = part(op, x, 0), part(op, x, 1), part(op, other, 0), part(op, other, 1)
    real = op.Sub(multiply(a, c), multiply(b, d))
    return join(op, real, op.Add(multiply(a, d), multiply(b, c)))


@lower(*(f"aten.{name}@complex" for name in "mm bmm mv dot matmul linalg_matmul".split()), renamed=linear.SECOND)
def matmul(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
    return _products(op, x, other, lambda a, b: linear.matmul(op, a, b))


@lower("aten.linear@complex")
def linear_(op: Builder, x: ir.Value, weight: ir.Value, bias: ir.Value | None = None) -> ir.Value:
    product = _products(op, x, weight, lambda a, b: linear.linear(op, a, b))
    return product if bias is None else add(op, product, bias, sign=1)


@lower("aten.einsum@complex", unused="path")
def einsum(op: Builder, equation: str, tensors: Sequence[ir.Value]) -> ir.Value:
    if len(tensors) == 1:
        return join(op, *(linear.einsum(op, equation, [part(op, tensors[0], i)]) for i in (0, 1)))
    if len(tensors) != 2:
        raise UnsupportedArgument("einsum of more than two complex tensors", hint="write it as several of two")
    return _products(op, tensors[0], tensors[1], lambda a, b: linear.einsum(op, equation, [a, b]))


# Sizes, joins, norms


@lower("aten.cat@complex", "aten.concat@complex")
def cat(op: Builder, x: Sequence[ir.Value], dim: int = 0) -> ir.Value:
    pairs = with_pairs(op, x)
    return marked(op, parts.cat(op, pairs, dim % (op.rank(pairs[0]) - 1)))


@lower("aten.stack@complex")
def stack(op: Builder, x: Sequence[ir.Value], dim: int = 0) -> ir.Value:
    pairs = with_pairs(op, x)
    axis = dim % op.rank(pairs[0])
    return marked(op, op.Concat(*(op.Unsqueeze(pair, [axis]) for pair in pairs), axis=axis))


@lower("aten.linalg_vector_norm@complex", unused="dtype")
def vector_norm(
    op: Builder, x: ir.Value, ord: Number = 2, dim: Sequence[int] | None = None, keepdim: bool = False
) -> ir.Value:
    size = abs_(op, x)
    axes = axes_of(op, size, dim)
    kind = {1: "ReduceL1", 2: "ReduceL2", math.inf: "ReduceMax", -math.inf: "ReduceMin"}.get(float(ord))  # type: ignore[arg-type]
    if kind is None:
        raise UnsupportedArgument(f"the norm of order {ord} of complex numbers")
    norm: ir.Value = getattr(op, kind)(to_float(op, size), axes, keepdims=int(keepdim))
    return norm


@lower("aten.prod@complex")
def prod(op: Builder, x: ir.Value, dim: int | None = None, keepdim: bool = False) -> ir.Value:
    raise UnsupportedArgument("the product of complex numbers along an axis is not supported")
