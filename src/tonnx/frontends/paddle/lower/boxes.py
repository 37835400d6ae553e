"""What rules about boxes share. A box is its corners (x1, y1, x2, y2) on the last axis."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder, Size, T
from tonnx.lowering import sizes
from tonnx.lowering.ops.linalg import turned


def corners(op: Builder, boxes: ir.Value) -> list[ir.Value]:
    """x1, y1, x2, y2, each with a last axis of size 1."""
    return list(op.Split(boxes, axis=-1, num_outputs=4, _outputs=4))


def joined(op: Builder, *parts: ir.Value) -> ir.Value:
    """Coordinates side by side again."""
    return op.Concat(*parts, axis=-1)


def in_pixels(op: Builder, boxes: ir.Value, pixels: bool) -> ir.Value:
    """Boxes whose last row and column count as inside, as boxes of plain coordinates: one pixel further.

    Boxes less than a pixel apart overlap a little then, where Paddle finds nothing; that changes a choice only if the
    threshold is below that sliver's share.
    """
    return op.Add(boxes, op.constant([0, 0, 1, 1], boxes.dtype)) if pixels else boxes


def area(op: Builder, boxes: ir.Value, pixels: bool = False) -> ir.Value:
    """Width times height, zero for a box that is turned inside out; the last axis has size 1."""
    more = 1.0 if pixels else 0.0
    x1, y1, x2, y2 = corners(op, boxes)
    width, height = x2 - x1, y2 - y1
    there = op.And(op.GreaterOrEqual(width, 0.0), op.GreaterOrEqual(height, 0.0))
    return op.Where(there, (width + more) * (height + more), 0.0) if pixels else op.Where(there, width * height, 0.0)


def overlaps(op: Builder, a: ir.Value, b: ir.Value, pixels: bool = False) -> ir.Value:
    """Intersection over union of every box of ``a`` (…, n, 4) with every box of ``b`` (…, m, 4): (…, n, m)."""
    more = 1.0 if pixels else 0.0
    ax1, ay1, ax2, ay2 = corners(op, a)
    bx1, by1, bx2, by2 = (turned(op, part) for part in corners(op, b))
    width = op.Sub(op.Min(ax2, bx2), op.Max(ax1, bx1))
    height = op.Sub(op.Min(ay2, by2), op.Max(ay1, by1))
    meet = op.And(op.GreaterOrEqual(width, 0.0), op.GreaterOrEqual(height, 0.0))
    both = op.Where(meet, (width + more) * (height + more) if pixels else width * height, 0.0)
    either = op.Sub(op.Add(area(op, a, pixels), turned(op, area(op, b, pixels))), both)
    return op.Where(op.Greater(either, 0.0), both / op.Max(either, 1e-30), 0.0)


def picture_of_rows(op: Builder, counts: ir.Value | None, rows: Size, pictures: Size) -> ir.Value | None:
    """To which picture each row belongs when picture i has ``counts[i]`` rows; None if there is only one picture."""
    if counts is None or (isinstance(pictures, int) and pictures == 1):
        return None
    ends = op.CumSum(op.cast(counts, T.INT64), op.constant(0, T.INT64))
    behind = op.GreaterOrEqual(op.Unsqueeze(sizes.arange(op, rows), [1]), op.Unsqueeze(ends, [0]))
    return op.ReduceSum(op.cast(behind, T.INT64), [1], keepdims=0)


def rows_of_pictures(op: Builder, picture: ir.Value, pictures: Size) -> ir.Value:
    own = op.Equal(op.Unsqueeze(picture, [1]), op.Unsqueeze(sizes.arange(op, pictures), [0]))
    return op.ReduceSum(op.cast(own, T.INT32), [0], keepdims=0)


def rows_at(op: Builder, table: ir.Value, places: ir.Value) -> ir.Value:
    """For each picture the rows of ``table`` (pictures, n, c) at ``places`` (pictures, k): (pictures, k, c)."""
    pictures, count, width = op.sizes(table)
    if isinstance(pictures, int) and pictures == 1:
        return op.Gather(op.reshape(table, [count, width]), places, axis=0)
    first = op.Mul(sizes.arange(op, pictures), op.scalar(count))
    flat = op.reshape(table, [op.product([pictures, count]), width])
    return op.Gather(flat, op.Add(places, op.Unsqueeze(first, [1])), axis=0)


def in_order(op: Builder, places: ir.Value, count: Size) -> ir.Value:
    """Different places below ``count``, the lowest first."""
    there = op.ScatterElements(
        op.ConstantOfShape(op.vector([count]), value=ir.tensor([0.0], dtype=T.FLOAT)),
        places,
        op.Expand(op.constant(1.0, T.FLOAT), op.Shape(places)),
    )
    return op.Squeeze(op.NonZero(there), [0])


def ascending(op: Builder, keys: ir.Value) -> ir.Value:
    """The order that sorts integers (n,)."""
    return op.TopK(keys, op.size(keys, 0), axis=0, largest=0, sorted=1, _outputs=2)[1]


def counted_at_run_time(op: Builder, value: ir.Value, what: str) -> ir.Value:
    """Say that the first size comes from the data. Programs write sizes there that do not hold."""
    if value.const_value is None:
        rest = list(value.shape.dims[1:]) if value.shape is not None else []
        value.shape = ir.Shape([op.names.unique(what), *rest])
    return value
