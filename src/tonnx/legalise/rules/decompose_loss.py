"""Losses."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.node_view import NodeView
from tonnx.legalise.table import down
from tonnx.legalise.versioned_ops import number, reduce, squeeze, unsqueeze


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
