"""Softmax, LogSoftmax and Hardmax: over one axis from 13 on, over everything from an axis on before."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.node_view import NodeView
from tonnx.legalise.table import down, up

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
