"""Eigenvalues of symmetric matrices and singular values, by Jacobi's rotations, and what is made of them.

A pass of the loop turns all rows in pairs at once; who is whose partner goes round as in a tournament, so that after as
many passes as there are rows everybody has met everybody. A few such rounds leave nothing beside the diagonal.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops import create
from tonnx.lowering.ops.factors import basis, reflections, restored, wide
from tonnx.lowering.ops.linalg import is_vector, spread, turned, unit
from tonnx.lowering.regions.emit import repeat
from tonnx.lowering.rules import lower
from tonnx.lowering.values import Number

_ROUNDS = 16
"""At most; matrices of 64 rows need about eight."""
_SMALL = 1e-15
"""What is no more than this beside the diagonal, relative to it, is left alone."""
_EPSILON = {T.FLOAT: 2.0**-23, T.DOUBLE: 2.0**-52}


def _partners(op: Builder, turn: ir.Value, count: Size) -> tuple[ir.Value, ir.Value]:
    """Of each row, for one pass: its partner, or itself where the number of rows is odd; and whether it has one."""
    even = sizes.add(op, count, sizes.modulo(op, count, 2))
    last = sizes.larger(op, sizes.subtract(op, even, 1), 1)
    row, turn = sizes.arange(op, count), op.Mod(turn, op.scalar(last))
    partner = op.Where(op.Equal(row, turn), op.scalar(last), op.Mod(turn * 2 - row, op.scalar(last)))
    partner = op.Where(op.Equal(row, op.scalar(last)), turn, partner)
    has_one = op.Less(partner, op.scalar(count))
    return op.Where(has_one, partner, row), has_one


def _rotation(op: Builder, gram: ir.Value, turn: ir.Value, limit: ir.Value, count: Size) -> ir.Value:
    """The matrix J for which Jᵀ·gram·J is 0 wherever two partners meet."""
    partner, has_one = _partners(op, turn, count)
    unity, swap = create.eye(op, count, None, T.DOUBLE), unit(op, partner, count, T.DOUBLE)
    beside = op.ReduceSum(gram * swap, [-1], keepdims=0)
    is_turned = op.And(has_one, op.Greater(op.Abs(beside), op.ReduceSum(limit * swap, [-1], keepdims=0)))
    own = op.ReduceSum(gram * unity, [-1], keepdims=0)
    ratio = (op.Gather(own, partner, axis=1) - own) / op.Where(is_turned, beside * 2.0, 1.0)
    first = op.cast(op.Less(sizes.arange(op, count), partner), T.DOUBLE) * 2.0 - 1.0
    sign = op.Where(op.Equal(ratio, 0), first, op.Sign(ratio))
    tangent = op.Where(is_turned, sign / (op.Abs(ratio) + op.Sqrt(ratio * ratio + 1.0)), 0.0)
    cosine = op.Unsqueeze(1.0 / op.Sqrt(tangent * tangent + 1.0), [2])
    return unity * cosine + swap * (cosine * op.Unsqueeze(tangent, [2]))


def _diagonalise(
    op: Builder,
    x: ir.Value,
    count: Size,
    gram: Callable[[Builder, ir.Value], ir.Value],
    limit: Callable[[Builder, ir.Value], ir.Value],
    turn: Callable[[Builder, ir.Value, ir.Value], ir.Value],
) -> tuple[ir.Value, ir.Value]:
    """What ``turn`` made of x with all rotations, until ``gram`` of it is a diagonal; and the rotations together."""

    def step(op: Builder, states: list[ir.Value], i: ir.Value) -> list[ir.Value]:
        now, basis = states
        products = gram(op, now)
        rotation = _rotation(op, products, i, limit(op, products), count)
        return [turn(op, now, rotation), op.MatMul(basis, rotation)]

    def is_left(op: Builder, states: list[ir.Value]) -> ir.Value:
        products = gram(op, states[0])
        beside = op.Abs(products) * (1.0 - create.eye(op, count, None, T.DOUBLE))
        return op.Greater(op.ReduceSum(op.cast(op.Greater(beside, limit(op, products)), T.INT64), keepdims=0), 0)

    unity = op.Expand(create.eye(op, count, None, T.DOUBLE), op.vector([op.size(x, 0), count, count]))
    passes = sizes.multiply(op, sizes.add(op, count, 1), _ROUNDS)
    now, rotations = repeat(op, passes, [x, unity], step, is_left)
    return now, rotations


# Eigenvalues


@lower("aten._linalg_eigh")
def eigh(op: Builder, A: ir.Value, UPLO: str = "L", compute_v: bool = True) -> list[ir.Value]:
    """Eigenvalues, the smallest first, and eigenvectors, whose sign nothing settles."""
    count, matrices = op.size(A, -1), wide(op, A)
    symmetric = _symmetric(op, matrices, UPLO.upper() == "U")
    scale = op.ReduceMax(op.Abs(symmetric), [1, 2]) * _SMALL

    def limit(op: Builder, products: ir.Value) -> ir.Value:
        return op.Expand(scale, op.vector([op.size(matrices, 0), count, count]))

    def turn(op: Builder, now: ir.Value, rotation: ir.Value) -> ir.Value:
        return op.MatMul(op.MatMul(turned(op, rotation), now), rotation)

    done, vectors = _diagonalise(op, symmetric, count, lambda op, now: now, limit, turn)
    values = op.ReduceSum(done * create.eye(op, count, None, T.DOUBLE), [-1], keepdims=0)
    values, vectors = _in_order(op, values, vectors, count, largest=False)
    return [restored(op, values, A, 1), restored(op, vectors, A) if compute_v else op.constant([], A.dtype)]


def _symmetric(op: Builder, x: ir.Value, upper: bool) -> ir.Value:
    """Of one half of a matrix: nobody looks at the other."""
    strict = create.triangle(op, x, 1 if upper else -1, upper=upper)
    return strict + turned(op, strict) + x * create.eye(op, op.size(x, -1), None, x.dtype)


def _in_order(
    op: Builder, values: ir.Value, columns: ir.Value, count: Size, largest: bool
) -> tuple[ir.Value, ir.Value]:
    """Values (b, n), and the columns (b, m, n) that belong to them."""
    ordered, places = op.TopK(values, op.vector([count]), axis=1, largest=int(largest), sorted=1, _outputs=2)
    return ordered, op.MatMul(columns, turned(op, unit(op, places, count, T.DOUBLE)))


# Singular values


def _singular(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Of (b, m, n) doubles: A·V, whose n columns are orthogonal; their lengths, the largest first; and V."""
    count = op.size(x, 2)

    def gram(op: Builder, now: ir.Value) -> ir.Value:
        return op.MatMul(turned(op, now), now)

    def limit(op: Builder, products: ir.Value) -> ir.Value:
        squares = op.ReduceSum(products * create.eye(op, count, None, T.DOUBLE), [2])
        floor = op.ReduceMax(squares, [1]) * _SMALL**2
        return op.Sqrt(op.Abs(squares * turned(op, squares))) * _SMALL + floor

    product, vectors = _diagonalise(op, x, count, gram, limit, lambda op, now, by: op.MatMul(now, by))
    lengths = op.ReduceL2(product, [1], keepdims=0)
    both = op.Concat(product, vectors, axis=1)
    lengths, both = _in_order(op, lengths, both, count, largest=True)
    rows = op.size(x, 1)
    return sizes.cut(op, both, 1, 0, rows), lengths, sizes.cut(op, both, 1, rows)


@lower("aten._linalg_svd", "aten.linalg_svd", unused="driver")
def svd(op: Builder, A: ir.Value, full_matrices: bool = True, compute_uv: bool = True) -> list[ir.Value]:
    """A = U·S·Vᵀ. The sign of a column of U, with that of V, nothing settles."""
    rows, columns = op.sizes(A)[-2:]
    count, nothing = sizes.smaller(op, rows, columns), op.constant([], A.dtype)
    product, lengths, v = _singular(op, wide(op, A))
    values = restored(op, sizes.cut(op, lengths, 1, 0, count), A, 1)
    if not compute_uv:
        return [nothing, values, nothing]
    # The columns over their lengths; where those are 0, whatever completes the basis, which reflections give.
    packed, factors = reflections(op, sizes.cut(op, product, 2, 0, count))
    u = basis(op, packed, factors, rows if full_matrices else count)
    own = op.ReduceSum(sizes.cut(op, packed, 1, 0, count) * create.eye(op, count, None, T.DOUBLE), [1])
    sign = op.Where(op.Less(own, 0), -1.0, op.constant(1.0, T.DOUBLE))  # (b, 1, count)
    left = sizes.cut(op, u, 2, 0, count) * sign
    u = op.Concat(left, sizes.cut(op, u, 2, count), axis=2) if full_matrices else left
    kept = turned(op, v if full_matrices else sizes.cut(op, v, 2, 0, count))
    return [restored(op, u, A), values, restored(op, kept, A)]


def _inverse_lengths(op: Builder, lengths: ir.Value, threshold: ir.Value) -> ir.Value:
    """1 over the square of each singular value (b, 1, n), 0 for those that are no more than the threshold (b, 1)."""
    counts = op.Greater(lengths, threshold)
    square = op.Where(counts, lengths * lengths, 1.0)
    return op.Unsqueeze(op.Where(counts, 1.0 / square, 0.0), [1])


def _pseudo_inverse(op: Builder, x: ir.Value, threshold: Callable[[ir.Value], ir.Value]) -> tuple[ir.Value, ir.Value]:
    """(b, n, m), and the singular values (b, n); ``threshold`` is asked what counts as 0."""
    product, lengths, v = _singular(op, wide(op, x))
    return op.MatMul(v * _inverse_lengths(op, lengths, threshold(lengths)), turned(op, product)), lengths


def _largest(op: Builder, lengths: ir.Value) -> ir.Value:
    return sizes.cut(op, lengths, 1, 0, 1)


def _precision(op: Builder, x: ir.Value) -> ir.Value:
    """What torch takes for 0 in a matrix, relative to its largest singular value."""
    rows, columns = op.sizes(x)[-2:]
    return op.cast(op.scalar(sizes.larger(op, rows, columns)), T.DOUBLE) * _EPSILON[x.dtype or T.FLOAT]


@lower("aten.linalg_pinv.atol_rtol_tensor")
def pinv(
    op: Builder, x: ir.Value, atol: ir.Value | None = None, rtol: ir.Value | None = None, hermitian: bool = False
) -> ir.Value:
    x = _symmetric(op, x, upper=False) if hermitian else x

    def column(value: ir.Value) -> ir.Value:
        spread_out = op.Expand(op.cast(value, T.DOUBLE), op.vector(op.sizes(x)[:-2]))
        return op.reshape(spread_out, [op.product(op.sizes(x)[:-2]), 1])

    def threshold(lengths: ir.Value) -> ir.Value:
        absolute = op.constant(0.0, T.DOUBLE) if atol is None else column(atol)
        relative = column(rtol) if rtol is not None else _precision(op, x)
        if rtol is None and atol is not None:  # a tolerance that was asked for is the only one
            relative = op.Where(op.Greater(absolute, 0), 0.0, relative)
        return op.Max(absolute, relative * _largest(op, lengths))

    return restored(op, _pseudo_inverse(op, x, threshold)[0], x)


pinverse = lower("aten.pinverse")(lambda op, x, rcond=1e-15: pinv(op, x, rtol=op.constant(rcond, T.DOUBLE)))


@lower("aten.linalg_lstsq")
def lstsq(
    op: Builder, x: ir.Value, b: ir.Value, rcond: Number | None = None, driver: str | None = None
) -> list[ir.Value]:
    """The shortest X for which A·X - B is shortest."""
    rows, columns = op.sizes(x)[-2:]
    if op.rank(b) == 1 or (op.rank(b) == op.rank(x) - 1 and is_vector(op, x, b)):
        solution, *rest = lstsq(op, x, op.Unsqueeze(b, [-1]), rcond, driver)
        return [op.Squeeze(solution, [-1]), *rest]

    def threshold(lengths: ir.Value) -> ir.Value:
        relative = _precision(op, x) if rcond is None else op.constant(float(rcond), T.DOUBLE)  # type: ignore[arg-type]
        return relative * _largest(op, lengths)

    inverse, lengths = _pseudo_inverse(op, x, threshold)
    matrix = op.reshape(inverse, [*op.sizes(x)[:-2], columns, rows])
    target = op.cast(b, T.DOUBLE)
    solution = op.MatMul(spread(op, matrix, target), spread(op, target, matrix))
    difference = op.MatMul(op.cast(x, T.DOUBLE), solution) - target
    residuals = op.ReduceSum(difference * difference, [-2], keepdims=0)
    rank = op.ReduceSum(op.cast(op.Greater(lengths, threshold(lengths)), T.INT64), [1], keepdims=0)
    values = sizes.cut(op, lengths, 1, 0, sizes.smaller(op, rows, columns))
    results = [op.cast(solution, b.dtype), op.cast(residuals, b.dtype), op.reshape(rank, op.sizes(x)[:-2])]
    return [*results, restored(op, values, x, 1)]
