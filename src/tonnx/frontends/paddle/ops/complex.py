"""Complex numbers and spectra. Here they are pairs of reals on a last axis of size 2; ONNX has them nowhere else.

A rule ``name@complex`` is the one for operands that are such pairs; what has none is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Ints, Number, Sizes, Value, Values, lower
from tonnx.ir.build import Builder, Size
from tonnx.lowering import sizes
from tonnx.lowering.ops import fft as torch_fft
from tonnx.lowering.ops import special as torch_special
from tonnx.lowering.values import is_float

T = ir.DataType


def _split(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Real and imaginary part, each with a last axis of size 1."""
    return op.Split(x, [1, 1], axis=-1, _outputs=2)  # type: ignore[no-any-return]


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


@lower("complex")
def complex_(op: Builder, real: Value, imag: Value) -> ir.Value:
    return op.Concat(*(op.Unsqueeze(op.Add(p, op.Mul(q, 0.0)), [-1]) for p, q in ((real, imag), (imag, real))), axis=-1)


@lower("as_complex")
def as_complex(op: Builder, x: Value) -> ir.Value:
    return x


@lower("as_real@complex")
def as_real(op: Builder, x: Value) -> ir.Value:
    return x


@lower("real@complex")
def real(op: Builder, x: Value) -> ir.Value:
    return op.Gather(x, 0, axis=op.rank(x) - 1)


@lower("imag@complex")
def imag(op: Builder, x: Value) -> ir.Value:
    return op.Gather(x, 1, axis=op.rank(x) - 1)


@lower("cast@complex")
def cast(op: Builder, x: Value, *, dtype: ir.DataType) -> ir.Value:
    return op.cast(x, PARTS[dtype]) if dtype in PARTS else op.cast(real(op, x), dtype)


@lower("real", "conj")
def of_reals(op: Builder, x: Value) -> ir.Value:
    return x


@lower("abs@complex")
def abs_(op: Builder, x: Value) -> ir.Value:
    return op.ReduceL2(x, [-1], keepdims=0)


@lower("angle@complex")
def angle(op: Builder, x: Value) -> ir.Value:
    return torch_special.atan2(op, imag(op, x), real(op, x))


@lower("angle")
def angle_of_reals(op: Builder, x: Value) -> ir.Value:
    return torch_special.angle(op, x)


@lower("conj@complex")
def conj(op: Builder, x: Value) -> ir.Value:
    return op.Mul(x, op.constant([1.0, -1.0], x.dtype))


# Arithmetic


@lower("multiply@complex")
def multiply(op: Builder, x: Value, y: Value, *, axis: int = -1) -> ir.Value:
    (a, b), (c, d) = _split(op, x), _split(op, y)
    return op.Concat(op.Sub(op.Mul(a, c), op.Mul(b, d)), op.Add(op.Mul(a, d), op.Mul(b, c)), axis=-1)


@lower("divide@complex")
def divide(op: Builder, x: Value, y: Value, *, axis: int = -1) -> ir.Value:
    return op.Div(multiply(op, x, conj(op, y)), op.ReduceSumSquare(y, [-1]))


@lower("add@complex")
def add(op: Builder, x: Value, y: Value, *, axis: int = -1) -> ir.Value:
    return op.Add(x, y)


@lower("subtract@complex")
def subtract(op: Builder, x: Value, y: Value, *, axis: int = -1) -> ir.Value:
    return op.Sub(x, y)


@lower("scale@complex")
def scale(op: Builder, x: Value, scale: Number = 1.0, *, bias: float = 0.0, bias_after_scale: bool = True) -> ir.Value:
    if bias:
        raise UnsupportedArgument("complex numbers plus a number")
    return op.Mul(x, op.cast(scale, x.dtype) if isinstance(scale, ir.Value) else float(scale))  # type: ignore[arg-type]


# Arrangement


@lower("transpose@complex")
def transpose(op: Builder, x: Value, *, perm: Ints) -> ir.Value:
    return op.Transpose(x, perm=[*(_axis(op, x, axis) for axis in perm), op.rank(x) - 1])


@lower("reshape@complex")
def reshape(op: Builder, x: Value, shape: Sizes) -> ir.Value:
    kept: list[Size] = [op.size(x, i) if isinstance(s, int) and s == 0 else s for i, s in enumerate(shape)]
    return op.reshape(x, [*kept, 2])


@lower("unsqueeze@complex")
def unsqueeze(op: Builder, x: Value, axis: Ints) -> ir.Value:
    return op.Unsqueeze(x, [a % (op.rank(x) - 1 + len(axis)) for a in axis])


@lower("squeeze@complex")
def squeeze(op: Builder, x: Value, axis: Ints) -> ir.Value:
    return op.Squeeze(x, [_axis(op, x, a) for a in axis])


@lower("concat@complex")
def concat(op: Builder, x: Values, axis: int = 0) -> ir.Value:
    return op.Concat(*x, axis=_axis(op, x[0], axis))


@lower("slice@complex")
def slice_(
    op: Builder, input: Value, starts: Sizes, ends: Sizes, *, axes: Ints, decrease_axis: Ints = ()
) -> ir.Value:
    cut = op.Slice(input, op.vector(starts), op.vector(ends), [_axis(op, input, a) for a in axes])
    return op.Squeeze(cut, [_axis(op, input, a) for a in decrease_axis]) if len(decrease_axis) else cut


# Spectra


def _transformed(op: Builder, x: ir.Value, axes: Sequence[int], forward: bool) -> ir.Value:
    """Pairs to pairs along some axes, without any factor."""
    for axis in axes:
        size = op.size(x, axis)
        made = op.DFT(x, None, op.constant(axis, T.INT64), inverse=int(not forward), _shape=x.shape.dims)  # type: ignore[union-attr]
        # The inverse of ONNX is divided by the size.
        x = made if forward else op.Mul(made, _number(op, size, x.dtype))
    return x


def _number(op: Builder, size: Size, dtype: ir.DataType | None) -> ir.Value:
    return op.cast(op.scalar(size), dtype or T.FLOAT)


def _normalized(op: Builder, x: ir.Value, counts: Sequence[Size], normalization: str, forward: bool) -> ir.Value:
    if normalization == "ortho":
        return op.Div(x, op.Sqrt(_number(op, op.product(counts), x.dtype)))
    if (normalization == "forward") == forward:
        return op.Div(x, _number(op, op.product(counts), x.dtype))
    return x


@lower("fft_c2c@complex")
def fft_c2c(op: Builder, x: Value, *, axes: Ints, normalization: str = "backward", forward: bool = True) -> ir.Value:
    at = [_axis(op, x, axis) for axis in axes]
    return _normalized(op, _transformed(op, x, at, forward), [op.size(x, a) for a in at], normalization, forward)


@lower("fft_r2c")
def fft_r2c(
    op: Builder,
    x: Value,
    *,
    axes: Ints,
    normalization: str = "backward",
    forward: bool = True,
    onesided: bool = True,
    last_dim_size: int = 0,
) -> ir.Value:
    """The last of the axes first, where a half says all of a real signal."""
    x = x if is_float(x.dtype) else op.cast(x, T.FLOAT)
    at = [axis % op.rank(x) for axis in axes]
    counts = [op.size(x, axis) for axis in at]
    *others, last = at
    made = torch_fft.of_reals(op, op.Unsqueeze(x, [-1]), last, onesided)
    made = _transformed(op, made, others, True)
    made = made if forward else conj(op, made)  # of reals, the inverse is the mirror image
    return _normalized(op, made, counts, normalization, forward)


@lower("fft_c2r@complex")
def fft_c2r(
    op: Builder, x: Value, *, axes: Ints, normalization: str = "backward", forward: bool = True, last_dim_size: int = 0
) -> ir.Value:
    """The half that is missing is the mirror image of the other; then all is transformed and the real part kept."""
    *others, last = (_axis(op, x, axis) for axis in axes)
    half = op.size(x, last)
    if not isinstance(half, int):
        raise UnsupportedArgument("the inverse of a spectrum whose size is known only at run time")
    count = last_dim_size if last_dim_size > 0 else 2 * (half - 1)
    # The transform of a real signal runs backwards here; forwards (hfft) is that of the mirror image.
    spectrum = conj(op, x) if forward else x
    spectrum = _transformed(op, spectrum, others, False)
    spectrum = sizes.cut(op, spectrum, last, 0, count // 2 + 1)
    mirror = op.Gather(spectrum, np.arange((count + 1) // 2 - 1, 0, -1), axis=last)
    whole = op.Concat(spectrum, conj(op, mirror), axis=last) if count > 2 else spectrum
    made = real(op, _transformed(op, whole, [last], False))
    counts = [*(op.size(x, axis) for axis in others), count]
    return _normalized(op, made, counts, normalization, forward)


@lower("stft")
def stft(
    op: Builder, x: Value, window: Value, *, n_fft: int, hop_length: int, normalized: bool, onesided: bool
) -> ir.Value:
    """Spectra of windows: (signals, frequencies, windows)."""
    from tonnx.frontends.paddle.ops.further import frame

    framed = frame(op, x, frame_length=n_fft, hop_length=hop_length)
    rank = op.rank(framed)
    rows = op.Mul(op.Transpose(framed, perm=[*range(rank - 2), rank - 1, rank - 2]), window)
    spectra = torch_fft.of_reals(op, op.Unsqueeze(rows, [-1]), rank - 1, onesided)
    made = op.Transpose(spectra, perm=[*range(rank - 2), rank - 1, rank - 2, rank])
    return op.Div(made, math.sqrt(n_fft)) if normalized else made
