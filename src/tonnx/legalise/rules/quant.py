"""QuantizeLinear and DequantizeLinear: precision (23), blocks (21), half precision (19), per axis (13), products."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.legalise.node_view import Blocked, NodeView, constant_of
from tonnx.legalise.table import UP, down, same
from tonnx.legalise.versioned_ops import clip, fixed, number, rounded, unsqueeze

_RANGES = {
    T.INT4: (-8, 7),
    T.UINT4: (0, 15),
    T.INT8: (-128, 127),
    T.UINT8: (0, 255),
    T.INT16: (-32768, 32767),
    T.UINT16: (0, 65535),
}


def quantize(op: Builder, x: ir.Value, scale: ir.Value, zero_point: ir.Value | None, dtype: ir.DataType) -> ir.Value:
    """saturate(round(x / scale) + zero_point), written out. The scale must broadcast against ``x``."""
    return _saturated(op, op.cast(x, T.FLOAT) / op.cast(scale, T.FLOAT), zero_point, dtype)


def _saturated(op: Builder, ratio: ir.Value, zero_point: ir.Value | None, dtype: ir.DataType | None) -> ir.Value:
    """saturate(round(ratio) + zero_point), in float32, which is exact for every integer of 16 bits."""
    if dtype not in _RANGES:
        raise Blocked(f"{dtype.name.lower() if dtype is not None else 'a type that is not known'} does not exist there")
    result = rounded(op, ratio)
    if zero_point is not None:
        result = result + op.cast(zero_point, T.FLOAT)
    return op.Cast(clip(op, result, *_RANGES[dtype]), to=int(dtype))


def dequantize(op: Builder, x: ir.Value, scale: ir.Value, zero_point: ir.Value | None) -> ir.Value:
    """(x − zero_point) · scale, written out. The scale must broadcast against ``x``."""
    wide = T.FLOAT
    if zero_point is None:
        result = op.cast(x, wide)
    elif x.dtype == T.INT32:  # 32 bits do not fit a float32
        result = op.cast(op.Sub(x, zero_point), wide)
    else:
        result = op.cast(x, wide) - op.cast(zero_point, wide)
    return op.cast(result * op.cast(scale, wide), scale.dtype or wide)


def is_per_tensor(scale: ir.Value) -> bool:
    """One scale for everything."""
    if scale.shape is None:
        raise Blocked("the rank of its scale is not known")
    return scale.shape.rank() == 0 or list(scale.shape.dims) == [1]


def along_axis(op: Builder, x: ir.Value, parameter: ir.Value | None, axis: int) -> ir.Value | None:
    """A scale or zero point with one element for every slice along ``axis``, shaped to broadcast."""
    if parameter is None or is_per_tensor(parameter):
        return parameter
    rank = op.rank(x)
    return op.Reshape(parameter, [-1] + [1] * (rank - 1 - axis % rank))


def in_blocks(op: Builder, x: ir.Value, parameter: ir.Value | None, axis: int, block: int) -> ir.Value | None:
    """A scale or zero point with one element for every ``block`` along ``axis``, repeated to the shape of ``x``."""
    if parameter is None:
        return None
    rank = op.rank(x)
    axis %= rank
    each = op.Unsqueeze(parameter, [axis + 1])
    repeated = op.Expand(each, [1] * (axis + 1) + [block] + [1] * (rank - 1 - axis))
    sizes = op.sizes(parameter)
    sizes[axis] = -1
    merged = op.Reshape(repeated, op.vector(sizes))
    # The last block may be shorter.
    return op.Slice(merged, [0], op.vector([op.size(x, axis)]), [axis])


Shaping = Callable[..., ir.Value | None]


def _shaped(
    how: Shaping, op: Builder, x: ir.Value, scale: ir.Value, zero_point: ir.Value | None, *where: int
) -> tuple[ir.Value, ir.Value | None]:
    """Scale and zero point by `along_axis` or `in_blocks`."""
    scales = how(op, x, scale, *where)
    assert scales is not None
    return scales, how(op, x, zero_point, *where)


def _target(node: NodeView) -> ir.DataType:
    zero_point = node["y_zero_point"]
    if zero_point is not None and zero_point.dtype is not None:
        return zero_point.dtype
    return T(node.attr("output_dtype", 0) or int(T.UINT8))


@down("QuantizeLinear", 23)
def quantize_precision(op: Builder, node: NodeView) -> ir.Value | None:
    """The division in the precision that was asked for; before 23, input and scale share one type."""
    scale = node.need("y_scale")
    precision = T(node.attr("precision", 0) or int(node.dtype("y_scale")))
    x = node.need("x")
    if x.dtype == T.INT32 or precision == T.FLOAT8E8M0:
        precision = T.FLOAT
    if x.dtype == scale.dtype == precision:
        return None
    return op.QuantizeLinear(
        op.cast(x, precision), op.cast(scale, precision), node["y_zero_point"], **node.attributes("precision")
    )


@down("QuantizeLinear", 21)
def quantize_blocks(op: Builder, node: NodeView) -> ir.Value | None:
    """Blocks, and types of 4 and 16 bits, are written out; an output type becomes a zero point of that type."""
    x, scale, zero_point = node.need("x"), node.need("y_scale"), node["y_zero_point"]
    axis, block, dtype = node.attr("axis", 1), node.attr("block_size", 0), _target(node)
    if block:
        return quantize(op, x, *_shaped(in_blocks, op, x, scale, zero_point, axis, block), dtype)
    if dtype in (T.INT16, T.UINT16):
        return quantize(op, x, *_shaped(along_axis, op, x, scale, zero_point, axis), dtype)
    if zero_point is not None or dtype == T.UINT8:
        return None
    attributes = node.attributes("block_size", "output_dtype")
    return op.QuantizeLinear(x, scale, _zeros_like(op, scale, dtype), **attributes)


def _zeros_like(op: Builder, scale: ir.Value, dtype: ir.DataType) -> ir.Value:
    if is_per_tensor(scale):
        return op.constant(np.zeros([1] * op.rank(scale), dtype.numpy()))
    zero = op.constant(np.zeros([1], dtype.numpy()))
    return op.Expand(zero, op.vector(op.sizes(scale)))


@down("QuantizeLinear", 19)
def quantize_half(op: Builder, node: NodeView) -> ir.Value | None:
    """Input and scale are float32."""
    x, scale = node.need("x"), node.need("y_scale")
    if x.dtype in (T.INT32, T.FLOAT) and scale.dtype == T.FLOAT:
        return None
    x = x if x.dtype == T.INT32 else op.cast(x, T.FLOAT)
    return op.QuantizeLinear(x, op.cast(scale, T.FLOAT), node["y_zero_point"], **node.attributes("saturate"))


@down("QuantizeLinear", 13)
def quantize_per_tensor(op: Builder, node: NodeView) -> ir.Value:
    """One scale for each slice along an axis is written out."""
    x, scale, zero_point = node.need("x"), node.need("y_scale"), node["y_zero_point"]
    if not is_per_tensor(scale):
        shaped = _shaped(along_axis, op, x, scale, zero_point, node.attr("axis", 1))
        return quantize(op, x, *shaped, _target(node))
    return op.QuantizeLinear(x, _as_scalar(op, scale), None if zero_point is None else _as_scalar(op, zero_point))


def _as_scalar(op: Builder, value: ir.Value) -> ir.Value:
    if value.shape is not None and value.shape.rank() == 0:
        return value
    if (array := constant_of(value)) is not None:
        return op.constant(array.reshape(()))
    return op.Reshape(value, op.constant([], T.INT64))


@down("DequantizeLinear", 23)
def dequantize_output_type(op: Builder, node: NodeView) -> ir.Value | None:
    """The result is of the scale's type, cast where another was asked for."""
    scale = node.need("x_scale")
    output_dtype = T(node.attr("output_dtype", 0) or int(node.dtype("x_scale")))
    if scale.dtype == output_dtype:
        return None
    if scale.dtype == T.FLOAT8E8M0:
        scale = op.cast(scale, T.FLOAT)
    result = op.DequantizeLinear(node["x"], scale, node["x_zero_point"], **node.attributes("output_dtype"))
    return op.cast(result, output_dtype)


@down("DequantizeLinear", 21)
def dequantize_blocks(op: Builder, node: NodeView) -> ir.Value | None:
    """Blocks, and types of 4 and 16 bits, are written out."""
    scale, zero_point = node.need("x_scale"), node["x_zero_point"]
    x, axis, block = _without_nibbles(op, node.need("x")), node.attr("axis", 1), node.attr("block_size", 0)
    if zero_point is not None:
        zero_point = _without_nibbles(op, zero_point)
    if block:
        return _dequantize_in_blocks(op, x, scale, zero_point, axis % op.rank(x), block)
    if x.dtype in (T.INT16, T.UINT16):
        return dequantize(op, x, *_shaped(along_axis, op, x, scale, zero_point, axis))
    if x is node["x"] and zero_point is node["x_zero_point"]:
        return None
    return op.DequantizeLinear(x, scale, zero_point, **node.attributes("block_size"))


def _dequantize_in_blocks(
    op: Builder, x: ir.Value, scale: ir.Value, zero_point: ir.Value | None, axis: int, block: int
) -> ir.Value:
    """Weights with an axis for the blocks, so that scales are not repeated: a file would hold each of them."""
    array = constant_of(x)
    if array is None:
        return dequantize(op, x, *_shaped(in_blocks, op, x, scale, zero_point, axis, block))
    length = array.shape[axis]
    rest = -length % block  # the last block may be shorter
    padded = np.pad(array, [(0, rest if i == axis else 0) for i in range(array.ndim)])
    blocks = padded.reshape(*padded.shape[:axis], -1, block, *padded.shape[axis + 1 :])
    by_block = [None if part is None else op.Unsqueeze(part, [axis + 1]) for part in (scale, zero_point)]
    assert by_block[0] is not None
    floats = op.Reshape(dequantize(op, op.constant(blocks), by_block[0], by_block[1]), list(padded.shape))
    return op.Slice(floats, [0], [length], [axis]) if rest else floats


def _without_nibbles(op: Builder, value: ir.Value) -> ir.Value:
    """Weights of 4 bits as weights of 8: twice the space, the same numbers."""
    wider = {T.INT4: np.int8, T.UINT4: np.uint8}.get(value.dtype or T.UNDEFINED)
    if wider is None:
        return value
    if (array := constant_of(value)) is None:
        raise Blocked(f"{value.dtype!s} does not exist before opset 21")
    return op.constant(array.astype(wider))


@down("DequantizeLinear", 19)
def dequantize_half(op: Builder, node: NodeView) -> ir.Value | None:
    """The scale is float32."""
    scale = node.need("x_scale")
    if scale.dtype == T.FLOAT:
        return None
    result = op.DequantizeLinear(node["x"], op.cast(scale, T.FLOAT), node["x_zero_point"], **node.attributes())
    return op.cast(result, node.dtype("x_scale"))


@down("DequantizeLinear", 13)
def dequantize_per_tensor(op: Builder, node: NodeView) -> ir.Value:
    """One scale for each slice along an axis is written out."""
    x, scale, zero_point = node.need("x"), node.need("x_scale"), node["x_zero_point"]
    if not is_per_tensor(scale):
        return dequantize(op, x, *_shaped(along_axis, op, x, scale, zero_point, node.attr("axis", 1)))
    return op.DequantizeLinear(x, _as_scalar(op, scale), None if zero_point is None else _as_scalar(op, zero_point))


for _since in (13, 19, 21, 23):
    same("QuantizeLinear", _since, "what is new is off by default", direction=UP)
    same("DequantizeLinear", _since, "what is new is off by default", direction=UP)


# Before opset 10, and integer products: from Cast and arithmetic


_EXACT = 2**24
"""Whole numbers that float32 tells apart."""


def _quantised(op: Builder, ratio: ir.Value, zero_point: ir.Value | None) -> ir.Value:
    return _saturated(op, ratio, zero_point, zero_point.dtype if zero_point is not None else T.UINT8)


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
    return dequantize(op, node.need("x"), node.need("x_scale"), node["x_zero_point"])


@down("MatMulInteger", 10)
def matmul_integer(op: Builder, node: NodeView) -> ir.Value:
    """A product of int32 matrices."""
    a = _centred(op, node.need("A"), _per_row(op, node["a_zero_point"]), T.INT32)
    return op.MatMul(a, _centred(op, node.need("B"), node["b_zero_point"], T.INT32))


@down("QLinearMatMul", 10)
def qlinear_matmul(op: Builder, node: NodeView) -> ir.Value:
    """The product of integers, scaled and quantised."""
    a = _centred(op, node.need("a"), _per_row(op, node["a_zero_point"]), T.INT32)
    product = op.MatMul(a, _centred(op, node.need("b"), node["b_zero_point"], T.INT32))
    scale = _per_row(op, node["a_scale"])
    assert scale is not None
    scale = op.cast(scale * node.need("b_scale"), T.FLOAT)
    ratio = op.Cast(product, to=int(T.FLOAT)) * scale / op.cast(node.need("y_scale"), T.FLOAT)
    return _quantised(op, ratio, node["y_zero_point"])


def _per_row(op: Builder, parameter: ir.Value | None) -> ir.Value | None:
    """One value for each row of the left matrix, shaped to broadcast."""
    if parameter is None or parameter.shape is None or parameter.shape.rank() != 1 or fixed(parameter, 0) == 1:
        return parameter
    return unsqueeze(op, parameter, 1)


@down("ConvInteger", 10)
def conv_integer(op: Builder, node: NodeView) -> ir.Value:
    """Convolutions of whole numbers in float32, which are exact while all sums stay below 2²⁴."""
    w = node.need("w")
    x = _centred(op, node.need("x"), node["x_zero_point"], T.FLOAT)
    weight = _centred(op, w, _per_output(op, node), T.FLOAT)
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
    weight = _centred(op, node.need("w"), _per_output(op, node), T.FLOAT)
    bias = node["B"]
    sums = op.Conv(x, weight, None if bias is None else op.Cast(bias, to=int(T.FLOAT)), **node.attributes())
    scale = node.need("x_scale") * node.need("w_scale") / node.need("y_scale")
    if scale.shape is not None and scale.shape.rank() == 1 and fixed(scale, 0) != 1:
        scale = op.Reshape(scale, [-1] + [1] * (node.rank("w") - 2))
    return _quantised(op, sums * scale, node["y_zero_point"])


def _per_output(op: Builder, node: NodeView) -> ir.Value | None:
    """The zero point of each output channel, shaped to broadcast against the weights."""
    parameter = node["w_zero_point"]
    if parameter is None or parameter.shape is None or parameter.shape.rank() == 0 or fixed(parameter, 0) == 1:
        return parameter
    return op.Reshape(parameter, [-1] + [1] * (node.rank("w") - 1))


def _terms(node: NodeView, weight: str) -> int:
    """How many products one output sums up."""
    sizes = [fixed(node[weight], axis) for axis in range(1, node.rank(weight))]
    if any(size is None for size in sizes):
        raise Blocked("the size of its kernel is not known")
    return math.prod(size for size in sizes if size is not None)
