"""Weights of 8 bits whose products no processor cuts off.

x86 processors without VNNI multiply uint8 by int8 in pairs, and add up each pair in 16 bits (pmaddubsw): 255 · (a + b)
must fit. What is summed up is paired in its order, in convolutions with the channels of the input last: position by
position, and where their number is odd, across positions (as seen in ONNX Runtime 1.31, at every level of optimising).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.operands import attribute

PAIR = 128
"""The most that two weights of the same sign may sum up to."""


def is_depthwise(layer: ir.Node) -> bool:
    """Whether this is a convolution with a channel for each channel. No pairs: those kernels add up in 32 bits.

    ONNX Runtime has kernels of their own for these (as seen in 1.31), for symmetric weights and for others.
    """
    place = {"Conv": 1, "QLinearConv": 3}.get(layer.op_type)
    weight = layer.inputs[place] if place is not None else None
    if weight is None or weight.shape is None or weight.shape.rank() < 3:
        return False
    groups = attribute(layer, "group", 1)
    return groups > 1 and list(weight.shape[:2]) == [groups, 1]


def are_safe(integers: np.ndarray, axis: int) -> bool:
    """Whether no pair of products is cut off, whatever the weights are multiplied by. ``axis``: of the channels."""
    return bool((pair_sums(np.moveaxis(integers, axis, 0).astype(np.int16)) <= PAIR).all())


def pair_sums(rows: np.ndarray) -> np.ndarray:
    """For each row the largest magnitude of the sum of a pair."""
    summed = np.moveaxis(rows, 1, -1).reshape(len(rows), -1)  # a matrix stays what it is
    even = summed.shape[1] // 2 * 2
    sums = np.abs(np.add(*_signed(summed[:, :even:2], summed[:, 1::2])))
    return np.asarray(sums.max(1, initial=0))


def _signed(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pair, or zeros where the signs differ: those cancel out."""
    same = (a > 0) == (b > 0)
    return np.where(same, a, 0), np.where(same, b, 0)
