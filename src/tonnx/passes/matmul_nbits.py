"""MatMulNBits of com.microsoft: a product with weights in blocks of integers, which are never written out as floats.

DequantizeLinear with blocks of 16 or more, a power of two, along the axis that is summed over, read by nothing but
MatMul, or by Gemm without factors: the operator keeps the blocks of each column side by side, as unsigned integers.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.ir.infer import constant, dims_of
from tonnx.ir.operands import attribute, attribute_of
from tonnx.ir.restrictions import MICROSOFT
from tonnx.ir.rewrite import remove_dead, replace_node, rewrite_each

_BITS = {T.INT4: 4, T.UINT4: 4, T.INT8: 8, T.UINT8: 8}
_SMALLEST_BLOCK = 16


def use_matmul_nbits(model: ir.Model) -> int:
    """Look at every DequantizeLinear of the main graph; returns how many products there are of it now."""
    products: list[ir.Node] = []
    rewrite_each(model, "DequantizeLinear", lambda op, node: _rewrite(op, node, products))
    if products:
        remove_dead(model)
    return len(products)


def _rewrite(op: Builder, dequantize: ir.Node, products: list[ir.Node]) -> bool:
    uses = [(use.node, use.idx) for use in dequantize.outputs[0].uses()]
    along = {_summed_axis(node, index) for node, index in uses}
    axis = attribute(dequantize, "axis", 1)
    block = attribute(dequantize, "block_size", 0)
    if len(along) != 1 or dequantize.outputs[0].is_graph_output() or along != {axis % 2}:
        return False
    if block < _SMALLEST_BLOCK or block & (block - 1):
        return False
    operands = _packed(op, dequantize, axis % 2, block)
    if operands is None:
        return False
    (columns, rows), inputs, bits = operands
    for node, _ in uses:
        x, result = node.inputs[0], node.outputs[0]
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        sizes = {"K": rows, "N": columns, "bits": bits, "block_size": block}
        with op.at(node):
            (product,) = op.node(
                "MatMulNBits", [x, *inputs], [attribute_of(name, size) for name, size in sizes.items()],
                [(result.dtype, dims_of(result))], domain=MICROSOFT,
            )  # fmt: skip
            summed = product if bias is None else op.Add(product, bias, _shape=dims_of(result))
        replace_node(node, [summed])
        products.append(node)
    return True


def _summed_axis(node: ir.Node, index: int) -> int | None:
    """The axis of a weight that a node sums over; None where it does something else with it."""
    if node.domain != "" or index != 1 or node.inputs[0] is None:
        return None
    if node.op_type == "MatMul":
        return 0
    plain = attribute(node, "alpha", 1.0) == attribute(node, "beta", 1.0) == 1.0 and not attribute(node, "transA", 0)
    return int(attribute(node, "transB", 0)) if node.op_type == "Gemm" and plain else None


_Operands = tuple[tuple[int, int], list[ir.Value | None], int]
"""The numbers of columns and rows; weights, scales and zero points; how many bits."""


def _packed(op: Builder, dequantize: ir.Node, axis: int, block: int) -> _Operands | None:
    integers, scale = dequantize.inputs[:2]
    zero = dequantize.inputs[2] if len(dequantize.inputs) > 2 else None
    weight, scales, zeros = constant(integers), constant(scale), constant(zero)
    if integers is None or scale is None or weight is None or scales is None or weight.ndim != 2:
        return None
    bits = _BITS.get(integers.dtype or T.UNDEFINED)
    if bits is None or scale.dtype not in (T.FLOAT, T.FLOAT16) or (zero is not None and zeros is None):
        return None
    middle = 1 << (bits - 1)
    shift = middle if integers.dtype in (T.INT4, T.INT8) else 0
    if axis == 0:
        weight, scales, zeros = weight.T, scales.T, None if zeros is None else zeros.T
    columns, rows = weight.shape
    blocks = scales.shape[1]
    unsigned = np.full((columns, blocks * block), middle, np.uint8)  # what is beyond the last row counts for nothing
    unsigned[:, :rows] = weight.astype(np.int16) + shift
    packed = _nibbles(unsigned, bits).reshape(columns, blocks, block * bits // 8)
    name = str(integers.name)
    inputs: list[ir.Value | None] = [
        op.initializer(f"{name}.packed", ir.Tensor(packed)),
        op.initializer(f"{scale.name}.packed", ir.Tensor(np.ascontiguousarray(scales))),
    ]
    if zeros is not None or not shift:
        origin = np.zeros((columns, blocks), np.int16) if zeros is None else zeros.astype(np.int16)
        inputs.append(op.initializer(f"{name}.zeros", ir.Tensor(_nibbles((origin + shift).astype(np.uint8), bits))))
    return (columns, rows), inputs, bits


def _nibbles(rows: np.ndarray, bits: int) -> np.ndarray:
    """Rows of small unsigned integers as bytes: two of 4 bits each, the first in the low half."""
    if bits == 8:
        return np.ascontiguousarray(rows)
    if rows.shape[1] % 2:
        rows = np.pad(rows, ((0, 0), (0, 1)))
    return np.ascontiguousarray(rows[:, ::2] | (rows[:, 1::2] << 4))
