"""Weights of 4 bits or fewer are stored in 4 bits, and become 8 again when the runtime loads the file.

ONNX Runtime has no kernels that multiply such weights by channel, but it computes what is constant while it loads: a
Cast from uint4 to uint8 costs nothing later, and the layer is fused as one of 8 bits (as seen in 1.31).
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, Names, T
from tonnx.ir.rewrite import names_in
from tonnx.ir.schema import signature

_FEWEST = 256
"""Numbers in a weight that is worth a node."""


def store_nibbles(model: ir.Model) -> int:
    """Look at weights that DequantizeLinear reads as uint8; returns how many have 4 bits now."""
    cast = signature("Cast", model.opset_imports[""])
    if cast is None or T.UINT4 not in cast.input(0).dtypes:
        return 0
    names, count = None, 0
    for node in list(model.graph):
        if node.domain != "" or node.op_type != "DequantizeLinear" or len(node.inputs) < 3:
            continue
        weight, zero = (_stored(node.inputs[index]) for index in (0, 2))
        if weight is None or zero is None or weight.size < _FEWEST:
            continue
        least = int(weight.min())
        if int(weight.max()) - least > 15 or int(zero.min()) < least:
            continue
        names = names or Names(names_in(model))
        op = Builder(model.graph, names=names, opset=model.opset_imports[""], before=node)
        op.source, op.scope = dict(node.metadata_props), (node.name or "").rsplit("/", 1)[0]
        value = node.inputs[0]
        assert value is not None
        packed = op.initializer(f"{value.name}_u4", ir.Tensor((weight - least).astype(ml_dtypes.uint4)))
        shape = list(weight.shape)
        (widened,) = op.node("Cast", [packed], [ir.AttrInt64("to", int(T.UINT8))], [(T.UINT8, shape)])  # not folded
        node.replace_input_with(0, widened)
        node.replace_input_with(2, op.constant((zero - least).astype(np.uint8)))
        count += 1
    return count


def _stored(value: ir.Value | None) -> np.ndarray | None:
    """What an initializer of uint8 holds."""
    if value is None or value.dtype != T.UINT8 or not value.is_initializer() or value.is_graph_input():
        return None
    return None if value.const_value is None else value.const_value.numpy()
