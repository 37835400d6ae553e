"""Pictures: interpolated to another size, padded, sampled, cut into windows.

But for ``align_mode=1`` Paddle computes the positions of an interpolation as torch does.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.bind import elements
from tonnx.frontends.paddle.lower.rules import Floats, Ints, Number, Sizes, Value, direct, lower
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering.ops import conv as torch_conv
from tonnx.lowering.ops import pad as torch_pad
from tonnx.lowering.ops import resize as like_torch
from tonnx.lowering.ops import sample as torch_sample


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
    if interp_method == "nearest":
        if not align_corners:
            return like_torch.upsample(op, x, target, factors, mode="nearest")
        how = {"nearest_mode": "round_prefer_ceil", "coordinate_transformation_mode": "align_corners"}
        return _plain(op, x, target, factors, {"mode": "nearest", **how})
    if interp_method == "bicubic" or align_corners or align_mode == 0:
        mode = "cubic" if interp_method == "bicubic" else "linear"
        return like_torch.upsample(op, x, target, factors, align_corners, mode=mode)
    return _plain(op, x, target, factors, {"mode": "linear", "coordinate_transformation_mode": "asymmetric"})


def _factors(scale: Floats, tensor: ir.Value | None, axes: int) -> list[float] | None:
    positive = [float(s) for s in (elements(tensor, "scale") if tensor is not None else scale)]
    positive = [s for s in positive if s > 0]
    return positive * axes if len(positive) == 1 else positive or None


def _plain(
    op: Builder, x: ir.Value, target: Sequence[Size] | None, factors: Sequence[float] | None, options: dict[str, str]
) -> ir.Value:
    if factors:
        return op.Resize(x, None, op.constant([1.0, 1.0, *factors], T.FLOAT), **options)
    assert target is not None
    return like_torch.resize_to(op, x, target, **options)


# Padding


@lower("pad3d", rows_first=False, layout="data_format")
@lower("pad2d", rows_first=True, layout="data_format")
def pad_spatial(
    op: Builder, x: Value, paddings: Sizes, *, mode: str = "constant", pad_value: float = 0.0, rows_first: bool
) -> ir.Value:
    """Pairs from the last axis to the first, as torch has them; or top, bottom, left, right (``rows_first``)."""
    pairs = [*paddings[2:], *paddings[:2]] if rows_first else list(paddings)
    mode = "replicate" if mode == "edge" else mode
    return torch_pad.pad(op, x, pairs, mode, pad_value if mode == "constant" else None)


@lower("pad")
def pad(op: Builder, x: Value, pad_value: Number = 0.0, *, paddings: Ints) -> ir.Value:
    """A pair for each axis, the first axis first."""
    fill = pad_value if isinstance(pad_value, ir.Value) else op.constant(pad_value, x.dtype)
    return op.Pad(x, [*paddings[::2], *paddings[1::2]], op.cast(fill, x.dtype))


# Sampling of pictures, and windows of them side by side


_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
_PADDINGS = {"reflect": "reflection"}


direct(
    "grid_sample(x, grid, *, mode: str = 'bilinear', padding_mode: str = 'zeros', align_corners: bool = True)",
    lambda op, x, grid, mode, padding, aligned: op.GridSample(
        x, grid, mode=_MODES[mode], padding_mode=_PADDINGS.get(padding, padding), align_corners=int(aligned)
    ),
)


@lower("affine_grid")
def affine_grid(op: Builder, input: Value, output_shape: Sizes, *, align_corners: bool = True) -> ir.Value:
    grid = torch_sample.affine_grid(op, input, list(output_shape), align_corners)
    if grid.shape is None:  # what Paddle says of it is wrong if the sizes come at run time
        rank = len(output_shape)
        grid.shape = ir.Shape([None] * (rank - 1) + [rank - 2])
    return grid


@lower("unfold")
def unfold(
    op: Builder, x: Value, *, kernel_sizes: Ints, strides: Ints = (1,), paddings: Ints = (0,), dilations: Ints = (1,)
) -> ir.Value:
    pads = list(paddings)
    if len(pads) == 4:
        if pads[:2] != pads[2:]:
            x, pads = op.Pad(x, [0, 0, pads[0], pads[1], 0, 0, pads[2], pads[3]]), [0, 0]
        pads = pads[:2]
    return torch_conv.im2col(op, x, list(kernel_sizes), list(dilations), pads, list(strides))


@lower("fold")
def fold(
    op: Builder,
    x: Value,
    *,
    output_sizes: Ints,
    kernel_sizes: Ints,
    strides: Ints = (1,),
    paddings: Ints = (0,),
    dilations: Ints = (1,),
) -> ir.Value:
    pads = list(paddings)
    pads = pads[:2] if len(pads) == 4 and pads[:2] == pads[2:] else pads
    return torch_conv.col2im(op, x, list(output_sizes), list(kernel_sizes), list(dilations), pads, list(strides))
