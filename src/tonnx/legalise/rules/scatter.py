"""ScatterElements and ScatterND: adding and multiplying (16), maximum and minimum (18)."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.ir.infer import dims_of, same_dim
from tonnx.legalise.node_view import Blocked, NodeView, constant_of
from tonnx.legalise.table import down
from tonnx.legalise.versioned_ops import arange, reduce, unsqueeze

_COMBINE = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}
_REDUCE = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


@down(("ScatterElements", "ScatterND"), 18, up="no reduction is the default")
def scatter_extremes(op: Builder, node: NodeView) -> ir.Value | None:
    """Maximum and minimum are written out."""
    return _written_out(op, node) if node.attr("reduction", "none") in ("max", "min") else None


@down(("ScatterElements", "ScatterND"), 16, up="no reduction is the default")
def scatter_reductions(op: Builder, node: NodeView) -> ir.Value | None:
    """Reductions are written out."""
    return None if node.attr("reduction", "none") == "none" else _written_out(op, node)


def _written_out(op: Builder, node: NodeView) -> ir.Value:
    return _elements(op, node) if node.op_type == "ScatterElements" else _nd(op, node)


def _elements(op: Builder, node: NodeView) -> ir.Value:
    data, indices, updates = node.need("data"), node.need("indices"), node.need("updates")
    rank = node.rank("data")
    axis = node.attr("axis", 0) % rank
    combine = getattr(op, _COMBINE[node.attr("reduction")])
    if _all_different(indices, data, axis):
        # Nothing is written twice: read, combine, write.
        return op.ScatterElements(
            data, indices, combine(op.GatherElements(data, indices, axis=axis), updates), axis=axis
        )
    # One more axis, in which every update is at its index and the neutral element elsewhere.
    size = op.size(data, axis)
    indices = op.cast(indices, T.INT64)
    indices = op.Where(op.Less(indices, 0), indices + op.scalar(size), indices)
    places = op.Reshape(arange(op, size), [-1] + [1] * (rank - 1 - axis))
    hit = op.Equal(unsqueeze(op, indices, axis + 1), unsqueeze(op, places, 0))
    spread = _spread(op, node, hit, unsqueeze(op, updates, axis + 1), axis)
    mine, theirs = dims_of(data), dims_of(indices)
    others = [i for i in range(rank) if i != axis]
    if mine is None or theirs is None or not all(same_dim(mine[i], theirs[i]) for i in others):
        # Indices may be fewer than the data in the other axes: what is beyond them stays.
        missing = op.Sub(op.Shape(data), op.Shape(spread))
        pads = op.Concat(op.vector([0] * rank), missing, axis=0)
        spread = op.Pad(spread, pads, op.constant(_neutral(node.attr("reduction"), node.dtype("data"))))
    return combine(data, spread)


def _nd(op: Builder, node: NodeView) -> ir.Value:
    data, indices, updates = node.need("data"), node.need("indices"), node.need("updates")
    kind = node.attr("reduction")
    combine = getattr(op, _COMBINE[kind])
    array = constant_of(indices)
    if array is not None and (array >= 0).all():
        rows = array.reshape(-1, array.shape[-1])
        if len(np.unique(rows, axis=0)) == len(rows):
            return op.ScatterND(data, indices, combine(op.GatherND(data, indices), updates))
    dims = dims_of(indices)
    if dims is None or not isinstance(dims[-1], int):
        raise Blocked("the depth of its indices is not known")
    depth = dims[-1]
    sizes = op.sizes(data)
    # The first axes of the data as one, and the place in it: i·B·C + j·C + k.
    place: ir.Value | None = None
    for i in range(depth):
        size = op.scalar(sizes[i])
        at = op.Gather(indices, i, axis=len(dims) - 1)
        at = op.Where(op.Less(at, 0), at + size, at)
        place = at if place is None else place * size + at
    if place is None:
        raise Blocked("it has indices of depth 0")
    total, rest = op.product(sizes[:depth]), op.product(sizes[depth:])
    flat = op.Reshape(data, op.vector([total, rest]))
    columns = op.Reshape(place, [-1, 1, 1])
    hit = op.Equal(columns, op.Reshape(arange(op, total), [1, -1, 1]))
    spread = _spread(op, node, hit, op.Reshape(updates, op.vector([-1, 1, rest])), 0)
    return op.Reshape(combine(flat, spread), op.Shape(data))


def _spread(op: Builder, node: NodeView, hit: ir.Value, updates: ir.Value, axis: int) -> ir.Value:
    """All updates at their places, those of one place combined."""
    kind, dtype = node.attr("reduction"), node.dtype("data")
    neutral = op.constant(_neutral(kind, dtype))
    return reduce(op, _REDUCE[kind], op.Where(hit, updates, neutral), [axis], keepdims=False)


def _neutral(kind: str, dtype: ir.DataType) -> np.ndarray:
    numpy = dtype.numpy()
    if kind in ("add", "mul"):
        return np.asarray(0 if kind == "add" else 1).astype(numpy)
    sign = -1 if kind == "max" else 1
    if np.issubdtype(numpy, np.integer):
        limits = np.iinfo(numpy)
        return np.asarray(limits.min if sign < 0 else limits.max, dtype=numpy)
    return np.asarray(sign * math.inf).astype(numpy)


def _all_different(indices: ir.Value, data: ir.Value, axis: int) -> bool:
    """Whether constant indices never name one element twice."""
    array = constant_of(indices)
    dims = dims_of(data)
    if array is None or dims is None:
        return False
    size = dims[axis]
    if (array < 0).any():
        if not isinstance(size, int):
            return False
        array = np.where(array < 0, array + size, array)
    ordered = np.sort(array, axis=axis)
    return not bool((np.diff(ordered, axis=axis) == 0).any())
