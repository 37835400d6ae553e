"""Opsets 1 to 6, layers: BatchNormalization and Dropout (``is_test``), pooling, Upsample, recurrent networks."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.interpolate import Style, antialias_axis
from tonnx.legalise.node_view import Blocked, NodeView
from tonnx.legalise.rules.conv_pool import Window, spatial_pads
from tonnx.legalise.table import attributes_go, down, up

# What is done differently in training


@down("BatchNormalization", 7)
def batch_norm_is_test(op: Builder, node: NodeView) -> None:
    """That it is not training has to be said."""
    if any(node.used(i) for i in range(1, node.outputs)):
        raise Blocked("its statistics are outputs, which only training has")
    node.node.attributes.add(ir.AttrInt64("is_test", 1))


@up("BatchNormalization", 7)
def batch_norm_one_output_is_test(op: Builder, node: NodeView) -> None:
    """One output means that it is not training."""
    if not node.attr("is_test", 0) and any(node.used(i) for i in range(1, node.outputs)):
        raise Blocked("it is training, and its outputs had another meaning before opset 14")


@down("BatchNormalization", 6)
def batch_norm_consumed(op: Builder, node: NodeView) -> None:
    """Version 1 wants to know what may be overwritten: mean and variance, as in training."""
    node.node.attributes.add(ir.AttrInt64s("consumed_inputs", [0, 0, 0, 1, 1]))


@down("Dropout", 7)
def dropout_is_test(op: Builder, node: NodeView) -> None:
    """That it is not training has to be said."""
    if node.used(1):
        raise Blocked("its mask is an output, which only training has")
    node.node.attributes.add(ir.AttrInt64("is_test", 1))


up("BatchNormalization", 6)(attributes_go)  # what may be overwritten
up("Dropout", 7)(attributes_go)  # from 7 on it is never training
up(("LSTM", "GRU", "RNN"), 7)(attributes_go)  # all steps can be had without asking

# Pooling


@down("AveragePool", 7, up="padding does not count by default")
def average_without_padding(op: Builder, node: NodeView) -> ir.Value | None:
    """Padding does not count; where it has to, zeros are put there before."""
    include = node.attr("count_include_pad", 0)
    window = Window(node)
    if not include or not window.padded:
        return None
    pads = window.explicit_pads(node)
    x = op.Pad(node["X"], pads=spatial_pads(node.rank("X"), pads), value=0.0)
    return op.AveragePool(x, kernel_shape=window.kernel, strides=window.strides)


@down(("LpPool", "GlobalLpPool"), 2)
def power_as_fraction(op: Builder, node: NodeView) -> None:
    """The power was a fraction."""
    if "p" in node.node.attributes:
        node.node.attributes.add(ir.AttrFloat32("p", float(node.attr("p"))))


@up(("LpPool", "GlobalLpPool"), 2)
def power_as_integer(op: Builder, node: NodeView) -> None:
    """The power became a whole number."""
    power = node.attr("p", 2.0)
    if power != int(power):
        raise Blocked(f"from opset 2 on the power is a whole number, not {power:g}")
    if node.op_type == "LpPool" and "kernel_shape" not in node.node.attributes:
        raise Blocked("it says no kernel_shape")
    node.node.attributes.add(ir.AttrInt64("p", int(power)))


# Upsample


@down("Upsample", 7)
def upsample_height_and_width(op: Builder, node: NodeView) -> ir.Value:
    """Two factors, for pictures; anything else is written out."""
    x, scales, mode = node.need("X"), node.attr("scales"), node.attr("mode", "nearest")
    if len(scales) == 4 and scales[0] == scales[1] == 1:
        mode = {"linear": "bilinear"}.get(mode, mode)
        return op.Upsample(x, mode=mode, height_scale=scales[2], width_scale=scales[3])
    for axis, scale in enumerate(scales):
        size = op.size(x, axis)
        if scale == 1:
            continue
        if not isinstance(size, int):
            raise Blocked("it makes something else than pictures larger, of a size known only at run time")
        out = int(np.floor(np.float32(size) * np.float32(scale)))
        if mode != "nearest":
            x = antialias_axis(op, x, axis, out, scale, Style(mode))
            continue
        x = op.Gather(x, np.floor(np.arange(out) / scale).astype(np.int64), axis=axis)
    return op.Identity(x) if x is node["X"] else x


@up("Upsample", 7)
def upsample_scales(op: Builder, node: NodeView) -> ir.Value:
    """Factors of all axes."""
    scales = [1.0, 1.0, node.attr("height_scale"), node.attr("width_scale")]
    mode = {"bilinear": "linear"}.get(node.attr("mode", "nearest"), node.attr("mode", "nearest"))
    return op.Upsample(node["X"], scales=scales, mode=mode)


# Recurrent networks

_RECURRENT = ("LSTM", "GRU", "RNN")


@down(_RECURRENT, 7)
def sequence_on_request(op: Builder, node: NodeView) -> None:
    """That all steps are wanted has to be said."""
    node.node.attributes.add(ir.AttrInt64("output_sequence", int(node.used(0))))


@down("GRU", 3)
def gru_reset_first(op: Builder, node: NodeView) -> tuple[ir.Value, ...]:
    """The reset gate comes before the product, and the last state is always an output."""
    if node.attr("linear_before_reset", 0):
        raise Blocked("linear_before_reset, which PyTorch's and Paddle's GRU need, came with opset 3")
    attributes = {"direction": "forward", **node.attributes("linear_before_reset")}
    return op.GRU(*node.inputs, _outputs=2, **attributes)[: node.outputs]


@up("GRU", 3)
def gru_forward(op: Builder, node: NodeView) -> None:
    """The default of the direction was misspelt."""
    if node.attr("direction", "foward") == "foward":
        node.node.attributes.add(ir.AttrString("direction", "forward"))
