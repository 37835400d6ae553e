"""Pad: wrap mode (19), axes (18), pads as an input (11)."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, Size
from tonnx.legalise.node_view import Blocked, NodeView, constant_of
from tonnx.legalise.table import down, up

_FLOATS = (ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE, None)  # or not known


def _pads(op: Builder, node: NodeView) -> list[Size]:
    """The amounts for all axes, befores then afters; those of a run-time vector as slices of it."""
    rank = node.rank("data")
    axes = list(range(rank))
    if len(node.inputs) > 3 and node["axes"] is not None:
        axes = [a % rank for a in node.ints("axes") or []]
    array = constant_of(node.need("pads"))
    result: list[Size] = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        for at, into in ((i, axis), (len(axes) + i, rank + axis)):
            if array is not None:
                result[into] = int(array.reshape(-1)[at])
            else:
                result[into] = op.Slice(node["pads"], [at], [at + 1])
    return result


@down("Pad", 19, up="a new mode")
def pad_wrap(op: Builder, node: NodeView) -> ir.Value | None:
    """Wrapping around: gather every position modulo the size."""
    if node.attr("mode", "constant") != "wrap":
        return None
    x = node.need("data")
    rank = node.rank("data")
    pads = _pads(op, node)
    for axis in range(rank):
        before, after = pads[axis], pads[rank + axis]
        if isinstance(before, int) and isinstance(after, int):
            if before == after == 0:
                continue
            if min(before, after) >= 0 and _at_most(x, axis, max(before, after)):
                parts = [x]
                if before:
                    parts.insert(0, op.Slice(x, [-before], [np.iinfo(np.int64).max], [axis]))
                if after:
                    parts.append(op.Slice(x, [0], [after], [axis]))
                x = op.Concat(*parts, axis=axis)
                continue
        size = op.scalar(op.size(x, axis))
        positions = op.Range(-op.scalar(before), size + op.scalar(after), 1)
        x = op.Gather(x, op.Mod(positions, size), axis=axis)
    return x


def _at_most(x: ir.Value, axis: int, pad: int) -> bool:
    size = x.shape[axis] if x.shape is not None else None
    return isinstance(size, int) and pad <= size


@down("Pad", 18, up="a new optional input")
def pad_axes(op: Builder, node: NodeView) -> ir.Value | None:
    """Pads of some axes become pads of all, zero for the others."""
    axes = node["axes"]
    if axes is None:
        node.node.resize_inputs(min(len(node.inputs), 3))
        return None
    rank = node.rank("data")
    if constant_of(axes) is not None:
        pads = op.vector(_pads(op, node))
    else:
        axes = op.cast(axes, ir.DataType.INT64)
        axes = op.Where(op.Less(axes, 0), axes + rank, axes)
        zeros = op.constant([0] * (2 * rank), ir.DataType.INT64)
        pads = op.ScatterElements(zeros, op.Concat(axes, axes + rank, axis=0), node["pads"], axis=0)
    return op.Pad(node["data"], pads, node["constant_value"], mode=node.attr("mode"))


@down("Pad", 11)
def pad_attributes(op: Builder, node: NodeView) -> ir.Value:
    """Pads and value become attributes, for floats; what they cannot say is written out."""
    mode, dtype = node.attr("mode", "constant"), node.need("data").dtype
    value = node["constant_value"]
    fill = constant_of(value) if value is not None else np.zeros(1)
    pads = constant_of(node.need("pads"))
    if pads is not None and fill is not None and dtype in _FLOATS:
        attribute = float(fill.reshape(-1)[0]) if value is not None and fill.size else None
        return op.Pad(node["data"], pads=[int(p) for p in pads], value=attribute, mode=mode)
    if mode == "constant":
        return _pad_with_blocks(op, node, value if value is not None else op.constant(0, dtype))
    if pads is None:
        raise Blocked(f"its pads are computed at run time, and it pads by {mode}")
    return _pad_by_gathering(op, node, [int(p) for p in pads], mode)


def _pad_with_blocks(op: Builder, node: NodeView, fill: ir.Value) -> ir.Value:
    """Constant padding is a block of the constant before and after."""
    x, rank = node.need("data"), node.rank("data")
    fill = op.Reshape(fill, [1] * rank)
    array = constant_of(node.need("pads"))
    for axis in range(rank):
        sizes = op.sizes(x)

        def block(at: int, axis: int = axis, sizes: list[Size] = sizes) -> list[ir.Value]:
            pad: Size = int(array[at]) if array is not None else op.Slice(node["pads"], [at], [at + 1], [0])
            if isinstance(pad, int) and pad < 0:
                raise Blocked("a negative pad of this type")
            return [] if pad == 0 else [op.Expand(fill, op.vector([*sizes[:axis], pad, *sizes[axis + 1 :]]))]

        parts = [*block(axis), x, *block(rank + axis)]
        x = op.Concat(*parts, axis=axis) if len(parts) > 1 else x
    return op.Identity(x) if x is node["data"] else x


def _pad_by_gathering(op: Builder, node: NodeView, pads: list[int], mode: str) -> ir.Value:
    """Every position looks at the one that it repeats."""
    x, rank = node.need("data"), node.rank("data")
    for axis in range(rank):
        size = op.size(x, axis)
        if pads[axis] == pads[rank + axis] == 0:
            continue
        if not isinstance(size, int):
            raise Blocked(f"padding this type by {mode} takes a fixed size")
        at = np.pad(np.arange(size), (pads[axis], pads[rank + axis]), mode=mode)  # type: ignore[call-overload]
        x = op.Gather(x, at.astype(np.int64), axis=axis)
    return op.Identity(x) if x is node["data"] else x


@up("Pad", 11)
def pad_inputs(op: Builder, node: NodeView) -> ir.Value:
    """Pads and value become inputs."""
    value = node.attr("value", 0.0)
    dtype = node.dtype("data")
    constant = op.constant(value, dtype) if value and node.attr("mode", "constant") == "constant" else None
    return op.Pad(node["data"], node.attr("pads"), constant, mode=node.attr("mode"))
