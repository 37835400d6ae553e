"""Activations, and the dropouts that do nothing in inference."""

from __future__ import annotations

from functools import partial

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.fit import is_channels_last
from tonnx.frontends.paddle.lower.rules import Number, Value, direct, lower
from tonnx.ir.build import Builder
from tonnx.lowering import sizes
from tonnx.lowering.ops import activation as like_torch
from tonnx.lowering.ops import reduce as torch_reduce
from tonnx.lowering.values import is_float

direct("relu(x)", like_torch.relu)
direct("relu6(x, *, threshold: float = 6.0)", lambda op, x, threshold: op.Clip(x, 0.0, threshold))
direct("elu(x, *, alpha: float = 1.0)", lambda op, x, alpha: op.Elu(x, alpha=alpha))
direct(
    "selu(x, *, scale: float = 1.0507009873554805, alpha: float = 1.6732632423543772)",
    lambda op, x, scale, alpha: op.Selu(x, alpha=alpha, gamma=scale),
)
direct("celu(x, *, alpha: float = 1.0)", lambda op, x, alpha: op.Celu(x, alpha=alpha))
direct("sigmoid(x)", lambda op, x: op.Sigmoid(x))
direct("logsigmoid(x)", like_torch.log_sigmoid)
direct("tanh(x)", lambda op, x: op.Tanh(x))
direct("tanh_shrink(x)", lambda op, x: x - op.Tanh(x))
direct("silu(x)", like_torch.silu)
direct("swish(x, *, beta: float = 1.0)", lambda op, x, beta: op.Mul(x, op.Sigmoid(x if beta == 1 else x * beta)))
direct("hardtanh(x, *, t_min: float = 0.0, t_max: float = 24.0)", lambda op, x, t_min, t_max: op.Clip(x, t_min, t_max))
direct("hardshrink(x, *, threshold: float = 0.5)", lambda op, x, threshold: op.Shrink(x, bias=0.0, lambd=threshold))
direct("softplus(x, *, beta: float = 1.0, threshold: float = 20.0)", like_torch.softplus)
direct("softsign(x)", lambda op, x: op.Softsign(x))
direct("fused_softmax_mask(x, mask)", lambda op, x, mask: op.Softmax(x + mask, axis=-1))
direct("leaky_relu(x, *, negative_slope: float = 0.02)", lambda op, x, slope: op.LeakyRelu(x, alpha=slope))
direct("gelu(x, *, approximate: bool = False)", lambda op, x, fast: op.Gelu(x, approximate="tanh" if fast else "none"))
direct("stanh(x, *, scale_a: float = 0.67, scale_b: float = 1.7159)", lambda op, x, a, b: op.Tanh(x * a) * b)
direct("mish(x)", like_torch.mish, unused="lambda_")
direct(
    "hardsigmoid(x, *, slope: float = 0.2, offset: float = 0.5)",
    lambda op, x, slope, offset: op.HardSigmoid(x, alpha=slope, beta=offset),
)
direct("softshrink(x, *, threshold: float = 0.5)", lambda op, x, edge: op.Shrink(x, bias=edge, lambd=edge))
direct("softmax(x, *, axis: int = -1)", partial(torch_reduce.softmax, op_type="Softmax"))
direct("log_softmax(x, *, axis: int = -1)", partial(torch_reduce.softmax, op_type="LogSoftmax"))
direct("soft_relu(x, *, threshold: float = 40.0)", lambda op, x, t: op.Log(op.Exp(op.Clip(x, -t, t)) + 1.0))


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


@lower("swiglu")
def swiglu(op: Builder, x: Value, y: Value | None = None) -> ir.Value:
    if y is None:
        x, y = op.Split(x, axis=-1, num_outputs=2, _outputs=2)
    return like_torch.silu(op, x) * y


@lower("hardswish")
def hardswish(op: Builder, x: Value, *, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0) -> ir.Value:
    if (threshold, scale, offset) == (6, 6, 3):
        return op.HardSwish(x)
    return x * op.Clip(x + offset, 0.0, threshold) / scale


@lower("thresholded_relu")
def thresholded_relu(op: Builder, x: Value, *, threshold: float = 1.0, value: float = 0.0) -> ir.Value:
    if value == 0:
        return op.ThresholdedRelu(x, alpha=threshold)
    return op.Where(op.Greater(x, threshold), x, value)


@lower("label_smooth")
def label_smooth(op: Builder, label: Value, prior_dist: Value | None = None, *, epsilon: float = 0.0) -> ir.Value:
    if prior_dist is not None:
        return label * (1 - epsilon) + prior_dist * epsilon
    classes = op.size(label, -1)
    if isinstance(classes, int):
        return label * (1 - epsilon) + epsilon / classes
    return label * (1 - epsilon) + op.Div(op.constant(epsilon, label.dtype), op.cast(classes, label.dtype))


@lower("maxout")
def maxout(op: Builder, x: Value, *, groups: int, axis: int = 1) -> ir.Value:
    """The largest of every ``groups`` channels that lie side by side."""
    at = axis % op.rank(x)
    own = op.sizes(x)
    (channels,) = sizes.known("maxout of a number of channels", own[at])
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
