"""Factors and offsets after a layer that go into its weights: exact up to rounding, and one node less to run.

1. BatchNormalization: in inference it is y = (x - mean) · gamma / sqrt(var + eps) + beta, one factor and one offset a
   channel, and a convolution or matrix product takes both.
2. Mul or Div by a constant with one number, or one a channel: the scale of a layer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.infer import constant, dims_of
from tonnx.ir.operands import attribute
from tonnx.ir.provenance import forget
from tonnx.ir.rewrite import replace_node

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_RANGE = (2.0**-40, 2.0**40)
"""Factors beyond it may take weights, or what they are multiplied by, out of the range of their dtype."""
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)  # a smaller one may overflow, or lose the digits that it has


@dataclass(frozen=True)
class _Affine:
    """What a node does to each channel: (x - mean) · factor + beta."""

    factor: np.ndarray
    mean: np.ndarray | float = 0.0
    beta: np.ndarray | float = 0.0


def fuse_conv_bn(model: ir.Model) -> Counter[str]:
    """Fold every factor that follows a layer of its own; gives how many BatchNormalizations, by the layer's operator.

    Products count as "", whatever the layer.
    """
    graph = model.graph
    fused: Counter[str] = Counter()
    for node in list(graph):
        if node.domain != "" or node.op_type not in ("BatchNormalization", "Mul", "Div") or len(node.outputs) != 1:
            continue
        is_norm = node.op_type == "BatchNormalization"
        for place in (0,) if is_norm or node.op_type == "Div" else (0, 1):
            between = node.inputs[place]
            layer = between.producer() if between is not None else None
            if layer is None or between is None or not _has_weight_of_its_own(graph, layer, between):
                continue
            affine = _normalisation(node) if is_norm else _scale(layer, node, between, node.inputs[1 - place])
            if affine is not None and _fuse(graph, layer, node, affine):
                fused[layer.op_type if is_norm else ""] += 1
                break
    return fused


def _has_weight_of_its_own(graph: ir.Graph, layer: ir.Node, between: ir.Value) -> bool:
    if layer.domain != "" or layer.graph is not graph or len(between.uses()) != 1 or between.is_graph_output():
        return False
    return len(layer.inputs) > 1 and not facts.stays_in_file(layer.inputs[1])


def _normalisation(norm: ir.Node) -> _Affine | None:
    if attribute(norm, "training_mode", 0):
        return None
    statistics = [constant(value) for value in norm.inputs[1:5]]
    if any(array is None for array in statistics):
        return None
    gamma, beta, mean, variance = (np.asarray(array, dtype=np.float64) for array in statistics)
    epsilon = attribute(norm, "epsilon", 1e-5)
    return _Affine(gamma / np.sqrt(variance + epsilon), mean, beta)


def _scale(layer: ir.Node, node: ir.Node, between: ir.Value, operand: ir.Value | None) -> _Affine | None:
    """A product with a constant, if that has one number a channel and no other reader needs the layer's weight."""
    if layer.op_type not in _LAYERS:
        return None
    array, dims, weight = constant(operand), dims_of(between), layer.inputs[1]
    if array is None or dims is None or weight is None or len(weight.uses()) != 1 or weight.dtype not in _FLOATS:
        return None
    channels = len(dims) - 1 if layer.op_type in ("Gemm", "MatMul") else 1
    shape = (1,) * (len(dims) - array.ndim) + array.shape
    if len(shape) != len(dims) or any(size != 1 for axis, size in enumerate(shape) if axis != channels):
        return None
    if shape[channels] not in (1, dims[channels]) or between.dtype != operand.dtype:  # type: ignore[union-attr]
        return None
    factor = array.reshape(-1).astype(np.float64)
    with np.errstate(divide="ignore"):
        factor = 1 / factor if node.op_type == "Div" else factor
    size = np.abs(factor[factor != 0])
    return _Affine(factor) if ((size > _RANGE[0]) & (size < _RANGE[1])).all() else None


def _channel_axis(layer: ir.Node, weight: np.ndarray) -> int | None:
    """The axis of the weight that runs over the output channels."""
    if layer.op_type == "Conv":
        return 0
    if layer.op_type == "ConvTranspose":
        group = attribute(layer, "group", 1)
        return 1 if group == 1 else None  # grouped: channels are spread over two axes
    if layer.op_type == "Gemm":
        plain = all(layer.attributes[a].as_float() == 1.0 for a in ("alpha", "beta") if a in layer.attributes)
        transposed = attribute(layer, "transB", 0)
        return (0 if transposed else 1) if plain else None
    if layer.op_type == "MatMul":
        return 1 if weight.ndim == 2 else None
    return None


def _fuse(graph: ir.Graph, layer: ir.Node, node: ir.Node, affine: _Affine) -> bool:
    between = layer.outputs[0]
    own = layer.inputs[2] if len(layer.inputs) > 2 else None
    weight, bias = constant(layer.inputs[1]), constant(own) if own is not None else np.zeros(1)
    axis = _channel_axis(layer, weight) if weight is not None else None
    if weight is None or bias is None or axis is None or (layer.op_type == "Gemm" and bias.ndim > 1):
        return False
    moves = own is not None or node.op_type == "BatchNormalization"
    if moves and layer.op_type == "MatMul":
        return False
    along = [1] * weight.ndim
    along[axis] = -1
    wide = affine.factor.astype(np.result_type(weight.dtype, np.float32))  # float64 would double memory and time
    new_weight = (weight * wide.reshape(along)).astype(weight.dtype, copy=False)
    name = layer.inputs[1].name  # type: ignore[union-attr]
    layer.replace_input_with(1, _weight(graph, layer.inputs[1], f"{name}", new_weight))
    if moves:
        new_bias = ((bias.astype(np.float64) - affine.mean) * affine.factor + affine.beta).astype(weight.dtype)
        if len(layer.inputs) < 3:
            layer.resize_inputs(3)
        layer.replace_input_with(2, _weight(graph, None, f"{name}.bias", new_bias))
    forget(between)
    name = node.outputs[0].name
    replace_node(node, [between])
    if not between.is_graph_output():  # it holds what the node gave, and is called so
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
