"""Orthogonal polynomials: one recurrence, and a row of numbers for each family."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.lowering.ops.math import trunc
from tonnx.lowering.regions.emit import repeat
from tonnx.lowering.rules import lower
from tonnx.lowering.values import Operand, opmath, promote

Line = tuple[float, float]
"""A slope and what is at 0."""
_ZERO: Line = (0, 0)


@dataclass(frozen=True)
class Family:
    """P(k+1) = ((a(k) x + b(k)) P(k) - c(k) P(k-1)) / d(k), from P(0) = 1 and ``before``, which is P(-1)."""

    a: Line
    c: Line
    b: Line = _ZERO
    d: Line = (0, 1)
    before: Line = _ZERO
    """In x, all others in k."""
    limits: tuple[int, int] | None = None
    """The degrees in float32 and float64 beyond which torch gives NaN."""


def _chebyshev(before: Line) -> Family:
    return Family(a=(0, 2), c=(0, 1), before=before)


_FAMILIES = {
    "chebyshev_polynomial_t": _chebyshev((1, 0)),
    "chebyshev_polynomial_u": _chebyshev((0, 0)),
    "chebyshev_polynomial_v": _chebyshev((0, 1)),
    "chebyshev_polynomial_w": _chebyshev((0, -1)),
    "hermite_polynomial_h": Family(a=(0, 2), c=(2, 0), limits=(128, 512)),
    "hermite_polynomial_he": Family(a=(0, 1), c=(1, 0), limits=(128, 512)),
    "laguerre_polynomial_l": Family(a=(0, -1), b=(2, 1), c=(1, 0), d=(1, 1)),
    "legendre_polynomial_p": Family(a=(2, 1), c=(1, 0), d=(1, 1)),
}


def polynomial(op: Builder, x: Operand, n: Operand, *, family: Family, shifted: bool) -> ir.Value:
    x, n = (opmath(op, v) for v in promote(op, x, n))
    narrow = x.dtype != T.DOUBLE
    x, degree = op.cast(x, T.DOUBLE), op.cast(trunc(op, n), T.INT64)
    x, degree = op.Expand(x, op.Shape(degree)), op.Expand(degree, op.Shape(x))
    if shifted:
        x = x * 2.0 - 1.0
    one = op.Expand(op.constant(1.0, T.DOUBLE), op.Shape(x))
    result = op.Where(op.Less(degree, 0), 0.0, one)

    def step(op: Builder, states: list[ir.Value], i: ir.Value) -> list[ir.Value]:
        before, current, result = states
        k = op.cast(i, T.DOUBLE)
        a, b, c, d = (k * slope + start for slope, start in (family.a, family.b, family.c, family.d))
        after = ((a * x + b) * current - c * before) / d
        return [current, after, op.Where(op.Equal(degree, i + 1), after, result)]

    slope, start = family.before
    highest = op.ReduceMax(op.Concat(op.Reshape(degree, [-1]), op.constant([0], T.INT64), axis=0), keepdims=1)
    _, _, result = repeat(op, highest, [op.Mul(x, slope) + start, one, result], step)
    if family.limits is None:
        return result
    return op.Where(op.Greater(degree, family.limits[0 if narrow else 1]), math.nan, result)


for _name, _family in _FAMILIES.items():
    lower(f"aten.special_{_name}", family=_family, shifted=False)(polynomial)
    if _family.a == (0, 2) and _family.c == (0, 1):
        lower(f"aten.special_shifted_{_name}", family=_family, shifted=True)(polynomial)
