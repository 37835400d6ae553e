"""Proposals of detectors in two stages: where to look, and on which map."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tonnx.frontends.paddle.lower.boxes import (
    area,
    ascending,
    corners,
    counted_at_run_time,
    in_pixels,
    joined,
    picture_of_rows,
    rows_at,
    rows_of_pictures,
)
from tonnx.frontends.paddle.lower.rules import Value, Values, lower
from tonnx.frontends.paddle.ops.nms import select
from tonnx.ir.build import Builder, T
from tonnx.lowering import sizes

_GROWTH = math.log(1000.0 / 16.0)
"""Boxes do not grow further than this, whatever the network says: exp of it."""
_LEAST = float(np.finfo(np.float32).min)


@lower("generate_proposals")
@lower("generate_proposals_v1", pixel_offset=True)
def generate_proposals(
    op: Builder,
    scores: Value,
    bbox_deltas: Value,
    im_shape: Value | None = None,
    anchors: Value | None = None,
    variances: Value | None = None,
    *,
    im_info: Value | None = None,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    pixel_offset: bool = True,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """In the old form pictures also say by what they were enlarged, and boxes are as large as they were before that."""
    assert anchors is not None and variances is not None
    task = _Task(pre_nms_top_n, post_nms_top_n, nms_thresh, min_size, eta, pixel_offset)
    if im_info is None:
        height, width = op.Split(im_shape, [1, 1], axis=1, _outputs=2)
        return _proposals(op, scores, bbox_deltas, anchors, variances, (height, width, None), task)
    height, width, scale = op.Split(im_info, [1, 1, 1], axis=1, _outputs=3)
    return _proposals(op, scores, bbox_deltas, anchors, variances, (height, width, scale), task)


@dataclass
class _Task:
    """What decides which boxes stay."""

    before: int
    after: int
    overlap: float
    least: float
    eta: float
    pixels: bool


def _proposals(
    op: Builder,
    scores: ir.Value,
    deltas: ir.Value,
    anchors: ir.Value,
    variances: ir.Value,
    picture: tuple[ir.Value, ir.Value, ir.Value | None],
    task: _Task,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    more = 1.0 if task.pixels else 0.0
    pictures = op.size(scores, 0)
    points = op.reshape(op.Transpose(scores, perm=[0, 2, 3, 1]), [pictures, -1])
    count = op.product([op.size(scores, i) for i in (1, 2, 3)])
    moves = op.reshape(op.Transpose(deltas, perm=[0, 2, 3, 1]), [pictures, count, 4])
    first = sizes.smaller(op, count, task.before) if task.before > 0 else count
    best, places = op.TopK(points, op.vector([first]), axis=1, _outputs=2)
    moves = rows_at(op, moves, places)
    prior, spread = (op.Gather(op.reshape(v, [-1, 4]), places, axis=0) for v in (anchors, variances))
    boxes = _moved(op, prior, moves * spread, more)
    height, width, scale = (None if part is None else op.Unsqueeze(part, [1]) for part in picture)
    assert height is not None and width is not None
    boxes = op.Max(op.Min(boxes, joined(op, width, height, width, height) - more), 0.0)
    valid = _large_enough(op, boxes, max(task.least, 1.0), more, (height, width, scale))
    boxes, probability, rating = _with_one_more(op, boxes, best, valid)
    most = task.after if task.after > 0 else None
    grown = in_pixels(op, boxes, task.pixels)
    chosen = select(op, grown, op.Unsqueeze(rating, [1]), task.overlap, _LEAST, most, task.eta)
    at = op.Gather(chosen, [0, 2], axis=1)
    owner = op.Squeeze(op.Slice(chosen, [0], [1], [1]), [1])
    rois = counted_at_run_time(op, op.GatherND(boxes, at), "proposals")
    chances = counted_at_run_time(op, op.Unsqueeze(op.GatherND(probability, at), [1]), "proposals")
    return rois, chances, counted_at_run_time(op, rows_of_pictures(op, owner, pictures), "pictures")


def _moved(op: Builder, prior: ir.Value, code: ir.Value, more: float) -> ir.Value:
    low, high = op.Split(prior, axis=-1, num_outputs=2, _outputs=2)
    size = high - low + more if more else high - low
    centre = low + size * 0.5
    move, grow = op.Split(code, axis=-1, num_outputs=2, _outputs=2)
    middle, half = move * size + centre, op.Exp(op.Min(grow, _GROWTH)) * size * 0.5
    return joined(op, middle - half, middle + half - more if more else middle + half)


def _large_enough(
    op: Builder, boxes: ir.Value, least: float, more: float, picture: tuple[ir.Value, ir.Value, ir.Value | None]
) -> ir.Value:
    """(pictures, boxes): whether a box has both sides, and with pixels its middle in the picture."""
    height, width, scale = picture
    x1, y1, x2, y2 = corners(op, boxes)
    wide, high = x2 - x1, y2 - y1
    sides = (wide, high) if scale is None else (wide / scale, high / scale)
    valid = op.And(*(op.GreaterOrEqual(side + more if more else side, least) for side in sides))
    if more:
        middle = (x1 + (wide + more) / 2.0, y1 + (high + more) / 2.0)
        inside = op.And(op.LessOrEqual(middle[0], width), op.LessOrEqual(middle[1], height))
        valid = op.And(valid, inside)
    return op.Squeeze(valid, [2])


def _with_one_more(
    op: Builder, boxes: ir.Value, scores: ir.Value, valid: ir.Value
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """An empty box with score 0 behind the others, which is a candidate only if a picture has no valid one."""
    nothing = op.Sub(1.0, op.ReduceMax(op.cast(valid, T.FLOAT), [1]))  # (pictures, 1)
    never = op.constant(_LEAST, scores.dtype)
    rating = op.Where(valid, scores, never)
    spare = op.Where(op.cast(nothing, T.BOOL), op.constant(0, scores.dtype), never)
    zero = nothing * 0.0
    empty = op.Unsqueeze(op.Concat(zero, zero, zero, zero, axis=1), [1])
    return (op.Concat(boxes, empty, axis=1), op.Concat(scores, zero, axis=1), op.Concat(rating, spare, axis=1))


@lower("distribute_fpn_proposals")
def distribute_fpn_proposals(
    op: Builder,
    fpn_rois: Value,
    rois_num: Value | None = None,
    *,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
    pixel_offset: bool = True,
) -> tuple[list[ir.Value], list[ir.Value], ir.Value]:
    """The regions of each level, how many each picture has there, and where to find each region again."""
    rows = op.size(fpn_rois, 0)
    pictures = 1 if rois_num is None else op.size(rois_num, 0)
    scale = op.Sqrt(op.Squeeze(area(op, fpn_rois, pixel_offset), [1]))
    # ⌊log₂(size) + refer_level⌋ between both ends, as a count of the powers of two below: exact at those powers.
    size = op.Unsqueeze(scale / float(refer_scale) + 1e-8, [1])
    powers = op.constant([2.0 ** (i - refer_level) for i in range(min_level + 1, max_level + 1)], scale.dtype)
    level = op.ReduceSum(op.cast(op.GreaterOrEqual(size, powers), T.INT64), [1], keepdims=0) + min_level
    owner = picture_of_rows(op, rois_num, rows, pictures)
    regions, counts, orders = [], [], []
    for i in range(min_level, max_level + 1):
        here = op.Equal(level, i)
        order = op.Squeeze(op.NonZero(here), [0])
        orders.append(order)
        regions.append(counted_at_run_time(op, op.Gather(fpn_rois, order, axis=0), f"level_{i}"))
        if owner is None:
            counts.append(op.cast(op.vector([op.size(order, 0)]), T.INT32))
        else:
            counts.append(rows_of_pictures(op, op.Gather(owner, order, axis=0), pictures))
    order = op.Concat(*orders, axis=0)
    back = op.ScatterElements(order, order, sizes.arange(op, rows))  # the inverse permutation
    return regions, counts, op.Unsqueeze(op.cast(back, T.INT32), [1])


@lower("collect_fpn_proposals")
def collect_fpn_proposals(
    op: Builder,
    multi_level_rois: Values,
    multi_level_scores: Values,
    multi_level_rois_num: Values | None = None,
    *,
    post_nms_topn: int,
) -> tuple[ir.Value, ir.Value]:
    """The best of all levels, by picture."""
    rois = op.Concat(*multi_level_rois, axis=0)
    points = op.reshape(op.Concat(*multi_level_scores, axis=0), [-1])
    most = sizes.smaller(op, op.size(rois, 0), post_nms_topn)
    _, chosen = op.TopK(points, op.vector([most]), axis=0, _outputs=2)
    counts = list(multi_level_rois_num or [])
    pictures = op.size(counts[0], 0) if counts else 1
    owners = [
        picture_of_rows(op, count, op.size(level, 0), pictures)
        for count, level in zip(counts, multi_level_rois, strict=False)
    ]
    if not owners or owners[0] is None:
        kept = counted_at_run_time(op, op.Gather(rois, chosen, axis=0), "proposals")
        return kept, op.cast(op.vector([op.size(chosen, 0)]), T.INT32)
    owner = op.Gather(op.Concat(*[v for v in owners if v is not None], axis=0), chosen, axis=0)
    place = op.Add(op.Mul(owner, op.scalar(op.size(chosen, 0))), sizes.arange(op, op.size(chosen, 0)))
    kept = op.Gather(rois, op.Gather(chosen, ascending(op, place), axis=0), axis=0)
    return counted_at_run_time(op, kept, "proposals"), rows_of_pictures(op, owner, pictures)
