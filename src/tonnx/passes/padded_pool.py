"""Keeps ONNX Runtime from fusing a padding with zeros into the MaxPool behind it.

Its PadFusion (seen in 1.31) turns Pad(0) → MaxPool into a MaxPool with pads, which pads with minus infinity: wrong
where all values of a window at the edge are negative. It leaves a Pad alone whose value is not zero, so zero becomes
the smallest number above it.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, Names
from tonnx.ir.infer import constant
from tonnx.ir.rewrite import all_graphs, names_in

_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16)


def keep_padding_before_pool(model: ir.Model) -> int:
    """At any opset; returns how many Pads were changed."""
    fused_wrongly = [node for graph in all_graphs(model) for node in graph if _is_fused_wrongly(node)]
    if not fused_wrongly:
        return 0
    names = Names(names_in(model))
    for node in fused_wrongly:
        dtype, graph = node.inputs[0].dtype, node.graph  # type: ignore[union-attr]
        assert dtype is not None and isinstance(graph, ir.Graph)
        op = Builder(graph, names=names, before=node)
        if len(node.inputs) < 3:
            node.resize_inputs(3)
        node.replace_input_with(2, op.constant(np.nextafter(dtype.numpy().type(0), dtype.numpy().type(1)), dtype))
    return len(fused_wrongly)


def _is_fused_wrongly(node: ir.Node) -> bool:
    if node.op_type != "Pad" or node.domain != "" or len(node.inputs) < 2:  # pads that are an attribute are not fused
        return False
    if node.inputs[0] is None or node.inputs[0].dtype not in _FLOATS:
        return False
    if "mode" in node.attributes and node.attributes["mode"].as_string() != "constant":
        return False
    value = constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else np.zeros(1)
    readers = {user.op_type for user, _ in node.outputs[0].uses()}
    return value is not None and not value.any() and readers == {"MaxPool"}
