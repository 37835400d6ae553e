"""Suppression: of boxes that overlap, the best one stays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.boxes import (
    ascending,
    counted_at_run_time,
    in_order,
    in_pixels,
    joined,
    overlaps,
    picture_of_rows,
    rows_at,
    rows_of_pictures,
)
from tonnx.frontends.paddle.lower.rules import Value, lower
from tonnx.frontends.paddle.read.graph import Op
from tonnx.ir.build import Builder, Size, T
from tonnx.ir.infer import UNKNOWN, Dim
from tonnx.lowering import sizes
from tonnx.lowering.regions.emit import LoopBody, tensor

_NEVER = float(np.finfo(np.float32).min)
"""A score that no threshold lets through."""


@lower("nms")
def nms(op: Builder, boxes: Value, *, threshold: float = 1.0, iou_threshold: float | None = None) -> ir.Value:
    """The boxes come sorted, the best first."""
    count = op.size(boxes, 0)
    falling = op.Neg(op.cast(sizes.arange(op, count), T.FLOAT))
    limit = threshold if iou_threshold is None else iou_threshold
    selected = select(op, op.Unsqueeze(op.cast(boxes, T.FLOAT), [0]), op.Unsqueeze(falling, [0, 1]), limit)
    return counted_at_run_time(op, op.Squeeze(op.Slice(selected, [2], [3], [1]), [1]), "kept")


def select(
    op: Builder,
    boxes: ir.Value,
    scores: ir.Value,
    overlap: float,
    score: float | None = None,
    most: Size | None = None,
    eta: float = 1.0,
) -> ir.Value:
    """ONNX's NonMaxSuppression: (kept, (batch, class, box)), by batch, class and falling score."""
    if eta < 1:
        selected = select_falling(op, boxes, scores, overlap, score, most, eta)
    else:
        limit = op.vector([op.size(boxes, 1) if most is None else most])
        threshold = None if score is None else op.constant([score], T.FLOAT)
        selected = op.NonMaxSuppression(boxes, scores, limit, op.constant([overlap], T.FLOAT), threshold)
    selected.shape = ir.Shape([op.names.unique("kept"), 3])
    return selected


@dataclass
class _Kept:
    """Rows that stay: the picture, class and box of each, its score, and in which order rows are written."""

    picture: ir.Value
    label: ir.Value
    box: ir.Value
    score: ir.Value
    key: ir.Value | None = None

    def only(self, op: Builder, rows: ir.Value) -> _Kept:
        return _Kept(*(op.Gather(v, rows, axis=0) for v in (self.picture, self.label, self.box, self.score)))


@lower("multiclass_nms", "multiclass_nms2", "multiclass_nms3")
def multiclass_nms(
    op: Builder,
    bboxes: Value,
    scores: Value,
    rois_num: Value | None = None,
    *,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    node: Op,
) -> tuple[ir.Value, ...]:
    """Rows (class, score, box) of all pictures, their places among all boxes, and how many each picture has."""
    by_class = op.rank(scores) == 2  # (boxes, classes): each class has boxes of its own
    if by_class and op.rank(bboxes) != 3:
        raise UnsupportedArgument(f"{node.name}: scores of rank 2 go with boxes of rank 3")
    task = _Task(score_threshold, nms_top_k, nms_threshold, normalized, background_label, nms_eta)
    pictures = op.size(bboxes, 0) if not by_class else 1 if rois_num is None else op.size(rois_num, 0)
    if by_class:
        kept = _of_classes(op, bboxes, scores, rois_num, pictures, task)
    else:
        kept = _of_pictures(op, bboxes, scores, task)
    kept = _best(op, kept, keep_top_k, pictures)
    total, classes = op.scalar(op.size(bboxes, 1)), op.scalar(op.size(scores, 1))
    if by_class:
        place = op.Add(op.Mul(kept.box, classes), kept.label)
        box = op.GatherND(bboxes, op.Concat(*(op.Unsqueeze(v, [1]) for v in (kept.box, kept.label)), axis=1))
    else:
        place = op.Add(op.Mul(kept.picture, total), kept.box)
        flat = op.reshape(bboxes, [-1, op.size(bboxes, 2)])
        box = op.Gather(flat, place, axis=0)
    rows = joined(op, op.Unsqueeze(op.cast(kept.label, T.FLOAT), [1]), op.Unsqueeze(kept.score, [1]), box)
    if node.name == "multiclass_nms":
        return (_or_minus_one(op, rows),)
    index = op.cast(op.Unsqueeze(place, [1]), T.INT32)
    return rows, index, rows_of_pictures(op, kept.picture, pictures)


@dataclass
class _Task:
    """What decides which boxes stay."""

    score: float
    top_k: int
    overlap: float
    normalized: bool
    background: int
    eta: float

    def select(self, op: Builder, boxes: ir.Value, scores: ir.Value) -> ir.Value:
        boxes = in_pixels(op, boxes, not self.normalized)
        return select(op, boxes, _top(op, scores, self), self.overlap, self.score, eta=self.eta)


def _of_pictures(op: Builder, bboxes: ir.Value, scores: ir.Value, task: _Task) -> _Kept:
    """Boxes (pictures, boxes, 4), scores (pictures, classes, boxes)."""
    if op.size(bboxes, 2) != 4:
        raise UnsupportedArgument("suppression of polygons: only boxes of four numbers are supported")
    candidates = _without(op, scores, task.background)
    selected = task.select(op, bboxes, candidates)
    score = op.GatherND(candidates, selected)
    picture, label, box = (op.Squeeze(part, [1]) for part in op.Split(selected, [1, 1, 1], axis=1, _outputs=3))
    return _Kept(picture, _named(op, label, task.background), box, score)


def _of_classes(
    op: Builder, bboxes: ir.Value, scores: ir.Value, counts: ir.Value | None, pictures: Size, task: _Task
) -> _Kept:
    """Boxes (boxes, classes, 4), scores (boxes, classes): each class of each picture is a search of its own."""
    boxes = op.Transpose(_without(op, bboxes, task.background), perm=[1, 0, 2])
    points = op.Transpose(_without(op, scores, task.background), perm=[1, 0])
    classes, count = op.size(points, 0), op.size(points, 1)
    owner = picture_of_rows(op, counts, count, pictures)
    searches, all_boxes = op.Unsqueeze(points, [0]), boxes
    if owner is not None:  # (pictures, classes, boxes): boxes of other pictures are no candidates
        own = op.Equal(op.Unsqueeze(owner, [0, 1]), op.Unsqueeze(sizes.arange(op, pictures), [1, 2]))
        searches = op.Where(own, searches, op.constant(_NEVER, scores.dtype))
        repeated = op.Expand(op.Unsqueeze(boxes, [0]), op.vector([pictures, classes, count, 4]))
        all_boxes = op.reshape(repeated, [op.product([pictures, classes]), count, 4])
    searches = op.reshape(searches, [op.product([pictures, classes]), 1, count])
    selected = task.select(op, all_boxes, searches)
    score = op.GatherND(searches, selected)
    batch, _, box = (op.Squeeze(part, [1]) for part in op.Split(selected, [1, 1, 1], axis=1, _outputs=3))
    width = op.scalar(classes)
    key = op.Add(op.Mul(batch, op.scalar(count)), box)  # by class, then by place: not by score
    return _Kept(op.Div(batch, width), _named(op, op.Mod(batch, width), task.background), box, score, key)


def _without(op: Builder, x: ir.Value, background: int) -> ir.Value:
    """Without the class that is no object; classes are the second axis."""
    if background < 0 or (isinstance(size := op.size(x, 1), int) and background >= size):
        return x
    behind = op.Slice(x, [background + 1], [sizes.END], [1])
    return behind if background == 0 else op.Concat(op.Slice(x, [0], [background], [1]), behind, axis=1)


def _named(op: Builder, label: ir.Value, background: int) -> ir.Value:
    """The class as it was before the background was taken out."""
    if background < 0:
        return label
    return label + 1 if background == 0 else op.Add(label, op.cast(op.GreaterOrEqual(label, background), T.INT64))


def _top(op: Builder, scores: ir.Value, task: _Task) -> ir.Value:
    """Scores of which only the best ``top_k`` of each class stay candidates."""
    count = op.size(scores, 2)
    if task.top_k < 0 or (isinstance(count, int) and count <= task.top_k):
        return scores
    most = sizes.smaller(op, count, task.top_k)
    best, places = op.TopK(scores, op.vector([most]), axis=2, _outputs=2)
    none = op.Expand(op.constant(_NEVER, scores.dtype), op.Shape(scores), _shape=scores.shape.dims)  # type: ignore[union-attr]
    return op.ScatterElements(none, places, best, axis=2)


def _best(op: Builder, kept: _Kept, keep: int, pictures: Size) -> _Kept:
    """The best ``keep`` rows of each picture, in the order that they had."""
    if keep < 0:
        return kept if kept.key is None else kept.only(op, ascending(op, kept.key))
    rows = op.size(kept.score, 0)
    if isinstance(pictures, int) and pictures == 1:
        _, chosen = op.TopK(kept.score, op.vector([sizes.smaller(op, rows, keep)]), axis=0, _outputs=2)
    else:
        _, order = op.TopK(kept.score, op.vector([rows]), axis=0, _outputs=2)
        owner = op.Unsqueeze(op.Gather(kept.picture, order, axis=0), [1])
        own = op.cast(op.Equal(owner, op.Unsqueeze(sizes.arange(op, pictures), [0])), T.INT64)
        before = op.GatherElements(op.CumSum(own, op.constant(0, T.INT64)), owner, axis=1)
        chosen = op.Compress(order, op.LessOrEqual(op.Squeeze(before, [1]), keep), axis=0)
    if kept.key is None:
        return kept.only(op, in_order(op, chosen, rows))
    return kept.only(op, op.Gather(chosen, ascending(op, op.Gather(kept.key, chosen, axis=0)), axis=0))


def _or_minus_one(op: Builder, rows: ir.Value) -> ir.Value:
    """The oldest form writes [[-1]] when nothing was found."""
    count = op.size(rows, 0)
    more = op.Concat(rows, op.constant([[-1.0] * 6], rows.dtype), axis=0)
    none = op.cast(op.Equal(count, 0), T.INT64)
    either = op.Slice(more, [0, 0], op.Concat(op.Max(count, 1), op.Sub(6, op.Mul(none, 5)), axis=0), [0, 1])
    either.shape = ir.Shape([op.names.unique("kept"), None])
    return either


# Scores that fall with overlap


@lower("matrix_nms")
def matrix_nms(
    op: Builder,
    bboxes: Value,
    scores: Value,
    *,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    post_threshold: float = 0.0,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Nothing is dropped for its overlap: every score falls by what overlaps with a better box."""
    pictures, total = op.size(bboxes, 0), op.size(bboxes, 1)
    kept = _without(op, scores, background_label)
    classes = op.size(kept, 1)
    most = total if nms_top_k < 0 else sizes.smaller(op, total, nms_top_k)
    best, places = op.TopK(kept, op.vector([most]), axis=2, _outputs=2)
    flat = op.reshape(places, [pictures, op.product([classes, most])])
    chosen = op.reshape(rows_at(op, bboxes, flat), [pictures, classes, most, 4])
    decayed = best * _decay(op, chosen, most, not normalized, gaussian_sigma if use_gaussian else None)
    stays = op.And(op.Greater(best, score_threshold), op.Greater(decayed, post_threshold))
    final = op.reshape(op.Where(stays, decayed, op.constant(_NEVER, decayed.dtype)), op.sizes(flat))
    count = op.product([classes, most])
    limit = count if keep_top_k < 0 else sizes.smaller(op, count, keep_top_k)
    score, rank = op.TopK(final, op.vector([limit]), axis=1, _outputs=2)
    rows = op.Transpose(op.NonZero(op.Greater(score, _NEVER)), perm=[1, 0])
    picture = op.Squeeze(op.Slice(rows, [0], [1], [1]), [1])
    where = op.GatherND(rank, rows)
    label = _named(op, op.Div(where, op.scalar(most)), background_label)
    at = op.Concat(op.Unsqueeze(picture, [1]), op.Unsqueeze(where, [1]), axis=1)
    place = op.Add(op.GatherND(flat, at), op.Mul(picture, op.scalar(total)))
    box = op.Gather(op.reshape(bboxes, [-1, 4]), place, axis=0)
    parts = (op.cast(label, T.FLOAT), op.GatherND(score, rows))
    out = joined(op, *(op.Unsqueeze(part, [1]) for part in parts), box)
    index = counted_at_run_time(op, op.cast(op.Unsqueeze(place, [1]), T.INT32), "kept")
    return counted_at_run_time(op, out, "kept"), index, rows_of_pictures(op, picture, pictures)


def _decay(op: Builder, boxes: ir.Value, count: Size, pixels: bool, sigma: float | None) -> ir.Value:
    """For each box of a class, the best first: the smallest factor that a better box gives it."""
    order = sizes.arange(op, count)
    better = op.Less(op.Unsqueeze(order, [0]), op.Unsqueeze(order, [1]))  # (box, better box)
    overlap = op.Where(better, overlaps(op, boxes, boxes, pixels), op.constant(0, boxes.dtype))
    worst = op.ReduceMax(overlap, [3], keepdims=0)  # of each box, with those better than it
    worst = op.Unsqueeze(worst, [2])
    if sigma is None:
        factor = op.Div(op.Sub(1.0, overlap), op.Sub(1.0, worst))
    else:
        factor = op.Exp((worst * worst - overlap * overlap) * sigma)
    factor = op.Where(better, factor, op.constant(1, boxes.dtype))
    return op.Min(op.ReduceMin(factor, [3], keepdims=0), 1.0)


# A threshold that falls with every box that stays: one box after the other, in a Loop


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
