"""Resize and Upsample: every version has other inputs and other coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, Size, T
from tonnx.legalise.interpolate import Style, antialias_axis, resize_axis
from tonnx.legalise.node_view import Blocked, NodeView, constant_of
from tonnx.legalise.table import attributes_become_inputs, down, up


def _given(node: NodeView, name: str) -> ir.Value | None:
    """An input that is there and not empty: before 13 an empty tensor stood for a missing one."""
    value = node[name]
    return None if value is None or (value.shape is not None and value.shape == (0,)) else value


def _style(node: NodeView) -> Style:
    return Style(
        mode=node.attr("mode", "nearest"),
        coordinates=node.attr("coordinate_transformation_mode", "half_pixel"),
        nearest=node.attr("nearest_mode", "round_prefer_floor"),
        cubic=node.attr("cubic_coeff_a", -0.75),
        exclude_outside=bool(node.attr("exclude_outside", 0)),
    )


def _element(op: Builder, vector: ir.Value, at: int) -> ir.Value:
    if op.opset >= 10:
        return op.Slice(vector, [at], [at + 1], [0])
    return op.Slice(vector, axes=[0], starts=[at], ends=[at + 1])


class Plan:
    """The output size of every axis, and its scale where that was given instead of a size."""

    def __init__(
        self, op: Builder, node: NodeView, axes: list[int], scales: ir.Value | None, sizes: ir.Value | None
    ) -> None:
        self.node, self.axes = node, axes
        x = node.need("X")
        self.inputs = [op.size(x, axis) for axis in axes]
        self.sizes: list[Size] = []
        self.scales: list[ir.Value | float | None] = [None] * len(axes)
        fixed_sizes = constant_of(sizes) if sizes is not None else None
        factors = constant_of(scales) if scales is not None else None
        for i in range(len(axes)):
            if sizes is not None:
                self.sizes.append(int(fixed_sizes[i]) if fixed_sizes is not None else _element(op, sizes, i))
                continue
            assert scales is not None
            self.scales[i] = float(factors[i]) if factors is not None else _element(op, scales, i)
            self.sizes.append(_scaled(op, self.inputs[i], self.scales[i]))

    def ratio(self, i: int) -> float | None:
        """Out / in, if it is known."""
        scale, size, out = self.scales[i], self.inputs[i], self.sizes[i]
        if isinstance(scale, float):
            return scale
        if scale is None and isinstance(size, int) and isinstance(out, int):
            return out / size
        return None

    @property
    def ratios(self) -> list[float | None]:
        return [self.ratio(i) for i in range(len(self.axes))]

    @property
    def rounded_up(self) -> bool:
        """Whether a size is more than its scale gives, rounding down."""
        return any(
            _scaled_known(size, scale) != out
            for size, scale, out in zip(self.inputs, self.scales, self.sizes, strict=True)
        )

    def interpolate(self, op: Builder, style: Style) -> ir.Value:
        """All axes in turn, written out."""
        x = self.node.need("X")
        for axis, out, scale in zip(self.axes, self.sizes, self.scales, strict=True):
            if scale != 1.0:
                x = resize_axis(op, x, axis, out, scale, style)
        return op.Identity(x) if x is self.node["X"] else x


def _scaled_known(size: Size, scale: ir.Value | float | None) -> int | None:
    if isinstance(size, int) and isinstance(scale, float):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    return None


def _scaled(op: Builder, size: Size, scale: ir.Value | float | None) -> Size:
    """floor(size · scale), in float32 as runtimes do."""
    if (now := _scaled_known(size, scale)) is not None:
        return now
    if scale == 1.0:
        return size
    factor = scale if isinstance(scale, ir.Value) else op.constant([scale], T.FLOAT)
    length = op.cast(size, T.FLOAT) if isinstance(size, ir.Value) else op.constant([size], T.FLOAT)
    return op.cast(op.Floor(length * factor), T.INT64)


@down("Resize", 19, up="a new coordinate mode")
def resize_symmetric(op: Builder, node: NodeView) -> ir.Value | None:
    """half_pixel_symmetric differs from half_pixel only when the exact output size is not whole."""
    if node.attr("coordinate_transformation_mode", "half_pixel") != "half_pixel_symmetric":
        return None
    if (scales := _given(node, "scales")) is not None:
        rank = node.rank("X")
        plan = Plan(op, node, [axis % rank for axis in node.attr("axes") or range(rank)], scales, None)
        whole = [
            scale is not None and (scale.is_integer() or (isinstance(size, int) and (size * scale).is_integer()))
            for scale, size in zip(plan.ratios, plan.inputs, strict=True)
        ]
        if not all(whole):
            if node.attr("antialias", 0):
                raise Blocked("antialiasing with half_pixel_symmetric has no older form")
            return plan.interpolate(op, _style(node))
    node.node.attributes.add(ir.AttrString("coordinate_transformation_mode", "half_pixel"))
    return None


@down("Resize", 18, up="new attributes that are off by default")
def resize_all_axes(op: Builder, node: NodeView) -> ir.Value:
    """Scales and sizes of all axes; aspect ratio and antialiasing written out."""
    attributes = node.attributes("axes", "antialias", "keep_aspect_ratio_policy")
    roi, scales, sizes = (_given(node, name) for name in ("roi", "scales", "sizes"))
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    antialias = bool(node.attr("antialias", 0)) and node.attr("mode", "nearest") != "nearest"
    if node.attr("axes") is None and not antialias and (policy == "stretch" or sizes is None):
        return op.Resize(node["X"], roi, scales, sizes, **attributes)
    rank = node.rank("X")
    axes = [axis % rank for axis in node.attr("axes") or range(rank)]
    plan = Plan(op, node, axes, scales, sizes)
    if sizes is not None and policy != "stretch":
        _keep_aspect(op, plan, policy)
        if not all(isinstance(size, int) for size in plan.inputs) or plan.rounded_up:
            if antialias:
                raise Blocked("antialiasing at a common scale has no older form")
            return plan.interpolate(op, _style(node))
        sizes = None  # the scale says it all
    if antialias and not all(ratio is not None and ratio >= 1 for ratio in plan.ratios):
        return _antialias(op, plan, _style(node))
    if roi is not None:
        starts: list[Any] = [op.constant([0.0], roi.dtype)] * rank
        ends: list[Any] = [op.constant([1.0], roi.dtype)] * rank
        for i, axis in enumerate(axes):
            starts[axis], ends[axis] = _element(op, roi, i), _element(op, roi, len(axes) + i)
        roi = op.Concat(*starts, *ends, axis=0)
    if sizes is None:
        factors: list[Any] = [op.constant([1.0], T.FLOAT)] * rank
        for axis, scale in zip(axes, plan.scales, strict=True):
            factors[axis] = scale if isinstance(scale, ir.Value) else op.constant([scale], T.FLOAT)
        return op.Resize(node["X"], roi, op.Concat(*factors, axis=0), **attributes)
    every = op.sizes(node.need("X"))
    for axis, size in zip(axes, plan.sizes, strict=True):
        every[axis] = size
    return op.Resize(node["X"], roi, None, op.vector(every), **attributes)


def _keep_aspect(op: Builder, plan: Plan, policy: str) -> None:
    """One scale for all axes, the smallest (or largest) that was asked for; sizes are rounded to the nearest."""
    if all(isinstance(s, int) for s in (*plan.sizes, *plan.inputs)):
        ratios = [out / size for out, size in zip(plan.sizes, plan.inputs, strict=True)]  # type: ignore[operator]
        scale = min(ratios) if policy == "not_larger" else max(ratios)
        plan.sizes = [int(np.floor(scale * size + 0.5)) for size in plan.inputs]  # type: ignore[operator]
        plan.scales = [scale] * len(ratios)
        return
    lengths = op.cast(op.vector(plan.inputs), T.FLOAT)
    asked = op.cast(op.vector(plan.sizes), T.FLOAT) / lengths
    kind = op.ReduceMin if policy == "not_larger" else op.ReduceMax
    common = kind(asked, axes=[0], keepdims=1)
    rounded_sizes = op.cast(op.Floor(common * lengths + 0.5), T.INT64)
    plan.sizes = [_element(op, rounded_sizes, i) for i in range(len(plan.axes))]
    plan.scales = [common] * len(plan.axes)


def _antialias(op: Builder, plan: Plan, style: Style) -> ir.Value:
    x = plan.node.need("X")
    for axis, out, scale, ratio in zip(plan.axes, plan.sizes, plan.scales, plan.ratios, strict=True):
        if ratio == 1.0:
            continue
        x = antialias_axis(op, x, axis, out, scale, style)
    return op.Identity(x) if x is plan.node["X"] else x


@down("Resize", 13)
def resize_empty_inputs(op: Builder, node: NodeView) -> ir.Value:
    """Inputs that are missing become empty tensors."""
    empty = op.constant([], T.FLOAT)
    roi, scales, sizes = (_given(node, name) for name in ("roi", "scales", "sizes"))
    return op.Resize(
        node["X"], empty if roi is None else roi, empty if scales is None else scales, sizes, **node.attributes()
    )


@down("Resize", 11)
def resize_old_coordinates(op: Builder, node: NodeView) -> ir.Value:
    """Version 10 knows asymmetric coordinates only; what is not the same in them is written out."""
    scales, sizes = _given(node, "scales"), _given(node, "sizes")
    plan = Plan(op, node, list(range(node.rank("X"))), scales if sizes is None else None, sizes)
    style = _style(node)
    factors = _version_10_scales(plan, style)
    if factors is not None:
        return op.Resize(node["X"], op.constant(factors, T.FLOAT), mode=style.mode)
    return plan.interpolate(op, style)


def _version_10_scales(plan: Plan, style: Style) -> list[float] | None:
    """The scales with which Resize-10 does the same; None if there are none."""
    scales = []
    for i, ratio in enumerate(plan.ratios):
        if ratio is None:
            return None
        size, out = plan.inputs[i], plan.sizes[i]
        if ratio != 1 and not _same_in_version_10(ratio, style):
            return None
        factor = np.float32(ratio)
        if isinstance(size, int) and isinstance(out, int):
            # The size is floor(in · scale): nudge a scale whose product falls just short.
            if np.floor(np.float32(size) * factor) < out:
                factor = np.nextafter(factor, np.float32(np.inf))
            if np.floor(np.float32(size) * factor) != out:
                return None
        scales.append(float(factor))
    return scales


def _same_in_version_10(ratio: float, style: Style) -> bool:
    if style.mode == "linear":
        return style.coordinates == "asymmetric"
    if style.mode != "nearest":
        return False
    if style.coordinates == "asymmetric":
        # ONNX Runtime rounds up when it makes an image smaller.
        return style.nearest == ("floor" if ratio > 1 else "ceil")
    # Every pixel is repeated a whole number of times: half-pixel centres fall within the pixel itself.
    return "half_pixel" in style.coordinates and ratio.is_integer() and style.nearest.startswith("round")


@down("Resize", 10)
def resize_as_upsample(op: Builder, node: NodeView) -> ir.Value:
    """Making an image larger is Upsample; making it smaller is written out."""
    scales, mode = node.need("scales"), node.attr("mode", "nearest")
    factors = constant_of(scales)
    if factors is not None and (factors >= 1).all():
        return op.Upsample(node["X"], scales, mode=mode)
    plan = Plan(op, node, list(range(node.rank("X"))), scales, None)
    if mode == "nearest" and any(ratio is None for ratio in plan.ratios):
        raise Blocked("its scales are not known to be at least 1, and rounding depends on that")
    x = node.need("X")
    for axis, out, scale, ratio in zip(plan.axes, plan.sizes, plan.scales, plan.ratios, strict=True):
        smaller = ratio is not None and ratio < 1
        x = resize_axis(op, x, axis, out, scale, Style(mode, nearest="ceil" if smaller else "floor"))
    return x


@down("Upsample", 9)
def upsample_attribute(op: Builder, node: NodeView) -> ir.Value:
    """The scales become an attribute."""
    scales = node.const("scales")
    assert scales is not None
    return op.Upsample(node["X"], scales=[float(s) for s in scales], mode=node.attr("mode"))


# Up

attributes_become_inputs("Upsample", 9, "scales")


@up("Upsample", 10)
def upsample_as_resize(op: Builder, node: NodeView) -> ir.Value:
    """Upsample became Resize."""
    return op.Resize(node["X"], node["scales"], mode=node.attr("mode"))


@up("Resize", 11)
def resize_new_coordinates(op: Builder, node: NodeView) -> ir.Value:
    """The coordinates of version 10 have to be said."""
    factors, nearest = constant_of(node.need("scales")), "floor"
    if node.attr("mode", "nearest") == "nearest" and factors is not None and (factors < 1).any():
        if (factors > 1).any():
            raise Blocked("it makes one axis larger and another smaller, which are rounded in different ways")
        nearest = "ceil"
    return op.Resize(
        node["X"],
        op.constant([], T.FLOAT),
        node["scales"],
        mode=node.attr("mode"),
        coordinate_transformation_mode="asymmetric",
        nearest_mode=nearest,
    )


@up("Resize", 13)
def resize_missing_inputs(op: Builder, node: NodeView) -> ir.Value:
    """Empty tensors become missing inputs."""
    inputs = [_given(node, name) for name in ("roi", "scales", "sizes")]
    return op.Resize(node["X"], *inputs, **node.attributes())
