"""Layers of recommender systems: parts of several tables, segments of rows, counts of shows and clicks."""

from __future__ import annotations

import math
from functools import reduce

import onnx_ir as ir

from tonnx.frontends.paddle.lower.rules import Value, Values, direct, lower
from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes


def _parts(op: Builder, x: Values, start: int, length: int) -> list[ir.Value]:
    end: Size = sizes.END if length < 0 else start + length
    return [sizes.cut(op, part, 1, start, sizes.END if start < 0 and end == 0 else end) for part in x]


direct(
    "partial_concat(x: Values, *, start_index: int = 0, length: int = -1)",
    lambda op, x, start, length: op.Concat(*_parts(op, x, start, length), axis=1),
)
direct(
    "partial_sum(x: Values, *, start_index: int = 0, length: int = -1)",
    lambda op, x, start, length: reduce(op.Add, _parts(op, x, start, length)),
)


@lower("segment_pool")
def segment_pool(op: Builder, x: Value, segment_ids: Value, *, pooltype: str = "SUM") -> ir.Value:
    """Rows of one number together; numbers grow, and those that are missing give zeros."""
    ids = op.cast(segment_ids, T.INT64)
    count = op.Add(op.ReduceMax(ids, [0]), 1)
    shape = op.vector([count, *op.sizes(x)[1:]])
    zeros = op.Expand(op.constant(0, x.dtype), shape)
    place = op.Unsqueeze(ids, [1])
    if pooltype in ("SUM", "MEAN"):
        total = op.ScatterND(zeros, place, x, reduction="add")
        if pooltype == "SUM":
            return total
        ones = op.Expand(op.constant(1, x.dtype), op.Shape(x))
        return op.Div(total, op.Max(op.ScatterND(zeros, place, ones, reduction="add"), 1.0))
    low = pooltype == "MAX"
    limit = op.Expand(op.constant(-math.inf if low else math.inf, x.dtype), shape)
    best = op.ScatterND(limit, place, x, reduction="max" if low else "min")
    return op.Where(op.IsInf(best), zeros, best)


@lower("data_norm", unused="epsilon summary_decay_rate data_layout sync_stats do_model_average")
def data_norm(
    op: Builder,
    x: Value,
    batch_size: Value,
    batch_sum: Value,
    batch_square_sum: Value,
    scale_w: Value | None = None,
    bias: Value | None = None,
    *,
    enable_scale_and_shift: bool = False,
) -> ir.Value:
    """(x - mean) · √(count / sum of squares)."""
    y = op.Mul(op.Sub(x, op.Div(batch_sum, batch_size)), op.Sqrt(op.Div(batch_size, batch_square_sum)))
    if enable_scale_and_shift and scale_w is not None and bias is not None:
        y = op.Add(op.Mul(y, scale_w), bias)
    return y


@lower("cvm")
def cvm(op: Builder, x: Value, cvm: Value | None = None, *, use_cvm: bool = True) -> ir.Value:
    """The first two columns are shows and clicks: as logarithms, or left out."""
    rest = sizes.cut(op, x, 1, 2)
    if not use_cvm:
        return rest
    show = op.Log(op.Add(sizes.cut(op, x, 1, 0, 1), 1.0))
    click = op.Sub(op.Log(op.Add(sizes.cut(op, x, 1, 1, 2), 1.0)), show)
    return op.Concat(show, click, rest, axis=1)
