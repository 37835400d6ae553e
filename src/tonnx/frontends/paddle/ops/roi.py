"""Regions of interest, and convolutions that look where they are told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.boxes import corners, picture_of_rows
from tonnx.frontends.paddle.lower.rules import Ints, Value, lower
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops import math as torch_math
from tonnx.lowering.ops.vision import Bins, largest, mean_of_points


def _pictures(op: Builder, x: ir.Value, boxes: ir.Value, counts: ir.Value | None) -> ir.Value:
    rows, pictures = op.size(boxes, 0), op.size(x, 0)
    if counts is None and pictures != 1:
        raise UnsupportedArgument(
            "regions in several pictures without their number by picture",
            why="which region is of which picture is not in the tensor (LoD)",
            hint="fix the batch: input_shapes={...: [1, ...]}",
        )
    picture = picture_of_rows(op, counts, rows, pictures)
    return op.Expand(op.constant(0, T.INT64), op.vector([rows])) if picture is None else picture


def _largest(op: Builder, x: ir.Value, boxes: ir.Value, picture: ir.Value, grid: Bins) -> tuple[ir.Value, None]:
    regions = op.Concat(op.Unsqueeze(op.cast(picture, x.dtype), [1]), boxes, axis=1)
    return largest(op, x, regions, grid), None  # where the largest were is for training alone


def _means_by_channel(op: Builder, x: ir.Value, boxes: ir.Value, picture: ir.Value, grid: Bins) -> ir.Value:
    """Each bin is the mean over its part of the region, and has channels of its own to read."""
    channels, height, width = op.sizes(x)[1:]
    x1, y1, x2, y2 = (torch_math.trunc(op, part + 0.5) for part in corners(op, boxes))
    left, right = _bins(op, x1 * grid.scale, (x2 + 1.0) * grid.scale, grid.width, width)
    top, bottom = _bins(op, y1 * grid.scale, (y2 + 1.0) * grid.scale, grid.height, height)
    # Sums of everything above and left of a pixel: four of them give the sum of a rectangle.
    total = op.CumSum(op.CumSum(op.cast(x, T.DOUBLE), op.constant(2, T.INT64)), op.constant(3, T.INT64))
    total = op.reshape(op.Pad(total, [0, 0, 1, 1, 0, 0, 0, 0]), [-1])
    plane = op.Mul(op.Unsqueeze(picture, [1]), op.scalar(channels))
    own = [sizes.divide(op, channels, grid.height * grid.width), grid.height, grid.width]
    plane = op.reshape(op.Add(plane, sizes.arange(op, op.product(own))), [op.size(boxes, 0), *own])
    high, wide = op.scalar(sizes.add(op, height, 1)), op.scalar(sizes.add(op, width, 1))

    def corner(row: ir.Value, column: ir.Value) -> ir.Value:
        place = op.Add(op.Mul(op.Add(op.Mul(plane, high), row), wide), column)
        return op.Gather(total, place, axis=0)

    left, right = (op.Unsqueeze(v, [1, 2]) for v in (left, right))
    top, bottom = (op.Unsqueeze(v, [1, 3]) for v in (top, bottom))
    sums = corner(bottom, right) - corner(top, right) - corner(bottom, left) + corner(top, left)
    count = op.Mul(op.Sub(bottom, top), op.Sub(right, left))
    means = sums / op.cast(op.Max(count, 1), T.DOUBLE)
    empty = op.Or(op.LessOrEqual(bottom, top), op.LessOrEqual(right, left))
    return op.Where(empty, op.constant(0, x.dtype), op.cast(means, x.dtype))


@lower("roi_align", pool=mean_of_points)
@lower("roi_pool", pool=_largest)
@lower("psroi_pool", pool=_means_by_channel, unused="output_channels")
def pooled_regions(
    op: Builder,
    x: Value,
    boxes: Value,
    boxes_num: Value | None = None,
    *,
    pooled_height: int = 1,
    pooled_width: int = 1,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
    pool: Callable[..., Any],
) -> Any:
    grid = Bins(pooled_height, pooled_width, spatial_scale, max(sampling_ratio, 0), aligned)
    return pool(op, x, boxes, _pictures(op, x, boxes, boxes_num), grid)


def _bins(op: Builder, start: ir.Value, end: ir.Value, count: int, size: Size) -> tuple[ir.Value, ir.Value]:
    """The first and the last pixel (exclusive) of each of the equal parts: (regions, parts)."""
    length = op.Max(end - start, 0.1) / float(count)
    number = op.constant([float(i) for i in range(count)], start.dtype)
    first, last = op.Floor(number * length + start), op.Ceil((number + 1.0) * length + start)
    limit = op.scalar(size)
    zero = op.constant(0, T.INT64)
    return tuple(op.Min(op.Max(op.cast(v, T.INT64), zero), limit) for v in (first, last))  # type: ignore[return-value]


@lower("deformable_conv", unused="im2col_step")
def deformable_conv(
    op: Builder,
    x: Value,
    offset: Value,
    filter: Value,
    mask: Value | None = None,
    *,
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0),
    dilations: Ints = (1, 1),
    deformable_groups: int = 1,
    groups: int = 1,
) -> ir.Value:
    window = {"strides": list(strides), "pads": [*paddings, *paddings], "dilations": list(dilations)}
    kernel = list(filter.shape.dims[2:])  # type: ignore[union-attr]
    return op.DeformConv(
        x, filter, offset, None, mask, **window, group=groups, offset_group=deformable_groups, kernel_shape=kernel
    )
