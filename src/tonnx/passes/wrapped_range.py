"""Keeps ONNX Runtime from fusing a Range of places into a Slice where one of its ends is negative.

Its GatherToSliceFusion (seen in 1.31) turns Gather(x, Range(n - 1, -1, -1)) into a Slice to the end -1, which is the
last element there: nothing is left. Where an end may be negative, the Range ends at 0 and the rest is added.
"""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir import facts
from tonnx.ir.build import Builder, Names
from tonnx.ir.infer import constant
from tonnx.ir.rewrite import all_graphs, names_in

_MOVED = frozenset("Squeeze Unsqueeze Gather Slice Reshape Cast Identity".split())
_COMPUTED = frozenset("Add Mul Div Mod Max".split())


def keep_range_before_gather(model: ir.Model) -> int:
    """At any opset; returns how many Gathers were changed."""
    fused_wrongly = [node for graph in all_graphs(model) for node in graph if _is_fused_wrongly(node)]
    if not fused_wrongly:
        return 0
    names = Names(names_in(model))
    for node in fused_wrongly:
        places = node.inputs[1]
        assert places is not None and isinstance(node.graph, ir.Graph)
        start, limit, delta = places.producer().inputs  # type: ignore[union-attr]
        op = Builder(node.graph, names=names, before=node)
        whole = op.Range(op.Sub(start, limit), op.constant(0, places.dtype), delta)
        node.replace_input_with(1, op.Add(whole, limit))
    return len(fused_wrongly)


def _is_fused_wrongly(node: ir.Node) -> bool:
    if node.op_type != "Gather" or node.domain != "" or node.inputs[1] is None:
        return False
    maker = node.inputs[1].producer()
    if maker is None or maker.op_type != "Range":
        return False
    return not all(end is not None and _is_count(end) for end in maker.inputs[:2])


def _is_count(value: ir.Value) -> bool:
    """Whether a number comes of sizes alone, and so is not negative."""
    known = constant(value)
    if known is not None:
        return bool((known >= 0).all())
    node = value.producer()
    if node is None or value in facts.NONNEGATIVE:
        return value in facts.NONNEGATIVE
    if node.op_type in ("Shape", "Size"):
        return True
    parts = node.inputs[:1] if node.op_type in _MOVED else node.inputs if node.op_type in _COMPUTED else []
    return bool(parts) and all(part is not None and _is_count(part) for part in parts)
