"""Operations on the bits of integers, from arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tonnx.build import Builder
from tonnx.legalise.call import Call, constant_of
from tonnx.legalise.forms import reduce, unsqueeze
from tonnx.legalise.table import down

T = ir.DataType

_UNSIGNED = (T.UINT8, T.UINT16, T.UINT32, T.UINT64)
_HALF_BITS = 32


@down("BitwiseNot", 18)
def bitwise_not(op: Builder, node: Call) -> ir.Value:
    """-1 − x in two's complement; the largest number − x without sign."""
    x, dtype = node.need("X"), node.dtype("X")
    ones = int(np.iinfo(dtype.numpy()).max) if dtype in _UNSIGNED else -1
    return op.Sub(op.constant(np.asarray(ones, dtype.numpy())), x)


@down("BitwiseAnd", 18)
def bitwise_and(op: Builder, node: Call) -> ir.Value:
    """Bit by bit, or with Mod where the mask is known."""
    return _and(op, node.need("A"), node.need("B"))


@down("BitwiseOr", 18)
def bitwise_or(op: Builder, node: Call) -> ir.Value:
    """a + b − (a & b)."""
    a, b = node.need("A"), node.need("B")
    return a + b - _and(op, a, b)


@down("BitwiseXor", 18)
def bitwise_xor(op: Builder, node: Call) -> ir.Value:
    """a + b − 2·(a & b)."""
    a, b = node.need("A"), node.need("B")
    both = _and(op, a, b)
    return a + b - (both + both)


@down("BitShift", 11)
def bit_shift(op: Builder, node: Call) -> ir.Value:
    """Times or divided by a power of two."""
    x, by, dtype = node.need("X"), node.need("Y"), node.dtype("X")
    known = constant_of(by)
    if known is not None:
        factor = op.constant(np.left_shift(np.ones_like(known), known))
    else:  # exact in double for every power that 64 bits hold
        factor = op.Cast(op.Pow(op.constant(2.0, T.DOUBLE), op.Cast(by, to=int(T.DOUBLE))), to=int(dtype))
    return op.Mul(x, factor) if node.attr("direction") == "LEFT" else op.Div(x, factor)


def _and(op: Builder, a: ir.Value, b: ir.Value) -> ir.Value:
    for x, mask in ((a, b), (b, a)):
        known = constant_of(mask)
        if known is not None and known.size == 1 and (result := _masked(op, x, known)) is not None:
            return result
    assert a.dtype is not None
    weights, wide = _weights(a.dtype), []
    for x in (a, b):
        x = op.cast(x, T.INT64)
        if a.dtype in (T.INT64, T.UINT64):
            # 2^63 is no int64: two halves of 32 bits, side by side.
            low = op.Mod(x, 2**_HALF_BITS)
            high = op.Div(x - low, 2**_HALF_BITS)
            x = op.Concat(unsqueeze(op, low, -1), unsqueeze(op, high, -1), axis=-1)
        # Bit k is set where the rest modulo 2^(k+1) reaches 2^k; Mod is never negative here.
        powers = np.left_shift(np.int64(1), np.arange(weights.shape[-1], dtype=np.int64))
        rest = op.Mod(unsqueeze(op, x, -1), op.constant(powers * 2))
        wide.append(op.Greater(rest, op.constant(powers - 1)))
    both = op.Cast(op.And(*wide), to=int(T.INT64)) * op.constant(weights)
    summed = reduce(op, "ReduceSum", both, list(range(-weights.ndim, 0)), keepdims=False)
    return op.cast(summed, a.dtype)


def _weights(dtype: ir.DataType) -> np.ndarray:
    """What each bit counts for, as int64: the highest one of a signed number is negative."""
    if dtype in (T.INT64, T.UINT64):
        return np.left_shift(np.int64(1), np.arange(2 * _HALF_BITS, dtype=np.int64)).reshape(2, _HALF_BITS)
    bits = np.iinfo(dtype.numpy()).bits
    weights = np.left_shift(np.int64(1), np.arange(bits, dtype=np.int64))
    if dtype not in _UNSIGNED:
        weights[-1] = -weights[-1]
    return weights


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
