"""PyTorch's integer kernels of one tensor, which give one of another step: activations, pooling, norms."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder
from tonnx.lowering.ops import activation, math, norm
from tonnx.lowering.ops.quant import step_of, to_step
from tonnx.lowering.ops.quantized import rectified
from tonnx.lowering.rules import lower, rule_for
from tonnx.lowering.values import Number


@lower("quantized.hardswish")
def hardswish(op: Builder, x: ir.Value, output_scale: float, output_zero_point: int) -> ir.Value:
    return to_step(op, activation.hardswish(op, x), step_of(x).moved(output_scale, output_zero_point))


@lower("quantized.sigmoid")
def sigmoid(op: Builder, x: ir.Value, output_scale: float, output_zero_point: int) -> ir.Value:
    return to_step(op, op.Sigmoid(x), step_of(x).moved(output_scale, output_zero_point))


@lower("quantized.softmax")
def softmax(op: Builder, x: ir.Value, dim: int, output_scale: float, output_zero_point: int) -> ir.Value:
    return to_step(op, op.Softmax(x, axis=dim), step_of(x).moved(output_scale, output_zero_point))


@lower("quantized.leaky_relu")
def leaky_relu(
    op: Builder, x: ir.Value, negative_slope: float, inplace: bool, output_scale: float, output_zero_point: int
) -> ir.Value:
    made = op.LeakyRelu(x, alpha=negative_slope)
    return to_step(op, made, step_of(x).moved(output_scale, output_zero_point))


@lower("quantized.prelu")
def prelu(op: Builder, x: ir.Value, weight: ir.Value, output_scale: float, output_zero_point: int) -> ir.Value:
    return to_step(op, activation.prelu(op, x, weight), step_of(x).moved(output_scale, output_zero_point))


@lower("quantized.elu")
def elu(
    op: Builder,
    x: ir.Value,
    output_scale: float,
    output_zero_point: int,
    alpha: float = 1,
    scale: float = 1,
    input_scale: float = 1,
) -> ir.Value:
    made = activation.elu(op, x, alpha, scale, input_scale)
    return to_step(op, made, step_of(x).moved(output_scale, output_zero_point))


@lower("quantized.celu")
def celu(op: Builder, x: ir.Value, output_scale: float, output_zero_point: int, alpha: float = 1) -> ir.Value:
    return to_step(op, activation.celu(op, x, alpha), step_of(x).moved(output_scale, output_zero_point))


@lower("quantized.dropout")
def dropout(
    op: Builder, x: ir.Value, output_scale: float, output_zero_point: int, p: float = 0.5, training: bool = False
) -> ir.Value:
    if training:
        raise UnsupportedArgument("dropout of a quantised tensor in training")
    return x


@lower("quantized.relu6")
def relu6(op: Builder, x: ir.Value, inplace: bool = False) -> ir.Value:
    return to_step(op, op.Clip(x, 0.0, 6.0), step_of(x))


@lower("quantized.clamp")
def clamp(op: Builder, x: ir.Value, min: Number | None = None, max: Number | None = None) -> ir.Value:
    return to_step(op, math.clamp(op, x, min, max), step_of(x))


@lower("quantized.max_pool1d", "quantized.max_pool2d")
def max_pool(
    op: Builder,
    x: ir.Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> ir.Value:
    rule = rule_for("aten", f"max_pool{len(kernel_size)}d", "")
    assert rule is not None
    made = rule.function(
        op, x, kernel_size=kernel_size, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode
    )
    return to_step(op, made, step_of(x))


@lower("quantized.batch_norm", "quantized.batch_norm1d", "quantized.batch_norm2d", "quantized.batch_norm3d", after="")
@lower("quantized.batch_norm_relu", "quantized.batch_norm1d_relu", "quantized.batch_norm2d_relu", after="relu")
@lower("quantized.batch_norm3d_relu", after="relu")
def batch_norm(
    op: Builder,
    x: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    mean: ir.Value,
    var: ir.Value,
    eps: float,
    output_scale: float,
    output_zero_point: int,
    *,
    after: str,
) -> ir.Value:
    made = norm.batch_norm(op, x, weight, bias, mean, var, training=False, momentum=0.0, eps=eps)
    return to_step(op, rectified(op, made, after), step_of(x).moved(output_scale, output_zero_point))


@lower("quantized.layer_norm")
def layer_norm(
    op: Builder,
    x: ir.Value,
    normalized_shape: Sequence[int],
    weight: ir.Value | None,
    bias: ir.Value | None,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> ir.Value:
    made = norm.layer_norm(op, x, normalized_shape, weight, bias, eps)
    return to_step(op, made, step_of(x).moved(output_scale, output_zero_point))


@lower("quantized.group_norm")
def group_norm(
    op: Builder,
    x: ir.Value,
    num_groups: int,
    weight: ir.Value | None,
    bias: ir.Value | None,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> ir.Value:
    made = norm.group_norm(op, x, num_groups, weight, bias, eps)
    return to_step(op, made, step_of(x).moved(output_scale, output_zero_point))


@lower("quantized.instance_norm")
def instance_norm(
    op: Builder,
    x: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    eps: float,
    output_scale: float,
    output_zero_point: int,
) -> ir.Value:
    made = norm.instance_norm(op, x, weight, bias, None, None, True, 0.0, eps)
    return to_step(op, made, step_of(x).moved(output_scale, output_zero_point))
