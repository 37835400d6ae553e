"""Complex numbers and spectra. Here they are pairs of reals on a last axis of size 2; ONNX has them nowhere else.

A rule ``name@complex`` is the one for operands that are such pairs; what has none is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Ints, Number, Sizes, Value, Values, direct, lower
from tonnx.frontends.paddle.ops.linear import matmul
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.complex import part, split
from tonnx.lowering.ops import fft as torch_fft
from tonnx.lowering.ops import linear as like_torch
from tonnx.lowering.ops import special as torch_special
from tonnx.lowering.values import axis_of

PARTS = {T.COMPLEX64: T.FLOAT, T.COMPLEX128: T.DOUBLE}
"""What the two parts of a complex number are."""


def paired(op: Builder, x: ir.Value) -> ir.Value:
    """Reals as complex numbers."""
    last = op.Unsqueeze(x, [-1])
    return op.Concat(last, op.Mul(last, 0.0), axis=-1)


def _axis(op: Builder, x: ir.Value, axis: int) -> int:
    """An axis as Paddle counts it, which does not know of the pairs."""
    return axis % (op.rank(x) - 1)


# Made, and taken apart

direct("as_complex(x)", lambda op, x: x)
direct("as_real@complex(x)", lambda op, x: x)
direct("real(x)", lambda op, x: x)
direct("conj(x)", lambda op, x: x)
direct("real@complex(x)", lambda op, x: part(op, x, 0))
direct("imag@complex(x)", lambda op, x: part(op, x, 1))
direct("abs@complex(x)", lambda op, x: op.ReduceL2(x, [-1], keepdims=0))
direct("angle@complex(x)", lambda op, x: torch_special.atan2(op, part(op, x, 1), part(op, x, 0)))
direct("angle(x)", torch_special.angle)


def joined(op: Builder, real: ir.Value, imaginary: ir.Value) -> ir.Value:
    return op.Concat(op.Unsqueeze(real, [-1]), op.Unsqueeze(imaginary, [-1]), axis=-1)


@lower("complex")
def complex_(op: Builder, real: Value, imag: Value) -> ir.Value:
    return op.Concat(*(op.Unsqueeze(op.Add(p, op.Mul(q, 0.0)), [-1]) for p, q in ((real, imag), (imag, real))), axis=-1)


@lower("cast@complex")
def cast(op: Builder, x: Value, *, dtype: ir.DataType) -> ir.Value:
    return op.cast(x, PARTS[dtype]) if dtype in PARTS else op.cast(part(op, x, 0), dtype)


@lower("conj@complex")
def conj(op: Builder, x: Value) -> ir.Value:
    return op.Mul(x, op.constant([1.0, -1.0], x.dtype))


# Arithmetic

direct("add@complex(x, y)", lambda op, x, y: op.Add(x, y), unused="axis")
direct("subtract@complex(x, y)", lambda op, x, y: op.Sub(x, y), unused="axis")
direct(
    "divide@complex(x, y)",
    lambda op, x, y: op.Div(multiply(op, x, conj(op, y)), op.ReduceSumSquare(y, [-1])),
    unused="axis",
)


@lower("multiply@complex", unused="axis")
def multiply(op: Builder, x: Value, y: Value) -> ir.Value:
    (a, b), (c, d) = split(op, x), split(op, y)
    return op.Concat(op.Sub(op.Mul(a, c), op.Mul(b, d)), op.Add(op.Mul(a, d), op.Mul(b, c)), axis=-1)


@lower("scale@complex", unused="bias_after_scale")
def scale(op: Builder, x: Value, scale: Number = 1.0) -> ir.Value:
    return op.Mul(x, op.cast(scale, x.dtype) if isinstance(scale, ir.Value) else float(scale))


# Arrangement

direct("squeeze@complex(x, axis: Ints)", lambda op, x, axis: op.Squeeze(x, [_axis(op, x, a) for a in axis]))
direct(
    "unsqueeze@complex(x, axis: Ints)",
    lambda op, x, axis: op.Unsqueeze(x, [a % (op.rank(x) - 1 + len(axis)) for a in axis]),
)
direct(
    "transpose@complex(x, *, perm: Ints)",
    lambda op, x, perm: op.Transpose(x, perm=[*(_axis(op, x, axis) for axis in perm), op.rank(x) - 1]),
)
direct("concat@complex(x: Values, axis: int = 0)", lambda op, x, axis: op.Concat(*x, axis=_axis(op, x[0], axis)))


@lower("reshape@complex")
def reshape(op: Builder, x: Value, shape: Sizes) -> ir.Value:
    kept: list[Size] = [op.size(x, i) if isinstance(s, int) and s == 0 else s for i, s in enumerate(shape)]
    return op.reshape(x, [*kept, 2])


@lower("slice@complex")
def slice_(op: Builder, input: Value, starts: Sizes, ends: Sizes, *, axes: Ints, decrease_axis: Ints = ()) -> ir.Value:
    cut = op.Slice(input, op.vector(starts), op.vector(ends), [_axis(op, input, a) for a in axes])
    return op.Squeeze(cut, [_axis(op, input, a) for a in decrease_axis]) if len(decrease_axis) else cut


# Products

direct(
    "matmul@complex(x, y, *, transpose_x: bool = False, transpose_y: bool = False)",
    lambda op, x, y, x_too, y_too: _products(op, x, y, partial(matmul, op, transpose_x=x_too, transpose_y=y_too)),
)
direct("bmm@complex(x, y)", lambda op, x, y: _products(op, x, y, op.MatMul))
direct("mv@complex(x, vec)", lambda op, x, vec: _products(op, x, vec, op.MatMul))


@lower("einsum@complex")
def einsum(op: Builder, operands: Values, *, equation: str) -> ir.Value:
    if len(operands) != 2:
        raise UnsupportedArgument(f"einsum of {len(operands)} complex tensors", hint="write it as several of two")
    return _products(op, operands[0], operands[1], lambda a, b: like_torch.einsum(op, equation, [a, b]))


def _products(op: Builder, x: ir.Value, y: ir.Value, multiply: Callable[..., ir.Value]) -> ir.Value:
    """(a + ib)(c + id), each product that of reals."""
    (a, b), (c, d) = ((part(op, v, 0), part(op, v, 1)) for v in (x, y))
    return joined(op, op.Sub(multiply(a, c), multiply(b, d)), op.Add(multiply(a, d), multiply(b, c)))


@lower("exp@complex")
def exp(op: Builder, x: Value) -> ir.Value:
    angle, length = part(op, x, 1), op.Exp(part(op, x, 0))
    return joined(op, op.Mul(length, op.Cos(angle)), op.Mul(length, op.Sin(angle)))


# Spectra


@lower("fft_c2c@complex")
def fft_c2c(op: Builder, x: Value, *, axes: Ints, normalization: str = "backward", forward: bool = True) -> ir.Value:
    return torch_fft.fft_c2c(op, x, axes, torch_fft.factor(normalization, forward), forward)


@lower("fft_r2c", unused="last_dim_size")
def fft_r2c(
    op: Builder, x: Value, *, axes: Ints, normalization: str = "backward", forward: bool = True, onesided: bool = True
) -> ir.Value:
    spectrum = torch_fft.fft_r2c(op, x, axes, torch_fft.factor(normalization, forward), onesided)
    return spectrum if forward else conj(op, spectrum)  # of reals, the inverse is the mirror image


@lower("fft_c2r@complex")
def fft_c2r(
    op: Builder, x: Value, *, axes: Ints, normalization: str = "backward", forward: bool = True, last_dim_size: int = 0
) -> ir.Value:
    (half,) = sizes.known("the inverse of a spectrum of a size", op.size(x, _axis(op, x, axes[-1])))
    count = last_dim_size if last_dim_size > 0 else 2 * (half - 1)
    # The transform of a real signal runs backwards here; forwards (hfft) is that of the mirror image.
    return torch_fft.fft_c2r(op, conj(op, x) if forward else x, axes, torch_fft.factor(normalization, forward), count)


@lower("frame")
def frame(op: Builder, x: Value, *, frame_length: int, hop_length: int, axis: int = -1) -> ir.Value:
    """Windows of a signal: (…, length, frames), or (frames, length, …) along the first axis."""
    at = axis_of(op, x, axis)
    count = sizes.add(op, sizes.divide(op, sizes.subtract(op, op.size(x, at), frame_length), hop_length), 1)
    start = op.Mul(sizes.arange(op, count), hop_length)
    within = op.constant(np.arange(frame_length, dtype=np.int64))
    if at == 0 and axis == 0:
        return op.Gather(x, op.Add(op.Unsqueeze(start, [1]), within), axis=0)
    return op.Gather(x, op.Add(op.Unsqueeze(within, [1]), start), axis=at)


@lower("overlap_add")
def overlap_add(op: Builder, x: Value, *, hop_length: int, axis: int = -1) -> ir.Value:
    """Windows (…, length, frames), or (frames, length, …) along the first axis, added up to a signal."""
    is_first, rank = axis == 0 and op.rank(x) > 1, op.rank(x)
    order = [*range(2, rank), 0, 1] if is_first else [*range(rank - 2), rank - 1, rank - 2]
    rows = op.Transpose(x, perm=order)
    (length,) = sizes.known("windows of a length", op.size(rows, -1))
    before = op.sizes(rows)[:-2]
    flat = op.reshape(rows, [op.product(before), op.size(rows, -2), length])
    added = torch_fft.overlapped(op, flat, length, hop_length)
    signal = op.reshape(added, [*before, op.size(added, 1)])
    return op.Transpose(signal, perm=[rank - 2, *range(rank - 2)]) if is_first else signal


@lower("stft")
def stft(
    op: Builder, x: Value, window: Value, *, n_fft: int, hop_length: int, normalized: bool, onesided: bool
) -> ir.Value:
    """Spectra of windows: (signals, frequencies, windows)."""
    framed = frame(op, x, frame_length=n_fft, hop_length=hop_length)
    rank = op.rank(framed)
    rows = op.Mul(op.Transpose(framed, perm=[*range(rank - 2), rank - 1, rank - 2]), window)
    spectra = torch_fft.of_reals(op, op.Unsqueeze(rows, [-1]), rank - 1, onesided)
    turned = op.Transpose(spectra, perm=[*range(rank - 2), rank - 1, rank - 2, rank])
    return op.Div(turned, math.sqrt(n_fft)) if normalized else turned
