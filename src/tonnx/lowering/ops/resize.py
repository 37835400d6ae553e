"""Interpolation to another size.

ONNX's Resize computes positions as torch does, but runtimes round them differently: ``x / (out / in)`` against
``x · (in / out)``. For smooth interpolation that is noise in the last digit; for nearest neighbours it picks another
pixel wherever the exact position is a whole number. So nearest resizing asks first whether both agree, and gathers the
pixels that torch takes where they do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering.rules import lower
from tonnx.lowering.values import is_float

Scale = float | ir.Value | None
_MANY = 4096
"""Output sizes up to which the two ways to round are compared when the size is not known."""


@dataclass(frozen=True)
class _Axis:
    """What is asked of one axis: its size, and either the new size or the factor (then the new size follows)."""

    size: Size
    wanted: Size | None
    scale: float | None

    @property
    def is_fixed(self) -> bool:
        return isinstance(self.size, int) and (self.scale is not None or isinstance(self.wanted, int))

    @property
    def result(self) -> int:
        """The new size of an axis that is fixed."""
        assert isinstance(self.size, int)
        if isinstance(self.wanted, int):
            return self.wanted
        assert self.scale is not None
        return math.floor(self.size * self.scale)

    @property
    def is_copy(self) -> bool:
        return self.is_fixed and self.result == self.size and self.scale in (None, 1.0)

    @property
    def contradicts(self) -> bool:
        """Whether the new size is not the one that the factor gives; torch takes the positions from the factor then."""
        return self.is_fixed and self.scale is not None and self.result != math.floor(self.size * self.scale)  # type: ignore[operator]


def _request(
    op: Builder, x: ir.Value, output_size: Sequence[Size] | None, *scales: Sequence[Scale] | None
) -> list[_Axis]:
    """One entry for each spatial axis, from whichever arguments the overload has."""
    factors = next((list(s) for s in scales if s is not None and any(f is not None for f in s)), None)
    sizes = op.sizes(x)[2:]
    if factors is not None and len(factors) != len(sizes):
        factors = factors[-len(sizes) :]  # the overloads with one argument an axis
    if factors is not None and any(isinstance(f, ir.Value) for f in factors):
        factors = None if output_size is not None else factors
    axes = []
    for i, size in enumerate(sizes):
        factor = factors[i] if factors is not None else None
        if isinstance(factor, ir.Value):
            raise UnsupportedArgument("a scale factor that is computed from a size: give the output size instead")
        axes.append(_Axis(size, output_size[i] if output_size is not None else None, factor))
    return axes


def _copied(axes: Sequence[_Axis]) -> list[_Axis]:
    """For the kernels that copy along an axis whose size stays, whatever the factor says."""
    return [
        _Axis(axis.size, None, 1.0) if axis.is_fixed and axis.scale and axis.result == axis.size else axis
        for axis in axes
    ]


def _whole_scale(scale: float, size: Size) -> float:
    """The float32 next to a factor that gives the same sizes as torch's double does, here or at most sizes."""
    sizes = np.array([size] if isinstance(size, int) else np.arange(1, _MANY))
    exact = np.floor(sizes * scale)
    nearest = np.float32(scale)
    choices = [nearest, np.nextafter(nearest, np.float32(np.inf)), np.nextafter(nearest, np.float32(0))]
    # Runtimes multiply in float32, the checker in float64.
    products = [(sizes.astype(np.float32) * choice, sizes * float(choice)) for choice in choices]
    wrong = [sum(int((np.floor(p) != exact).sum()) for p in pair) for pair in products]
    return float(choices[wrong.index(min(wrong))])


def behind_transpose(x: ir.Value) -> bool:
    """Whether ONNX Runtime (1.31) will swap the node with a Transpose before it: it then forgets the ``axes``."""
    producer = x.producer()
    while producer is not None and producer.op_type != "Transpose" and len(producer.inputs) == 1:
        producer = producer.inputs[0].producer() if producer.inputs[0] is not None else None
    return producer is not None and producer.op_type == "Transpose"


def _resize(op: Builder, x: ir.Value, axes: Sequence[_Axis], **attributes: object) -> ir.Value:
    """Resize by factors where factors were given, by sizes otherwise."""
    if all(axis.scale is not None for axis in axes):
        factors = [1.0, 1.0, *(_whole_scale(axis.scale, axis.size) for axis in axes if axis.scale is not None)]
        return op.Resize(x, None, op.constant(factors, T.FLOAT), **attributes)
    targets = [axis.result if axis.is_fixed else axis.wanted for axis in axes]
    if any(size is None for size in targets):
        raise UnsupportedArgument("one axis is resized by a factor and another to a size, and their sizes are dynamic")
    return resize_to(op, x, targets, **attributes)  # type: ignore[arg-type]


def resize_to(op: Builder, x: ir.Value, targets: Sequence[Size], **attributes: object) -> ir.Value:
    lead = op.sizes(x)[:2]
    if all(isinstance(size, int) for size in lead) or behind_transpose(x):
        return op.Resize(x, None, None, op.vector([*lead, *targets]), **attributes)
    return op.Resize(x, None, None, op.vector(targets), axes=list(range(2, 2 + len(targets))), **attributes)


# Nearest neighbours


def _torch_picks(axis: _Axis, shift: float, count: int) -> np.ndarray:
    step = np.float32(1 / axis.scale) if axis.scale else np.float32(axis.size) / np.float32(axis.wanted)  # type: ignore[arg-type]
    places = np.arange(count, dtype=np.float32) + np.float32(shift)
    picks = np.floor(places * step).astype(np.int64)
    return np.minimum(picks, axis.size - 1) if isinstance(axis.size, int) else picks


def _runtime_picks(axis: _Axis, shift: float, count: int) -> np.ndarray:
    if axis.scale:
        scale = np.float32(_whole_scale(axis.scale, axis.size))
    else:
        scale = np.float32(axis.wanted) / np.float32(axis.size)  # type: ignore[arg-type]
    places = (np.arange(count, dtype=np.float32) + np.float32(shift)) / scale - np.float32(shift)
    picks = np.floor(places + np.float32(shift)).astype(np.int64)  # a shift of ½ rounds
    return np.clip(picks, 0, axis.size - 1) if isinstance(axis.size, int) else np.maximum(picks, 0)


def _agree(axes: Sequence[_Axis], shift: float, copies: bool) -> bool:
    """Whether Resize picks the pixels that torch picks."""
    if any(_may_become(axis, 1) or (copies and _may_become(axis, 2)) for axis in axes):
        return False
    if all(axis.is_copy for axis in axes):
        return True
    if any(axis.contradicts for axis in axes) or all(axis.is_fixed and axis.result == axis.size for axis in axes):
        return False  # runtimes copy when no size changes; torch goes by the factor
    for axis in axes:
        if axis.is_fixed:
            count = axis.result
        elif axis.scale is not None:
            count = _MANY
        elif isinstance(axis.wanted, int):
            return False
        else:
            continue  # both sizes dynamic: they agree on whole factors and wherever no position is a whole number
        if not np.array_equal(_torch_picks(axis, shift, count), _runtime_picks(axis, shift, count)):
            return False
    return True


def _may_become(axis: _Axis, times: int) -> bool:
    """Whether a factor that is no whole number may, at a small dynamic size, give a whole multiple of that size."""
    return not axis.is_fixed and axis.scale is not None and times < axis.scale < times + 1


def _picks(op: Builder, axis: _Axis, shift: float, copies: bool) -> ir.Value:
    """The pixels that torch takes, computed as torch does: in float32, by multiplication."""
    if axis.is_fixed:
        return op.constant(_torch_picks(axis, shift, axis.result))
    step: ir.Value | float
    if axis.scale is not None:
        step = float(np.float32(1 / axis.scale))
        double = op.Mul(op.cast(op.vector([axis.size]), T.DOUBLE), axis.scale)
        count: Size = op.cast(op.Floor(double), T.INT64)
    else:
        assert axis.wanted is not None
        count = axis.wanted
        step = op.Div(op.cast(op.vector([axis.size]), T.FLOAT), op.cast(op.vector([count]), T.FLOAT))
    indices = op.Range(0, op.scalar(count), 1)
    places = op.cast(indices, T.FLOAT)
    if shift:
        places = op.Add(places, shift)
    picks = op.Min(op.cast(op.Floor(op.Mul(places, step)), T.INT64), op.Sub(op.vector([axis.size]), 1))
    for times in (1, 2):  # torch's kernel for images takes these shortcuts, whatever the factor says
        if copies and _may_become(axis, times):
            whole = op.Equal(op.Mul(op.vector([axis.size]), times), count)
            picks = op.Where(whole, op.Div(indices, times), picks)
    return picks


def _nearest(op: Builder, x: ir.Value, axes: Sequence[_Axis], shift: float) -> ir.Value:
    copies = len(axes) == 2 and not shift  # torch has other code for images than for lines and volumes
    if copies:
        axes = _copied(axes)
    if _agree(axes, shift, copies):
        how = ("half_pixel", "round_prefer_ceil") if shift else ("asymmetric", "floor")
        return _resize(op, x, axes, mode="nearest", coordinate_transformation_mode=how[0], nearest_mode=how[1])
    for i, axis in enumerate(axes, 2):
        if not axis.is_copy:
            x = op.Gather(x, _picks(op, axis, shift, copies), axis=i)
    return x


# Smooth interpolation


def _smooth(
    op: Builder, x: ir.Value, axes: Sequence[_Axis], mode: str, align_corners: bool, antialias: bool
) -> ir.Value:
    if not is_float(x.dtype):
        raise UnsupportedArgument(f"torch interpolates {x.dtype} in steps of its own", hint="cast to float32 before")
    fixed = all(axis.is_fixed for axis in axes)
    if mode == "linear" and not antialias:
        axes = _copied(axes)
    if all(axis.is_copy for axis in axes):
        return x
    unlike_torch = (
        mode == "lanczos"
        or (antialias and align_corners)
        or any(axis.contradicts and not align_corners for axis in axes)
        or (mode == "cubic" and fixed and all(axis.result == axis.size for axis in axes))  # runtimes just copy
    )
    if unlike_torch:
        return _by_matrices(op, x, axes, mode, align_corners, antialias)
    if mode == "cubic" and behind_transpose(x):
        # ONNX Runtime swaps the two, and then refuses: it has no cubic kernel for channels that come last.
        lead, space = op.sizes(x)[:2], op.sizes(x)[2:]
        count = op.product(lead)
        flat = op.reshape(x, [1, count, *space] if lead[1] == 1 else [count, 1, *space])
        if flat is not x:
            y = _smooth(op, flat, axes, mode, align_corners, antialias)
            return op.reshape(y, [*lead, *op.sizes(y)[2:]])
        if fixed:
            return _by_matrices(op, x, axes, mode, align_corners, antialias)
    return _resize(
        op,
        x,
        axes,
        mode=mode,
        coordinate_transformation_mode="align_corners" if align_corners else "half_pixel",
        cubic_coeff_a=(-0.5 if antialias else -0.75) if mode == "cubic" else None,  # torch's own two constants
        antialias=1 if antialias else None,
        exclude_outside=1 if antialias else None,
    )


def _by_matrices(
    op: Builder, x: ir.Value, axes: Sequence[_Axis], mode: str, align_corners: bool, antialias: bool
) -> ir.Value:
    """Interpolation is linear and goes axis by axis: a product with the weights of each, on fixed sizes."""
    if not all(axis.is_fixed for axis in axes):
        raise UnsupportedArgument(
            f"{mode} interpolation with antialias={antialias} and align_corners={align_corners} of dynamic sizes",
            why="ONNX's Resize computes something else here; with fixed sizes it can be expressed",
        )
    if len(axes) != 2:
        raise UnsupportedArgument("an output size that is not the one that the scale factors give")
    rows, columns = (_weights(axis, mode, align_corners, antialias) for axis in axes)
    assert x.dtype is not None
    y = op.MatMul(op.constant(rows.astype(x.dtype.numpy())), x)
    return op.MatMul(y, op.constant(np.ascontiguousarray(columns.T).astype(x.dtype.numpy())))


def _weights(axis: _Axis, mode: str, align_corners: bool, antialias: bool) -> np.ndarray:
    """The matrix [new size, size] of one axis, as torch weighs its input."""
    assert isinstance(axis.size, int) and isinstance(axis.result, int)
    size, result = axis.size, axis.result
    if align_corners:
        step = (size - 1) / (result - 1) if result > 1 else 0.0
    else:
        step = 1 / axis.scale if isinstance(axis.scale, float) and axis.scale > 0 else size / result
    places = np.arange(result)
    if antialias:
        # A filter as wide as the step, around the middle of each new pixel, and nothing from beyond the border.
        wide = max(step, 1.0)
        middles, reach = step * (places + 0.5), {"linear": 1, "cubic": 2, "lanczos": 3}[mode] * wide
        pixels = np.arange(size)
        inside = (pixels >= (middles - reach + 0.5).astype(np.int64)[:, None]) & (
            pixels < (middles + reach + 0.5).astype(np.int64)[:, None]
        )
        weights = np.where(inside, _filter((pixels + 0.5 - middles[:, None]) / wide, mode, -0.5), 0.0)
        total = weights.sum(1, keepdims=True)
        return np.asarray(weights / np.where(total == 0, 1, total))
    at = step * places if align_corners else step * (places + 0.5) - 0.5
    at = np.maximum(at, 0) if mode == "linear" else at
    weights = np.zeros((result, size))
    for offset in range(-1, 3):  # what lies beyond the border is the border
        pixels = np.floor(at).astype(np.int64) + offset
        weights[places, np.clip(pixels, 0, size - 1)] += _filter(pixels - at, mode, -0.75)
    return weights


def _filter(x: np.ndarray, mode: str, cubic: float) -> np.ndarray:
    """The weight of a pixel at a distance."""
    x = np.abs(x)
    if mode == "linear":
        return np.maximum(1 - x, 0)
    if mode == "lanczos":
        return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)
    near, far = ((cubic + 2) * x - (cubic + 3)) * x * x + 1, (((x - 5) * x + 8) * x - 4) * cubic
    return np.where(x < 1, near, np.where(x < 2, far, 0))


@lower("aten.upsample_nearest1d", "aten.upsample_nearest2d", "aten.upsample_nearest3d", mode="nearest")
@lower("aten._upsample_nearest_exact1d", mode="nearest", shift=0.5)
@lower("aten._upsample_nearest_exact2d", "aten._upsample_nearest_exact3d", mode="nearest", shift=0.5)
@lower("aten.upsample_linear1d", "aten.upsample_bilinear2d", "aten.upsample_trilinear3d", mode="linear")
@lower("aten.upsample_bicubic2d", mode="cubic")
@lower("aten._upsample_bilinear2d_aa", mode="linear", antialias=True)
@lower("aten._upsample_bicubic2d_aa", mode="cubic", antialias=True)
@lower("aten._upsample_lanczos2d_aa", mode="lanczos", antialias=True)
def upsample(
    op: Builder,
    x: ir.Value,
    output_size: Sequence[Size] | None = None,
    scale_factors: Sequence[Scale] | None = None,
    align_corners: bool = False,
    scales: Scale = None,
    scales_d: Scale = None,
    scales_h: Scale = None,
    scales_w: Scale = None,
    *,
    mode: str,
    shift: float = 0.0,
    antialias: bool = False,
) -> ir.Value:
    single = [scales] if op.rank(x) == 3 else [scales_d, scales_h, scales_w]
    axes = _request(op, x, output_size, scale_factors, single)
    if mode == "nearest":
        return _nearest(op, x, axes, shift)
    return _smooth(op, x, axes, mode, align_corners, antialias)
