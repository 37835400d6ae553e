"""Spectra: Fourier transforms of reals and of pairs, the short-time one there and back, and all of ``torch.fft``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.complex import as_pairs, is_complex, marked, part
from tonnx.lowering.ops.complex import conj
from tonnx.lowering.rules import lower
from tonnx.lowering.values import is_float

NONE, BY_ROOT, BY_COUNT = 0, 1, 2
"""PyTorch's numbers for what a transform is divided by."""


def factor(norm: str | None, forward: bool) -> int:
    """The number for a norm by name."""
    if norm == "ortho":
        return BY_ROOT
    return BY_COUNT if (norm == "forward") == forward else NONE


def _number(op: Builder, size: Size, dtype: ir.DataType | None) -> ir.Value:
    return op.cast(op.scalar(size), dtype or T.FLOAT)


def _transformed(op: Builder, x: ir.Value, axes: Sequence[int], forward: bool) -> ir.Value:
    """Pairs to pairs along some axes, without any factor."""
    assert x.shape is not None
    for axis in axes:
        size = op.size(x, axis)
        spectrum = op.DFT(x, None, op.constant(axis, T.INT64), inverse=int(not forward), _shape=x.shape.dims)
        # The inverse of ONNX is divided by the size.
        x = spectrum if forward else op.Mul(spectrum, _number(op, size, x.dtype))
    return x


def _normalised(op: Builder, x: ir.Value, counts: Sequence[Size], normalization: int) -> ir.Value:
    if normalization == NONE:
        return x
    count = _number(op, op.product(counts), x.dtype)
    return op.Div(x, op.Sqrt(count) if normalization == BY_ROOT else count)


@lower("aten._fft_c2c@complex")
def fft_c2c(op: Builder, x: ir.Value, dim: Sequence[int], normalization: int, forward: bool) -> ir.Value:
    axes = [d % (op.rank(x) - 1) for d in dim]
    counts = [op.size(x, axis) for axis in axes]
    return marked(op, _normalised(op, _transformed(op, x, axes, forward), counts, normalization))


@lower("aten._fft_r2c@complex")
def fft_r2c(op: Builder, x: ir.Value, dim: Sequence[int], normalization: int, onesided: bool) -> ir.Value:
    """The last of the axes first, where a half says all of a real signal."""
    x = x if is_float(x.dtype) else op.cast(x, T.FLOAT)
    axes = [d % op.rank(x) for d in dim]
    counts = [op.size(x, axis) for axis in axes]
    *others, last = axes
    spectrum = _transformed(op, of_reals(op, op.Unsqueeze(x, [-1]), last, onesided), others, True)
    return marked(op, _normalised(op, spectrum, counts, normalization))


def of_reals(op: Builder, x: ir.Value, axis: int, onesided: bool) -> ir.Value:
    """Reals with a last axis of size 1 to pairs."""
    assert x.shape is not None
    size = op.size(x, axis)
    dims = [*x.shape.dims[:-1], 2]
    if onesided:
        dims[axis] = size // 2 + 1 if isinstance(size, int) else ir.SymbolicDim(None)
    return op.DFT(x, None, op.constant(axis, T.INT64), onesided=int(onesided), _shape=dims)


@lower("aten._fft_c2r@complex")
def fft_c2r(op: Builder, x: ir.Value, dim: Sequence[int], normalization: int, last_dim_size: Size) -> ir.Value:
    """The half that is missing is the mirror image of the other; then all is transformed and the real part kept."""
    *others, last = (d % (op.rank(x) - 1) for d in dim)
    counts = [*(op.size(x, axis) for axis in others), last_dim_size]
    spectrum = _transformed(op, x, others, False)
    return _normalised(op, _real_signal(op, spectrum, last, last_dim_size), counts, normalization)


def _real_signal(op: Builder, spectrum: ir.Value, axis: int, count: Size) -> ir.Value:
    """The signal of which ``spectrum`` is the first half, without any factor."""
    half = sizes.add(op, sizes.divide(op, count, 2), 1)
    kept = sizes.cut(op, spectrum, axis, 0, half)
    # From the one before the middle down to the second.
    start = sizes.add(op, sizes.divide(op, sizes.add(op, count, 1), 2), -1)
    mirror = op.Slice(kept, op.vector([start]), [0], [axis], [-1])
    whole = op.Concat(kept, op.Mul(mirror, op.constant([1.0, -1.0], kept.dtype)), axis=axis)
    dims = list(spectrum.shape.dims)  # type: ignore[union-attr]
    dims[axis] = count if isinstance(count, int) else ir.SymbolicDim(None)
    whole.shape = ir.Shape(dims)
    # A real spectrum at both ends: PyTorch leaves their imaginary parts out.
    return part(op, _transformed(op, whole, [axis], False), 0)


# Short-time


def _window(op: Builder, window: ir.Value | None, length: int, n_fft: int, dtype: ir.DataType) -> ir.Value:
    """The window in the middle of as many zeros as a frame has room for."""
    if window is None:
        window = op.constant(np.ones(length), dtype)
    window = op.cast(window, dtype)
    if length == n_fft:
        return window
    before = (n_fft - length) // 2
    return op.Pad(window, [before, n_fft - length - before])


@lower("aten.stft", "aten.stft.default@complex", "aten.stft@complex")
def stft(
    op: Builder,
    x: ir.Value,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: ir.Value | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> ir.Value:
    """Spectra of windows: (signals, frequencies, windows), and real and imaginary parts unless they are complex."""
    if is_complex(x) or is_complex(window) or align_to_window:
        raise UnsupportedArgument("stft of complex signals or windows, or aligned to the window")
    single = op.rank(x) == 1
    signal = op.Unsqueeze(x, [0]) if single else x
    hop = n_fft // 4 if hop_length is None else hop_length
    assert x.dtype is not None
    shape = _window(op, window, n_fft if win_length is None else win_length, n_fft, x.dtype)
    rows = op.Mul(_frames(op, signal, n_fft, hop), shape)
    spectra = of_reals(op, op.Unsqueeze(rows, [-1]), 2, onesided is None or onesided)
    turned = op.Transpose(spectra, perm=[0, 2, 1, 3])
    if normalized:
        turned = op.Div(turned, math.sqrt(n_fft))
    turned = op.Squeeze(turned, [0]) if single else turned
    return marked(op, turned) if return_complex else turned


def _frames(op: Builder, x: ir.Value, length: int, hop: int) -> ir.Value:
    """[signals, time] → [signals, windows, length]."""
    size = op.size(x, 1)
    if isinstance(size, int):
        count = (size - length) // hop + 1
        return op.Gather(x, np.arange(count)[:, None] * hop + np.arange(length), axis=1)
    begins = op.Range(op.constant(0, T.INT64), op.Sub(op.scalar(size), length - 1), op.constant(hop, T.INT64))
    return op.Gather(x, op.Add(op.Unsqueeze(begins, [1]), op.constant(np.arange(length), T.INT64)), axis=1)


@lower("aten.istft@complex", unused="onesided")
def istft(
    op: Builder,
    x: ir.Value,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: ir.Value | None = None,
    center: bool = True,
    normalized: bool = False,
    length: int | None = None,
    return_complex: bool = False,
) -> ir.Value:
    """Windows added up where they overlap, divided by what the windows themselves add up to."""
    if return_complex or is_complex(window):
        raise UnsupportedArgument("istft to complex signals")
    single = op.rank(x) == 3
    spectra = op.Transpose(op.Unsqueeze(x, [0]) if single else x, perm=[0, 2, 1, 3])
    assert x.dtype is not None
    hop = n_fft // 4 if hop_length is None else hop_length
    shape = _window(op, window, n_fft if win_length is None else win_length, n_fft, x.dtype)
    # Of a spectrum of both sides PyTorch reads one.
    rows = _real_signal(op, sizes.cut(op, spectra, 2, 0, n_fft // 2 + 1), 2, n_fft)
    rows = op.Div(rows, math.sqrt(n_fft) if normalized else float(n_fft))
    added = overlapped(op, op.Mul(rows, shape), n_fft, hop)
    weight = op.Expand(op.Mul(shape, shape), op.vector([1, op.size(rows, 1), n_fft]))
    signal = op.Div(added, overlapped(op, weight, n_fft, hop))
    start = n_fft // 2 if center else 0
    signal = _trimmed(op, signal, start, length)
    return op.Squeeze(signal, [0]) if single else signal


def overlapped(op: Builder, rows: ir.Value, length: int, hop: int) -> ir.Value:
    """[signals, windows, length] → [signals, time]: a transposed convolution that puts each number in its place."""
    place = op.constant(np.eye(length)[:, None, :], rows.dtype)
    added = op.ConvTranspose(op.Transpose(rows, perm=[0, 2, 1]), place, strides=[hop], kernel_shape=[length])
    return op.Squeeze(added, [1])


def _trimmed(op: Builder, x: ir.Value, count: int, length: int | None) -> ir.Value:
    """Without the padding at both ends, or as long as was asked for, with zeros where there is no more."""
    if length is None:
        return op.Slice(x, [count], [-count], [1]) if count else x
    return op.Slice(resized(op, x, 1, count + length), [count], [count + length], [1])


def resized(op: Builder, x: ir.Value, axis: int, count: Size) -> ir.Value:
    """Cut, or filled up with zeros, along one axis."""
    size = op.size(x, axis)
    if isinstance(size, int) and size == count:
        return x
    pairs = is_complex(x)
    changed = sizes.cut(op, x, axis, 0, count)
    if not (isinstance(size, int) and isinstance(count, int) and size >= count):
        missing = sizes.larger(op, sizes.subtract(op, count, size), 0)
        none = [0] * op.rank(x)  # for all axes, as in `beside_zero`
        changed = op.Pad(changed, op.vector([*none, *none[:axis], missing, *none[axis + 1 :]]))
    dims = list(x.shape.dims)  # type: ignore[union-attr]
    dims[axis] = count if isinstance(count, int) else ir.SymbolicDim(None)
    if changed.const_value is None:
        changed.shape = ir.Shape(dims)
    return marked(op, changed) if pairs else changed


# ``torch.fft``: transforms of signals that are cut or filled up to a length first


def _axes(op: Builder, x: ir.Value, s: Sequence[Size] | None, dim: int | Sequence[int] | None) -> list[int]:
    """The axes to transform: those asked for, or the last ones that have a size, or all."""
    rank = op.rank(x) - is_complex(x)
    if dim is None:
        return list(range(rank)) if s is None else list(range(rank - len(s), rank))
    return [d % rank for d in ([dim] if isinstance(dim, int) else dim)]


def _of_sizes(op: Builder, x: ir.Value, s: Sequence[Size] | None, axes: Sequence[int]) -> ir.Value:
    """The signal cut or filled up to the sizes that were asked for; -1 keeps a size."""
    for axis, count in zip(axes, s or (), strict=s is not None):
        if not (isinstance(count, int) and count == -1):
            x = resized(op, x, axis, count)
    return x


def _family(name: str, kind: Callable[..., ir.Value], *, forward: bool) -> None:
    """Enter a transform of one axis, of two and of any, for signals of reals and of complex numbers."""

    def transform(
        op: Builder,
        x: ir.Value,
        n: Size | None = None,
        s: Sequence[Size] | None = None,
        dim: int | Sequence[int] | None = None,
        norm: str | None = None,
        *,
        default: Sequence[int] | None,
    ) -> ir.Value:
        s = s if n is None else [n]
        axes = _axes(op, x, s, default if dim is None else dim)
        return kind(op, x, s, axes, factor(norm, forward), forward)

    for suffix, default in (("", (-1,)), ("2", (-2, -1)), ("n", None)):
        lower(f"aten.fft_{name}{suffix}", f"aten.fft_{name}{suffix}@complex", default=default)(transform)


def _to_all(op: Builder, x: ir.Value, s: Sequence[Size] | None, axes: list[int], by: int, forward: bool) -> ir.Value:
    x = _of_sizes(op, x, s, axes)
    if not axes:
        return as_pairs(op, x)
    if not is_complex(x) and forward:
        return fft_r2c(op, x, axes, by, False)
    return fft_c2c(op, as_pairs(op, x), axes, by, forward)


def _to_half(op: Builder, x: ir.Value, s: Sequence[Size] | None, axes: list[int], by: int, forward: bool) -> ir.Value:
    spectrum = fft_r2c(op, _of_sizes(op, x, s, axes), axes, by, True)
    return spectrum if forward else conj(op, spectrum)  # of reals, the inverse is the mirror image


def _to_reals(op: Builder, x: ir.Value, s: Sequence[Size] | None, axes: list[int], by: int, forward: bool) -> ir.Value:
    """Forwards (hfft) it is that of the mirror image."""
    x = as_pairs(op, x)
    *others, last = axes
    count = None if s is None else s[-1]
    if count is None or (isinstance(count, int) and count == -1):
        count = sizes.multiply(op, sizes.add(op, op.size(x, last), -1), 2)
    x = resized(op, x, last, sizes.add(op, sizes.divide(op, count, 2), 1))
    x = _of_sizes(op, x, None if s is None else s[:-1], others)
    if forward:
        x = conj(op, x)
    if isinstance(count, int) and count == 1:
        return part(op, fft_c2c(op, x, axes, by, False), 0)
    return fft_c2r(op, x, axes, by, count)


_family("fft", _to_all, forward=True)
_family("ifft", _to_all, forward=False)
_family("rfft", _to_half, forward=True)
_family("ihfft", _to_half, forward=False)
_family("irfft", _to_reals, forward=False)
_family("hfft", _to_reals, forward=True)
