"""Interpolation to another size."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.build import Builder, Size
from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.bind import elements
from tonnx.frontends.paddle.fit import channels_back, channels_first
from tonnx.frontends.paddle.rules import Floats, Sizes, Value, lower

T = ir.DataType
_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


def _enter(name: str, method: str, old: bool = False) -> None:
    @lower(name)
    def interpolate(
        op: Builder,
        x: Value,
        out_size: Sizes | None = None,
        size_tensor: Sizes | None = None,
        scale_tensor: Value | None = None,
        *,
        data_format: str = "NCHW",
        out_d: int = 0,
        out_h: int = 0,
        out_w: int = 0,
        scale: Floats = (),
        interp_method: str = method,
        align_corners: bool = True,
        align_mode: int = 1,
    ) -> ir.Value:
        x = channels_first(op, x, data_format)
        axes = op.rank(x) - 2
        fixed = [size for size in (out_d, out_h, out_w)[3 - axes :] if size > 0]
        wanted: Sequence[Size] | None = size_tensor or out_size or (fixed if len(fixed) == axes else None)
        factors = [s for s in scale if s > 0]
        if scale_tensor is not None:
            factors = [float(s) for s in elements(scale_tensor, "scale")]
        if size_tensor or out_size or not factors:
            factors = []  # tensors win over the scale, and the scale over numbers
        else:
            wanted = None
        factors = factors * axes if len(factors) == 1 else factors
        y = _resized(op, x, wanted, factors, _MODES[interp_method], align_corners, align_mode)
        return channels_back(op, y, data_format)


for _method in ("nearest", "linear", "bilinear", "trilinear", "bicubic"):
    _enter(f"{_method}_interp", _method)
_enter("nearest_interp_v1", "nearest", old=True)
_enter("bilinear_interp_v1", "bilinear", old=True)


def _resized(
    op: Builder,
    x: ir.Value,
    wanted: Sequence[Size] | None,
    factors: Sequence[float],
    mode: str,
    align_corners: bool,
    align_mode: int,
) -> ir.Value:
    if not wanted and not factors:
        raise UnsupportedArgument("an interpolation that names neither size nor scale")
    if mode == "nearest":
        how = "align_corners" if align_corners else "asymmetric"
        attributes = {"nearest_mode": "round_prefer_ceil" if align_corners else "floor"}
    else:
        how = "align_corners" if align_corners else "asymmetric" if align_mode == 1 and mode == "linear" else "half_pixel"
        attributes = {}
    options = {"mode": mode, "coordinate_transformation_mode": how, **attributes}
    if mode == "cubic":
        options["cubic_coeff_a"] = -0.75  # type: ignore[assignment]
    sizes = op.sizes(x)
    if factors:
        if all(isinstance(size, int) for size in sizes[2:]):
            wanted = [int(size * factor) for size, factor in zip(sizes[2:], factors, strict=True)]  # type: ignore[operator]
        else:
            return op.Resize(x, None, op.constant([1.0, 1.0, *factors], T.FLOAT), **options)
    assert wanted is not None
    lead = sizes[:2]
    if all(isinstance(size, int) for size in lead):
        return op.Resize(x, None, None, op.vector([*lead, *wanted]), **options)
    return op.Resize(x, None, None, op.vector(list(wanted)), axes=list(range(2, 2 + len(wanted))), **options)


