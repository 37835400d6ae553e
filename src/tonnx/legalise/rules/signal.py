"""DFT: its axis became an input (20)."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.node_view import NodeView
from tonnx.legalise.table import down, up


@down("DFT", 20)
def dft_axis_attribute(op: Builder, node: NodeView) -> ir.Value:
    """The axis becomes an attribute; its default was another one."""
    (axis,) = node.ints("axis") or [-2]
    return op.DFT(node["input"], node["dft_length"], axis=axis % node.rank("input"), **node.attributes())


@up("DFT", 20)
def dft_axis_input(op: Builder, node: NodeView) -> ir.Value:
    """The axis becomes an input; its default was 1."""
    axis = op.constant(node.attr("axis", 1), ir.DataType.INT64)
    return op.DFT(node["input"], node["dft_length"], axis, **node.attributes("axis"))
