"""The steps to opset 11 that brought negative axes and negative indices."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.axes import count_from_front, indices_from_front, never_negative
from tonnx.legalise.exact_integers import positions
from tonnx.legalise.node_view import NodeView, constant_of
from tonnx.legalise.rules.reduce import REDUCTIONS
from tonnx.legalise.table import UP, down, same

_FAMILY = (
    *REDUCTIONS,
    *("ArgMax", "ArgMin", "Softmax", "LogSoftmax", "Hardmax"),
    *("Squeeze", "Unsqueeze", "Split", "Concat", "Flatten", "Compress"),
)
down(_FAMILY, 11)(count_from_front)


@down("Slice", 11)
def slice_axes(op: Builder, node: NodeView) -> ir.Value | None:
    """Negative axes are counted from the front."""
    axes = node.ints("axes")
    if axes is None or all(axis >= 0 for axis in axes):
        return None
    rank = node.rank("data")
    inputs = node.inputs
    inputs[3] = op.constant([axis % rank for axis in axes], ir.DataType.INT64)
    for at in (1, 2, 4):  # one type for all of them
        if at < len(inputs) and (value := inputs[at]) is not None:
            inputs[at] = op.cast(value, ir.DataType.INT64)
    return op.Slice(*inputs)


@down("Gather", 11)
def gather_indices(op: Builder, node: NodeView) -> ir.Value | None:
    """Negative indices and axes are counted from the front."""
    count_from_front(op, node)
    data, indices = node.need("data"), node.need("indices")
    if data.shape is None:
        size: int | ir.Value = op.Gather(op.Shape(data), node.attr("axis", 0), axis=0)
    else:
        size = op.size(data, node.attr("axis", 0))
    if never_negative(indices):
        return None
    front = indices_from_front(op, positions(op, indices), size)
    return None if front is indices else op.Gather(data, front, axis=node.attr("axis"))


@down("OneHot", 11)
def one_hot_indices(op: Builder, node: NodeView) -> ir.Value | None:
    """Negative indices and axes are counted from the front; -1 alone means the last axis as before."""
    if node.attr("axis", -1) != -1:
        count_from_front(op, node)
    indices, depth = node.need("indices"), node.need("depth")
    front = indices_from_front(op, indices, depth)
    if front is indices:
        return None
    if constant_of(front) is None:  # too far below 0 is out of range, and must not be counted from the back again
        scalar = front.shape is not None and not front.shape.rank()
        outside = op.cast(op.scalar(depth) if scalar else depth, front.dtype)
        front = op.Where(op.Less(front, op.constant(0, front.dtype)), outside, front)
    return op.OneHot(front, depth, node["values"], axis=node.attr("axis"))


same((*_FAMILY, "Slice", "Gather", "OneHot"), 11, "counting from the front is still allowed", direction=UP)
same("NonMaxSuppression", 11, "the description of scores was corrected")
same("NegativeLogLikelihoodLoss", 13, "the text was corrected")
