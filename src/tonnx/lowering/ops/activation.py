"""Activations, and the dropouts that do nothing in inference."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder
from tonnx.lowering.rules import lower
from tonnx.lowering.values import axis_of, is_float

T = ir.DataType
Number = int | float


@lower("aten.relu")
def relu(op: Builder, x: ir.Value) -> ir.Value:
    return op.Relu(x) if is_float(x.dtype) else op.Max(x, 0)


@lower("aten.hardtanh")
def hardtanh(op: Builder, x: ir.Value, min_val: Number = -1, max_val: Number = 1) -> ir.Value:
    return op.Clip(x, min_val, max_val)


@lower("aten.relu6")
def relu6(op: Builder, x: ir.Value) -> ir.Value:
    return hardtanh(op, x, 0, 6)


@lower("aten.leaky_relu")
def leaky_relu(op: Builder, x: ir.Value, negative_slope: float = 0.01) -> ir.Value:
    return op.LeakyRelu(x, alpha=negative_slope)


@lower("aten.rrelu", "aten.rrelu_with_noise")
def rrelu(
    op: Builder, x: ir.Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, noise: object = None
) -> ir.Value:
    if training:
        raise UnsupportedArgument("rrelu with training=True draws random slopes, which no file can reproduce")
    return leaky_relu(op, x, (lower + upper) / 2)


@lower("aten.prelu", "aten._prelu_kernel")
def prelu(op: Builder, x: ir.Value, weight: ir.Value) -> ir.Value:
    rank = op.rank(x)
    if op.rank(weight) == 1 and rank > 2:  # one slope a channel, and channels are axis 1
        weight = op.Reshape(weight, [-1] + [1] * (rank - 2))
    elif op.rank(weight) > rank:
        weight = op.Reshape(weight, [1] * rank)
    return op.PRelu(x, weight)


@lower("aten.elu")
def elu(op: Builder, x: ir.Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> ir.Value:
    if input_scale == 1:
        result = op.Elu(x, alpha=alpha)
    else:
        result = op.Where(op.Greater(x, 0.0), x, op.Elu(x * input_scale, alpha=alpha))
    return result if scale == 1 else result * scale


@lower("aten.selu")
def selu(op: Builder, x: ir.Value) -> ir.Value:
    return op.Selu(x)


@lower("aten.celu")
def celu(op: Builder, x: ir.Value, alpha: float = 1.0) -> ir.Value:
    return op.Celu(x, alpha=alpha)


@lower("aten.gelu")
def gelu(op: Builder, x: ir.Value, approximate: str = "none") -> ir.Value:
    return op.Gelu(x, approximate=approximate)


@lower("aten.silu")
def silu(op: Builder, x: ir.Value) -> ir.Value:
    # Not Swish-24: ONNX Runtime has no kernel for it, and this form is the one that it fuses.
    return op.Mul(x, op.Sigmoid(x))


@lower("aten.mish")
def mish(op: Builder, x: ir.Value) -> ir.Value:
    return op.Mish(x)


@lower("aten.hardswish")
def hardswish(op: Builder, x: ir.Value) -> ir.Value:
    return op.HardSwish(x)


@lower("aten.hardsigmoid")
def hardsigmoid(op: Builder, x: ir.Value) -> ir.Value:
    return op.HardSigmoid(x, alpha=1 / 6, beta=0.5)


@lower("aten.softplus")
def softplus(op: Builder, x: ir.Value, beta: float = 1, threshold: float = 20) -> ir.Value:
    if beta == 1 and threshold >= 20:
        return op.Softplus(x)  # beyond 20 the two branches agree to the last digit of float32
    scaled = x * beta
    return op.Where(op.Greater(scaled, float(threshold)), x, op.Softplus(scaled) / beta)


@lower("aten.log_sigmoid")
def log_sigmoid(op: Builder, x: ir.Value) -> ir.Value:
    return op.Neg(op.Softplus(op.Neg(x)))


@lower("aten.log_sigmoid_forward")
def log_sigmoid_forward(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    return log_sigmoid(op, x), op.constant([], x.dtype)  # the buffer is for the backward pass


@lower("aten.softshrink")
def softshrink(op: Builder, x: ir.Value, lambd: float = 0.5) -> ir.Value:
    return op.Shrink(x, bias=lambd, lambd=lambd)


@lower("aten.hardshrink")
def hardshrink(op: Builder, x: ir.Value, lambd: float = 0.5) -> ir.Value:
    return op.Shrink(x, bias=0.0, lambd=lambd)


@lower("aten.threshold")
def threshold(op: Builder, x: ir.Value, threshold: Number, value: Number) -> ir.Value:
    return op.Where(op.LessOrEqual(x, threshold), value, x)


@lower("aten.glu")
def glu(op: Builder, x: ir.Value, dim: int = -1) -> ir.Value:
    value, gate = op.Split(x, axis=axis_of(op, x, dim), num_outputs=2, _outputs=2)
    return value * op.Sigmoid(gate)


@lower("aten.dropout", "aten.feature_dropout", "aten.alpha_dropout", "aten.feature_alpha_dropout")
def dropout(op: Builder, x: ir.Value, p: float, train: bool) -> ir.Value:
    if not train or p == 0:
        return x
    if p == 1:
        return x * 0
    raise UnsupportedArgument(
        f"dropout with p={p} stays active in inference and draws random numbers, which no file can reproduce",
        hint="call model.eval() before torch.export.export and pass training=self.training to dropout; or export with "
        'training="PRESERVE", which writes dropout as it is',
    )


@lower("aten.native_dropout")
def native_dropout(op: Builder, x: ir.Value, p: float, train: bool | None) -> tuple[ir.Value, ir.Value]:
    kept = op.Expand(op.constant(True), op.vector(op.sizes(x)))
    return dropout(op, x, p, bool(train)), kept
