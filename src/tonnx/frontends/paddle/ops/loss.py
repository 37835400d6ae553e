"""Losses, which some saved models still have at their end."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Value, direct, lower
from tonnx.ir.build import Builder, T
from tonnx.lowering.values import axis_of

direct(
    'nll_loss(input, label, weight=None, *, ignore_index: int = -100, reduction: str = "mean")',
    lambda op, x, label, weight, ignore_index, reduction: op.NegativeLogLikelihoodLoss(
        x, op.cast(label, T.INT64), weight, ignore_index=ignore_index, reduction=reduction
    ),
)
direct(
    "hinge_loss(logits, labels)",
    lambda op, logits, labels: op.Relu(op.Sub(1.0, op.Mul(logits, op.Sub(op.Mul(labels, 2.0), 1.0)))),
)


def _reduced(op: Builder, loss: ir.Value, reduction: str) -> ir.Value:
    if reduction == "none":
        return loss
    if reduction == "batchmean":
        total, rows = op.ReduceSum(loss, keepdims=0), op.scalar(op.size(loss, 0))
        return op.Div(total, op.cast(rows, loss.dtype))
    return op.ReduceMean(loss, keepdims=0) if reduction == "mean" else op.ReduceSum(loss, keepdims=0)


@lower("cross_entropy_with_softmax", unused="numeric_stable_mode")
def cross_entropy_with_softmax(
    op: Builder,
    input: Value,
    label: Value,
    *,
    soft_label: bool = False,
    use_softmax: bool = True,
    ignore_index: int = -100,
    axis: int = -1,
) -> tuple[ir.Value, ir.Value]:
    """The probabilities, and the loss with an axis of size 1 where the classes were."""
    at = axis_of(op, input, axis)
    logs = op.LogSoftmax(input, axis=at) if use_softmax else op.Log(input)
    softmax = op.Softmax(input, axis=at) if use_softmax else input
    if soft_label:
        return softmax, op.Neg(op.ReduceSum(op.Mul(label, logs), [at]))
    index = op.cast(label, T.INT64)
    if op.rank(index) < op.rank(input):
        index = op.Unsqueeze(index, [at])
    counts = op.Not(op.Equal(index, ignore_index))
    picked = op.GatherElements(logs, op.Where(counts, index, op.constant(0, T.INT64)), axis=at)
    return softmax, op.Where(counts, op.Neg(picked), op.constant(0, input.dtype))


@lower("bce_loss")
def bce_loss(op: Builder, input: Value, label: Value) -> ir.Value:
    yes, no = op.Max(op.Log(input), -100.0), op.Max(op.Log(op.Sub(1.0, input)), -100.0)
    return op.Neg(op.Add(op.Mul(label, yes), op.Mul(op.Sub(1.0, label), no)))


@lower("sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_with_logits(
    op: Builder,
    x: Value,
    label: Value,
    pos_weight: Value | None = None,
    *,
    normalize: bool = False,
    ignore_index: int = -100,
) -> ir.Value:
    # softplus(-|x|) never overflows
    rest = op.Softplus(op.Neg(op.Abs(x)))
    behind = op.Add(rest, op.Relu(op.Neg(x)))
    if pos_weight is not None:  # Paddle's function has brought the label into it: 1 + (weight - 1) * label
        behind = op.Mul(behind, pos_weight)
    loss = op.Add(op.Mul(op.Sub(1.0, label), x), behind)
    counts = op.Greater(op.Abs(op.Sub(label, float(ignore_index))), 1e-5)
    loss = op.Where(counts, loss, op.constant(0, x.dtype))
    if normalize:
        loss = op.Div(loss, op.Max(op.ReduceSum(op.cast(counts, x.dtype), keepdims=0), 1e-5))
    return loss


@lower("huber_loss")
def huber_loss(op: Builder, input: Value, label: Value, *, delta: float) -> tuple[ir.Value, ir.Value]:
    residual = op.Sub(label, input)
    size = op.Abs(residual)
    near = op.Mul(op.Mul(residual, residual), 0.5)
    far = op.Mul(op.Sub(size, 0.5 * delta), delta)
    return op.Where(op.LessOrEqual(size, delta), near, far), residual


@lower("kldiv_loss")
def kldiv_loss(op: Builder, x: Value, label: Value, *, reduction: str = "mean", log_target: bool = False) -> ir.Value:
    if log_target:
        return _reduced(op, op.Mul(op.Exp(label), op.Sub(label, x)), reduction)
    zero = op.constant(0, x.dtype)
    there = op.Greater(label, zero)
    loss = op.Mul(label, op.Sub(op.Log(op.Where(there, label, op.constant(1, x.dtype))), x))
    return _reduced(op, op.Where(there, loss, zero), reduction)


@lower("log_loss")
def log_loss(op: Builder, input: Value, label: Value, *, epsilon: float) -> ir.Value:
    yes, no = op.Log(op.Add(input, epsilon)), op.Log(op.Add(op.Sub(1.0, input), epsilon))
    return op.Neg(op.Add(op.Mul(label, yes), op.Mul(op.Sub(1.0, label), no)))


@lower("identity_loss")
def identity_loss(op: Builder, x: Value, *, reduction: int = 1) -> ir.Value:
    if reduction not in (0, 1, 2):
        raise UnsupportedArgument(f"identity_loss with reduction={reduction}")
    return _reduced(op, x, ("sum", "mean", "none")[reduction])
