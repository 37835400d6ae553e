"""Activations, and the dropouts that do nothing in inference."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.fit import is_channels_last
from tonnx.frontends.paddle.lower.rules import Number, Value, lower
from tonnx.ir.build import Builder
from tonnx.lowering.ops import activation as like_torch
from tonnx.lowering.ops import reduce as torch_reduce
from tonnx.lowering.values import is_float

T = ir.DataType


@lower("relu")
def relu(op: Builder, x: Value) -> ir.Value:
    return like_torch.relu(op, x)


@lower("relu6")
def relu6(op: Builder, x: Value, *, threshold: float = 6.0) -> ir.Value:
    return op.Clip(x, 0.0, threshold)


@lower("leaky_relu")
def leaky_relu(op: Builder, x: Value, *, negative_slope: float = 0.02) -> ir.Value:
    return op.LeakyRelu(x, alpha=negative_slope)


@lower("prelu")
def prelu(op: Builder, x: Value, alpha: Value, *, data_format: str = "NCHW", mode: str = "all") -> ir.Value:
    rank = op.rank(x)
    if mode == "all":
        return op.PRelu(x, op.Reshape(alpha, [1]))
    if mode == "element":
        return op.PRelu(x, op.reshape(alpha, [1, *op.sizes(x)[1:]]))
    behind = 0 if is_channels_last(data_format) else rank - 2
    return op.PRelu(x, op.Reshape(alpha, [-1] + [1] * behind))


@lower("rrelu")
def rrelu(op: Builder, x: Value, *, lower: float = 1 / 8, upper: float = 1 / 3, is_test: bool = False) -> ir.Value:
    if not is_test:
        raise UnsupportedArgument("rrelu in training draws random slopes, which no file can reproduce")
    return op.LeakyRelu(x, alpha=(lower + upper) / 2)


@lower("elu")
def elu(op: Builder, x: Value, *, alpha: float = 1.0) -> ir.Value:
    return op.Elu(x, alpha=alpha)


@lower("selu")
def selu(
    op: Builder, x: Value, *, scale: float = 1.0507009873554805, alpha: float = 1.6732632423543772
) -> ir.Value:
    return op.Selu(x, alpha=alpha, gamma=scale)


@lower("celu")
def celu(op: Builder, x: Value, *, alpha: float = 1.0) -> ir.Value:
    return op.Celu(x, alpha=alpha)


@lower("gelu")
def gelu(op: Builder, x: Value, *, approximate: bool = False) -> ir.Value:
    return op.Gelu(x, approximate="tanh" if approximate else "none")


@lower("sigmoid")
def sigmoid(op: Builder, x: Value) -> ir.Value:
    return op.Sigmoid(x)


@lower("logsigmoid")
def logsigmoid(op: Builder, x: Value) -> ir.Value:
    return like_torch.log_sigmoid(op, x)


@lower("tanh")
def tanh(op: Builder, x: Value) -> ir.Value:
    return op.Tanh(x)


@lower("tanh_shrink")
def tanh_shrink(op: Builder, x: Value) -> ir.Value:
    return x - op.Tanh(x)


@lower("stanh")
def stanh(op: Builder, x: Value, *, scale_a: float = 0.67, scale_b: float = 1.7159) -> ir.Value:
    return op.Tanh(x * scale_a) * scale_b


@lower("silu")
def silu(op: Builder, x: Value) -> ir.Value:
    return like_torch.silu(op, x)


@lower("swish")
def swish(op: Builder, x: Value, *, beta: float = 1.0) -> ir.Value:
    return op.Mul(x, op.Sigmoid(x if beta == 1 else x * beta))


@lower("swiglu")
def swiglu(op: Builder, x: Value, y: Value | None = None) -> ir.Value:
    if y is None:
        x, y = op.Split(x, axis=-1, num_outputs=2, _outputs=2)
    return like_torch.silu(op, x) * y


@lower("mish")
def mish(op: Builder, x: Value, *, lambda_: float = 20.0) -> ir.Value:
    return op.Mish(x)


@lower("hardswish")
def hardswish(op: Builder, x: Value, *, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0) -> ir.Value:
    if (threshold, scale, offset) == (6, 6, 3):
        return op.HardSwish(x)
    return x * op.Clip(x + offset, 0.0, threshold) / scale


@lower("hardsigmoid")
def hardsigmoid(op: Builder, x: Value, *, slope: float = 0.2, offset: float = 0.5) -> ir.Value:
    return op.HardSigmoid(x, alpha=slope, beta=offset)


@lower("hardtanh")
def hardtanh(op: Builder, x: Value, *, t_min: float = 0.0, t_max: float = 24.0) -> ir.Value:
    return op.Clip(x, t_min, t_max)


@lower("hardshrink")
def hardshrink(op: Builder, x: Value, *, threshold: float = 0.5) -> ir.Value:
    return op.Shrink(x, bias=0.0, lambd=threshold)


@lower("softshrink")
def softshrink(op: Builder, x: Value, *, threshold: float = 0.5) -> ir.Value:
    return op.Shrink(x, bias=threshold, lambd=threshold)


@lower("thresholded_relu")
def thresholded_relu(op: Builder, x: Value, *, threshold: float = 1.0, value: float = 0.0) -> ir.Value:
    if value == 0:
        return op.ThresholdedRelu(x, alpha=threshold)
    return op.Where(op.Greater(x, threshold), x, value)


@lower("softplus")
def softplus(op: Builder, x: Value, *, beta: float = 1.0, threshold: float = 20.0) -> ir.Value:
    return like_torch.softplus(op, x, beta, threshold)


@lower("softsign")
def softsign(op: Builder, x: Value) -> ir.Value:
    return op.Softsign(x)


@lower("soft_relu")
def soft_relu(op: Builder, x: Value, *, threshold: float = 40.0) -> ir.Value:
    return op.Log(op.Exp(op.Clip(x, -threshold, threshold)) + 1.0)


@lower("softmax")
def softmax(op: Builder, x: Value, *, axis: int = -1) -> ir.Value:
    return torch_reduce.softmax(op, x, axis)


@lower("log_softmax")
def log_softmax(op: Builder, x: Value, *, axis: int = -1) -> ir.Value:
    return torch_reduce.log_softmax(op, x, axis)


@lower("fused_softmax_mask")
def fused_softmax_mask(op: Builder, x: Value, mask: Value) -> ir.Value:
    return op.Softmax(x + mask, axis=-1)


@lower("label_smooth")
def label_smooth(op: Builder, label: Value, prior_dist: Value | None = None, *, epsilon: float = 0.0) -> ir.Value:
    if prior_dist is not None:
        return label * (1 - epsilon) + prior_dist * epsilon
    classes = op.size(label, -1)
    if isinstance(classes, int):
        return label * (1 - epsilon) + epsilon / classes
    return label * (1 - epsilon) + op.Div(op.constant(epsilon, label.dtype), op.cast(classes, label.dtype))  # type: ignore[arg-type]


@lower("maxout")
def maxout(op: Builder, x: Value, *, groups: int, axis: int = 1) -> ir.Value:
    """The largest of every ``groups`` channels that lie side by side."""
    at = axis % op.rank(x)
    own = op.sizes(x)
    channels = own[at]
    if not isinstance(channels, int):
        raise UnsupportedArgument("maxout of a number of channels that is known only at run time")
    apart = op.reshape(x, [*own[:at], channels // groups, groups, *own[at + 1 :]])
    return op.ReduceMax(apart, [at + 1], keepdims=0)


@lower("dropout")
def dropout(
    op: Builder,
    x: Value,
    seed_tensor: Value | None = None,
    p: Number = 0.5,
    *,
    is_test: bool = False,
    mode: str = "downgrade_in_infer",
    dropout_implementation: str | None = None,
) -> ir.Value:
    how = dropout_implementation or mode
    if not is_test and p != 0:
        raise UnsupportedArgument(
            f"dropout with p={p} stays active in inference and draws random numbers, which no file can reproduce",
            hint="call layer.eval() before the model is saved",
        )
    if how == "upscale_in_train" or p == 0 or not is_float(x.dtype):
        return x
    return x * (1 - p)
