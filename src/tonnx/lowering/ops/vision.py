"""torchvision's operators: suppression of overlapping boxes, pooling of regions, deformable convolution."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size
from tonnx.lowering.rules import lower

T = ir.DataType
_ALL = np.iinfo(np.int64).max


@lower("torchvision.nms")
def nms(op: Builder, dets: ir.Value, scores: ir.Value, iou_threshold: float) -> ir.Value:
    """The boxes that no better one overlaps too much, the best first.

    ONNX takes the corners of a box in any order; here one that is the wrong way round is empty and overlaps nothing.
    """
    corners = op.cast(dets, T.FLOAT)
    first = op.Slice(corners, [0], [2], [1])
    boxes = op.Unsqueeze(op.Concat(first, op.Max(first, op.Slice(corners, [2], [4], [1])), axis=1), [0])
    score = op.Unsqueeze(op.cast(scores, T.FLOAT), [0, 1])
    limit = op.constant([iou_threshold], T.FLOAT)
    chosen = op.NonMaxSuppression(boxes, score, op.constant([_ALL], T.INT64), limit)  # batch, class, box
    return op.Squeeze(op.Slice(chosen, [2], [3], [1]), [1])


def _split_regions(op: Builder, rois: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Which image each region is of, and its corners."""
    image = op.cast(op.Squeeze(op.Slice(rois, [0], [1], [1]), [1]), T.INT64)
    return image, op.Slice(rois, [1], [5], [1])


def _fixed(name: str, *sizes: Size) -> list[int]:
    if not all(isinstance(size, int) for size in sizes):
        raise UnsupportedArgument(f"{name} takes an output size that is known when exporting")
    return [int(size) for size in sizes]  # type: ignore[arg-type]


def _only_first(name: str, used_outputs: Collection[int] | None) -> None:
    """The second result is for the backward pass, and nothing in ONNX gives it."""
    if 1 in (used_outputs or ()):
        raise UnsupportedArgument(f"the second result of torchvision::{name} is for training only")


@lower("torchvision.roi_align")
def roi_align(
    op: Builder,
    x: ir.Value,
    rois: ir.Value,
    spatial_scale: float,
    pooled_height: Size,
    pooled_width: Size,
    sampling_ratio: int,
    aligned: bool,
) -> ir.Value:
    height, width = _fixed("roi_align", pooled_height, pooled_width)
    image, corners = _split_regions(op, rois)
    return op.RoiAlign(
        op.cast(x, T.FLOAT),
        op.cast(corners, T.FLOAT),
        image,
        output_height=height,
        output_width=width,
        sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=spatial_scale,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )


@lower("torchvision.roi_pool")
def roi_pool(
    op: Builder,
    x: ir.Value,
    rois: ir.Value,
    spatial_scale: float,
    pooled_height: Size,
    pooled_width: Size,
    used_outputs: Collection[int] | None = None,
) -> tuple[ir.Value, None]:
    _only_first("roi_pool", used_outputs)
    shape = _fixed("roi_pool", pooled_height, pooled_width)
    regions = op.cast(rois, T.FLOAT)
    return op.MaxRoiPool(op.cast(x, T.FLOAT), regions, pooled_shape=shape, spatial_scale=spatial_scale), None


@lower("torchvision.ps_roi_align")
def ps_roi_align(
    op: Builder,
    x: ir.Value,
    rois: ir.Value,
    spatial_scale: float,
    pooled_height: Size,
    pooled_width: Size,
    sampling_ratio: int,
    used_outputs: Collection[int] | None = None,
) -> tuple[ir.Value, None]:
    """Every bin has channels of its own: pool all channels in all bins, and keep each channel's own bin."""
    _only_first("ps_roi_align", used_outputs)
    height, width = _fixed("ps_roi_align", pooled_height, pooled_width)
    bins = height * width
    pooled = roi_align(op, x, rois, spatial_scale, height, width, sampling_ratio, True)
    channels = int(x.shape[1]) // bins  # type: ignore[index, arg-type]
    flat = op.Reshape(pooled, [-1, channels, bins * bins], _shape=[rois.shape[0], channels, bins * bins])  # type: ignore[index]
    own = op.Gather(flat, op.constant(np.arange(bins, dtype=np.int64) * (bins + 1)), axis=2)
    return op.Reshape(own, [-1, channels, height, width]), None


@lower("torchvision.ps_roi_pool")
def ps_roi_pool(
    op: Builder,
    x: ir.Value,
    rois: ir.Value,
    spatial_scale: float,
    pooled_height: Size,
    pooled_width: Size,
    used_outputs: Collection[int] | None = None,
) -> tuple[ir.Value, None]:
    """The mean of each bin in the bin's own channels, as a product with masks of its rows and columns."""
    _only_first("ps_roi_pool", used_outputs)
    height, width = _fixed("ps_roi_pool", pooled_height, pooled_width)
    x = op.cast(x, T.FLOAT)
    image, corners = _split_regions(op, op.cast(rois, T.FLOAT))
    corners = _rounded(op, corners * spatial_scale)
    channels = int(x.shape[1]) // (height * width)  # type: ignore[index, arg-type]
    rows = _masks(op, corners, 1, height, op.size(x, 2))  # [regions, height, H]
    columns = _masks(op, corners, 0, width, op.size(x, 3))
    bins = [-1, channels, height, width]
    own = op.Reshape(op.Gather(x, image, axis=0), op.vector([*bins, op.size(x, 2), op.size(x, 3)]))
    by_row = op.MatMul(op.Unsqueeze(rows, [1, 3, 4]), own)  # [regions, channels, height, width, 1, W]
    total = op.Squeeze(op.MatMul(by_row, op.Unsqueeze(columns, [1, 2, 5])), [4, 5])
    count = op.Unsqueeze(op.ReduceSum(rows, [2]), [1]) * op.Unsqueeze(
        op.Transpose(op.ReduceSum(columns, [2]), perm=[0, 2, 1]), [1]
    )
    return total / op.Max(count, 1.0), None


def _rounded(op: Builder, x: ir.Value) -> ir.Value:
    """Halves away from zero, as C does it."""
    return op.Sign(x) * op.Floor(op.Abs(x) + 0.5)


def _masks(op: Builder, corners: ir.Value, axis: int, bins: int, size: Size) -> ir.Value:
    """[regions, bins, size]: 1 where a row (or column) of the picture belongs to a bin."""
    start = op.Slice(corners, [axis], [axis + 1], [1])  # [regions, 1]
    end = op.Slice(corners, [axis + 2], [axis + 3], [1])
    step = op.Max(end - start, 1.0) / float(bins)
    places = op.constant(np.arange(bins, dtype=np.float32)[None])
    low = op.Floor(step * places) + start  # [regions, bins]
    high = op.Ceil(step * (places + 1.0)) + start
    at = op.cast(op.Range(op.constant(0, T.INT64), op.scalar(size), op.constant(1, T.INT64)), T.FLOAT)
    inside = op.And(op.GreaterOrEqual(at, op.Unsqueeze(low, [2])), op.Less(at, op.Unsqueeze(high, [2])))
    return op.cast(inside, T.FLOAT)


@lower("torchvision.deform_conv2d")
def deform_conv2d(
    op: Builder,
    x: ir.Value,
    weight: ir.Value,
    offset: ir.Value,
    mask: ir.Value,
    bias: ir.Value,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> ir.Value:
    dtype = T.DOUBLE if x.dtype == T.DOUBLE else T.FLOAT
    return op.DeformConv(
        op.cast(x, dtype),
        op.cast(weight, dtype),
        op.cast(offset, dtype),
        op.cast(bias, dtype),
        op.cast(mask, dtype) if use_mask else None,
        kernel_shape=[int(size) for size in weight.shape.dims[2:]],  # type: ignore[union-attr, arg-type]
        strides=[stride_h, stride_w],
        pads=[pad_h, pad_w, pad_h, pad_w],
        dilations=[dilation_h, dilation_w],
        group=groups,
        offset_group=offset_groups,
    )
