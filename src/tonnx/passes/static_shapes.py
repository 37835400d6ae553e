"""Dimensions that are fixed, and what follows: a known shape is a constant, and so is what is computed of it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from tonnx.errors import InvalidArgument
from tonnx.io import read as reading
from tonnx.ir import facts, provenance
from tonnx.ir.build import Builder, Names
from tonnx.ir.infer import dims_of
from tonnx.ir.rewrite import all_graphs, names_in, replace_node
from tonnx.passes.constants import fold_constants
from tonnx.passes.dead import remove_dead


def fix_sizes(model: ir.Model, sizes: Mapping[str, int]) -> None:
    """Give dimensions of the inputs a size: by their name, or as ``x.2``, the axis 2 of the input x."""
    used = set()
    for value in model.graph.inputs:
        dims = list(value.shape or ())
        for axis, dim in enumerate(dims):
            names = () if isinstance(dim, int) else (f"{value.name}.{axis}", dim.value or "")
            if name := next((name for name in names if name in sizes), ""):
                dims[axis] = sizes[name]
                used.add(name)
        if value.shape is not None:
            value.shape = ir.Shape(dims)
    if unused := set(sizes) - used:
        free = [str(d) for v in model.graph.inputs for d in v.shape or () if not isinstance(d, int)]
        raise InvalidArgument(
            f"no input has a dynamic dimension {', '.join(sorted(unused))}",
            why=f"there are {', '.join(dict.fromkeys(free))}" if free else "all of them are fixed",
        )
    for graph in all_graphs(model):  # what was inferred of the old names
        for node in graph:
            for output in node.outputs:
                if not output.is_graph_output():
                    output.shape = None
    for value in model.graph.outputs:
        if value.shape is not None:
            dims = [dim if isinstance(dim, int) else sizes.get(dim.value or "", dim) for dim in value.shape]
            value.shape = ir.Shape(dims)


def settle_shapes(model: ir.Model) -> list[str]:
    """Constants as initializers, types and shapes inferred, and all that is computed of known sizes written down.

    Gives notes for the result.
    """
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    notes = reading.infer(model)
    provenance.remember(model)
    while fold_shapes(model):
        reading.infer(model)
    return notes


def fold_shapes(model: ir.Model) -> int:
    """Write known shapes and sizes down, and compute what depends on them only; returns how many nodes went."""
    count, names = 0, Names(names_in(model))
    for node in [node for node in model.graph if node.domain == "" and node.op_type in ("Shape", "Size")]:
        dims = dims_of(node.inputs[0])
        if dims is None or node.outputs[0].is_graph_output():
            continue
        start, end = (node.attributes.get(key) for key in ("start", "end"))
        part = dims[start.as_int() if start else None : end.as_int() if end else None]
        sizes = [dim for dim in part if isinstance(dim, int)]
        if len(sizes) != len(part):
            continue
        numbers = np.array(sizes if node.op_type == "Shape" else math.prod(sizes), np.int64)
        op = Builder(model.graph, names=names, opset=model.opset_imports[""], before=node)
        constant = op.constant(numbers)
        facts.copy(node.outputs[0], constant)
        replace_node(node, [constant])
        count += 1
    folded = fold_constants(model)  # also where no shape was read: what it gives has a shape that may not be known yet
    return count + folded + (remove_dead(model) if count or folded else 0)
