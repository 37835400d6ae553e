"""Sampling at coordinates: GridSample (20), RoiAlign (16)."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.node_view import Blocked, NodeView, constant_of
from tonnx.legalise.rules.decompose_vision import region_means
from tonnx.legalise.sample import sampled_grid
from tonnx.legalise.table import down, up

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
