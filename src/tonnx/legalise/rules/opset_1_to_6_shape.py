"""Opsets 1 to 6, shapes and views: Reshape (5), Tile (6), Concat (4), Split and Pad (2)."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, Size, T
from tonnx.ir.infer import Dims, dims_of, same_dim, same_dims
from tonnx.legalise.node_view import Blocked, NodeView, constant_of, known
from tonnx.legalise.table import DOWN, down, same, up
from tonnx.legalise.versioned_ops import counted_by_loop

_FLOATS = (T.FLOAT16, T.FLOAT, T.DOUBLE, None)

# Reshape


@down("Reshape", 5)
def reshape_attribute(op: Builder, node: NodeView) -> ir.Value:
    """The shape becomes an attribute; sizes known only at run time are copied ("0") or inferred ("-1")."""
    x = node.need("data")
    target = constant_of(node.need("shape"))
    after = dims_of(node.node.outputs[0])
    sizes = [int(size) for size in target] if target is not None else _sizes(node, after)
    whole = after if target is None or after is not None else None
    if (plain := _by_ones(op, x, whole)) is not None:
        return plain
    return op.Reshape(x, shape=sizes, _shape=after)


def _sizes(node: NodeView, after: Dims | None) -> list[int]:
    """The target from what is known of the result."""
    before = node.dims("data")
    if after is None:
        raise Blocked("its shape is computed at run time, and was an attribute before opset 5")
    sizes = []
    for i, dim in enumerate(after):
        copied = before is not None and i < len(before) and not isinstance(dim, int) and same_dim(dim, before[i])
        sizes.append(dim if isinstance(dim, int) else 0 if copied else -1)
    if sizes.count(-1) > 1:
        raise Blocked("its shape is computed at run time, and was an attribute before opset 5")
    if 0 in [d for d in after if isinstance(d, int)]:
        raise Blocked("a size of 0 means that of the input before opset 14")
    return sizes


def _by_ones(op: Builder, x: ir.Value, after: Dims | None) -> ir.Value | None:
    """Axes of size 1 that come or go: for a result of rank 0, which no list says, and for types that Reshape lacks."""
    before = dims_of(x)
    if before is None or after is None or (x.dtype in _FLOATS and after and before):
        return None
    gone, new = _ones_between(before, after)
    if gone is None or new is None:
        return None
    if gone:
        x = op.Squeeze(x, axes=gone)
    if new:
        x = op.Unsqueeze(x, axes=new)
    return x if gone or new else op.Identity(x)


def _ones_between(before: Dims, after: Dims) -> tuple[list[int] | None, list[int] | None]:
    """The axes of size 1 to take away, and those to put in; None if that is not all."""
    kept_before = [d for d in before if d != 1]
    kept_after = [d for d in after if d != 1]
    if not same_dims(kept_before, kept_after):
        return None, None
    return [i for i, d in enumerate(before) if d == 1], [i for i, d in enumerate(after) if d == 1]


@up("Reshape", 5)
def reshape_input(op: Builder, node: NodeView) -> ir.Value:
    """The shape becomes an input."""
    shape = known(node.attr("shape"), "it says no shape")
    return op.Reshape(node["data"], np.asarray(shape, dtype=np.int64))


# Tile


@down("Tile", 6)
def tile_by_gathering(op: Builder, node: NodeView) -> ir.Value:
    """Version 1 repeats one axis, by a fraction: reading every element so many times is clearer, and takes any type."""
    x = node.need("input")
    repeats = constant_of(node.need("repeats"))
    for axis in range(node.rank("input")):
        size = op.size(x, axis)
        if repeats is None:
            if size != 1:
                raise Blocked("how often it repeats more than one element is known only at run time")
            count = op.Slice(node["repeats"], axes=[0], starts=[axis], ends=[axis + 1])
            x = op.Gather(x, counted_by_loop(op, op.Squeeze(count, axes=[0]), zeros=True), axis=axis)
        elif repeats[axis] != 1:
            x = _repeated(op, x, axis, size, int(repeats[axis]))
    return op.Identity(x) if x is node["input"] else x


def _repeated(op: Builder, x: ir.Value, axis: int, size: Size, times: int) -> ir.Value:
    if isinstance(size, int):
        return op.Gather(x, np.tile(np.arange(size, dtype=np.int64), times), axis=axis)
    if times == 0:
        return op.Slice(x, axes=[axis], starts=[0], ends=[0])
    return op.Concat(*[x] * times, axis=axis)


@up("Tile", 6)
def tile_all_axes(op: Builder, node: NodeView) -> ir.Value:
    """One axis and how often: a list for all axes."""
    tiles, axis = node.const("tiles"), node.const("axis")
    assert tiles is not None and axis is not None
    repeats = [1] * node.rank("input")
    repeats[int(axis.item())] = int(tiles.item())
    return op.Tile(node["input"], np.asarray(repeats, dtype=np.int64))


# Concat and Split

same("Concat", 4, "an axis that is said, and types are the type rule's", direction=DOWN)


@up("Concat", 4)
def concat_default_axis(op: Builder, node: NodeView) -> None:
    """The axis was 1 if nothing was said."""
    if "axis" not in node.node.attributes:
        node.node.attributes.add(ir.AttrInt64("axis", 1))


@down("Split", 2)
def split_by_slicing(op: Builder, node: NodeView) -> tuple[ir.Value, ...]:
    """Version 1 takes its sizes twice, and floats only; slices are plain, and take any type."""
    x, axis, sizes = node.need("input"), node.attr("axis", 0), node.attr("split")
    if sizes is None:
        size = op.size(x, axis)
        if not isinstance(size, int):
            if x.dtype not in _FLOATS:
                raise Blocked("it makes equal parts of a size known only at run time")
            return op.Split(x, axis=axis, _outputs=node.outputs)
        sizes = [size // node.outputs] * node.outputs
    ends = np.cumsum(sizes)
    return tuple(
        op.Slice(x, axes=[axis], starts=[int(end - size)], ends=[int(end)])
        for size, end in zip(sizes, ends, strict=True)
    )


@up("Split", 2)
def split_sizes_attribute(op: Builder, node: NodeView) -> tuple[ir.Value, ...]:
    """Sizes that are an input become an attribute."""
    sizes, axis = node.attr("split"), node.attr("axis")
    if axis is None:
        raise Blocked("it says no axis, and version 1 has no default")
    if len(node.inputs) > 1 and (vector := node.inputs[1]) is not None:
        array = known(constant_of(vector), "its sizes are computed at run time")
        sizes = [int(size) for size in array.reshape(-1)]
    return op.Split(node.inputs[0], axis=axis, split=sizes, _outputs=node.outputs)


# Pad


@down("Pad", 2)
def pad_paddings(op: Builder, node: NodeView) -> ir.Value:
    """The attribute had another name."""
    shape = dims_of(node.node.outputs[0])
    return op.Pad(node["data"], paddings=node.attr("pads"), **node.attributes("pads"), _shape=shape)


@up("Pad", 2)
def pad_pads(op: Builder, node: NodeView) -> ir.Value:
    """The attribute got another name."""
    return op.Pad(node["data"], pads=node.attr("paddings"), **node.attributes("paddings"))
