"""Activation functions, softmax and losses, from arithmetic."""

from __future__ import annotations

import math

import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.legalise.node_view import NodeView
from tonnx.legalise.table import down, formula, up
from tonnx.legalise.versioned_ops import FLOATS, number, reduce, select, squeeze, unsqueeze

formula(down("Swish", 24), "x·σ(αx).", lambda op, x, alpha: x * op.Sigmoid(x if alpha == 1.0 else x * alpha), alpha=1.0)


@down("Gelu", 20)
def gelu(op: Builder, node: NodeView) -> ir.Value:
    """x·Φ(x), in the form that runtimes fuse back."""
    x = node.need("X")
    if node.attr("approximate", "none") == "tanh":
        inner = (x + op.Pow(x, 3.0) * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (op.Tanh(inner) + 1.0)
    return x * (op.Erf(x / math.sqrt(2)) + 1.0) * 0.5


formula(down("Mish", 18), "x·tanh(ln(1 + eˣ)).", lambda op, x: x * op.Tanh(op.Softplus(x)))


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


# Softmax, LogSoftmax and Hardmax: over one axis from 13 on, over everything from an axis on before


_FAMILY = ("Softmax", "LogSoftmax", "Hardmax")


@down(_FAMILY, 13)
def softmax_flattening(op: Builder, node: NodeView) -> ir.Value:
    """The last axis means the same in both; another one is transposed to be the last."""
    x, axis = node.need("input"), node.attr("axis", -1)
    emit = getattr(op, node.op_type)
    if x.shape is None and axis == -1:
        return emit(x, axis=-1)
    rank = node.rank("input")
    axis %= max(rank, 1)
    dims = node.dims("input") or []
    if all(dim == 1 for dim in dims[axis + 1 :]):
        return emit(x, axis=axis)
    order = [*range(rank)]
    order[axis], order[-1] = order[-1], order[axis]
    return op.Transpose(emit(op.Transpose(x, perm=order), axis=rank - 1), perm=order)


@up(_FAMILY, 13)
def softmax_one_axis(op: Builder, node: NodeView) -> ir.Value:
    """Everything from the axis on is one axis of a matrix."""
    x, axis = node.need("input"), node.attr("axis", 1)
    emit = getattr(op, node.op_type)
    dims = node.dims("input")
    if axis == -1 or (dims is not None and all(dim == 1 for dim in dims[axis % len(dims) + 1 :])):
        return emit(x, axis=axis)
    return op.Reshape(emit(op.Flatten(x, axis=axis), axis=1), op.Shape(x))


# Losses


@down("NegativeLogLikelihoodLoss", 12)
def negative_log_likelihood(op: Builder, node: NodeView) -> ir.Value:
    """Minus the entry of the class that is right, weighted and reduced."""
    return _loss(op, node, node.need("input"), node.need("target"), node["weight"])


@down("SoftmaxCrossEntropyLoss", 12)
def softmax_cross_entropy(op: Builder, node: NodeView) -> list[ir.Value]:
    """The same, of log-softmax over the classes."""
    scores = node.need("scores")
    # Written out: LogSoftmax flattens all later axes before opset 13.
    shifted = scores - reduce(op, "ReduceMax", scores, [1])
    log_prob = shifted - op.Log(reduce(op, "ReduceSum", op.Exp(shifted), [1]))
    loss = _loss(op, node, log_prob, node.need("labels"), node["weights"])
    return [loss, log_prob][: node.outputs]


def _loss(op: Builder, node: NodeView, log_prob: ir.Value, target: ir.Value, weight: ir.Value | None) -> ir.Value:
    ignored, keep = node.attr("ignore_index", None), None
    if ignored is not None:
        keep = op.Not(op.Equal(target, number(op, ignored, target)))
        target = op.Where(keep, target, number(op, 0, target))  # the ignored index may be out of range
    picked = op.GatherElements(log_prob, unsqueeze(op, target, 1), axis=1)
    loss = op.Neg(squeeze(op, picked, 1))
    weights = None
    if weight is not None:
        weights = op.Gather(weight, target, axis=0)
        if keep is not None:
            weights = op.Where(keep, weights, number(op, 0, weights))
        loss = loss * weights
    elif keep is not None:
        assert log_prob.dtype is not None
        weights = op.Cast(keep, to=int(log_prob.dtype))
    if keep is not None:
        loss = op.Where(keep, loss, number(op, 0, loss))
    how = node.attr("reduction", "mean")
    if how == "none":
        return loss
    if how == "sum":
        return op.ReduceSum(loss, keepdims=0)
    if weights is None:
        return op.ReduceMean(loss, keepdims=0)
    return op.ReduceSum(loss, keepdims=0) / op.ReduceSum(weights, keepdims=0)
