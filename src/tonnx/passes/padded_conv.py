"""A padding with zeros before convolutions becomes their own: one node and one copy of the picture less."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.infer import constant
from tonnx.ir.operands import attribute
from tonnx.ir.rewrite import replace_node


def fuse_padding(model: ir.Model) -> int:
    """Look at every Pad of the main graph that only convolutions read; returns how many went."""
    fused = 0
    for node in list(model.graph):
        if node.op_type != "Pad" or node.domain != "" or node.outputs[0].is_graph_output():
            continue
        pads = _zeros(node)
        readers = [user for user, _ in node.outputs[0].uses()]
        if pads is None or not readers or not all(_takes(user, node.outputs[0]) for user in readers):
            continue
        for user in readers:
            own = list(user.attributes["pads"].as_ints()) if "pads" in user.attributes else [0] * len(pads)
            user.attributes["pads"] = ir.AttrInt64s("pads", [a + b for a, b in zip(own, pads, strict=True)])
        replace_node(node, [node.inputs[0]])
        fused += 1
    return fused


def _zeros(node: ir.Node) -> list[int] | None:
    """How much a Pad puts around the spatial axes, as Conv wants it; None if it does anything else."""
    x = node.inputs[0]
    if attribute(node, "mode", "constant") != "constant":
        return None
    if x is None or x.shape is None or len(node.inputs) < 2:
        return None
    rank = x.shape.rank()
    arrays = [constant(value) if value is not None else None for value in node.inputs[1:]]
    pads, value, axes = (*arrays, None, None)[:3]
    for place, array in zip((2, 3), (value, axes), strict=True):
        if array is None and len(node.inputs) > place and node.inputs[place] is not None:
            return None  # it is there, but not known
    if pads is None or (value is not None and value.any()):
        return None
    places = [int(axis) % rank for axis in axes.reshape(-1)] if axes is not None else list(range(rank))
    before, after = [0] * rank, [0] * rank
    for i, axis in enumerate(places):
        before[axis], after[axis] = int(pads[i]), int(pads[len(places) + i])
    if any((*before[:2], *after[:2])) or min((*before, *after)) < 0:
        return None
    return [*before[2:], *after[2:]]


def _takes(user: ir.Node, padded: ir.Value) -> bool:
    if user.op_type != "Conv" or user.domain != "" or user.inputs[0] is not padded or padded in user.inputs[1:]:
        return False
    return attribute(user, "auto_pad", "NOTSET") == "NOTSET"
