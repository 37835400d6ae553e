"""Linear algebra. ONNX has Det and no more: systems are solved by elimination, one column a step of a loop."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from tonnx.build import Builder, Size
from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.rules import Value, lower
from tonnx.frontends.torch import sizes
from tonnx.frontends.torch.ops import create as torch_create

T = ir.DataType
Step = Callable[[Builder, ir.Value, ir.Value], ir.Value]


def _looped(op: Builder, count: Size, state: ir.Value, step: Step) -> ir.Value:
    """``state`` after ``step(state, i)`` for i = 0 … count - 1."""
    assert state.dtype is not None and state.shape is not None
    dims = list(state.shape.dims)
    body = op.inner("column", [("i", T.INT64, []), ("again", T.BOOL, []), ("so_far", state.dtype, dims)])
    number, again, before = body.graph.inputs
    with body:
        after = step(body, before, number)
        body.graph.outputs.extend([body.Identity(again), after])
    (made,) = op.node(
        "Loop",
        [op.scalar(count), op.constant(True, T.BOOL), state],
        [ir.AttrGraph("body", body.graph)],
        [(state.dtype, dims)],
    )
    return made


def _unit(op: Builder, place: ir.Value, count: Size, dtype: ir.DataType) -> ir.Value:
    """1 at ``place`` (…), 0 elsewhere: (…, count)."""
    return op.cast(op.Equal(op.Unsqueeze(place, [-1]), sizes.arange(op, count)), dtype)


def _flat(op: Builder, x: ir.Value) -> ir.Value:
    """Matrices one below the other: (matrices, rows, columns)."""
    if op.rank(x) == 3:
        return x
    if op.rank(x) == 2:
        return op.Unsqueeze(x, [0])
    own = op.sizes(x)
    return op.reshape(x, [op.product(own[:-2]), *own[-2:]])


def _solved(op: Builder, a: ir.Value, b: ir.Value) -> ir.Value:
    """X of A·X = B for matrices (…, n, n) and (…, n, m): Gauss and Jordan's elimination with row exchange."""
    assert a.dtype is not None
    if a.dtype not in (T.FLOAT, T.DOUBLE):
        raise UnsupportedArgument(f"a system of equations of {a.dtype}")
    dtype, count, width = a.dtype, op.size(a, -1), op.size(b, -1)
    lead = op.sizes(a)[:-2]
    both = _flat(op, op.Concat(a, b, axis=-1))

    def step(op: Builder, m: ir.Value, i: ir.Value) -> ir.Value:
        column = op.Gather(m, i, axis=2)  # (matrices, n)
        ready = op.Less(sizes.arange(op, count), i)
        best = op.ArgMax(op.Where(ready, op.constant(-1, dtype), op.Abs(column)), axis=1, keepdims=0)
        here, there = _unit(op, op.Unsqueeze(i, [0]), count, dtype), _unit(op, best, count, dtype)
        own, pivot = (op.MatMul(op.Unsqueeze(row, [1]), m) for row in (here, there))  # (matrices, 1, columns)
        swapped = op.Add(m, op.Mul(op.Unsqueeze(op.Sub(here, there), [2]), op.Sub(pivot, own)))
        scaled = op.Div(pivot, op.Unsqueeze(op.Gather(pivot, i, axis=2), [2]))
        factor = op.Sub(op.Unsqueeze(op.Gather(swapped, i, axis=2), [2]), op.Unsqueeze(here, [2]))
        return op.Sub(swapped, op.Mul(factor, scaled))

    done = _looped(op, count, both, step)
    result = op.Slice(done, op.vector([count]), [sizes.END], [2])
    return op.reshape(result, [*lead, count, width])


def _identity(op: Builder, like: ir.Value) -> ir.Value:
    """The unit matrix, as often as there are matrices."""
    unit = torch_create.eye(op, op.size(like, -1), None, like.dtype)
    return unit if op.rank(like) == 2 else op.Expand(unit, op.vector(op.sizes(like)))


@lower("inverse")
def inverse(op: Builder, x: Value) -> ir.Value:
    return _solved(op, x, _identity(op, x))


@lower("solve")
def solve(op: Builder, x: Value, y: Value) -> ir.Value:
    if op.rank(y) == op.rank(x) - 1 and (op.rank(y) == 1 or _is_vector(op, x, y)):
        return op.Squeeze(_solved(op, x, _spread(op, op.Unsqueeze(y, [-1]), x)), [-1])
    return _solved(op, _spread(op, x, y), _spread(op, y, x))


def _is_vector(op: Builder, x: ir.Value, y: ir.Value) -> bool:
    return all(str(a) == str(b) for a, b in zip(op.sizes(x)[:-1], op.sizes(y), strict=True))


def _spread(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
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


@lower("triangular_solve")
def triangular_solve(
    op: Builder, x: Value, y: Value, *, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> ir.Value:
    half = torch_create.triu(op, x, 0) if upper else torch_create.tril(op, x, 0)
    if unitriangular:
        unit = torch_create.eye(op, op.size(x, -1), None, x.dtype)
        half = op.Add(op.Mul(half, op.Sub(1.0, unit)), unit)
    if transpose:
        half = _turned(op, half)
    return _solved(op, _spread(op, half, y), _spread(op, y, x))


def _turned(op: Builder, x: ir.Value) -> ir.Value:
    rank = op.rank(x)
    return op.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


@lower("cholesky")
def cholesky(op: Builder, x: Value, *, upper: bool = False) -> ir.Value:
    """A = L·Lᵀ, column by column."""
    assert x.dtype is not None
    dtype, count = x.dtype, op.size(x, -1)
    a = _flat(op, x)

    def step(op: Builder, root: ir.Value, i: ir.Value) -> ir.Value:
        row = op.Gather(root, i, axis=1)  # what is known of row i: (matrices, n)
        rest = op.Sub(op.Gather(a, i, axis=2), op.Squeeze(op.MatMul(root, op.Unsqueeze(row, [2])), [2]))
        pivot = op.Sqrt(op.Unsqueeze(op.Gather(rest, i, axis=1), [1]))
        below = op.cast(op.GreaterOrEqual(sizes.arange(op, count), i), dtype)
        column = op.Mul(op.Div(rest, pivot), below)
        here = _unit(op, op.Unsqueeze(i, [0]), count, dtype)
        return op.Add(root, op.Mul(op.Unsqueeze(column, [2]), op.Unsqueeze(here, [1])))

    found = op.reshape(_looped(op, count, op.Mul(a, 0.0), step), op.sizes(x))
    return _turned(op, found) if upper else found


@lower("cholesky_solve")
def cholesky_solve(op: Builder, x: Value, y: Value, *, upper: bool = False) -> ir.Value:
    """``y`` is the root of the matrix, ``x`` the right side."""
    root = torch_create.triu(op, y, 0) if upper else torch_create.tril(op, y, 0)
    whole = op.MatMul(_turned(op, root), root) if upper else op.MatMul(root, _turned(op, root))
    return _solved(op, _spread(op, whole, x), _spread(op, x, y))


# Determinants


@lower("det", "determinant")
def det(op: Builder, x: Value) -> ir.Value:
    return _determinant(op, x)


def _determinant(op: Builder, x: ir.Value) -> ir.Value:
    assert x.shape is not None
    return op.Det(x, _shape=x.shape.dims[:-2])


@lower("slogdet")
def slogdet(op: Builder, x: Value) -> ir.Value:
    """Sign and logarithm side by side."""
    return op.Concat(*(op.Unsqueeze(part, [0]) for part in slogdet_v2(op, x)), axis=0)


@lower("slogdet_v2")
def slogdet_v2(op: Builder, x: Value) -> tuple[ir.Value, ir.Value]:
    value = _determinant(op, x)
    return op.Sign(value), op.Log(op.Abs(value))


@lower("matrix_power")
def matrix_power(op: Builder, x: Value, *, n: int) -> ir.Value:
    if n == 0:
        return _identity(op, x)
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


@lower("bilinear")
def bilinear(op: Builder, x: Value, y: Value, weight: Value, bias: Value | None = None) -> ir.Value:
    """xᵀ·W·y for each matrix W of the weight."""
    rows = op.MatMul(op.Unsqueeze(x, [1, 2]), weight)  # (batch, out, 1, columns)
    made = op.Squeeze(op.MatMul(rows, op.Unsqueeze(y, [1, 3])), [2, 3])
    return made if bias is None else op.Add(made, bias)
