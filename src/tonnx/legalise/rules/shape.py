"""Shapes and views: Squeeze, Unsqueeze, Split, Slice, Shape, Reshape, DepthToSpace."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.legalise.node_view import Blocked, NodeView, constant_of
from tonnx.legalise.table import DOWN, attributes_become_inputs, down, same, up
from tonnx.legalise.versioned_ops import END, arange


@down(("Squeeze", "Unsqueeze"), 13)
def squeeze_attribute(op: Builder, node: NodeView) -> ir.Value:
    """The axes become an attribute."""
    return getattr(op, node.op_type)(node["data"], axes=node.ints("axes"))


attributes_become_inputs(("Squeeze", "Unsqueeze"), 13, "axes")

# Split

attributes_become_inputs("Split", 13, "split")


@down("Split", 18)
def split_sizes(op: Builder, node: NodeView) -> tuple[ir.Value, ...] | None:
    """So many parts, the last one smaller: their sizes are computed."""
    if node["split"] is not None or "num_outputs" not in node.node.attributes:
        return None
    x, parts = node.need("input"), node.attr("num_outputs")
    axis = node.attr("axis", 0)
    # The rank need not be known: a negative index counts from the back of the shape, too.
    size = op.Gather(op.Shape(x), [axis], axis=0) if x.shape is None else op.size(x, axis)
    if isinstance(size, int):
        each = -(-size // parts)
        sizes: ir.Value | list[int] = [max(0, min(each, size - each * i)) for i in range(parts)]
    else:
        chunk = (size + (parts - 1)) / parts
        sizes = op.Concat(*[chunk] * (parts - 1), size - chunk * (parts - 1), axis=0)
    return op.Split(x, sizes, axis=axis, _outputs=node.outputs)


@down("Split", 13)
def split_attribute(op: Builder, node: NodeView) -> tuple[ir.Value, ...]:
    """Sizes become an attribute; those known only at run time make slices."""
    x, axis, sizes = node.need("input"), node.attr("axis", 0), node["split"]
    if sizes is None or constant_of(sizes) is not None:
        return op.Split(x, axis=axis, split=node.ints("split"), _outputs=node.outputs)
    parts: list[ir.Value] = []
    start: ir.Value = op.constant([0], T.INT64)
    for i in range(node.outputs):
        end = start + op.Slice(sizes, [i], [i + 1], [0])
        parts.append(op.Slice(x, start, end, [axis]))
        start = end
    return tuple(parts)


@up("Split", 18)
def split_count(op: Builder, node: NodeView) -> tuple[ir.Value, ...]:
    """The number of equal parts must be said."""
    count = node.outputs if node["split"] is None else None
    return op.Split(node["input"], node["split"], axis=node.attr("axis"), num_outputs=count, _outputs=node.outputs)


# Slice

attributes_become_inputs("Slice", 10, "starts", "ends", "axes")


@down("Slice", 10)
def slice_attributes(op: Builder, node: NodeView) -> ir.Value:
    """Bounds become attributes; steps and bounds known only at run time become indices to gather."""
    x = node.need("data")
    starts, ends = node.need("starts"), node.need("ends")
    count = starts.shape[0] if starts.shape is not None else None
    if not isinstance(count, int):
        raise Blocked("how many axes it slices is not known")
    axes = node.ints("axes") or list(range(count))
    steps = node.ints("steps") or [1] * count
    first, last = constant_of(starts), constant_of(ends)
    plain: list[tuple[int, int, int]] = []
    for i, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        if first is None or last is None:
            x = _slice_at_run_time(op, x, axis, _element(op, starts, i), _element(op, ends, i), step)
        elif step == 1:
            plain.append((axis, int(first[i]), int(last[i])))
        else:
            x = _slice_with_step(op, x, axis, int(first[i]), int(last[i]), step)
    if plain:
        axes, from_, to = (list(column) for column in zip(*plain, strict=True))
        x = op.Slice(x, axes=axes, starts=from_, ends=to)
    elif x is node["data"]:
        return op.Identity(x)
    return x


def _element(op: Builder, vector: ir.Value, at: int) -> ir.Value:
    return op.cast(op.Slice(vector, axes=[0], starts=[at], ends=[at + 1]), T.INT64)


def _slice_with_step(op: Builder, x: ir.Value, axis: int, start: int, end: int, step: int) -> ir.Value:
    size = op.size(x, axis)
    if isinstance(size, int):
        stop = None if step < 0 and end < -size else end
        return op.Gather(x, np.arange(*slice(start, stop, step).indices(size), dtype=np.int64), axis=axis)
    # x[a:b:s] is x[a:b] in steps of s; backwards it is x[b+1:a+1] from its end.
    low, high = (start, end) if step > 0 else (_after(end), _after(start))
    if (low, high) != (0, END):
        x = op.Slice(x, axes=[axis], starts=[low], ends=[high])
        size = op.size(x, axis)
    every = arange(op, (op.vector([size]) + (abs(step) - 1)) / abs(step)) * step
    return op.Gather(x, every if step > 0 else every + (op.vector([size]) - 1), axis=axis)


def _after(bound: int) -> int:
    """The next position; -1 is the last one, and far below zero means before the first."""
    if bound < -(2**31):
        return 0
    return END if bound == -1 or bound >= 2**31 - 1 else bound + 1


def _slice_at_run_time(op: Builder, x: ir.Value, axis: int, start: ir.Value, end: ir.Value, step: int) -> ir.Value:
    if step < 0:
        raise Blocked("bounds computed at run time together with a negative step need Slice-10")
    size = op.vector([op.size(x, axis)])

    def within(bound: ir.Value) -> ir.Value:
        if (array := constant_of(bound)) is not None:
            if (array == 0).all():
                return bound
            if (array >= 2**31 - 1).all():
                return size
        bound = op.Where(op.Less(bound, 0), bound + size, bound)
        bound = op.Where(op.Less(bound, 0), op.constant([0], T.INT64), bound)
        return op.Where(op.Less(size, bound), size, bound)

    start = within(start)
    count = within(end) - start
    count = op.Where(op.Less(count, 0), op.constant([0], T.INT64), count)
    part = op.Gather(x, arange(op, count) + start, axis=axis)
    return part if step == 1 else _slice_with_step(op, part, axis, 0, END, step)


# Shape and Reshape


@down("Shape", 15, up="all of the shape is the default")
def shape_part(op: Builder, node: NodeView) -> ir.Value:
    """A part of the shape is sliced from all of it."""
    x, start, end = node.need("data"), node.attr("start", 0), node.attr("end")
    whole = op.Shape(x)
    if start == 0 and end is None:
        return whole
    if x.shape is not None:
        axes = range(x.shape.rank())[slice(start, end)]
        if len(axes) == 1:
            return op.Gather(whole, [axes[0]], axis=0)
    return op.Slice(whole, [start], [END if end is None else end], [0])


@down("Reshape", 14, up="zero means copy by default")
def reshape_to_zero(op: Builder, node: NodeView) -> ir.Value | None:
    """A size of zero that is not "copy": the result has no elements, so any empty tensor of that shape is it.

    A size that is computed at run time is taken to be positive, as with every exporter that writes allowzero=1.
    """
    allowed = node.attr("allowzero", 0)
    target, dims = constant_of(node.need("shape")), node.dims("data")
    is_empty = dims is not None and 0 in dims
    if not allowed or (target is None and not is_empty) or (target is not None and (target != 0).all()):
        return None
    if target is not None and dims is not None:
        copied = [i < len(dims) and dims[i] == 0 for i in np.flatnonzero(target == 0)]
        if all(copied):  # "copy" gives the same
            return None
    fill = ir.Tensor(np.zeros([1], dtype=node.dtype("data").numpy()))
    return op.ConstantOfShape(node["shape"], value=fill)


# Rearrangements


@down("DepthToSpace", 11, up="the old order is the default")
def depth_to_space_columns(op: Builder, node: NodeView) -> ir.Value | None:
    """The column-row-depth order is two reshapes around a transpose."""
    mode = node.attr("mode", "DCR")
    if mode == "DCR":
        return None
    x, block = node.need("input"), node.attr("blocksize")
    batch, channels, height, width = op.sizes(x)
    inner = channels // block**2 if isinstance(channels, int) else channels / block**2
    apart = op.Reshape(x, op.vector([batch, inner, block, block, height, width]))
    mixed = op.Transpose(apart, perm=[0, 1, 4, 2, 5, 3])
    return op.Reshape(mixed, op.vector([batch, inner, op.product([height, block]), op.product([width, block])]))


@down("GatherND", 12, up="no batch axes by default")
def gather_nd_batches(op: Builder, node: NodeView) -> ir.Value | None:
    """The position in every batch axis becomes part of the index."""
    batch_dims = node.attr("batch_dims", 0)
    if not batch_dims:
        return None
    indices = node.need("indices")
    sizes = op.sizes(indices)
    columns = []
    for axis in range(batch_dims):
        position = op.Reshape(arange(op, sizes[axis]), [-1] + [1] * (len(sizes) - 1 - axis))
        columns.append(op.Expand(position, op.vector([*sizes[:-1], 1])))
    return op.GatherND(node["data"], op.Concat(*columns, indices, axis=len(sizes) - 1))


same("Upsample", 10, "removed there; a file that has it is older", direction=DOWN)
same("Scatter", 11, "removed there; a file that has it is older", direction=DOWN)


@up("Scatter", 11)
def scatter_renamed(op: Builder, node: NodeView) -> ir.Value:
    """Scatter was renamed."""
    return op.ScatterElements(node["data"], node["indices"], node["updates"], axis=node.attr("axis"))
