"""Activation functions, from arithmetic."""

from __future__ import annotations

import math

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.node_view import NodeView
from tonnx.legalise.table import down
from tonnx.legalise.versioned_ops import FLOATS, number, select

T = ir.DataType


@down("Swish", 24)
def swish(op: Builder, node: NodeView) -> ir.Value:
    """x·σ(αx)."""
    x, alpha = node.need("X"), node.attr("alpha", 1.0)
    return x * op.Sigmoid(x if alpha == 1.0 else x * alpha)


@down("Gelu", 20)
def gelu(op: Builder, node: NodeView) -> ir.Value:
    """x·Φ(x), in the form that runtimes fuse back."""
    x = node.need("X")
    if node.attr("approximate", "none") == "tanh":
        inner = (x + op.Pow(x, 3.0) * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (op.Tanh(inner) + 1.0)
    return x * (op.Erf(x / math.sqrt(2)) + 1.0) * 0.5


@down("Mish", 18)
def mish(op: Builder, node: NodeView) -> ir.Value:
    """x·tanh(ln(1 + eˣ))."""
    x = node.need("X")
    return x * op.Tanh(op.Softplus(x))


@down("HardSwish", 14)
def hard_swish(op: Builder, node: NodeView) -> ir.Value:
    """x·max(0, min(1, x/6 + 1/2)), in the form that runtimes fuse back."""
    x = node.need("X")
    return x * op.HardSigmoid(x, alpha=1 / 6, beta=0.5)


@down("Celu", 12)
def celu(op: Builder, node: NodeView) -> ir.Value:
    """α·elu(x/α)."""
    x, alpha = node.need("X"), node.attr("alpha", 1.0)
    return op.Elu(x, alpha=1.0) if alpha == 1.0 else op.Elu(x / alpha, alpha=1.0) * alpha


@down("ThresholdedRelu", 10)
def thresholded_relu(op: Builder, node: NodeView) -> ir.Value:
    """x where it is above α, else 0."""
    x = node.need("X")
    return op.Where(op.Greater(x, number(op, node.attr("alpha", 1.0), x)), x, number(op, 0, x))


@down("Shrink", 9)
def shrink(op: Builder, node: NodeView) -> ir.Value:
    """x moved towards 0 by the bias, and 0 between -λ and λ."""
    x, threshold, bias = node.need("input"), node.attr("lambd", 0.5), node.attr("bias", 0.0)
    above, below = op.Greater(x, number(op, threshold, x)), op.Less(x, number(op, -threshold, x))
    if node.dtype("input") not in FLOATS:
        # Compared as numbers, computed in the type itself.
        above = op.Greater(op.cast(x, T.DOUBLE), op.constant(threshold, T.DOUBLE))
        below = op.Less(op.cast(x, T.DOUBLE), op.constant(-threshold, T.DOUBLE))
    nothing = number(op, 0, x)
    return select(op, above, x - bias, nothing) + select(op, below, x + bias, nothing)
