"""Relu of dequantised numbers is computed on their integers, by a Clip at the zero point: the same numbers.

QuantizeLinear → DequantizeLinear → Relu → Conv leaves the Conv without integers: ONNX Runtime looks for a
DequantizeLinear before a layer, through pools and reshapes, but not through a Relu. With QuantizeLinear → Clip →
DequantizeLinear → Conv both layers multiply integers. Where no integer stands for less than zero, Relu does nothing,
and is left out.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.ir.rewrite import replace_node, rewrite_each
from tonnx.ir.schema import signature


def clip_integers(model: ir.Model) -> int:
    """Returns how many Relu are gone. Where Clip takes no integers of 8 bits yet, they stay."""
    clip = signature("Clip", model.opset_imports[""])
    if clip is None or not {T.INT8, T.UINT8} <= clip.input(0).dtypes:
        return 0
    return rewrite_each(model, "Relu", _clipped)


def _clipped(op: Builder, relu: ir.Node) -> bool:
    value = relu.inputs[0]
    dequantize = None if value is None else value.producer()
    if value is None or dequantize is None or not _has_one_step(dequantize):
        return False
    integers, scale, zero = dequantize.inputs
    assert zero is not None and zero.const_value is not None
    lowest = np.iinfo(zero.const_value.dtype.numpy()).min
    if zero.const_value.numpy() > lowest:
        op.before, op.source, op.scope = relu, dict(relu.metadata_props), (relu.name or "").rsplit("/", 1)[0]
        value = op.DequantizeLinear(op.Clip(integers, zero), scale, zero)
    replace_node(relu, [value])
    return True


def _has_one_step(node: ir.Node) -> bool:
    """Whether this makes reals of computed integers of 8 bits, by a scale and a zero point that are known."""
    if (node.domain, node.op_type, len(node.inputs)) != ("", "DequantizeLinear", 3):
        return False
    integers, *step = node.inputs
    if integers is None or integers.dtype not in (T.INT8, T.UINT8) or integers.producer() is None:
        return False
    known = [None if value is None or value.is_graph_input() else value.const_value for value in step]
    return all(one is not None and not len(one.shape) for one in known) and bool(known[0].numpy() > 0)  # type: ignore[union-attr]
