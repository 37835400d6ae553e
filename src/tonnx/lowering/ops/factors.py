"""Matrices as products of simpler ones: QR by Householder's reflections, LU by elimination, one column a step."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops import create
from tonnx.lowering.ops.linalg import exchanged, flat, no_error, solve, solved, spread, turned, unit
from tonnx.lowering.regions.emit import repeat
from tonnx.lowering.rules import lower
from tonnx.lowering.values import promote

# QR


def _below(op: Builder, i: ir.Value, count: Size) -> ir.Value:
    """1 for the rows below the i-th, else 0: (rows, 1)."""
    return op.Unsqueeze(op.cast(op.Greater(sizes.arange(op, count), i), T.DOUBLE), [1])


def _column(op: Builder, m: ir.Value, i: ir.Value) -> ir.Value:
    return op.Unsqueeze(op.Gather(m, i, axis=2), [2])


def reflections(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """LAPACK's geqrf of matrices (b, m, n) of doubles: R with the reflections' vectors below it, and their factors.

    A reflection is H = 1 - tau v vᵀ, with v = (0, …, 1, what is below).
    """
    rows, columns = op.size(x, 1), op.size(x, 2)
    count = sizes.smaller(op, rows, columns)

    def step(op: Builder, states: list[ir.Value], i: ir.Value) -> list[ir.Value]:
        m, factors = states
        below, here = _below(op, i, rows), unit(op, op.Unsqueeze(i, [0]), rows, T.DOUBLE)  # (rows, 1), (1, rows)
        column = _column(op, m, i)
        tail = column * below
        rest = op.ReduceSum(tail * tail, [1])
        top = op.Unsqueeze(op.Gather(column, i, axis=1), [1])  # (b, 1, 1)
        size = op.Sqrt(top * top + rest)
        is_done = op.Equal(rest, 0)
        beta = op.Where(op.Less(top, 0), size, -size)
        factor = op.Where(is_done, 0.0, (beta - top) / op.Where(is_done, 1.0, beta))
        vector = tail / op.Where(is_done, 1.0, top - beta)
        reflector = vector + turned(op, here)
        from_here = op.Unsqueeze(op.cast(op.GreaterOrEqual(sizes.arange(op, columns), i), T.DOUBLE), [0])
        reflected = m - factor * reflector * (op.MatMul(turned(op, reflector), m) * from_here)
        this = unit(op, op.Unsqueeze(i, [0]), columns, T.DOUBLE)
        kept = reflected * (1.0 - below * this) + vector * this
        place = unit(op, op.Unsqueeze(i, [0]), count, T.DOUBLE)
        return [kept, factors + op.Squeeze(factor, [2]) * place]

    zeros = op.Expand(op.constant(0.0, T.DOUBLE), op.vector([op.size(x, 0), count]))
    packed, factors = repeat(op, count, [x, zeros], step)
    return packed, factors


def reflect(op: Builder, packed: ir.Value, factors: ir.Value, other: ir.Value, transpose: bool = False) -> ir.Value:
    """Q·other, or Qᵀ·other, of reflections as `reflections` gives them."""
    count, rows = op.size(factors, 1), op.size(packed, 1)

    def step(op: Builder, states: list[ir.Value], i: ir.Value) -> list[ir.Value]:
        (y,) = states
        i = i if transpose else op.Sub(op.scalar(count) - 1, i)
        here = unit(op, op.Unsqueeze(i, [0]), rows, T.DOUBLE)
        reflector = _column(op, packed, i) * _below(op, i, rows) + turned(op, here)
        factor = op.Unsqueeze(op.Unsqueeze(op.Gather(factors, i, axis=1), [1]), [2])
        return [y - factor * reflector * op.MatMul(turned(op, reflector), y)]

    (result,) = repeat(op, count, [other], step)
    return result


def basis(op: Builder, packed: ir.Value, factors: ir.Value, columns: Size) -> ir.Value:
    """The first columns of Q, as doubles (b, m, columns)."""
    rows = op.size(packed, 1)
    unit_columns = create.eye(op, rows, columns, T.DOUBLE)
    start = op.Expand(unit_columns, op.vector([op.size(packed, 0), rows, columns]))
    return reflect(op, packed, factors, start)


def restored(op: Builder, result: ir.Value, like: ir.Value, axes: int = 2) -> ir.Value:
    """Of matrices one below the other: in the leading axes and the dtype of ``like``."""
    own = op.sizes(result)[-axes:] if axes else []
    return op.cast(op.reshape(result, [*op.sizes(like)[:-2], *own]), like.dtype)


def wide(op: Builder, x: ir.Value) -> ir.Value:
    """One below the other, as doubles."""
    return flat(op, op.cast(x, T.DOUBLE))


@lower("aten.geqrf")
def geqrf(op: Builder, x: ir.Value) -> list[ir.Value]:
    packed, factors = reflections(op, wide(op, x))
    return [restored(op, packed, x), restored(op, factors, x, 1)]


@lower("aten.linalg_qr")
def qr(op: Builder, A: ir.Value, mode: str = "reduced") -> list[ir.Value]:
    rows, columns = op.sizes(A)[-2:]
    packed, factors = reflections(op, wide(op, A))
    width = rows if mode == "complete" else sizes.smaller(op, rows, columns)
    r = create.triangle(op, sizes.cut(op, packed, 1, 0, width), upper=True)
    if mode == "r":
        return [op.constant([], A.dtype), restored(op, r, A)]
    return [restored(op, basis(op, packed, factors, width), A), restored(op, r, A)]


@lower("aten.linalg_householder_product", "aten.orgqr")
def householder_product(op: Builder, x: ir.Value, tau: ir.Value) -> ir.Value:
    factors = op.cast(op.reshape(tau, [op.product(op.sizes(x)[:-2]), op.size(tau, -1)]), T.DOUBLE)
    return restored(op, basis(op, wide(op, x), factors, op.size(x, -1)), x)


@lower("aten.ormqr")
def ormqr(
    op: Builder, x: ir.Value, input2: ir.Value, input3: ir.Value, left: bool = True, transpose: bool = False
) -> ir.Value:
    """Q·input3 and the like; ``x`` and ``input2`` are the reflections and their factors."""
    if not left:
        return turned(op, ormqr(op, x, input2, turned(op, input3), True, not transpose))
    factors = op.cast(op.reshape(input2, [op.product(op.sizes(x)[:-2]), op.size(input2, -1)]), T.DOUBLE)
    return restored(op, reflect(op, wide(op, x), factors, wide(op, input3), transpose), input3)


# LU


@lower("aten.linalg_lu_factor_ex", unused="check_errors")
def lu_factor_ex(op: Builder, A: ir.Value, pivot: bool = True) -> list[ir.Value]:
    """Both triangles in one matrix, and the row that each row changed places with, from 1 on."""
    rows, columns = op.sizes(A)[-2:]
    count = sizes.smaller(op, rows, columns)

    def step(op: Builder, states: list[ir.Value], i: ir.Value) -> list[ir.Value]:
        m, places = states
        if pivot:
            here, there, own, other = exchanged(op, m, i, rows)
            m = m + op.Unsqueeze(here - there, [2]) * (other - own)
            place = op.ReduceSum(there * op.cast(sizes.arange(op, rows), T.DOUBLE), [1])
        else:
            other = op.Unsqueeze(op.Gather(m, i, axis=1), [1])
            place = op.cast(op.Unsqueeze(op.Unsqueeze(i, [0]), [1]), T.DOUBLE)
        top = _column(op, other, i)
        below, right = _below(op, i, rows), op.cast(op.Greater(sizes.arange(op, columns), i), T.DOUBLE)
        factor = _column(op, m, i) * below / op.Where(op.Equal(top, 0), 1.0, top)
        this = unit(op, op.Unsqueeze(i, [0]), columns, T.DOUBLE)
        m = m * (1.0 - below * this) + factor * this - factor * (other * right)
        return [m, places + (place + 1.0) * unit(op, op.Unsqueeze(i, [0]), count, T.DOUBLE)]

    matrices = wide(op, A)
    zeros = op.Expand(op.constant(0.0, T.DOUBLE), op.vector([op.size(matrices, 0), count]))
    packed, places = repeat(op, count, [matrices, zeros], step)
    pivots = op.reshape(op.cast(places, T.INT32), [*op.sizes(A)[:-2], count])
    return [restored(op, packed, A), pivots, no_error(op, A)]


@lower("aten.lu_unpack")
def lu_unpack(
    op: Builder, x: ir.Value, LU_pivots: ir.Value, unpack_data: bool = True, unpack_pivots: bool = True
) -> list[ir.Value]:
    rows, columns = op.sizes(x)[-2:]
    count, nothing = sizes.smaller(op, rows, columns), op.constant([], x.dtype)
    p = lower_half = upper_half = nothing
    if unpack_data:
        inside = sizes.cut(op, x, op.rank(x) - 1, 0, count)
        lower_half = create.triangle(op, inside, -1, upper=False) + create.eye(op, rows, count, x.dtype)
        upper_half = create.triangle(op, sizes.cut(op, x, op.rank(x) - 2, 0, count), upper=True)
    if unpack_pivots:
        p = _permutation(op, x, LU_pivots, rows)
    return [p, lower_half, upper_half]


def _permutation(op: Builder, x: ir.Value, pivots: ir.Value, rows: Size) -> ir.Value:
    """The matrix P of A = P·L·U: the exchanges, one after the other, on the columns of the unit matrix."""
    count = op.size(pivots, -1)
    places = op.cast(op.reshape(pivots, [op.product(op.sizes(x)[:-2]), count]), T.INT64)

    def step(op: Builder, states: list[ir.Value], i: ir.Value) -> list[ir.Value]:
        (p,) = states
        here = unit(op, op.Unsqueeze(i, [0]), rows, T.DOUBLE)
        there = unit(op, op.Gather(places, i, axis=1) - 1, rows, T.DOUBLE)
        change = op.Unsqueeze(here - there, [2])
        return [p - op.MatMul(p, change) * turned(op, change)]

    start = op.Expand(create.eye(op, rows, None, T.DOUBLE), op.vector([op.size(places, 0), rows, rows]))
    (p,) = repeat(op, count, [start], step)
    return restored(op, p, x)


@lower("aten.linalg_lu")
def lu(op: Builder, A: ir.Value, pivot: bool = True) -> list[ir.Value]:
    packed, pivots, _ = lu_factor_ex(op, A, pivot)
    p, lower_half, upper_half = lu_unpack(op, packed, pivots, True, pivot)
    return [p, lower_half, upper_half]


@lower("aten.linalg_lu_solve")
def lu_solve(
    op: Builder, LU: ir.Value, pivots: ir.Value, B: ir.Value, left: bool = True, adjoint: bool = False
) -> ir.Value:
    """Of the product of the factors, in double."""
    p, lower_half, upper_half = lu_unpack(op, op.cast(LU, T.DOUBLE), pivots)
    a = op.MatMul(op.MatMul(p, lower_half), upper_half)
    a, b = promote(op, turned(op, a) if adjoint != (not left) else a, B if left else turned(op, B))
    result = op.cast(solved(op, spread(op, a, b), spread(op, b, a)), B.dtype)
    return result if left else turned(op, result)


@lower("aten._linalg_solve_ex", unused="check_errors")
def solve_ex_with_factors(op: Builder, A: ir.Value, B: ir.Value, left: bool = True) -> list[ir.Value]:
    return [solve(op, A, B, left), *lu_factor_ex(op, A)]
