"""Reading an image between its pixels, from Gather and arithmetic: what GridSample, DeformConv and RoiAlign share.

Points are (batch, points, n): a position in pixels along each of n spatial axes, the LAST axis first (x, y, z), as
ONNX has it. Every point has ``taps`` pixels along each axis that it reads, so there is one Gather for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.legalise.interpolate import cubic_weights
from tonnx.legalise.node_view import Blocked, NodeView
from tonnx.legalise.versioned_ops import arange, number, split, unsqueeze

_TAPS = {"nearest": [0.0], "linear": [0.0, 1.0], "cubic": [-1.0, 0.0, 1.0, 2.0]}


def spatial_sizes(op: Builder, x: ir.Value, dtype: ir.DataType) -> ir.Value:
    """(W, H, D …) of (batch, channels, … D, H, W) as numbers."""
    return op.cast(op.vector([op.size(x, axis) for axis in range(op.rank(x) - 1, 1, -1)]), dtype)


def sample(
    op: Builder,
    x: ir.Value,
    points: ir.Value,
    mode: str = "linear",
    padding: str = "zeros",
    aligned: bool = False,
    batches: ir.Value | None = None,
) -> ir.Value:
    """The values at ``points``: (batch, points, channels).

    ``batches`` says which image each row of points reads; by default its own.
    """
    dtype = points.dtype
    assert dtype is not None and x.dtype is not None
    if mode != "nearest" and x.dtype not in (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16):
        raise Blocked(f"{x.dtype.name.lower()} cannot be interpolated")
    sizes = spatial_sizes(op, x, dtype)
    points = _inside(op, points, sizes, mode, padding, aligned)
    base = op.Floor(points) if mode != "nearest" else points
    taps = op.constant(_TAPS[mode], dtype)
    # From here on (batch, points, n, taps).
    places = unsqueeze(op, base, 3) + taps
    weights = _weights(op, unsqueeze(op, points - base, 3), mode)
    last = unsqueeze(op, sizes - 1.0, 1)
    if padding == "zeros":
        outside = op.Or(op.Less(places, number(op, 0, places)), op.Greater(places, last))
        there = op.Cast(op.Not(outside), to=int(dtype))
        weights = there if weights is None else weights * there
    elif padding == "reflection" and mode == "cubic":
        places = _reflected(op, places, unsqueeze(op, sizes, 1), aligned)
    places = op.Max(op.Min(places, last), number(op, 0, places))
    pixels = _pixels(op, x, places, batches)
    if weights is None:
        return op.Reshape(pixels, op.vector([0, 0, op.size(x, 1)]))
    weights = _combined(op, weights, op.Mul)
    weights = op.cast(op.Reshape(weights, [0, 0, 1, len(_TAPS[mode]) ** (op.rank(x) - 2)]), x.dtype)
    blended = weights * pixels if mode == "nearest" else op.MatMul(weights, pixels)
    return op.Reshape(blended, op.vector([0, 0, op.size(x, 1)]))


def _inside(op: Builder, points: ir.Value, sizes: ir.Value, mode: str, padding: str, aligned: bool) -> ir.Value:
    """Points moved into the image as the padding mode says."""
    if mode == "nearest":
        points = op.Round(points)
    if padding == "reflection":
        return _reflected(op, points, sizes, aligned)
    if padding == "border" and mode != "cubic":  # of four taps each is moved by itself, as in PyTorch
        return op.Max(op.Min(points, sizes - 1.0), number(op, 0, points))
    return points


def _reflected(op: Builder, places: ir.Value, sizes: ir.Value, aligned: bool) -> ir.Value:
    """A triangle wave between the borders: the centres of the outer pixels if aligned, else their edges."""
    low = 0.0 if aligned else -0.5
    span = sizes - 1.0 if aligned else sizes
    away = op.Abs(places if aligned else places - low)
    period = span * 2.0
    phase = away - op.Floor(away / period) * period
    result = span - op.Abs(phase - span)
    return result if aligned else result + low


def _weights(op: Builder, fraction: ir.Value, mode: str) -> ir.Value | None:
    """What each tap counts for: (…, 1) to (…, taps); None when there is only one."""
    if mode == "nearest":
        return None
    if mode == "linear":
        return op.Concat(number(op, 1, fraction) - fraction, fraction, axis=-1)
    return op.Concat(*cubic_weights(fraction, -0.75), axis=-1)


def _combined(op: Builder, parts: ir.Value, combine: Callable[..., ir.Value]) -> ir.Value:
    """(…, n, taps) to (…, taps, …, taps): every tap of one axis with every tap of the others."""
    assert parts.shape is not None
    n, taps = parts.shape[2], parts.shape[3]
    assert isinstance(n, int) and isinstance(taps, int)
    shaped = []
    for i, part in enumerate(split(op, parts, 2, [1] * n) if n > 1 else [parts]):
        along = [1] * n
        along[n - 1 - i] = taps  # x, the first part, belongs to the last axis
        shaped.append(op.Reshape(part, [0, 0, *along]))
    return reduce(combine, shaped)


def _pixels(op: Builder, x: ir.Value, places: ir.Value, batches: ir.Value | None) -> ir.Value:
    """The pixels at whole places (batch, points, n, taps): (batch, points, all taps, channels)."""
    rank = op.rank(x)
    sizes = [op.size(x, axis) for axis in range(rank)]
    steps = [op.product(sizes[axis + 1 :]) for axis in range(rank - 1, 1, -1)]
    strides = unsqueeze(op, op.vector(steps), 1)
    index = _combined(op, op.Cast(places, to=int(T.INT64)) * strides, op.Add)
    index = op.Reshape(index, [0, 0, -1])
    if batches is None and sizes[0] != 1:
        batches = arange(op, sizes[0])
    if batches is not None:
        pixels_each = op.vector([op.product(sizes[2:])])
        index = index + op.Reshape(batches * pixels_each, [-1, 1, 1])
    # Channels last, so that one index finds all channels of a pixel.
    rows = op.Reshape(op.Transpose(x, perm=[0, *range(2, rank), 1]), op.vector([-1, sizes[1]]))
    return op.Gather(rows, index, axis=0)


def channels_first(op: Builder, sampled: ir.Value, shape: ir.Value | list[int]) -> ir.Value:
    """(batch, points, channels) as (batch, channels, *shape)."""
    turned = op.Transpose(sampled, perm=[0, 2, 1])
    if isinstance(shape, list):
        return op.Reshape(turned, [0, 0, *shape])
    return op.Reshape(turned, op.Concat(op.constant(np.zeros(2, np.int64)), shape, axis=0))


def sampled_grid(op: Builder, node: NodeView, mode: str) -> ir.Value:
    """GridSample of any rank; ``mode`` is nearest, linear or cubic."""
    x, grid = node.need("X"), node.need("grid")
    spatial = node.rank("X") - 2
    aligned = bool(node.attr("align_corners", 0))
    points = op.Reshape(grid, [0, -1, spatial])
    sizes = spatial_sizes(op, x, node.dtype("grid"))
    points = (points + 1.0) * ((sizes - 1.0) * 0.5) if aligned else (points + 1.0) * (sizes * 0.5) - 0.5
    values = sample(op, x, points, mode, node.attr("padding_mode", "zeros"), aligned)
    return channels_first(op, values, op.vector([op.size(grid, axis) for axis in range(1, spatial + 1)]))
