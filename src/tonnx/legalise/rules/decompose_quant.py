"""Quantisation and integer products, from Cast and arithmetic."""

from __future__ import annotations

import math

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.legalise.node_view import Blocked, NodeView
from tonnx.legalise.table import down
from tonnx.legalise.versioned_ops import clip, fixed, number, rounded, unsqueeze

T = ir.DataType

_RANGES = {T.INT8: (-128, 127), T.UINT8: (0, 255)}
_EXACT = 2**24
"""Whole numbers that float32 tells apart."""


def _quantised(op: Builder, ratio: ir.Value, zero_point: ir.Value | None) -> ir.Value:
    """saturate(round(ratio) + zero_point)."""
    dtype = zero_point.dtype if zero_point is not None else T.UINT8
    if dtype not in _RANGES:
        raise Blocked("it quantises to another type than int8 and uint8")
    result = rounded(op, ratio)
    if zero_point is not None:
        result = result + op.Cast(zero_point, to=int(T.FLOAT))
    return op.Cast(clip(op, result, *_RANGES[dtype]), to=int(dtype))


def _centred(op: Builder, x: ir.Value, zero_point: ir.Value | None, dtype: ir.DataType) -> ir.Value:
    """x − zero_point in a type that holds it."""
    wide = op.Cast(x, to=int(dtype))
    return wide if zero_point is None else wide - op.Cast(zero_point, to=int(dtype))


@down("DynamicQuantizeLinear", 11)
def dynamic_quantize(op: Builder, node: NodeView) -> list[ir.Value]:
    """Scale and zero point from the range of the input, which always contains 0."""
    x = node.need("x")
    zero = number(op, 0, x)
    low, high = op.Min(op.ReduceMin(x, keepdims=0), zero), op.Max(op.ReduceMax(x, keepdims=0), zero)
    scale = (high - low) / 255.0
    place = clip(op, rounded(op, op.Neg(low) / scale), 0, 255)
    zero_point = op.Cast(place, to=int(T.UINT8))
    return [op.QuantizeLinear(x, scale, zero_point), scale, zero_point]


@down("QuantizeLinear", 10)
def quantize_linear(op: Builder, node: NodeView) -> ir.Value:
    """saturate(round(x / scale) + zero_point)."""
    return _quantised(op, op.cast(node.need("x"), T.FLOAT) / node.need("y_scale"), node["y_zero_point"])


@down("DequantizeLinear", 10)
def dequantize_linear(op: Builder, node: NodeView) -> ir.Value:
    """(x − zero_point)·scale."""
    x = node.need("x")
    if node.dtype("x") == T.INT32:  # 32 bits do not fit a float32
        return op.Cast(_centred(op, x, node["x_zero_point"], T.INT32), to=int(T.FLOAT)) * node.need("x_scale")
    return _centred(op, x, node["x_zero_point"], T.FLOAT) * node.need("x_scale")


@down("MatMulInteger", 10)
def matmul_integer(op: Builder, node: NodeView) -> ir.Value:
    """A product of int32 matrices."""
    a = _centred(op, node.need("A"), _per_row(op, node, "A", node["a_zero_point"]), T.INT32)
    return op.MatMul(a, _centred(op, node.need("B"), node["b_zero_point"], T.INT32))


@down("QLinearMatMul", 10)
def qlinear_matmul(op: Builder, node: NodeView) -> ir.Value:
    """The product of integers, scaled and quantised."""
    a = _centred(op, node.need("a"), _per_row(op, node, "a", node["a_zero_point"]), T.INT32)
    product = op.MatMul(a, _centred(op, node.need("b"), node["b_zero_point"], T.INT32))
    scale = _per_row(op, node, "a", node["a_scale"])
    assert scale is not None
    scale = op.cast(scale * node.need("b_scale"), T.FLOAT)
    ratio = op.Cast(product, to=int(T.FLOAT)) * scale / op.cast(node.need("y_scale"), T.FLOAT)
    return _quantised(op, ratio, node["y_zero_point"])


def _per_row(op: Builder, node: NodeView, matrix: str, parameter: ir.Value | None) -> ir.Value | None:
    """One value for each row of the left matrix, shaped to broadcast."""
    if parameter is None or parameter.shape is None or parameter.shape.rank() != 1 or fixed(parameter, 0) == 1:
        return parameter
    return unsqueeze(op, parameter, 1)


@down("ConvInteger", 10)
def conv_integer(op: Builder, node: NodeView) -> ir.Value:
    """Convolutions of whole numbers in float32, which are exact while all sums stay below 2²⁴."""
    w = node.need("w")
    x = _centred(op, node.need("x"), node["x_zero_point"], T.FLOAT)
    weight = _centred(op, w, _per_output(op, node, "w", node["w_zero_point"]), T.FLOAT)
    terms = _terms(node, "w")
    if terms * 255 * 255 < _EXACT:
        return op.Cast(op.Conv(x, weight, **node.attributes()), to=int(T.INT32))
    if terms * 255 * 16 >= _EXACT:
        raise Blocked("its sums have too many terms for float32")
    # Weights as 16·high + low, and a convolution with each.
    high = op.Floor(weight / 16.0)
    parts = (op.Cast(op.Conv(x, part, **node.attributes()), to=int(T.INT32)) for part in (high, weight - high * 16.0))
    upper, lower = parts
    return upper * 16 + lower


@down("QLinearConv", 10)
def qlinear_conv(op: Builder, node: NodeView) -> ir.Value:
    """The convolution of integers, scaled and quantised."""
    x = _centred(op, node.need("x"), node["x_zero_point"], T.FLOAT)
    weight = _centred(op, node.need("w"), _per_output(op, node, "w", node["w_zero_point"]), T.FLOAT)
    bias = node["B"]
    sums = op.Conv(x, weight, None if bias is None else op.Cast(bias, to=int(T.FLOAT)), **node.attributes())
    scale = node.need("x_scale") * node.need("w_scale") / node.need("y_scale")
    if scale.shape is not None and scale.shape.rank() == 1 and fixed(scale, 0) != 1:
        scale = op.Reshape(scale, [-1] + [1] * (node.rank("w") - 2))
    return _quantised(op, sums * scale, node["y_zero_point"])


def _per_output(op: Builder, node: NodeView, weight: str, parameter: ir.Value | None) -> ir.Value | None:
    """One value for each output channel, shaped to broadcast against the weights."""
    if parameter is None or parameter.shape is None or parameter.shape.rank() == 0 or fixed(parameter, 0) == 1:
        return parameter
    return op.Reshape(parameter, [-1] + [1] * (node.rank(weight) - 1))


def _terms(node: NodeView, weight: str) -> int:
    """How many products one output sums up."""
    sizes = [fixed(node[weight], axis) for axis in range(1, node.rank(weight))]
    if any(size is None for size in sizes):
        raise Blocked("the size of its kernel is not known")
    return math.prod(size for size in sizes if size is not None)
