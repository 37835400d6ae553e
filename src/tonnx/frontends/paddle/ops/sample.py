"""Sampling of pictures, and windows of them side by side."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.frontends.paddle.lower.rules import Ints, Sizes, Value, lower
from tonnx.ir.build import Builder
from tonnx.lowering.ops import conv as torch_conv
from tonnx.lowering.ops import sample as like_torch

_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
_PADDINGS = {"reflect": "reflection"}


@lower("grid_sample")
def grid_sample(
    op: Builder,
    x: Value,
    grid: Value,
    *,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> ir.Value:
    padding = _PADDINGS.get(padding_mode, padding_mode)
    return op.GridSample(x, grid, mode=_MODES[mode], padding_mode=padding, align_corners=int(align_corners))


@lower("affine_grid")
def affine_grid(op: Builder, input: Value, output_shape: Sizes, *, align_corners: bool = True) -> ir.Value:
    grid = like_torch.affine_grid(op, input, list(output_shape), align_corners)
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
