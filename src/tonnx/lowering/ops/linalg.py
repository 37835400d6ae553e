"""Linear algebra. ONNX has Det and no more: systems are solved by elimination, one column a step of a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops import create
from tonnx.lowering.regions.emit import repeat
from tonnx.lowering.rules import lower

Step = Callable[[Builder, ir.Value, ir.Value], ir.Value]

inverse = lower("aten.linalg_inv", "aten.inverse")(lambda op, x: solved(op, x, identity(op, x)))
inverse_ex = lower("aten.linalg_inv_ex")(lambda op, x, check_errors=False: [inverse(op, x), no_error(op, x)])
cholesky = lower("aten.linalg_cholesky", "aten.cholesky")(lambda op, x, upper=False: root_of(op, x, upper))
cholesky_ex = lower("aten.linalg_cholesky_ex", unused="check_errors")(
    lambda op, x, upper=False: [root := root_of(op, x, upper), first_failure(op, root)]
)
cholesky_inverse = lower("aten.cholesky_inverse")(lambda op, x, upper=False: _by_root(op, identity(op, x), x, upper))


def looped(op: Builder, count: Size, state: ir.Value, step: Step) -> ir.Value:
    """``state`` after ``step(state, i)`` for i = 0 … count - 1."""
    (result,) = repeat(op, count, [state], lambda op, states, i: [step(op, states[0], i)])
    return result


def unit(op: Builder, place: ir.Value, count: Size, dtype: ir.DataType) -> ir.Value:
    """1 at ``place`` (…), 0 elsewhere: (…, count)."""
    return op.cast(op.Equal(op.Unsqueeze(place, [-1]), sizes.arange(op, count)), dtype)


def flat(op: Builder, x: ir.Value) -> ir.Value:
    """Matrices one below the other: (matrices, rows, columns)."""
    if op.rank(x) == 3:
        return x
    if op.rank(x) == 2:
        return op.Unsqueeze(x, [0])
    own = op.sizes(x)
    return op.reshape(x, [op.product(own[:-2]), *own[-2:]])


def exchanged(op: Builder, m: ir.Value, i: ir.Value, count: Size) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """Row i and the one from there on whose element in column i is largest: where they are, and the rows themselves."""
    dtype = m.dtype or T.DOUBLE
    ready = op.Less(sizes.arange(op, count), i)
    column = op.Gather(m, i, axis=2)  # (matrices, n)
    size = op.cast(op.Abs(column), T.FLOAT)  # exact enough to choose by, and old opsets choose floats only
    best = op.ArgMax(op.Where(ready, op.constant(-1, T.FLOAT), size), axis=1, keepdims=0)
    here, there = unit(op, op.Unsqueeze(i, [0]), count, dtype), unit(op, best, count, dtype)
    own = op.Unsqueeze(op.Gather(m, i, axis=1), [1])  # (matrices, 1, columns)
    return here, there, own, op.MatMul(op.Unsqueeze(there, [1]), m)


def solved(op: Builder, a: ir.Value, b: ir.Value) -> ir.Value:
    """X of A·X = B for matrices (…, n, n) and (…, n, m): Gauss and Jordan's elimination with row exchange."""
    if a.dtype not in (T.FLOAT, T.DOUBLE):
        raise UnsupportedArgument(f"a system of equations of {a.dtype}")
    # Nearly dependent rows multiply rounding errors: those of double are too small to be seen.
    dtype, count, width = T.DOUBLE, op.size(a, -1), op.size(b, -1)
    lead = op.sizes(a)[:-2]
    both = flat(op, op.Concat(op.cast(a, dtype), op.cast(b, dtype), axis=-1))

    def step(op: Builder, m: ir.Value, i: ir.Value) -> ir.Value:
        here, there, own, pivot = exchanged(op, m, i, count)
        swapped = op.Add(m, op.Mul(op.Unsqueeze(op.Sub(here, there), [2]), op.Sub(pivot, own)))
        scaled = op.Div(pivot, op.Unsqueeze(op.Gather(pivot, i, axis=2), [2]))
        factor = op.Sub(op.Unsqueeze(op.Gather(swapped, i, axis=2), [2]), op.Unsqueeze(here, [2]))
        return op.Sub(swapped, op.Mul(factor, scaled))

    done = looped(op, count, both, step)
    result = op.Slice(done, op.vector([count]), [sizes.END], [2])
    return op.cast(op.reshape(result, [*lead, count, width]), a.dtype)


def identity(op: Builder, like: ir.Value) -> ir.Value:
    """The unit matrix, as often as there are matrices."""
    unit = create.eye(op, op.size(like, -1), None, like.dtype)
    return unit if op.rank(like) == 2 else op.Expand(unit, op.vector(op.sizes(like)))


def is_vector(op: Builder, x: ir.Value, y: ir.Value) -> bool:
    return all(str(a) == str(b) for a, b in zip(op.sizes(x)[:-1], op.sizes(y), strict=True))


def spread(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
    """``x`` with the leading axes of ``other`` as well."""
    a, b = op.sizes(x), op.sizes(other)
    if len(a) == 2 and len(b) == 2:
        return x
    rank = max(len(a), len(b))
    lead: list[Size] = []
    for i in range(-rank, -2):
        own, its = (sized[i] if len(sized) >= -i else 1 for sized in (a, b))
        lead.append(its if isinstance(own, int) and own == 1 else own)
    return op.Expand(x, op.vector([*lead, *a[-2:]]))


def turned(op: Builder, x: ir.Value) -> ir.Value:
    rank = op.rank(x)
    return op.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


def root_of(op: Builder, x: ir.Value, upper: bool = False) -> ir.Value:
    """A = L·Lᵀ, column by column."""
    assert x.dtype is not None
    dtype, count = x.dtype, op.size(x, -1)
    a = flat(op, x)

    def step(op: Builder, root: ir.Value, i: ir.Value) -> ir.Value:
        row = op.Gather(root, i, axis=1)  # what is known of row i: (matrices, n)
        rest = op.Sub(op.Gather(a, i, axis=2), op.Squeeze(op.MatMul(root, op.Unsqueeze(row, [2])), [2]))
        pivot = op.Sqrt(op.Unsqueeze(op.Gather(rest, i, axis=1), [1]))
        place = sizes.arange(op, count)  # chosen by, not multiplied with: what is not a number stays in its column
        column = op.Where(op.GreaterOrEqual(place, i), op.Div(rest, pivot), op.constant(0, dtype))
        return op.Where(op.Equal(place, i), op.Unsqueeze(column, [2]), root)

    whole = op.reshape(looped(op, count, op.Mul(a, 0.0), step), op.sizes(x))
    return turned(op, whole) if upper else whole


def power(op: Builder, x: ir.Value, n: int) -> ir.Value:
    if n == 0:
        return identity(op, x)
    square = inverse(op, x) if n < 0 else x
    result: ir.Value | None = None
    left = abs(n)
    while left:
        if left & 1:
            result = square if result is None else op.MatMul(result, square)
        left >>= 1
        square = op.MatMul(square, square) if left else square
    assert result is not None
    return result


def no_error(op: Builder, x: ir.Value) -> ir.Value:
    """That it went well, for each matrix."""
    return op.Expand(op.constant(0, T.INT32), op.vector(op.sizes(x)[:-2]))


def first_failure(op: Builder, root: ir.Value) -> ir.Value:
    """Of each matrix, the first row, from 1 on, whose root is not positive; 0 if all are."""
    if op.size(root, -1) == 0:
        return no_error(op, root)
    diagonal = op.ReduceSum(root * create.eye(op, op.size(root, -1), None, root.dtype), [-1], keepdims=0)
    fails = op.cast(op.Not(op.Greater(diagonal, 0)), T.FLOAT)
    place = op.ArgMax(fails, axis=-1, keepdims=0) + 1
    return op.cast(op.Where(op.Greater(op.ReduceMax(fails, [-1], keepdims=0), 0), place, 0), T.INT32)


@lower("aten.linalg_solve")
def solve(op: Builder, x: ir.Value, B: ir.Value, left: bool = True) -> ir.Value:
    """X of A·X = B, or of X·A = B; B may hold vectors."""
    if op.rank(B) == 1 or (op.rank(B) == op.rank(x) - 1 and is_vector(op, x, B)):
        return op.Squeeze(solved(op, x, spread(op, op.Unsqueeze(B, [-1]), x)), [-1])
    if not left:
        return turned(op, solve(op, turned(op, x), turned(op, B)))
    return solved(op, spread(op, x, B), spread(op, B, x))


@lower("aten.linalg_solve_ex", unused="check_errors")
def solve_ex(op: Builder, x: ir.Value, B: ir.Value, left: bool = True) -> list[ir.Value]:
    return [solve(op, x, B, left), no_error(op, x)]


def _half(op: Builder, x: ir.Value, upper: bool, unitriangular: bool = False) -> ir.Value:
    half = create.triangle(op, x, upper=upper)
    if unitriangular:
        unit = create.eye(op, op.size(x, -1), None, x.dtype)
        half = op.Add(op.Mul(half, op.Sub(op.constant(1.0, x.dtype), unit)), unit)
    return half


@lower("aten.linalg_solve_triangular")
def solve_triangular(
    op: Builder, x: ir.Value, B: ir.Value, upper: bool, left: bool = True, unitriangular: bool = False
) -> ir.Value:
    half = _half(op, x, upper, unitriangular)
    if not left:
        return turned(op, solved(op, spread(op, turned(op, half), turned(op, B)), spread(op, turned(op, B), half)))
    return solved(op, spread(op, half, B), spread(op, B, half))


@lower("aten.triangular_solve")
def triangular_solve(
    op: Builder, x: ir.Value, A: ir.Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> list[ir.Value]:
    half = _half(op, A, upper, unitriangular)
    half = turned(op, half) if transpose else half
    return [solved(op, spread(op, half, x), spread(op, x, half)), spread(op, A, x)]


def _by_root(op: Builder, b: ir.Value, root: ir.Value, upper: bool) -> ir.Value:
    """X of L·Lᵀ·X = B: of each in turn, since their product would lose digits."""
    half = op.cast(_half(op, root, upper), T.DOUBLE)
    lower_half, upper_half = (turned(op, half), half) if upper else (half, turned(op, half))
    wide = op.cast(b, T.DOUBLE)
    between = solved(op, spread(op, lower_half, wide), spread(op, wide, half))
    return op.cast(solved(op, spread(op, upper_half, between), between), b.dtype or T.FLOAT)


@lower("aten.cholesky_solve")
def cholesky_solve(op: Builder, x: ir.Value, input2: ir.Value, upper: bool = False) -> ir.Value:
    """``input2`` is the root of the matrix."""
    return _by_root(op, x, input2, upper)


# Determinants

matrix_power = lower("aten.linalg_matrix_power")(lambda op, x, n: power(op, x, n))


@lower("aten.linalg_det", "aten.det")
def det(op: Builder, x: ir.Value) -> ir.Value:
    assert x.shape is not None
    return op.Det(x, _shape=x.shape.dims[:-2])


@lower("aten.linalg_slogdet", "aten.slogdet")
def slogdet(op: Builder, x: ir.Value) -> list[ir.Value]:
    """By the factors of the determinant, which itself would overflow: that of 100 rows is easily 1e±100."""
    count, dtype = op.size(x, -1), x.dtype or T.FLOAT
    if isinstance(count, int) and not count:  # no factors at all: 1
        return [op.Expand(op.constant(number, dtype), op.vector(op.sizes(x)[:-2])) for number in (1, 0)]
    factors = _pivots(op, x)
    sign = op.cast(op.ReduceProd(op.cast(op.Sign(factors), T.FLOAT), [-1], keepdims=0), dtype)
    return [sign, op.cast(op.ReduceSum(op.Log(op.Abs(factors)), [-1], keepdims=0), dtype)]


def _pivots(op: Builder, x: ir.Value) -> ir.Value:
    """Numbers whose product is the determinant, (…, n): what elimination leaves on the diagonal."""
    count = op.size(x, -1)

    def step(op: Builder, m: ir.Value, i: ir.Value) -> ir.Value:
        here, there, own, pivot = exchanged(op, m, i, count)
        swapped = op.Add(m, op.Mul(op.Unsqueeze(op.Sub(here, there), [2]), op.Sub(pivot, own)))
        # A row that changes places changes its sign, so that the determinant stays.
        moved = op.Mul(there, op.Sub(op.constant(1.0, T.DOUBLE), here))
        swapped = op.Sub(swapped, op.Mul(op.Unsqueeze(moved, [2]), op.Mul(own, 2.0)))
        top = op.Unsqueeze(op.Gather(pivot, i, axis=2), [2])
        nothing = op.Equal(top, op.constant(0.0, T.DOUBLE))  # then there is nothing below, either
        below = op.cast(op.Greater(sizes.arange(op, count), i), T.DOUBLE)
        factor = op.Unsqueeze(op.Mul(op.Gather(swapped, i, axis=2), below), [2])
        return op.Sub(swapped, op.Mul(factor, op.Div(pivot, op.Where(nothing, op.constant(1.0, T.DOUBLE), top))))

    done = looped(op, count, flat(op, op.cast(x, T.DOUBLE)), step)
    diagonal = op.ReduceSum(op.Mul(done, create.eye(op, count, None, T.DOUBLE)), [-1], keepdims=0)
    return op.reshape(diagonal, op.sizes(x)[:-1])


@lower("aten.logdet")
def logdet(op: Builder, x: ir.Value) -> ir.Value:
    sign, size = slogdet(op, x)
    negative = op.Less(sign, op.constant(0.0, sign.dtype))
    return op.Where(negative, op.constant(float("nan"), size.dtype), size)


@lower("aten.matrix_exp", "aten.linalg_matrix_exp")
def matrix_exp(op: Builder, x: ir.Value) -> ir.Value:
    """The series of a matrix 2⁻¹² as large, squared 12 times: in double, where that loses nothing float32 has."""
    small = op.Div(op.cast(x, T.DOUBLE), float(1 << _HALVINGS))
    unit = identity(op, small)
    total: Any = unit
    for n in range(_TERMS, 0, -1):
        total = op.Add(unit, op.Div(op.MatMul(small, total), float(n)))
    for _ in range(_HALVINGS):
        total = op.MatMul(total, total)
    return op.cast(total, x.dtype or T.FLOAT)


_HALVINGS, _TERMS = 12, 8
