"""Sampling at computed places: grids, and bags of embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from tonnx.ir.build import Builder, Size, T
from tonnx.lowering.rules import lower


@lower("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sampler(
    op: Builder, x: ir.Value, grid: ir.Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> ir.Value:
    return op.GridSample(
        x,
        grid,
        mode=("linear", "nearest", "cubic")[interpolation_mode],
        padding_mode=("zeros", "border", "reflection")[padding_mode],
        align_corners=int(align_corners),
    )


@lower("aten.affine_grid_generator", "tonnx.affine_grid")
def affine_grid(op: Builder, theta: ir.Value, size: Sequence[Size], align_corners: bool) -> ir.Value:
    return op.AffineGrid(theta, op.vector(size), align_corners=int(align_corners))


_SUM, _MEAN, _MAX = range(3)


_GRADIENTS = "scale_grad_by_freq sparse"


@lower("aten.embedding_bag", unused=_GRADIENTS)
@lower("aten._embedding_bag", "aten._embedding_bag_forward_only", none_below_zero=True, unused=_GRADIENTS)
def embedding_bag(
    op: Builder,
    weight: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    mode: int = _SUM,
    per_sample_weights: ir.Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    *,
    none_below_zero: bool = False,
) -> list[ir.Value]:
    """Look up, and reduce every bag; a bag goes from its offset to the next one, and may be empty."""
    if none_below_zero and padding_idx is not None and padding_idx < 0:
        padding_idx = None
    indices, offsets = op.cast(indices, T.INT64), op.cast(offsets, T.INT64)
    if include_last_offset:
        offsets = op.Slice(offsets, [0], [-1], [0])
    bag = _bag_of_each(op, indices, offsets)
    shape = op.vector([op.size(offsets, 0), op.size(weight, 1)])
    rows = op.Gather(weight, indices, axis=0)
    if rows.dtype in (T.FLOAT16, T.BFLOAT16):
        rows = op.cast(rows, T.FLOAT)  # runtimes do not scatter sums of the half types
    kept = op.Expand(op.constant(True), op.Shape(indices))
    if padding_idx is not None:
        kept = op.Not(op.Equal(indices, padding_idx if padding_idx >= 0 else op.Add(op.size(weight, 0), padding_idx)))
        neutral = -math.inf if mode == _MAX else 0.0
        rows = op.Where(op.Unsqueeze(kept, [1]), rows, op.constant(neutral, rows.dtype))
    if per_sample_weights is not None:
        rows = op.Mul(rows, op.Unsqueeze(op.cast(per_sample_weights, rows.dtype), [1]))
    zeros = op.Expand(op.constant(0, rows.dtype), shape)
    if mode == _SUM:
        return [op.ScatterND(zeros, bag, rows, reduction="add")]
    none = op.Expand(op.constant(0, T.INT64), op.Shape(offsets))
    count = op.Unsqueeze(op.ScatterND(none, bag, op.cast(kept, T.INT64), reduction="add"), [1])
    if mode == _MEAN:
        total = op.ScatterND(zeros, bag, rows, reduction="add")
        return [op.Div(total, op.cast(op.Max(count, 1), rows.dtype))]
    lowest = op.Expand(op.constant(-math.inf, rows.dtype), shape)
    largest = op.ScatterND(lowest, bag, rows, reduction="max")
    return [op.Where(op.Equal(count, 0), zeros, largest)]


def _bag_of_each(op: Builder, indices: ir.Value, offsets: ir.Value) -> ir.Value:
    """The number of the bag that each entry is in, as a column: how many offsets lie at or before it, less one."""
    places = op.Range(0, op.scalar(op.size(indices, 0)), 1)
    reached = op.LessOrEqual(op.Unsqueeze(offsets, [0]), op.Unsqueeze(places, [1]))
    return op.Sub(op.ReduceSum(op.cast(reached, T.INT64), [1]), 1)
