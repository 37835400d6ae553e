"""``torch.fft``: transforms of signals that are cut or filled up to a length first."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.ir.build import Builder, Size
from tonnx.lowering import sizes
from tonnx.lowering.complex import as_pairs, is_complex, part
from tonnx.lowering.ops.complex import conj
from tonnx.lowering.ops.fft import BY_COUNT, BY_ROOT, NONE, fft_c2c, fft_c2r, fft_r2c, resized
from tonnx.lowering.rules import lower

T = ir.DataType


def _factor(norm: str | None, forward: bool) -> int:
    if norm == "ortho":
        return BY_ROOT
    return BY_COUNT if (norm == "forward") == forward else NONE


def _rank(op: Builder, x: ir.Value) -> int:
    return op.rank(x) - is_complex(x)


def _along(
    op: Builder, x: ir.Value, s: Sequence[Size] | None, dim: Sequence[int] | None
) -> tuple[ir.Value, list[int], list[Size]]:
    """The signal of the sizes that were asked for, the axes, and their sizes."""
    rank = _rank(op, x)
    if dim is None:
        axes = list(range(rank)) if s is None else list(range(rank - len(s), rank))
    else:
        axes = [d % rank for d in dim]
    wanted = [op.size(x, a) for a in axes] if s is None else list(s)
    wanted = [op.size(x, a) if isinstance(w, int) and w == -1 else w for a, w in zip(axes, wanted, strict=True)]
    for axis, count in zip(axes, wanted, strict=True):
        x = resized(op, x, axis, count)
    return x, axes, wanted


def _to_all(op: Builder, x: ir.Value, axes: Sequence[int], factor: int, forward: bool) -> ir.Value:
    if not is_complex(x) and forward:
        return fft_r2c(op, x, axes, factor, False)
    return fft_c2c(op, as_pairs(op, x), axes, factor, forward)


def _both(*names: str) -> list[str]:
    """For signals of reals and of complex numbers."""
    return [name + kind for name in names for kind in ("", "@complex")]


@lower(*_both("aten.fft_fft"), forward=True)
@lower(*_both("aten.fft_ifft"), forward=False)
def fft(
    op: Builder, x: ir.Value, n: Size | None = None, dim: int = -1, norm: str | None = None, *, forward: bool
) -> ir.Value:
    x, axes, _ = _along(op, x, None if n is None else [n], [dim])
    return _to_all(op, x, axes, _factor(norm, forward), forward)


@lower(*_both("aten.fft_fft2"), forward=True, default=(-2, -1))
@lower(*_both("aten.fft_ifft2"), forward=False, default=(-2, -1))
@lower(*_both("aten.fft_fftn"), forward=True, default=None)
@lower(*_both("aten.fft_ifftn"), forward=False, default=None)
def fftn(
    op: Builder,
    x: ir.Value,
    s: Sequence[Size] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    forward: bool,
    default: Sequence[int] | None,
) -> ir.Value:
    x, axes, _ = _along(op, x, s, default if dim is None else dim)
    return _to_all(op, x, axes, _factor(norm, forward), forward) if axes else as_pairs(op, x)


@lower(*_both("aten.fft_rfft"), forward=True)
@lower(*_both("aten.fft_ihfft"), forward=False)
def rfft(
    op: Builder, x: ir.Value, n: Size | None = None, dim: int = -1, norm: str | None = None, *, forward: bool
) -> ir.Value:
    x, axes, _ = _along(op, x, None if n is None else [n], [dim])
    made = fft_r2c(op, x, axes, _factor(norm, forward), True)
    return made if forward else conj(op, made)  # of reals, the inverse is the mirror image


@lower(*_both("aten.fft_rfft2"), forward=True, default=(-2, -1))
@lower(*_both("aten.fft_rfftn"), forward=True, default=None)
@lower(*_both("aten.fft_ihfft2"), forward=False, default=(-2, -1))
@lower(*_both("aten.fft_ihfftn"), forward=False, default=None)
def rfftn(
    op: Builder,
    x: ir.Value,
    s: Sequence[Size] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    forward: bool,
    default: Sequence[int] | None,
) -> ir.Value:
    x, axes, _ = _along(op, x, s, default if dim is None else dim)
    made = fft_r2c(op, x, axes, _factor(norm, forward), True)
    return made if forward else conj(op, made)


@lower(*_both("aten.fft_irfft"), forward=False)
@lower(*_both("aten.fft_hfft"), forward=True)
def irfft(
    op: Builder, x: ir.Value, n: Size | None = None, dim: int = -1, norm: str | None = None, *, forward: bool
) -> ir.Value:
    return irfftn(op, x, None if n is None else [n], [dim], norm, forward=forward, default=None)


@lower(*_both("aten.fft_irfft2"), forward=False, default=(-2, -1))
@lower(*_both("aten.fft_irfftn"), forward=False, default=None)
@lower(*_both("aten.fft_hfft2"), forward=True, default=(-2, -1))
@lower(*_both("aten.fft_hfftn"), forward=True, default=None)
def irfftn(
    op: Builder,
    x: ir.Value,
    s: Sequence[Size] | None = None,
    dim: Sequence[int] | None = None,
    norm: str | None = None,
    *,
    forward: bool,
    default: Sequence[int] | None,
) -> ir.Value:
    """To reals. Forwards (hfft) it is that of the mirror image."""
    x = as_pairs(op, x)
    dim = default if dim is None else dim
    rank = _rank(op, x)
    if dim is None:
        dim = list(range(rank)) if s is None else list(range(rank - len(s), rank))
    *others, last = (d % rank for d in dim)
    given = None if s is None else s[-1]
    if given is None or (isinstance(given, int) and given == -1):
        given = sizes.multiply(op, sizes.add(op, op.size(x, last), -1), 2)
    x = resized(op, x, last, sizes.add(op, sizes.divide(op, given, 2), 1))
    if s is not None:
        x, _, _ = _along(op, x, list(s)[:-1], others)
    if forward:
        x = conj(op, x)
    if isinstance(given, int) and given == 1:
        return part(op, fft_c2c(op, x, [*others, last], _factor(norm, forward), False), 0)
    return fft_c2r(op, x, [*others, last], _factor(norm, forward), given)
