"""A bias that is added after a layer becomes part of the layer.

1. Conv or ConvTranspose, then Add of a constant with one number a channel: the layer's third input.
2. MatMul of two matrices, then Add of a vector: Gemm, which runtimes have a kernel for; with more axes it stays.
3. Gemm without a bias, then Add of a vector: its third input.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder
from tonnx.ir.infer import constant, dims_of
from tonnx.ir.operands import attribute, attributes_in
from tonnx.ir.provenance import forget
from tonnx.ir.rewrite import replace_node, rewrite_each

_GEMM_DTYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)  # those that every runtime multiplies


def fuse_bias(model: ir.Model) -> int:
    """Look at every Add of the main graph; returns how many went."""
    return rewrite_each(model, "Add", _fuse)


def _fuse(op: Builder, add: ir.Node) -> bool:
    for place in (0, 1):
        between, bias = add.inputs[place], add.inputs[1 - place]
        layer = between.producer() if between is not None else None
        if layer is None or bias is None or between is None or layer.domain != "" or layer.graph is not op.graph:
            continue
        if len(between.uses()) != 1 or between.is_graph_output() or between.dtype != bias.dtype:
            continue
        if layer.op_type in ("Conv", "ConvTranspose"):
            if _into_convolution(op, layer, between, bias):
                replace_node(add, [between])
                return True
        elif layer.op_type in ("MatMul", "Gemm") and _is_matrix_product(layer, bias):
            a, b = layer.inputs[:2]
            attributes = attributes_in(layer)
            with op.at(add):
                replace_node(add, [op.Gemm(a, b, bias, _shape=dims_of(add.outputs[0]), **attributes)])
            op.graph.remove(layer, safe=True)
            return True
    return False


def _into_convolution(op: Builder, layer: ir.Node, between: ir.Value, bias: ir.Value) -> bool:
    weight, array = layer.inputs[1], constant(bias)
    own = layer.inputs[2] if len(layer.inputs) > 2 else None
    if weight is None or weight.shape is None or array is None or any(map(facts.stays_in_file, (own, bias))):
        return False
    rank = weight.shape.rank()
    group = attribute(layer, "group", 1)
    channels = weight.shape[0] if layer.op_type == "Conv" else weight.shape[1]
    if not isinstance(channels, int) or array.ndim > rank:
        return False
    channels *= 1 if layer.op_type == "Conv" else group
    shape = (1,) * (rank - array.ndim) + array.shape
    if shape[1] not in (1, channels) or any(size != 1 for axis, size in enumerate(shape) if axis != 1):
        return False
    added = np.broadcast_to(array.reshape(-1), (channels,))
    if own is not None:
        before = constant(own)
        if before is None:
            return False
        added = (before.astype(np.float64) + added).astype(array.dtype)
    if len(layer.inputs) < 3:
        layer.resize_inputs(3)
    layer.replace_input_with(2, _initializer(op, bias, added))
    forget(between)
    return True


def _initializer(op: Builder, bias: ir.Value, array: np.ndarray) -> ir.Value:
    """The bias as a vector, called after what it was made of."""
    assert bias.dtype is not None
    tensor = ir.Tensor(np.ascontiguousarray(array), dtype=bias.dtype)
    value = op.initializer(f"{bias.name}.bias", tensor)
    if bias in facts.WEIGHT:
        facts.WEIGHT.add(value)
    return value


def _is_matrix_product(layer: ir.Node, bias: ir.Value) -> bool:
    a, b, c = (dims_of(value) for value in (layer.inputs[0], layer.inputs[1], bias))
    if a is None or b is None or c is None or len(a) != 2 or len(b) != 2 or bias.dtype not in _GEMM_DTYPES:
        return False
    if layer.op_type == "Gemm" and len(layer.inputs) > 2 and layer.inputs[2] is not None:
        return False
    turned = attribute(layer, "transB", 0)
    inner, columns = (b[1], b[0]) if turned else (b[0], b[1])
    if not isinstance(inner, int) or inner == 0:  # over nothing, ONNX Runtime's Gemm forgets the bias
        return False
    return all(dim == 1 for dim in c[:-1]) and len(c) <= 2 and (not c or c[-1] in (1, columns))
