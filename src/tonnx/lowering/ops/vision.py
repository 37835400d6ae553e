"""torchvision's operators: suppression of overlapping boxes, pooling of regions, deformable convolution."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, Size, T
from tonnx.ir.infer import UNKNOWN, Dim, dims_of
from tonnx.lowering import sizes
from tonnx.lowering.rules import lower

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


@dataclass(frozen=True)
class Bins:
    """What is pooled of every region: so many rows and columns of bins."""

    height: int
    width: int
    scale: float
    """From the picture to the map."""
    samples: int
    """Points of a bin along each axis; 0: as many as there are pixels."""
    aligned: bool


def mean_of_points(op: Builder, x: ir.Value, corners: ir.Value, image: ir.Value, bins: Bins) -> ir.Value:
    """The mean of points in each bin of regions, of which ``image`` says where they lie."""
    return op.RoiAlign(
        x,
        corners,
        image,
        output_height=bins.height,
        output_width=bins.width,
        sampling_ratio=bins.samples,
        spatial_scale=bins.scale,
        coordinate_transformation_mode="half_pixel" if bins.aligned else "output_half_pixel",
        _shape=_pooled_shape(x, corners, bins),
    )


def _pooled_shape(x: ir.Value, rois: ir.Value, bins: Bins) -> list[Dim]:
    return [*(dims_of(rois) or [UNKNOWN])[:1], *(dims_of(x) or [UNKNOWN] * 2)[1:2], bins.height, bins.width]


def _aligned(op: Builder, x: ir.Value, rois: ir.Value, bins: Bins) -> ir.Value:
    image, corners = _split_regions(op, rois)
    return mean_of_points(op, x, corners, image, bins)


def largest(op: Builder, x: ir.Value, rois: ir.Value, bins: Bins) -> ir.Value:
    """The largest number in each bin of regions, which have their image in front."""
    shape = _pooled_shape(x, rois, bins)
    return op.MaxRoiPool(x, rois, pooled_shape=shape[2:], spatial_scale=bins.scale, _shape=shape)


def _aligned_by_channel(op: Builder, x: ir.Value, rois: ir.Value, bins: Bins) -> ir.Value:
    """Every bin has channels of its own: pool all channels in all bins, and keep each channel's own bin."""
    count = bins.height * bins.width
    pooled = _aligned(op, x, rois, bins)
    channels = int(x.shape[1]) // count  # type: ignore[index, arg-type]
    flat = op.Reshape(pooled, [-1, channels, count * count], _shape=[rois.shape[0], channels, count * count])  # type: ignore[index]
    own = op.Gather(flat, op.constant(np.arange(count, dtype=np.int64) * (count + 1)), axis=2)
    return op.Reshape(own, [-1, channels, bins.height, bins.width])


def _mean_by_channel(op: Builder, x: ir.Value, rois: ir.Value, bins: Bins) -> ir.Value:
    """The mean of each bin in the bin's own channels, as a product with masks of its rows and columns."""
    image, corners = _split_regions(op, rois)
    corners = _rounded(op, corners * bins.scale)
    channels = int(x.shape[1]) // (bins.height * bins.width)  # type: ignore[index, arg-type]
    rows = _masks(op, corners, 1, bins.height, op.size(x, 2))  # [regions, height, H]
    columns = _masks(op, corners, 0, bins.width, op.size(x, 3))
    shape = [-1, channels, bins.height, bins.width, op.size(x, 2), op.size(x, 3)]
    own = op.Reshape(op.Gather(x, image, axis=0), op.vector(shape))
    by_row = op.MatMul(op.Unsqueeze(rows, [1, 3, 4]), own)  # [regions, channels, height, width, 1, W]
    total = op.Squeeze(op.MatMul(by_row, op.Unsqueeze(columns, [1, 2, 5])), [4, 5])
    count = op.Unsqueeze(op.ReduceSum(rows, [2]), [1]) * op.Unsqueeze(
        op.Transpose(op.ReduceSum(columns, [2]), perm=[0, 2, 1]), [1]
    )
    return total / op.Max(count, 1.0)


@lower("torchvision.roi_align", pool=_aligned, is_alone=True)
@lower("torchvision.roi_pool", pool=largest)
@lower("torchvision.ps_roi_align", pool=_aligned_by_channel)
@lower("torchvision.ps_roi_pool", pool=_mean_by_channel)
def pooled_regions(
    op: Builder,
    x: ir.Value,
    rois: ir.Value,
    spatial_scale: float,
    pooled_height: Size,
    pooled_width: Size,
    sampling_ratio: int = 0,
    aligned: bool = True,
    used_outputs: Collection[int] | None = None,
    *,
    pool: Callable[[Builder, ir.Value, ir.Value, Bins], ir.Value],
    is_alone: bool = False,
) -> ir.Value | tuple[ir.Value, None]:
    """All but one have a second result for the backward pass, and nothing in ONNX gives it."""
    if not isinstance(pooled_height, int) or not isinstance(pooled_width, int):
        raise UnsupportedArgument("regions are pooled to an output size that is known when exporting")
    if not is_alone and 1 in (used_outputs or ()):
        raise UnsupportedArgument("the second result of a pooling of regions is for training only")
    bins = Bins(pooled_height, pooled_width, spatial_scale, max(sampling_ratio, 0), aligned)
    pooled = pool(op, op.cast(x, T.FLOAT), op.cast(rois, T.FLOAT), bins)
    return pooled if is_alone else (pooled, None)


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
    at = op.cast(sizes.arange(op, size), T.FLOAT)
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
