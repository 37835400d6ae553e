"""Interpolation to another size. But for ``align_mode=1`` Paddle computes positions as torch does."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.bind import elements
from tonnx.frontends.paddle.lower.rules import Floats, Sizes, Value, lower
from tonnx.ir.build import Builder, Size
from tonnx.lowering.ops import resize as like_torch

T = ir.DataType


@lower("nearest_interp", "linear_interp", "bilinear_interp", "trilinear_interp", "bicubic_interp", layout="data_format")
@lower("nearest_interp_v1", "bilinear_interp_v1", layout="data_format")
def interpolate(
    op: Builder,
    x: Value,
    out_size: Sizes | None = None,
    size_tensor: Sizes | None = None,
    scale_tensor: Value | None = None,
    *,
    out_d: int = 0,
    out_h: int = 0,
    out_w: int = 0,
    scale: Floats = (),
    interp_method: str = "bilinear",
    align_corners: bool = True,
    align_mode: int = 1,
) -> ir.Value:
    axes = op.rank(x) - 2
    # Tensors of sizes win over the scale, and the scale over sizes in numbers.
    target: Sequence[Size] | None = size_tensor or out_size
    factors = None if target else _factors(scale, scale_tensor, axes)
    if not target and not factors:
        target = [size for size in (out_d, out_h, out_w)[3 - axes :] if size > 0]
        if len(target) != axes:
            raise UnsupportedArgument("an interpolation that names neither size nor scale")
    return _resized(op, x, target, factors, interp_method, align_corners, align_mode)


def _factors(scale: Floats, tensor: ir.Value | None, axes: int) -> list[float] | None:
    positive = [float(s) for s in (elements(tensor, "scale") if tensor is not None else scale)]
    positive = [s for s in positive if s > 0]
    return positive * axes if len(positive) == 1 else positive or None


def _resized(
    op: Builder,
    x: ir.Value,
    target: Sequence[Size] | None,
    factors: Sequence[float] | None,
    method: str,
    align_corners: bool,
    align_mode: int,
) -> ir.Value:
    if method == "nearest":
        if not align_corners:
            return like_torch.upsample(op, x, target, factors, mode="nearest")
        how = {"nearest_mode": "round_prefer_ceil", "coordinate_transformation_mode": "align_corners"}
        return _plain(op, x, target, factors, {"mode": "nearest", **how})
    if method == "bicubic" or align_corners or align_mode == 0:
        mode = "cubic" if method == "bicubic" else "linear"
        return like_torch.upsample(op, x, target, factors, align_corners, mode=mode)
    return _plain(op, x, target, factors, {"mode": "linear", "coordinate_transformation_mode": "asymmetric"})


def _plain(
    op: Builder, x: ir.Value, target: Sequence[Size] | None, factors: Sequence[float] | None, options: dict[str, str]
) -> ir.Value:
    if factors:
        return op.Resize(x, None, op.constant([1.0, 1.0, *factors], T.FLOAT), **options)
    assert target is not None
    lead = op.sizes(x)[:2]
    if all(isinstance(size, int) for size in lead) or like_torch.behind_transpose(x):
        return op.Resize(x, None, None, op.vector([*lead, *target]), **options)
    return op.Resize(x, None, None, op.vector(list(target)), axes=list(range(2, 2 + len(target))), **options)
