"""Normalisations, in the forms that ONNX Runtime and TensorRT fuse back into one kernel."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.node_view import NodeView
from tonnx.legalise.table import down
from tonnx.legalise.versioned_ops import reduce

T = ir.DataType


def _last_axes(node: NodeView, name: str) -> list[int]:
    """The axes from ``axis`` to the last one, counted from the back (so that no rank is needed for -1)."""
    axis = int(node.attr("axis", -1))
    if axis >= 0:
        axis -= node.rank(name)
    return list(range(axis, 0))


@down("RMSNormalization", 23)
def rms_normalization(op: Builder, node: NodeView) -> ir.Value:
    """x / √(mean(x²) + ε) · scale, the normalised part in the stash type."""
    x, scale = node.need("X"), node.need("scale")
    wide = op.cast(x, T(node.attr("stash_type", 1)))
    mean_square = reduce(op, "ReduceMean", op.Pow(wide, 2.0), _last_axes(node, "X"))
    normalised = wide / op.Sqrt(mean_square + node.attr("epsilon", 1e-5))
    return op.cast(normalised, node.dtype("scale")) * scale


@down("GroupNormalization", 18)
def group_normalization(op: Builder, node: NodeView) -> ir.Value:
    """Instance normalisation of (batch, groups, everything): the form in which PyTorch exported it."""
    x = node.need("X")
    flat = op.Reshape(x, [0, node.attr("num_groups"), -1])
    epsilon = node.attr("epsilon", 1e-5)
    normal = op.InstanceNormalization(flat, node.need("scale"), node.need("bias"), epsilon=epsilon)
    return op.Reshape(normal, op.vector(op.sizes(x)) if x.shape is not None else op.Shape(x))


@down("LayerNormalization", 17)
def layer_normalization(op: Builder, node: NodeView) -> list[ir.Value | None]:
    """(x − mean) / √(variance + ε) · scale + bias, the normalised part in the stash type."""
    x, scale, bias = node.need("X"), node.need("Scale"), node["B"]
    axes = _last_axes(node, "X")
    wide = op.cast(x, T(node.attr("stash_type", 1)))
    mean = reduce(op, "ReduceMean", wide, axes)
    centred = wide - mean
    variance = reduce(op, "ReduceMean", op.Pow(centred, 2.0), axes)
    deviation = op.Sqrt(variance + node.attr("epsilon", 1e-5))
    result = op.cast(centred / deviation, node.dtype("X")) * scale
    if bias is not None:
        result = result + bias
    return [result, mean, op.Reciprocal(deviation) if node.used(2) else None][: node.outputs]


@down("MeanVarianceNormalization", 9)
def mean_variance_normalization(op: Builder, node: NodeView) -> ir.Value:
    """(x − mean) / (standard deviation + 1e-9)."""
    x, axes = node.need("X"), node.attr("axes", [0, 2, 3])
    centred = x - reduce(op, "ReduceMean", x, axes)
    return centred / (op.Sqrt(reduce(op, "ReduceMean", centred * centred, axes)) + 1e-9)
