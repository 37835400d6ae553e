"""Suppression with a threshold that falls with every box that stays: one box after the other, in a Loop."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.frontends.paddle.lower.boxes import overlaps
from tonnx.ir.build import Builder, Size
from tonnx.ir.infer import UNKNOWN, Dim
from tonnx.lowering.regions.emit import LoopBody, tensor

T = ir.DataType
_LEAST = 0.5
"""Thresholds up to here do not fall."""


def select_falling(
    op: Builder, boxes: ir.Value, scores: ir.Value, overlap: float, score: float | None, most: Size | None, eta: float
) -> ir.Value:
    """As `nms.select`: (kept, (batch, class, box)). The searches of all classes and pictures go on side by side."""
    pictures, classes, count = op.sizes(scores)
    sorted_, places = op.TopK(scores, op.vector([count]), axis=2, _outputs=2)
    shared = op.Unsqueeze(overlaps(op, boxes, boxes), [1])  # (pictures, 1, boxes, boxes)
    row = [pictures, classes, count]
    none = op.Expand(op.constant(False, T.BOOL), op.vector(row))
    limit = op.Expand(op.constant(overlap, T.FLOAT), op.vector([pictures, classes, 1]))
    dims: list[Dim] = [UNKNOWN] * 3
    loop = LoopBody(op, [tensor(T.BOOL, dims), tensor(T.FLOAT, dims)])
    body, at, (kept, now) = loop.inner, loop.iteration, loop.carried
    with body:
        place = body.Unsqueeze(body.Gather(places, at, axis=2), [2])  # (pictures, classes, 1)
        rating = body.Unsqueeze(body.Gather(sorted_, at, axis=2), [2])
        mine = body.Equal(body.Range(0, body.scalar(count), 1), place)
        beside = body.ReduceSum(
            body.Mul(shared, body.Unsqueeze(body.cast(mine, T.FLOAT), [-1])), [2], keepdims=0
        )  # the row of this box in the table of overlaps
        near = body.And(kept, body.Greater(beside, now))
        free = body.Equal(body.ReduceMax(body.cast(near, T.INT32), [2]), 0)
        stays = free if score is None else body.And(free, body.Greater(rating, score))
        falls = body.And(stays, body.Greater(now, _LEAST))
        lower = body.Where(falls, body.Mul(now, eta), now)
        ends, chosen = [body.Or(kept, body.And(mine, stays)), lower], body.Squeeze(stays, [2])
    *_, stay = loop.close(count, True, [none, limit], loop.go_on, ends, [chosen])
    stay = op.Transpose(stay, perm=[1, 2, 0])
    if most is not None:
        before = op.CumSum(op.cast(stay, T.INT64), op.constant(2, T.INT64))
        stay = op.And(stay, op.LessOrEqual(before, op.scalar(most)))
    places_kept = op.Transpose(op.NonZero(stay), perm=[1, 0])
    box = op.Unsqueeze(op.GatherND(places, places_kept), [1])
    return op.Concat(op.Slice(places_kept, [0], [2], [1]), box, axis=1)
