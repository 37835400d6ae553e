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
    """Look at weights that DequantizeLinear reads as 8 bits; returns how many have 4 now."""
    cast = signature("Cast", model.opset_imports[""])
    if cast is None or not {T.INT4, T.UINT4} <= cast.input(0).dtypes:
        return 0
    names, count = None, 0
    for node in list(model.graph):
        if node.domain != "" or node.op_type != "DequantizeLinear":
            continue
        value, zero = node.inputs[0], _stored(node.inputs[2]) if len(node.inputs) > 2 else np.zeros((), np.int8)
        weight = _stored(value)
        if value is None or weight is None or zero is None or weight.size < _FEWEST or weight.dtype != zero.dtype:
            continue
        # Signed numbers fit as they are; unsigned ones are moved down to 0, with their zero point.
        least, kind = (int(weight.min()), ml_dtypes.uint4) if weight.dtype == np.uint8 else (0, ml_dtypes.int4)
        low, high = (0, 15) if weight.dtype == np.uint8 else (-8, 7)
        if int(weight.min()) - least < low or int(weight.max()) - least > high or int(zero.min()) < least + low:
            continue
        names = names or Names(names_in(model))
        op = Builder(model.graph, names=names, opset=model.opset_imports[""], before=node)
        op.source, op.scope = dict(node.metadata_props), (node.name or "").rsplit("/", 1)[0]
        packed = op.initializer(f"{value.name}_4", ir.Tensor((weight - least).astype(kind)))
        dtype = ir.DataType.from_numpy(weight.dtype)
        (widened,) = op.node("Cast", [packed], [ir.AttrInt64("to", int(dtype))], [(dtype, list(weight.shape))])
        node.replace_input_with(0, widened)
        if least:
            node.replace_input_with(2, op.constant((zero - least).astype(weight.dtype)))
        count += 1
    return count


def _stored(value: ir.Value | None) -> np.ndarray | None:
    if value is None or value.dtype not in (T.UINT8, T.INT8) or not value.is_initializer() or value.is_graph_input():
        return None
    return None if value.const_value is None else value.const_value.numpy()
