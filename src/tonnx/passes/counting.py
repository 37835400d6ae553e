"""Values that count 0, 1, 2 … along one axis, as the positions do of which models make masks; and picking by them.

GatherND of a matrix by all its rows and all its columns, in order, only gives it more axes: ``mask[batch, key]`` with
positions that are broadcast against each other, as transformers writes it. It becomes Unsqueeze.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.ir.infer import Dim, constant, dims_of, known_number, same_dim, sizes_in
from tonnx.ir.infer.dims import ints_in
from tonnx.ir.operands import attribute
from tonnx.ir.rewrite import replace_node, rewrite_each
from tonnx.passes.match import made_by


@dataclass(frozen=True)
class Counting:
    """A value whose numbers rise by one along an axis and are the same along all others."""

    axis: int
    """From the end: -1 is the last."""
    size: Dim
    added: tuple[Dim, ...] = ()
    """Sizes that are added to 0, 1, 2 …"""


def counted(value: ir.Value | None) -> Counting | None:
    """How a value counts; None if it does not, or it cannot be told."""
    node = made_by(value, "Range", "Unsqueeze", "Reshape", "Add", "Cast", "Identity", "Expand")
    dims = dims_of(value)
    if node is None or dims is None:
        return None
    if node.op_type == "Range":
        is_plain = known_number(node.inputs[0]) == 0 and known_number(node.inputs[2]) == 1
        return Counting(-1, dims[0]) if is_plain else None
    if node.op_type == "Add":
        for counting, added in zip(node.inputs, reversed(node.inputs), strict=True):
            inner, size = counted(counting), _size_in(added)
            if inner is not None and size is not None:
                return replace(inner, added=(*inner.added, size))
        return None
    inner = counted(node.inputs[0])
    if inner is not None and node.op_type == "Reshape":
        return _reshaped(inner, dims_of(node.inputs[0]), dims)
    if inner is None or node.op_type != "Unsqueeze":
        return inner
    axes = ints_in(node.inputs[1])
    if axes is None:
        return None
    new = {axis % len(dims) for axis in axes}
    kept = [axis for axis in range(len(dims)) if axis not in new]
    return replace(inner, axis=kept[inner.axis] - len(dims))


def _reshaped(counting: Counting, before: Sequence[Dim] | None, after: Sequence[Dim]) -> Counting | None:
    """The same with axes of 1 put in or left out, which is what Unsqueezes in a row become."""
    longer = [axis for axis, size in enumerate(after) if size != 1]
    if before is None or len(longer) != 1 or not same_dim(after[longer[0]], counting.size):
        return None
    others = [size for axis, size in enumerate(before) if axis - len(before) != counting.axis]
    return replace(counting, axis=longer[0] - len(after)) if all(size == 1 for size in others) else None


def _size_in(value: ir.Value | None) -> Dim | None:
    squeezed = made_by(value, "Squeeze")
    sizes = sizes_in(squeezed.inputs[0] if squeezed is not None else value)
    return sizes[0] if sizes is not None and len(sizes) == 1 and constant(value) is None else None


def pick_nothing(model: ir.Model) -> int:
    """Look at every GatherND of the main graph; returns how many picked everything."""
    return rewrite_each(model, "GatherND", _raise_only)


def _raise_only(op: Builder, node: ir.Node) -> bool:
    x, joined = node.inputs[0], made_by(node.inputs[1], "Concat")
    dims, result = dims_of(x), dims_of(node.outputs[0])
    if x is None or joined is None or dims is None or result is None or attribute(node, "batch_dims", 0):
        return False
    if len(joined.inputs) != len(dims) or attribute(joined, "axis") not in (-1, len(result)):
        return False
    axes = []
    for each, size in zip(joined.inputs, dims, strict=True):
        parts = counted(each)  # [..., 1]: the last axis is that of the coordinates
        if parts is None or parts.added or not same_dim(parts.size, size) or parts.axis >= -1:
            return False
        axes.append(parts.axis + 1 + len(result))
    others = [axis for axis in range(len(result)) if axis not in axes]
    if axes != sorted(set(axes)) or any(result[axis] != 1 for axis in others):
        return False
    with op.at(node):
        replace_node(node, [op.Unsqueeze(x, others, _shape=result) if others else x])
    return True
