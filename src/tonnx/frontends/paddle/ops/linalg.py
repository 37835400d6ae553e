"""Linear algebra: the loops are those of the torch rules."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.frontends.paddle.lower.rules import Value, direct, lower
from tonnx.ir.build import Builder
from tonnx.lowering.ops import create as torch_create
from tonnx.lowering.ops import linalg
from tonnx.lowering.ops.linalg import identity, is_vector, power, root_of, solved, spread, turned

T = ir.DataType

direct("inverse(x)", lambda op, x: solved(op, x, identity(op, x)))
direct("cholesky(x, *, upper: bool = False)", root_of)


@lower("solve")
def solve(op: Builder, x: Value, y: Value) -> ir.Value:
    if op.rank(y) == op.rank(x) - 1 and (op.rank(y) == 1 or is_vector(op, x, y)):
        return op.Squeeze(solved(op, x, spread(op, op.Unsqueeze(y, [-1]), x)), [-1])
    return solved(op, spread(op, x, y), spread(op, y, x))


@lower("triangular_solve")
def triangular_solve(
    op: Builder, x: Value, y: Value, *, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> ir.Value:
    half = torch_create.triangle(op, x, upper=upper)
    if unitriangular:
        unit = torch_create.eye(op, op.size(x, -1), None, x.dtype)
        half = op.Add(op.Mul(half, op.Sub(1.0, unit)), unit)
    if transpose:
        half = turned(op, half)
    return solved(op, spread(op, half, y), spread(op, y, x))


@lower("cholesky_solve")
def cholesky_solve(op: Builder, x: Value, y: Value, *, upper: bool = False) -> ir.Value:
    """``y`` is the root of the matrix, ``x`` the right side."""
    root = torch_create.triangle(op, y, upper=upper)
    whole = op.MatMul(turned(op, root), root) if upper else op.MatMul(root, turned(op, root))
    return solved(op, spread(op, whole, x), spread(op, x, y))


# Determinants

direct("det(x)", linalg.det)
direct("determinant(x)", linalg.det)
direct("matrix_power(x, *, n: int)", power)


@lower("slogdet")
def slogdet(op: Builder, x: Value) -> ir.Value:
    """Sign and logarithm side by side."""
    return op.Concat(*(op.Unsqueeze(part, [0]) for part in slogdet_v2(op, x)), axis=0)


@lower("slogdet_v2")
def slogdet_v2(op: Builder, x: Value) -> tuple[ir.Value, ir.Value]:
    """Of the determinant itself, which may overflow: so it does in Paddle."""
    value = linalg.det(op, x)
    return op.Sign(value), op.Log(op.Abs(value))


@lower("bilinear")
def bilinear(op: Builder, x: Value, y: Value, weight: Value, bias: Value | None = None) -> ir.Value:
    """xᵀ·W·y for each matrix W of the weight."""
    rows = op.MatMul(op.Unsqueeze(x, [1, 2]), weight)  # (batch, out, 1, columns)
    products = op.Squeeze(op.MatMul(rows, op.Unsqueeze(y, [1, 3])), [2, 3])
    return products if bias is None else op.Add(products, bias)
