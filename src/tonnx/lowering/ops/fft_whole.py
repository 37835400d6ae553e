"""``torch.fft``: transforms of signals that are cut or filled up to a length first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from tonnx.ir.build import Builder, Size
from tonnx.lowering import sizes
from tonnx.lowering.complex import as_pairs, is_complex, part
from tonnx.lowering.ops.complex import conj
from tonnx.lowering.ops.fft import factor, fft_c2c, fft_c2r, fft_r2c, resized
from tonnx.lowering.rules import lower


def _rank(op: Builder, x: ir.Value) -> int:
    return op.rank(x) - is_complex(x)


def _axes(op: Builder, x: ir.Value, s: Sequence[Size] | None, dim: int | Sequence[int] | None) -> list[int]:
    """The axes to transform: those asked for, or the last ones that have a size, or all."""
    rank = _rank(op, x)
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
