"""Convolutions of rows are those of pictures that are one pixel high: ONNX Runtime's blocked kernels are for pictures.

Seen in ONNX Runtime 1.31: a Conv of floats takes 0.5 to 0.85 of the time so. Those of integers are the same either way.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.ir.infer import dims_of
from tonnx.ir.operands import attributes_in
from tonnx.ir.rewrite import replace_node, rewrite_each

_FUSED = frozenset(("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "Clip"))
"""Activations that are computed as part of a convolution before them."""


def widen_rows(model: ir.Model) -> int:
    """Look at every Conv of the main graph with a weight of floats; returns how many were rewritten."""
    return rewrite_each(model, "Conv", _widened)


def _widened(op: Builder, node: ir.Node) -> bool:
    x, weight, *bias = node.inputs
    tensor = None if weight is None or weight.is_graph_input() else weight.const_value
    if x is None or weight is None or tensor is None or weight.dtype != ir.DataType.FLOAT or len(tensor.shape) != 3:
        return False
    last = _last(node)
    with op.at(last):
        flat = op.initializer(f"{weight.name}_2d", ir.Tensor(tensor.numpy()[:, :, None]))
        result = op.Conv(op.Unsqueeze(x, [2]), flat, *bias, **_attributes(node))
        result.producer().name, node.name = node.name, None
        if last is not node:
            activation = (last.op_type, [result, *last.inputs[1:]], list(last.attributes.values()))
            (result,) = op.node(*activation, [(result.dtype, dims_of(result))])
        replace_node(last, [op.Squeeze(result, [2])])
    if last is not node and node.graph is not None:
        node.graph.remove(node, safe=True)
    return True


def _last(node: ir.Node) -> ir.Node:
    """The activation that is computed as part of a convolution; else the convolution."""
    result = node.outputs[0]
    users = list(result.uses())
    fused = len(users) == 1 and users[0][1] == 0 and users[0][0].op_type in _FUSED and not result.is_graph_output()
    return users[0][0] if fused and users[0][0].graph is node.graph else node


def _attributes(node: ir.Node) -> dict[str, Any]:
    """Those of the node, with an axis of height."""
    own = attributes_in(node)
    own |= {name: [1, *own[name]] for name in ("strides", "dilations", "kernel_shape") if name in own}
    if "pads" in own:
        before, after = own["pads"]
        own["pads"] = [0, before, 0, after]
    return own
