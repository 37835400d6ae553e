"""Activations, and the dropouts that do nothing in inference."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder
from tonnx.lowering.rules import lower
from tonnx.lowering.values import axis_of, is_float

Number = int | float


@lower("aten.rrelu", "aten.rrelu_with_noise", unused="noise")
def rrelu(op: Builder, x: ir.Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> ir.Value:
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


@lower("aten.silu")
def silu(op: Builder, x: ir.Value) -> ir.Value:
    # Not Swish-24: ONNX Runtime has no kernel for it, and this form is the one that it fuses.
    return op.Mul(x, op.Sigmoid(x))


@lower("aten.softplus")
def softplus(op: Builder, x: ir.Value, beta: float = 1, threshold: float = 20) -> ir.Value:
    if beta == 1 and threshold >= 20:
        return op.Softplus(x)  # beyond 20 the two branches agree to the last digit of float32
    scaled = x * beta
    return op.Where(op.Greater(scaled, float(threshold)), x, op.Softplus(scaled) / beta)


@lower("aten.log_sigmoid_forward")
def log_sigmoid_forward(op: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    return log_sigmoid(op, x), op.constant([], x.dtype)  # the buffer is for the backward pass


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


relu = lower("aten.relu")(lambda op, x: op.Relu(x) if is_float(x.dtype) else op.Max(x, 0))
hardtanh = lower("aten.hardtanh")(lambda op, x, min_val=-1, max_val=1: op.Clip(x, min_val, max_val))
relu6 = lower("aten.relu6")(lambda op, x: hardtanh(op, x, 0, 6))
leaky_relu = lower("aten.leaky_relu")(lambda op, x, negative_slope=0.01: op.LeakyRelu(x, alpha=negative_slope))
selu = lower("aten.selu")(lambda op, x: op.Selu(x))
celu = lower("aten.celu")(lambda op, x, alpha=1.0: op.Celu(x, alpha=alpha))
gelu = lower("aten.gelu")(lambda op, x, approximate="none": op.Gelu(x, approximate=approximate))
mish = lower("aten.mish")(lambda op, x: op.Mish(x))
hardswish = lower("aten.hardswish")(lambda op, x: op.HardSwish(x))
hardsigmoid = lower("aten.hardsigmoid")(lambda op, x: op.HardSigmoid(x, alpha=1 / 6, beta=0.5))
log_sigmoid = lower("aten.log_sigmoid")(lambda op, x: op.Neg(op.Softplus(op.Neg(x))))
softshrink = lower("aten.softshrink")(lambda op, x, lambd=0.5: op.Shrink(x, bias=lambd, lambd=lambd))
hardshrink = lower("aten.hardshrink")(lambda op, x, lambd=0.5: op.Shrink(x, bias=0.0, lambd=lambd))
threshold = lower("aten.threshold")(lambda op, x, threshold, value: op.Where(op.LessOrEqual(x, threshold), value, x))
