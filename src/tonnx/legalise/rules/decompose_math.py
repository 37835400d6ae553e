"""Arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.legalise.node_view import Blocked, NodeView, constant_of
from tonnx.legalise.table import down, formula
from tonnx.legalise.versioned_ops import FLOATS, clip, fixed, not_a_number, number, reduce, rounded, unsqueeze

_SAME_BITS = ({T.INT8, T.UINT8}, {T.INT16, T.UINT16}, {T.INT32, T.UINT32}, {T.INT64, T.UINT64})


@down("BitCast", 26)
def bit_cast(op: Builder, node: NodeView) -> ir.Value:
    """Between the signed and the unsigned integer of a width, Cast keeps the bits."""
    before, after = node.dtype("input"), T(node.attr("to"))
    if before == after:
        return op.Identity(node.need("input"))
    from_bool = before == T.BOOL and after in (T.INT8, T.UINT8)
    if not from_bool and not any(before in pair and after in pair for pair in _SAME_BITS):
        raise Blocked(f"nothing older reads the bits of {before.name.lower()} as {after.name.lower()}")
    return op.Cast(node.need("input"), to=int(after))


def along_axis(op: Builder, node: NodeView, accumulate: Callable[[int], ir.Value]) -> ir.Value:
    """A cumulative operator, whose axis is an input: known only at run time, it is done along all and one is chosen."""
    rank, axis = node.rank("x"), node.need("axis")
    known = np.zeros(1, np.int64) if rank == 1 else constant_of(axis)
    if known is not None:
        return accumulate(int(known.item()) % rank)
    axis = op.Cast(op.Reshape(axis, op.constant([1], T.INT64)), to=int(T.INT64))
    axis = op.Where(op.Less(axis, op.constant(0, T.INT64)), axis + rank, axis)
    result = accumulate(0)
    for other in range(1, rank):
        result = op.Where(op.Equal(axis, op.constant(other, T.INT64)), accumulate(other), result)
    return result


@down("CumProd", 26)
def cumulative_product(op: Builder, node: NodeView) -> ir.Value:
    """A Scan that multiplies: the same order of operations, and right for zeros and negative numbers."""
    options = {name: bool(node.attr(name, 0)) for name in ("exclusive", "reverse")}
    return along_axis(op, node, lambda axis: accumulated(op, node.need("x"), axis, "Mul", **options))


def accumulated(op: Builder, x: ir.Value, axis: int, combine: str, *, exclusive: bool, reverse: bool) -> ir.Value:
    """A Scan along an axis that adds ("Add") or multiplies ("Mul") as it goes."""
    dtype = x.dtype
    assert dtype is not None and x.shape is not None
    others = [size for i, size in enumerate(op.sizes(x)) if i != axis]
    shape = [dim for i, dim in enumerate(x.shape) if i != axis]
    start = op.Expand(op.constant(1 if combine == "Mul" else 0, dtype), op.vector(others))
    body = op.inner("accumulate", [("so_far", dtype, shape), ("next", dtype, shape)])
    before, element = body.graph.inputs
    with body:
        after = getattr(body, combine)(before, element)
        shown = body.Identity(before if exclusive else after)
    body.graph.outputs.extend([after, shown])
    direction = [int(reverse)]
    _, result = op.Scan(
        start,
        x,
        body=body.graph,
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_output_axes=[axis],
        scan_input_directions=direction,
        scan_output_directions=direction,
        _outputs=2,
    )
    result.dtype, result.shape = dtype, x.shape
    return result


_LARGEST_TRIANGLE = 1024


@down("CumSum", 11)
def cumulative_sum(op: Builder, node: NodeView) -> ir.Value:
    """A product with a triangle of ones; a Scan that adds where that would be large."""
    return along_axis(op, node, lambda axis: _sums(op, node, axis))


def _sums(op: Builder, node: NodeView, axis: int) -> ir.Value:
    x, rank = node.need("x"), node.rank("x")
    exclusive, reverse = bool(node.attr("exclusive", 0)), bool(node.attr("reverse", 0))
    size = fixed(x, axis)
    if size is None or size > _LARGEST_TRIANGLE:
        return accumulated(op, x, axis, "Add", exclusive=exclusive, reverse=reverse)
    # Entry (i, j): whether element i is part of sum j.
    ones = np.triu(np.ones((size, size)), 1 if exclusive else 0)
    triangle = op.constant(ones.T if reverse else ones, node.dtype("x"))
    if axis == rank - 1:
        return op.MatMul(x, triangle)
    order = [a for a in range(rank) if a != axis] + [axis]
    if axis == rank - 2:
        return op.MatMul(op.constant(ones if reverse else ones.T, node.dtype("x")), x)
    back = [order.index(a) for a in range(rank)]
    return op.Transpose(op.MatMul(op.Transpose(x, perm=order), triangle), perm=back)


@down("Det", 11)
def determinant(op: Builder, node: NodeView) -> ir.Value:
    """Leibniz' sum over all permutations, for matrices of up to five rows."""
    x, rank = node.need("X"), node.rank("X")
    size = fixed(x, rank - 1)
    if size is None or not 1 <= size <= 5:
        raise Blocked("only matrices of a known size of up to 5 × 5 are written out")
    permutations = list(itertools.permutations(range(size)))
    places = [[row * size + column for row, column in enumerate(p)] for p in permutations]
    signs = [(-1.0) ** sum(a > b for a, b in itertools.combinations(p, 2)) for p in permutations]
    flat = op.Reshape(x, [0] * (rank - 2) + [size * size])
    terms = reduce(op, "ReduceProd", op.Gather(flat, places, axis=rank - 2), [rank - 1], keepdims=False)
    return reduce(op, "ReduceSum", terms * op.constant(signs, node.dtype("X")), [rank - 2], keepdims=False)


formula(
    down("Round", 11),
    "The whole number below, plus one where the rest is more than a half, or is a half and that number odd.",
    rounded,
)


@down("IsInf", 10)
def is_infinite(op: Builder, node: NodeView) -> ir.Value:
    """Beyond the largest number."""
    x = node.need("X")
    largest = float(ml_dtypes.finfo(node.dtype("X").numpy()).max)
    above = op.Greater(x, number(op, largest, x)) if node.attr("detect_positive", 1) else None
    below = op.Less(x, number(op, -largest, x)) if node.attr("detect_negative", 1) else None
    if above is None and below is None:
        return op.Greater(x, number(op, np.inf, x))
    if above is None or below is None:
        return above if above is not None else below  # type: ignore[return-value]
    return op.Or(above, below)


@down("Mod", 10)
def modulo(op: Builder, node: NodeView) -> ir.Value:
    """What a division leaves: with the sign of the divisor, or (fmod) with that of the dividend.

    Of fractions the quotient is rounded, so the rest of a huge number is not exact, as fmod's is.
    """
    x, y, dtype = node.need("A"), node.need("B"), node.dtype("A")
    if dtype in FLOATS:
        quotient = x / y
        # Rounded towards zero.
        below, above = op.Floor(quotient), op.Ceil(quotient)
        return x - y * op.Where(op.Less(quotient, number(op, 0, quotient)), above, below)
    unsigned = dtype in (T.UINT8, T.UINT16, T.UINT32, T.UINT64)
    # Not y · (1 / y): ONNX Runtime 1.31 makes that y / y, for integers too (its DivMulFusion).
    negated = x.const_value is not None and not unsigned
    rest = x + y * op.Neg(op.Div(x, y)) if negated else x - y * op.Div(x, y)
    if node.attr("fmod", 0) or unsigned:
        return rest
    moved = rest + y
    return moved - y * op.Div(moved, y)


@down("Sign", 9)
def sign(op: Builder, node: NodeView) -> ir.Value:
    """(x > 0) − (x < 0)."""
    x, dtype = node.need("input"), node.dtype("input")
    zero = number(op, 0, x)
    above = op.Cast(op.Greater(x, zero), to=int(dtype))
    if dtype in (T.UINT8, T.UINT16, T.UINT32, T.UINT64):
        return above
    return above - op.Cast(op.Less(x, zero), to=int(dtype))


formula(down("IsNaN", 9), "Neither below 1 nor above 0.", not_a_number)


# atanh(erf(x)) = x·(c₀ + c₁x² + … + c₆x¹²), fitted so that erf is right to 2.5e-7 of itself for all float32 numbers.
_ERF = (
    1.128379274183476,
    0.10276905681685897,
    -0.0001918329415547538,
    -0.0006197829555168697,
    8.763673407297789e-05,
    -5.668385548055086e-06,
    1.418474144768249e-07,
)
_ERF_IS_ONE = 4.2


@down("Erf", 9)
def error_function(op: Builder, node: NodeView) -> ir.Value:
    """tanh of an odd polynomial: as exact as float32 is."""
    if node.dtype("input") == T.DOUBLE:
        raise Blocked("erf can be written out with the precision of float32, not of float64")
    x = clip(op, node.need("input"), -_ERF_IS_ONE, _ERF_IS_ONE)
    square = x * x
    polynomial = square * _ERF[-1] + _ERF[-2]
    for coefficient in _ERF[-3::-1]:
        polynomial = polynomial * square + coefficient
    return op.Tanh(polynomial * x)


formula(down("Cosh", 9), "(eˣ + e⁻ˣ)/2.", lambda op, x: (op.Exp(x) + op.Exp(-x)) * 0.5)
formula(
    down("Sinh", 9),
    "tanh(x/2)·(cosh(x) + 1): no cancellation near 0.",
    lambda op, x: op.Tanh(x * 0.5) * ((op.Exp(x) + op.Exp(-x)) * 0.5 + 1.0),
)


@down("Asinh", 9)
def asinh(op: Builder, node: NodeView) -> ir.Value:
    """sign(x)·ln(|x| + √(x² + 1))."""
    x = node.need("input")
    zero, size = number(op, 0, x), op.Abs(x)
    dtype = int(node.dtype("input"))
    signs = op.Cast(op.Greater(x, zero), to=dtype) - op.Cast(op.Less(x, zero), to=dtype)
    return op.Log(size + op.Sqrt(x * x + 1.0)) * signs


formula(down("Acosh", 9), "ln(x + √(x − 1)·√(x + 1)).", lambda op, x: op.Log(x + op.Sqrt(x - 1.0) * op.Sqrt(x + 1.0)))
formula(down("Atanh", 9), "½·ln((1 + x)/(1 − x)).", lambda op, x: op.Log((x + 1.0) / (number(op, 1, x) - x)) * 0.5)


@down("MatMul", 9)
def integer_product(op: Builder, node: NodeView) -> ir.Value | None:
    """Before 9 only fractions were multiplied so; of integers, all products and their sums."""
    if node.dtype("A") in FLOATS:
        return None
    a, b = node.need("A"), node.need("B")
    rows, columns = node.rank("A") > 1, node.rank("B") > 1
    if columns:
        a = unsqueeze(op, a, node.rank("A"))
        if rows:
            b = unsqueeze(op, b, node.rank("B") - 2)
    # (…, rows, inner, columns), without those that are not there.
    products = a * b
    return reduce(op, "ReduceSum", products, [op.rank(products) - (2 if columns else 1)], keepdims=False)
