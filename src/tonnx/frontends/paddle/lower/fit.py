"""What rules share: operands that fit each other, and layouts."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.lowering.values import Operand, promote


def aligned(op: Builder, x: Operand, y: Operand, axis: int = -1) -> list[ir.Value]:
    """Two operands of one dtype that broadcast as ONNX does it.

    Old operators have an ``axis`` of ``x`` at which the axes of ``y`` begin; what ``y`` lacks behind them is 1.
    """
    a, b = promote(op, x, y)
    if axis == -1 or op.rank(a) == op.rank(b):
        return [a, b]
    if op.rank(a) < op.rank(b):
        return aligned(op, b, a, axis)[::-1]
    rank = op.rank(b)
    behind = op.rank(a) - axis - rank
    if behind > 0:
        b = op.Unsqueeze(b, list(range(rank, rank + behind)))
    elif behind < 0:  # trailing axes of size 1 do not count
        b = op.Squeeze(b, list(range(rank + behind, rank)))
    return [a, b]


def axes_of(op: Builder, x: ir.Value, axis: Sequence[int] | None, reduce_all: bool = False) -> list[int]:
    """Axes that are not negative; none at all mean all."""
    rank = op.rank(x)
    if reduce_all or not axis:
        return list(range(rank))
    return [a % max(rank, 1) for a in axis]


def is_channels_last(data_format: str) -> bool:
    """NHWC, NDHWC, NLC."""
    return data_format.endswith("C") and len(data_format) > 2


def channels_first(op: Builder, x: ir.Value, data_format: str) -> ir.Value:
    rank = op.rank(x)
    if not is_channels_last(data_format) or rank < 3:
        return x
    return op.Transpose(x, perm=[0, rank - 1, *range(1, rank - 1)])


def channels_back(op: Builder, x: ir.Value, data_format: str) -> ir.Value:
    """The inverse of `channels_first`."""
    rank = op.rank(x)
    if not is_channels_last(data_format) or rank < 3:
        return x
    return op.Transpose(x, perm=[0, *range(2, rank), 1])
