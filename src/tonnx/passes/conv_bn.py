"""Batch normalisation folded into the weights of the convolution or linear layer before it.

In inference BatchNormalization is y = (x - mean) · gamma / sqrt(var + eps) + beta, one factor and one offset a channel,
and a convolution or matrix product takes both into its weights. Exact up to rounding, and one node less to run.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.infer import constant
from tonnx.ir.provenance import forget
from tonnx.ir.rewrite import replace_node


def fuse_conv_bn(model: ir.Model) -> Counter[str]:
    """Fold every BatchNormalization that follows a layer of its own; returns how many by the layer's operator."""
    graph = model.graph
    fused: Counter[str] = Counter()
    for node in list(graph):
        if node.op_type != "BatchNormalization" or node.domain != "" or len(node.outputs) != 1:
            continue
        if "training_mode" in node.attributes and node.attributes["training_mode"].as_int():
            continue
        layer = node.inputs[0].producer() if node.inputs[0] is not None else None
        if layer is not None and _fuse(graph, layer, node):
            fused[layer.op_type] += 1
    return fused


def _channel_axis(layer: ir.Node) -> int | None:
    """The axis of the weight that runs over the output channels."""
    if layer.op_type == "Conv":
        return 0
    if layer.op_type == "ConvTranspose":
        group = layer.attributes["group"].as_int() if "group" in layer.attributes else 1
        return 1 if group == 1 else None  # grouped: channels are spread over two axes
    if layer.op_type == "Gemm":
        plain = all(layer.attributes[a].as_float() == 1.0 for a in ("alpha", "beta") if a in layer.attributes)
        transposed = "transB" in layer.attributes and layer.attributes["transB"].as_int()
        return (0 if transposed else 1) if plain else None
    return None


def _fuse(graph: ir.Graph, layer: ir.Node, norm: ir.Node) -> bool:
    between = norm.inputs[0]
    assert between is not None
    if layer.domain != "" or layer.graph is not graph or len(between.uses()) != 1 or between.is_graph_output():
        return False
    if len(layer.inputs) < 2 or facts.stays_in_file(layer.inputs[1]):
        return False
    weight, statistics = constant(layer.inputs[1]), [constant(v) for v in norm.inputs[1:5]]
    bias = constant(layer.inputs[2]) if len(layer.inputs) > 2 and layer.inputs[2] is not None else np.zeros(1)
    if weight is None or bias is None or any(s is None for s in statistics):
        return False
    axis = _channel_axis(layer)
    if axis is None or (layer.op_type == "Gemm" and bias.ndim > 1):
        return False
    gamma, beta, mean, variance = (np.asarray(s, dtype=np.float64) for s in statistics)
    epsilon = norm.attributes["epsilon"].as_float() if "epsilon" in norm.attributes else 1e-5
    factor = gamma / np.sqrt(variance + epsilon)
    along = [1] * weight.ndim
    along[axis] = -1
    wide = factor.astype(np.result_type(weight.dtype, np.float32))  # float64 would double the memory and the time
    new_weight = (weight * wide.reshape(along)).astype(weight.dtype, copy=False)
    new_bias = ((bias.astype(np.float64) - mean) * factor + beta).astype(weight.dtype)
    names = [layer.inputs[1].name, norm.inputs[2].name]  # type: ignore[union-attr]
    layer.replace_input_with(1, _weight(graph, layer.inputs[1], f"{names[0]}", new_weight))
    if len(layer.inputs) < 3:
        layer.resize_inputs(3)
    layer.replace_input_with(2, _weight(graph, None, f"{names[0]}.bias", new_bias))
    forget(between)
    name = norm.outputs[0].name
    replace_node(norm, [between])
    if not between.is_graph_output():  # it holds what the norm gave, and is called so
        between.name = name
    return True


def _weight(graph: ir.Graph, old: ir.Value | None, name: str, array: np.ndarray) -> ir.Value:
    """A new weight; it takes the old one's name when nobody else reads that."""
    free = name
    if old is not None and len(old.uses()) == 1 and not old.is_graph_output():
        del graph.initializers[name]
    number = 0
    while free in graph.initializers:
        number += 1
        free = f"{name}.{number}"
    tensor = ir.Tensor(np.ascontiguousarray(array), name=free)
    value = ir.Value(name=free, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
    facts.WEIGHT.add(value)
    graph.initializers.add(value)
    return value
