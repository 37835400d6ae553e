"""PyTorch's integer kernels of one tensor, which give one of another step: activations, pooling, norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder
from tonnx.lowering.ops import activation, math, norm
from tonnx.lowering.ops.quant import step_of, to_step
from tonnx.lowering.ops.quantized import rectified
from tonnx.lowering.rules import RULES, Lowering, Rule, lower, rule_for, rule_of

Ints = Sequence[int]
Weight = ir.Value | None


def _kernel(*names: str, real: Lowering, unused: str = "", **settled: Any) -> None:
    """Enter kernels that do to integers what ``real`` does to reals, at the output's step (or the input's)."""
    rule = rule_of(real, **settled)

    def kernel(op: Builder, x: ir.Value, **arguments: Any) -> ir.Value:
        step = step_of(x)
        if "output_scale" in arguments:
            step = step.moved(arguments["output_scale"], arguments["output_zero_point"])
        own = {name: value for name, value in arguments.items() if name in rule.parameters}
        return to_step(op, rule.function(op, x=x, **own), step)

    for name in names:
        parameters = (*rule.parameters, "output_scale", "output_zero_point")
        RULES.add(f"quantized.{name}", Rule(kernel, parameters, frozenset(unused.split())))


_kernel("hardswish", real=activation.hardswish)
_kernel("sigmoid", real=lambda op, x: op.Sigmoid(x))
_kernel("softmax", real=lambda op, x, dim: op.Softmax(x, axis=dim))
_kernel("leaky_relu", real=activation.leaky_relu, unused="inplace")
_kernel("prelu", real=activation.prelu)
_kernel("elu", real=activation.elu)
_kernel("celu", real=activation.celu)
_kernel("relu6", real=activation.relu6, unused="inplace")
_kernel("clamp", real=math.clamp)
_kernel("layer_norm", real=norm.layer_norm)
_kernel("group_norm", real=norm.group_norm)


@lower("quantized.dropout", unused="output_scale output_zero_point p")
def dropout(op: Builder, x: ir.Value, training: bool = False) -> ir.Value:
    if training:
        raise UnsupportedArgument("dropout of a quantised tensor in training")
    return x


def _max_pool(
    op: Builder, x: ir.Value, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> ir.Value:
    windows = {"stride": stride, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    rule = rule_for("aten", f"max_pool{len(kernel_size)}d", "")
    assert rule is not None
    return rule.function(op, x=x, kernel_size=kernel_size, **windows)


def _batch_norm(
    op: Builder, x: ir.Value, weight: Weight, bias: Weight, mean: ir.Value, var: ir.Value, eps: float, *, after: str
) -> ir.Value:
    y = norm.batch_norm(op, x, weight, bias, mean, var, training=False, momentum=0.0, eps=eps)
    return rectified(op, y, after)


_kernel("batch_norm", "batch_norm1d", "batch_norm2d", "batch_norm3d", real=_batch_norm, after="")
_kernel(*(f"batch_norm{axes}_relu" for axes in ("", "1d", "2d", "3d")), real=_batch_norm, after="relu")
_kernel(
    "instance_norm",
    real=lambda op, x, weight, bias, eps: norm.instance_norm(op, x, weight, bias, None, None, True, 0.0, eps),
)
_kernel("max_pool1d", "max_pool2d", real=_max_pool)
