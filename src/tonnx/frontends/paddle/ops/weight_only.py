"""Products with weights of 8 or 4 bits that Paddle packed for a GPU: put in order again, and stored as they are.

How they lie in memory is part of Paddle's file format: its kernel for the CPU packs the same (weight_quantize).
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Value, lower
from tonnx.ir.build import Builder
from tonnx.ir.infer import constant

_BITS = {"int8": 8, "int4": 4}
_ROW_MAJOR, _TILED = (70,), (75, 80, 86, 89, 90)
"""Compute capabilities by how weights are packed for them."""
_TILE = 64
"""Rows of a weight that lie together."""


def unpacked(packed: np.ndarray, bits: int, arch: int) -> np.ndarray:
    """The integers by rows and columns, as the product reads them."""
    columns, rows = packed.shape[0] * 8 // bits, packed.shape[1]
    if arch not in (*_ROW_MAJOR, *_TILED):
        raise UnsupportedArgument(f"a weight that is packed for the compute capability {arch}",
                                  why=f"known are {', '.join(map(str, (*_ROW_MAJOR, *_TILED)))}")  # fmt: skip
    together = 16 // bits  # columns whose tiles lie side by side
    if columns % max(together, 32 // bits) or (arch in _TILED and rows % _TILE):
        raise UnsupportedArgument(f"a packed weight of {rows} rows and {columns} columns",
                                  why=f"only multiples of {_TILE} rows fill whole tiles")  # fmt: skip
    flat = _in_registers(packed, bits)
    if arch in _ROW_MAJOR:
        return flat.reshape(rows, columns)
    tiles = flat.reshape(columns // together, rows // _TILE, together, _TILE)
    turned = tiles.transpose(0, 2, 1, 3).reshape(columns, rows).T
    result = np.empty_like(turned)
    result[_places(rows, bits)] = turned
    return result


def _in_registers(packed: np.ndarray, bits: int) -> np.ndarray:
    """The integers one by one: within 32 bits, those of even places come before those of odd ones where there are 8."""
    numbers = packed.reshape(-1).view(np.uint8)
    if bits == 4:
        numbers = np.stack([numbers & 15, numbers >> 4], -1).reshape(-1)
    count = 32 // bits
    order = [0, 2, 1, 3] if bits == 8 else [*range(0, count, 2), *range(1, count, 2)]
    ordered = numbers.reshape(-1, count)[:, np.argsort(order)]
    return (ordered.astype(np.int16) - (1 << (bits - 1))).astype(np.int8).reshape(-1)


def _places(rows: int, bits: int) -> np.ndarray:
    """Which row each of the packed rows is: those that one instruction reads lie together."""
    group, register = 128 // bits, 32 // bits
    row = np.arange(group)
    within = 8 * (row % register // 2) + row % 2 + 2 * (row // register)
    return (np.arange(0, rows, group)[:, None] + within).reshape(-1)


@lower("weight_only_linear")
def weight_only_linear(
    op: Builder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    weight_scale: Value | None = None,
    *,
    weight_dtype: str,
    arch: int,
    group_size: int = -1,
) -> ir.Value:
    """x · (integers · scale) + bias; a scale for each column, or for so many rows of it."""
    packed, scale = constant(weight), None if weight_scale is None else constant(weight_scale)
    if weight_dtype not in _BITS or packed is None or scale is None or packed.ndim != 2:
        raise UnsupportedArgument(f"weight_only_linear with {weight_dtype}, unless weight and scale are constants")
    integers = unpacked(packed, _BITS[weight_dtype], arch)
    stored = op.constant(integers.astype(ml_dtypes.int4) if weight_dtype == "int4" else integers)
    steps = op.cast(op.constant(scale), x.dtype)
    blocks = scale.ndim == 2
    axis, size = (0, group_size) if blocks else (1, None)
    product = op.MatMul(x, op.DequantizeLinear(stored, steps, axis=axis, block_size=size))
    return product if bias is None else op.Add(product, bias)
