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
from tonnx.ir.infer import constant, dims_of, same_dim
from tonnx.ir.infer.dims import sizes_in
from tonnx.ir.operands import attribute
from tonnx.ir.rewrite import all_graphs, names_in, remove_dead, replace_node
from tonnx.passes.constants import fold_constants

_OF_SIZES = frozenset(("Shape", "Size", "Gather", "Slice", "Squeeze", "Unsqueeze", "Concat", "Cast"))
"""Operators that hand sizes on."""


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
    """Write known shapes and sizes down, and compute what depends on them only; returns how many nodes went.

    A size that is known is a constant also where others of the same shape are not. The target of a Reshape is one if at
    most one of its sizes is neither known nor that of the input at the same place.
    """
    names = Names(names_in(model))
    op = Builder(model.graph, names=names, opset=model.opset_imports[""])
    count = 0
    for node in [node for node in model.graph if node.domain == ""]:
        if node.op_type == "Reshape" and len(node.inputs) > 1 and node.inputs[1] is not None:
            target = _reshape_target(node)
            if target is not None:
                with op.at(node):
                    node.replace_input_with(1, op.constant(target))
                count += 1
        numbers = _numbers(node) if node.op_type in _OF_SIZES and not node.outputs[0].is_graph_output() else None
        if numbers is None:
            continue
        with op.at(node):
            known = op.constant(numbers)
        facts.copy(node.outputs[0], known)
        replace_node(node, [known])
        count += 1
    folded = fold_constants(model)  # also where no shape was read: what it gives has a shape that may not be known yet
    return count + folded + (remove_dead(model) if count or folded else 0)


def _numbers(node: ir.Node) -> np.ndarray | None:
    """What a node gives, if that are sizes and all of them are known."""
    if node.op_type == "Size":
        dims = dims_of(node.inputs[0])
        known = [dim for dim in dims or () if isinstance(dim, int)]
        return np.array(math.prod(known), np.int64) if dims is not None and len(known) == len(dims) else None
    shape = [0] if node.op_type == "Shape" else dims_of(node.outputs[0])
    sizes = sizes_in(node.outputs[0]) if shape is not None and len(shape) < 2 else None
    if sizes is None or node.outputs[0].dtype != ir.DataType.INT64 or not all(isinstance(d, int) for d in sizes):
        return None
    array = np.array(sizes, np.int64)
    return array if shape else array.reshape(())


def _reshape_target(node: ir.Node) -> np.ndarray | None:
    """A constant that says the same: 0 keeps the size of the input, -1 is what is left."""
    dims, sizes = dims_of(node.inputs[0]), sizes_in(node.inputs[1])
    if constant(node.inputs[1]) is not None or sizes is None or attribute(node, "allowzero", 0):
        return None
    places = enumerate(sizes)
    target = [
        size if isinstance(size, int) else 0 if dims is not None and i < len(dims) and same_dim(dims[i], size) else -1
        for i, size in places
    ]
    return np.array(target, np.int64) if target.count(-1) <= 1 and 0 not in sizes else None
