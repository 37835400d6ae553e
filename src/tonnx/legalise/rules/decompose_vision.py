"""Sampling grids and images."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.legalise.node_view import Blocked, NodeView, constant_of
from tonnx.legalise.sample import sample, sampled_grid, spatial_sizes
from tonnx.legalise.table import down, impossible, up
from tonnx.legalise.versioned_ops import arange, fixed, reduce, split, unsqueeze

impossible("ImageDecoder", 20, "nothing older decodes images")


@down("AffineGrid", 20)
def affine_grid(op: Builder, node: NodeView) -> ir.Value:
    """θ·(x, y, 1) at every pixel: the columns of θ, weighted with coordinates that broadcast."""
    theta, size = node.need("theta"), node.need("size")
    target = constant_of(size)
    dims = node.dims("theta")
    spatial = len(target) - 2 if target is not None else dims[1] if dims is not None else None
    if not isinstance(spatial, int):
        spatial = 2 if size.shape is not None and size.shape[0] == 4 else 3
    *columns, grid = (
        op.Reshape(column, [0] + [1] * spatial + [spatial]) for column in split(op, theta, 2, [1] * (spatial + 1))
    )
    for i, column in enumerate(columns):  # x belongs to the last axis, y to the one before it
        axis = spatial + 1 - i
        count = int(target[axis]) if target is not None else op.Gather(size, [axis], axis=0)
        coordinates = _coordinates(op, count, bool(node.attr("align_corners", 0)), node.dtype("theta"))
        along = op.Reshape(op.cast(coordinates, node.dtype("theta")), [-1] + [1] * (spatial + 2 - axis))
        grid = grid + column * along
    return grid


def _coordinates(op: Builder, count: int | ir.Value, align_corners: bool, dtype: ir.DataType) -> ir.Value:
    """-1 … 1: the centres of the outer pixels, or (not aligned) their outer edges; in float32, or float64 for it."""
    wide = T.DOUBLE if dtype == T.DOUBLE else T.FLOAT
    steps = op.cast(arange(op, count), wide)
    total = op.cast(count, wide) if isinstance(count, ir.Value) else op.constant(count, wide)
    if align_corners:
        return steps * (2.0 / (total - 1.0)) - 1.0
    return (steps * 2.0 + 1.0) / total - 1.0


@down("GridSample", 16)
def grid_sample(op: Builder, node: NodeView) -> ir.Value:
    """Coordinates from -1 … 1 to pixels, then one Gather for all the pixels around a point."""
    return sampled_grid(op, node, node.attr("mode", "bilinear").removeprefix("bi"))


@down("Col2Im", 18)
def col2im(op: Builder, node: NodeView) -> ir.Value:
    """A transposed convolution whose kernels each put one value in one place."""
    x = node.need("input")
    image, block = constant_of(node.need("image_shape")), node.ints("block_shape")
    if block is None:
        raise Blocked("the size of its blocks is computed at run time")
    spatial = len(block)
    strides = node.attr("strides", [1] * spatial)
    dilations = node.attr("dilations", [1] * spatial)
    pads = node.attr("pads", [0] * 2 * spatial)
    reach = [dilations[i] * (block[i] - 1) + 1 for i in range(spatial)]
    more = [pads[i] + pads[spatial + i] - reach[i] for i in range(spatial)]
    size = int(np.prod(block))
    kernels = op.constant(np.eye(size, dtype=np.float32).reshape(size, 1, *block), node.dtype("input"))
    how = {"kernel_shape": block, "strides": strides, "dilations": dilations}
    width, batch = fixed(x, 1), op.size(x, 0)
    shape = [batch, width // size if width else -1]
    # Channels do not mix: they are counted as images.
    if image is not None:
        spans = [int(image[i]) + more[i] for i in range(spatial)]
        rows = op.Reshape(x, [-1, size, *(span // stride + 1 for span, stride in zip(spans, strides, strict=True))])
        left_over = [span % stride for span, stride in zip(spans, strides, strict=True)]
        padding = {"pads": pads, "output_padding": left_over if any(left_over) else None}
        return op.Reshape(op.ConvTranspose(rows, kernels, **how, **padding), op.vector([*shape, *map(int, image)]))
    sizes = op.cast(node.need("image_shape"), T.INT64)
    counts = op.Div(sizes + op.constant(more, T.INT64), op.constant(strides, T.INT64)) + 1
    rows = op.Reshape(x, op.Concat(op.constant([-1, size], T.INT64), counts, axis=0))
    images = op.ConvTranspose(rows, kernels, **how, pads=[*pads[:spatial], *[0] * spatial])
    # The last stride may be cut short; what no kernel reaches is zero.
    axes = list(range(2, 2 + spatial))
    beyond = op.constant(_zeros(node.dtype("input")))
    images = op.Pad(images, op.constant([*[0] * (spatial + 4), *(n - 1 for n in strides)], T.INT64), beyond)
    images = op.Slice(images, op.constant([0] * spatial, T.INT64), sizes, op.constant(axes, T.INT64))
    return op.Reshape(images, op.Concat(op.vector(shape), sizes, axis=0))


def _zeros(dtype: ir.DataType) -> np.ndarray:
    return np.zeros((), dtype.numpy())


@down("CenterCropPad", 18)
def center_crop_pad(op: Builder, node: NodeView) -> ir.Value:
    """Slice where the image is too large, Pad where it is too small; the odd pixel goes to the end."""
    x = node.need("input_data")
    rank = node.rank("input_data")
    axes = [a % rank for a in node.attr("axes", list(range(rank)))]
    target = constant_of(node.need("shape"))
    sizes = [fixed(x, axis) for axis in axes]
    if target is not None and all(s is not None for s in sizes):
        asked = op.constant(target.astype(np.int64))
        have = op.constant(np.asarray(sizes, np.int64))
    else:
        asked = op.cast(node.need("shape"), T.INT64)
        have = op.vector([op.size(x, axis) for axis in axes])
    zero = op.constant([0] * len(axes), T.INT64)
    surplus, missing = op.Max(have - asked, zero), op.Max(asked - have, zero)
    start, before = op.Div(surplus, 2), op.Div(missing, 2)
    if not _is_zero(surplus):
        x = op.Slice(x, start, start + op.Min(have, asked), axes)
    if not _is_zero(missing):
        spread = _spread(op, before, axes, rank), _spread(op, missing - before, axes, rank)
        x = op.Pad(x, op.Concat(*spread, axis=0), op.constant(_zeros(node.dtype("input_data"))))
    return op.Identity(x) if x is node["input_data"] else x


def _is_zero(value: ir.Value) -> bool:
    array = constant_of(value)
    return array is not None and not array.any()


def _spread(op: Builder, values: ir.Value, axes: list[int], rank: int) -> ir.Value:
    """Values for some axes as values for all, zero for the others."""
    if axes == list(range(rank)):
        return values
    padded = op.Concat(values, op.constant([0], T.INT64), axis=0)
    return op.Gather(padded, [axes.index(a) if a in axes else len(axes) for a in range(rank)], axis=0)


@down("DeformConv", 19)
def deform_conv(op: Builder, node: NodeView) -> ir.Value:
    """The image read at every kernel position's own place, then a product with the weights."""
    x, weight, offset = node.need("X"), node.need("W"), node.need("offset")
    if node.rank("X") != 4:
        raise Blocked("only images (rank 4) are written out")
    shapes = [fixed(weight, a) for a in range(4)] + [fixed(x, 1), fixed(offset, 2), fixed(offset, 3)]
    if any(s is None for s in shapes):
        raise Blocked("its number of channels, kernel or output size is not known")
    out_channels, _, kernel_h, kernel_w, channels, height, width = (int(s) for s in shapes if s is not None)
    groups, offset_groups = node.attr("group", 1), node.attr("offset_group", 1)
    kernel, outputs = kernel_h * kernel_w, height * width
    places = _kernel_places(node, kernel_h, kernel_w, height, width)
    # (batch·groups of offsets, kernel·outputs, (x, y)); the offsets have y first.
    moved = op.Reshape(offset, [-1, kernel, 2, outputs])
    moved = op.Reshape(op.Transpose(moved, perm=[0, 1, 3, 2]), [-1, kernel * outputs, 2])
    points = op.Gather(moved, [1, 0], axis=2) + op.constant(places, node.dtype("offset"))
    image = op.Reshape(x, op.vector([-1, channels // offset_groups, op.size(x, 2), op.size(x, 3)]))
    columns = sample(op, image, points)
    if (mask := node["mask"]) is not None:
        columns = columns * op.Reshape(mask, [-1, kernel * outputs, 1])
    columns = op.Transpose(columns, perm=[0, 2, 1])
    columns = op.Reshape(columns, [-1, groups, channels * kernel // groups, outputs])
    flat_weight = op.Reshape(weight, [1, groups, out_channels // groups, -1])
    result = op.Reshape(op.MatMul(flat_weight, columns), [-1, out_channels, height, width])
    if (bias := node["B"]) is not None:
        result = result + op.Reshape(bias, [1, -1, 1, 1])
    return result


def _kernel_places(node: NodeView, kernel_h: int, kernel_w: int, height: int, width: int) -> np.ndarray:
    """Where a convolution reads: (1, kernel·outputs, (x, y))."""
    strides, dilations, pads = node.attr("strides", [1, 1]), node.attr("dilations", [1, 1]), node.attr("pads", [0] * 4)
    rows = np.arange(height)[:, None] * strides[0] - pads[0] + np.arange(kernel_h)[None] * dilations[0]
    columns = np.arange(width)[:, None] * strides[1] - pads[1] + np.arange(kernel_w)[None] * dilations[1]
    y = np.broadcast_to(rows.T[:, None, :, None], (kernel_h, kernel_w, height, width))
    x = np.broadcast_to(columns.T[None, :, None, :], (kernel_h, kernel_w, height, width))
    return np.stack([x, y], -1).reshape(1, -1, 2)


@down("RoiAlign", 10)
def roi_align(op: Builder, node: NodeView) -> ir.Value:
    """Written out; regions are at least one pixel wide."""
    return region_means(op, node, half_pixel=False)


def region_means(op: Builder, node: NodeView, *, half_pixel: bool) -> ir.Value:
    """Every bin of a region: the mean of some points in it, read between the pixels."""
    x, rois = node.need("X"), node.need("rois")
    high, wide = node.attr("output_height", 1), node.attr("output_width", 1)
    ratio = node.attr("sampling_ratio", 0)
    if ratio <= 0 or node.attr("mode", "avg") != "avg":
        raise Blocked("only the mean of a fixed number of points (sampling_ratio) is written out")
    dtype = node.dtype("X")
    left_top, right_bottom = split(op, rois * node.attr("spatial_scale", 1.0), 1, [2, 2])
    extent = right_bottom - left_top
    if half_pixel:
        left_top = left_top - 0.5
    else:
        extent = op.Max(extent, op.constant(1.0, dtype))  # regions are at least one pixel
    left, top = split(op, left_top, 1, [1, 1])
    width, height = split(op, extent, 1, [1, 1])

    def points(start: ir.Value, length: ir.Value, bins: int) -> ir.Value:
        """(regions, bins·ratio): the middles of equal parts."""
        middles = (np.arange(bins * ratio) + 0.5) / (bins * ratio)
        return start + length * op.constant(middles, dtype)

    columns = unsqueeze(op, points(left, width, wide), 1, 3)
    rows = unsqueeze(op, points(top, height, high), 2, 3)
    zeros = op.constant(np.zeros((1, high * ratio, wide * ratio, 1)), dtype)
    places = op.Reshape(op.Concat(columns + zeros, rows + zeros, axis=3), [0, -1, 2])
    batches = op.cast(node.need("batch_indices"), T.INT64)
    values = sample(op, x, places, "linear", "border", batches=batches)
    # More than a pixel outside there is nothing; nearer, the border.
    sizes = spatial_sizes(op, x, dtype)
    outside = op.Or(op.Less(places, op.constant(-1.0, dtype)), op.Greater(places, sizes))
    inside = reduce(op, "ReduceMin", op.Cast(op.Not(outside), to=int(dtype)), [2])
    bins = op.Reshape(values * inside, op.vector([-1, high, ratio, wide, ratio, op.size(x, 1)]))
    return op.Transpose(reduce(op, "ReduceMean", bins, [2, 4], keepdims=False), perm=[0, 3, 1, 2])


impossible("NonMaxSuppression", 10, "nothing older chooses boxes one after the other")


# Sampling at coordinates, between versions: GridSample (20), RoiAlign (16)


_OLD_NAMES = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}


@down("GridSample", 20)
def grid_sample_names(op: Builder, node: NodeView) -> ir.Value:
    """The interpolations were named after their two dimensions; volumes are written out."""
    if node.rank("X") != 4:  # before opset 20 only images can be sampled
        return sampled_grid(op, node, node.attr("mode", "linear"))
    mode = _OLD_NAMES[node.attr("mode", "linear")]
    return op.GridSample(node["X"], node["grid"], mode=mode, **node.attributes("mode"))


@up("GridSample", 20)
def grid_sample_new_names(op: Builder, node: NodeView) -> ir.Value:
    """The interpolations lost the prefix "bi"."""
    mode = node.attr("mode", "bilinear").removeprefix("bi")
    return op.GridSample(node["X"], node["grid"], mode=mode, **node.attributes("mode"))


@down("RoiAlign", 16)
def roi_align_output_half_pixel(op: Builder, node: NodeView) -> ir.Value | None:
    """Before 16 boxes are not shifted by half a pixel, and are at least one pixel wide."""
    if node.attr("coordinate_transformation_mode", "half_pixel") == "output_half_pixel":
        return None
    scale = node.attr("spatial_scale", 1.0)
    boxes = constant_of(node.need("rois"))
    if boxes is None or ((boxes[:, 2:] - boxes[:, :2]) * scale < 1).any():
        if node.attr("sampling_ratio", 0) > 0 and node.attr("mode", "avg") == "avg":
            return region_means(op, node, half_pixel=True)
        raise Blocked("half-pixel boxes are not known to be at least one pixel wide, as older versions make them")
    shifted = node.need("rois") - 0.5 / scale
    return op.RoiAlign(node["X"], shifted, node["batch_indices"], **node.attributes("coordinate_transformation_mode"))


@up("RoiAlign", 16)
def roi_align_mode(op: Builder, node: NodeView) -> ir.Value:
    """The default was "output_half_pixel"."""
    return op.RoiAlign(*node.inputs, coordinate_transformation_mode="output_half_pixel", **node.attributes())
