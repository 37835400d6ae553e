"""Dimensions, and the sizes that a graph computes with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.ir import facts

Dim = int | ir.SymbolicDim
Dims = list[Dim]
UNKNOWN = ir.SymbolicDim(None)


def dims_of(value: ir.Value | None) -> Dims | None:
    """The dimensions of a value, or None when its rank is unknown."""
    if value is None or value.shape is None:
        return None
    return list(value.shape.dims)


def same_dim(a: object, b: object) -> bool:
    """Whether two dimensions are known to be equal."""
    if isinstance(a, int) or isinstance(b, int):
        return a == b
    return isinstance(a, ir.SymbolicDim) and isinstance(b, ir.SymbolicDim) and a.value == b.value is not None


def same_dims(one: Sequence[Dim] | None, other: Sequence[Dim] | None) -> bool:
    """Whether two shapes are known to be equal."""
    return one is not None and other is not None and len(one) == len(other) and all(map(same_dim, one, other))


def joined_dims(one: Sequence[Dim] | None, other: Sequence[Dim] | None) -> tuple[Dim, ...] | None:
    """What two shapes have in common; None if not even the rank."""
    if one is None or other is None or len(one) != len(other):
        return None
    return tuple(a if same_dim(a, b) else UNKNOWN for a, b in zip(one, other, strict=True))


def constant(value: Any) -> np.ndarray | None:
    """The contents of a value that is known before run time; None for anything else."""
    return value.const_value.numpy() if isinstance(value, ir.Value) and value.const_value is not None else None


def known_number(value: Any) -> Any:
    """The one number that a value is known to hold, as Python's; None if there are several, or only the run knows."""
    array = constant(value)
    return array.item() if array is not None and array.size == 1 else None


def as_constant(thing: Any) -> Any:
    """A number that turned out to be constant, as Python's; anything else as it is."""
    number = known_number(thing)
    return thing if number is None else number


def sizes_in(value: ir.Value | None, depth: int = 8) -> Dims | None:
    """The numbers in a vector of sizes, each fixed, named or unknown; None if not even how many is known."""
    if value is None:
        return None
    if (array := constant(value)) is not None:
        return [int(v) for v in array.reshape(-1)]
    if (name := facts.DIM.get(value)) is not None:
        return [ir.SymbolicDim(name)]
    sizes = _sizes_from(value.producer(), depth) if depth else None
    if sizes is not None:
        return sizes
    dims = dims_of(value)
    if dims is None or len(dims) > 1 or not all(isinstance(d, int) for d in dims):
        return None
    return [UNKNOWN] * (dims[0] if dims else 1)  # type: ignore[operator, return-value]


def _sizes_from(node: ir.Node | None, depth: int) -> Dims | None:
    if node is None or node.domain != "" or not node.inputs:
        return None
    if node.op_type == "Shape":
        dims = dims_of(node.inputs[0])
        bounds = [None if (a := node.attributes.get(name)) is None else a.as_int() for name in ("start", "end")]
        return None if dims is None else dims[slice(*bounds)]
    if node.op_type == "Concat":
        parts = [sizes_in(x, depth - 1) for x in node.inputs]
        return None if None in parts else [size for part in parts for size in part or ()]
    if node.op_type in ("Identity", "Cast"):
        return sizes_in(node.inputs[0], depth - 1)
    if node.op_type == "Gather":
        sizes, at = sizes_in(node.inputs[0], depth - 1), constant(node.inputs[1])
        inside = sizes is not None and at is not None and all(-len(sizes) <= i < len(sizes) for i in at.reshape(-1))
        return [sizes[int(i)] for i in at.reshape(-1)] if inside else None  # type: ignore[index, union-attr]
    if node.op_type in ("Unsqueeze", "Squeeze", "Reshape"):
        shape = node.outputs[0].shape
        return sizes_in(node.inputs[0], depth - 1) if shape is not None and shape.rank() < 2 else None
    if node.op_type == "Slice" and len(node.inputs) > 2 and len(dims_of(node.inputs[0]) or ()) == 1:
        sizes = sizes_in(node.inputs[0], depth - 1)
        cuts = [ints_in(x) or [] for x in (*node.inputs[1:3], *node.inputs[4:])] + [[1]] * (len(node.inputs) < 5)
        if sizes is None or any(len(cut) != 1 for cut in cuts) or cuts[2] == [0]:
            return None
        return sizes[cuts[0][0] : cuts[1][0] : cuts[2][0]]
    return None


def ints_in(value: ir.Value | None) -> list[int] | None:
    array = constant(value)
    return None if array is None else [int(v) for v in array.reshape(-1)]


def broadcast(shapes: Sequence[Dims | None]) -> Dims | None:
    """Multidirectional broadcasting; a pair of unequal unknown dims gives an unknown one."""
    if None in shapes:
        return None
    ranked = [shape for shape in shapes if shape is not None]
    rank = max((len(shape) for shape in ranked), default=0)
    result: Dims = []
    for i in range(rank):
        dim: Dim = 1
        for shape in ranked:
            at = i - rank + len(shape)
            if at < 0:
                continue
            other = shape[at]
            if isinstance(other, int):
                if other != 1:  # a fixed size other than 1 wins: the others must be 1 or the same
                    dim = other
            elif isinstance(dim, int):
                if dim == 1:
                    dim = other
            elif not same_dim(dim, other):
                dim = UNKNOWN
        result.append(dim)
    return result
