"""Operations on the bits of integers, from arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.legalise.node_view import NodeView, constant_of
from tonnx.legalise.table import down
from tonnx.legalise.versioned_ops import reduce, unsqueeze

_UNSIGNED = (T.UINT8, T.UINT16, T.UINT32, T.UINT64)
_HALF = 32


@down("BitwiseNot", 18)
def bitwise_not(op: Builder, node: NodeView) -> ir.Value:
    """-1 − x in two's complement; the largest number − x without sign."""
    x, dtype = node.need("X"), node.dtype("X")
    ones = int(np.iinfo(dtype.numpy()).max) if dtype in _UNSIGNED else -1
    return op.Sub(op.constant(np.asarray(ones, dtype.numpy())), x)


@down(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), 18)
def bitwise(op: Builder, node: NodeView) -> ir.Value:
    """a & b bit by bit, or with Mod where the mask is known; of the others, no sum is larger than the result."""
    a, b = node.need("A"), node.need("B")
    both = _and(op, a, b)
    if node.op_type == "BitwiseAnd":
        return both
    return a + (b - both) if node.op_type == "BitwiseOr" else (a - both) + (b - both)


@down("BitShift", 11)
def bit_shift(op: Builder, node: NodeView) -> ir.Value:
    """Times or divided by a power of two."""
    x, by, dtype = node.need("X"), node.need("Y"), node.dtype("X")
    shifts = constant_of(by)
    if shifts is not None:
        factor = op.constant(np.left_shift(np.ones_like(shifts), shifts))
    else:  # exact in double for every power that 64 bits hold
        factor = op.Cast(op.Pow(op.constant(2.0, T.DOUBLE), op.Cast(by, to=int(T.DOUBLE))), to=int(dtype))
    return op.Mul(x, factor) if node.attr("direction") == "LEFT" else op.Div(x, factor)


def _and(op: Builder, a: ir.Value, b: ir.Value) -> ir.Value:
    for x, mask in ((a, b), (b, a)):
        array = constant_of(mask)
        if array is not None and array.size == 1 and (result := _masked(op, x, array)) is not None:
            return result
    dtype = a.dtype
    assert dtype is not None
    a, b = op.cast(a, T.INT64), op.cast(b, T.INT64)
    if dtype not in (T.INT64, T.UINT64):
        return op.cast(_bits_of_both(op, a, b, np.iinfo(dtype.numpy()).bits, dtype not in _UNSIGNED), dtype)
    # In two halves: 2^64 is no int64, and runtimes sum up integers as float64.
    half = 2**_HALF
    low_a, low_b = op.Mod(a, half), op.Mod(b, half)
    high_a, high_b = op.Div(a - low_a, half), op.Div(b - low_b, half)
    low = _bits_of_both(op, low_a, low_b, _HALF, signed=False)
    return op.cast(low + _bits_of_both(op, high_a, high_b, _HALF, signed=True) * half, dtype)


def _bits_of_both(op: Builder, a: ir.Value, b: ir.Value, bits: int, signed: bool) -> ir.Value:
    """a & b of int64 numbers of so many bits, with one more axis for the bits."""
    powers = np.left_shift(np.int64(1), np.arange(bits, dtype=np.int64))
    # Bit k is set where the rest modulo 2^(k+1) reaches 2^k; Mod is never negative here.
    is_set = (
        op.Greater(op.Mod(unsqueeze(op, x, -1), op.constant(powers * 2)), op.constant(powers - 1)) for x in (a, b)
    )
    weights = powers.copy()
    if signed:
        weights[-1] = -weights[-1]
    both = op.Cast(op.And(*is_set), to=int(T.INT64)) * op.constant(weights)
    return reduce(op, "ReduceSum", both, [-1], keepdims=False)


def _masked(op: Builder, x: ir.Value, mask: np.ndarray) -> ir.Value | None:
    """x & mask for a known mask of few runs of ones: those from bit i to bit j−1 are x mod 2^j − x mod 2^i."""
    value, info = int(mask.reshape(-1)[0]), np.iinfo(mask.dtype)
    rest = value < 0  # all but finitely many bits are set: x − (x & ~mask)
    runs = _runs(~value if rest else value)
    if len(runs) > 2 or any(2**end > info.max for _, end in runs):
        return None
    if not runs:
        return op.Identity(x) if rest else op.Sub(x, x)
    parts = []
    for start, end in runs:
        upper = op.Mod(x, op.constant(np.full(mask.shape, 2**end, mask.dtype)))
        if start:
            upper = upper - op.Mod(x, op.constant(np.full(mask.shape, 2**start, mask.dtype)))
        parts.append(upper)
    total = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return x - total if rest else total


def _runs(value: int) -> Sequence[tuple[int, int]]:
    """The runs of ones in a number: (first bit, bit after the last)."""
    runs, bit = [], 0
    while value >> bit:
        if value >> bit & 1:
            start = bit
            while value >> bit & 1:
                bit += 1
            runs.append((start, bit))
        else:
            bit += 1
    return runs
