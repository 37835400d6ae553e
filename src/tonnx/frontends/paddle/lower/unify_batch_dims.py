"""Which leading dimensions of a model's inputs are one and the same.

A program says -1 for each of them. Most models want them equal (a batch of pictures and of their sizes), some do not
(pictures and regions), and then a name for both would be wrong. So the program is lowered with a name for each, and
those that meet in one operator get the same name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from tonnx.frontends.paddle.lower.dims import BATCH, LATER, Inputs
from tonnx.ir.infer import BROADCASTING, Dim, Dims, dims_of, sizes_in


def one_by_one(inputs: Inputs) -> Inputs:
    """With a name of its own for every leading dimension that has none from the user."""
    seen, shapes = False, dict[str, list[Dim]]()
    for name, shape in inputs.shapes.items():
        shapes[name] = shape
        if shape and _name(shape[0]) == BATCH:
            shapes[name] = [ir.SymbolicDim(f"{BATCH}_of_{name}"), *shape[1:]] if seen else shape
            seen = True
    return inputs if shapes == inputs.shapes else replace(inputs, shapes=shapes)


def joined(inputs: Inputs, shared: Inputs, graph: ir.Graph) -> Inputs:
    """`one_by_one` of ``shared`` with one name for those that meet in the graph.

    A leading dimension may also be one with a later one of another input (the states of a recurrent layer, a mask).
    Later ones alone stay apart: where two of them meet, one is often 1 and repeated.
    """
    places = [(n, i) for n, shape in shared.shapes.items() for i, dim in enumerate(shape) if _is_own(dim, i)]
    names = dict.fromkeys(name for n, i in places if (name := _name(inputs.shapes[n][i])) is not None)
    leading = {name for name in names if name.startswith(BATCH)}
    order = sorted(names, key=lambda name: (name != BATCH, name in leading))
    group = {name: name for name in order}

    def first(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    carried = _carried(graph)
    for node in graph.all_nodes():
        for dims in _equal(node, [_dims(value, carried) for value in node.inputs]):
            met = {name for dim in dims if (name := _name(dim)) in group}
            if met & leading:
                best, *others = sorted({first(name) for name in met if name is not None}, key=order.index)
                group.update(dict.fromkeys(others, best))
    shapes = {name: list(shape) for name, shape in inputs.shapes.items()}
    for n, i in places:
        if (name := _name(shapes[n][i])) is not None:
            shapes[n][i] = ir.SymbolicDim(first(name))
    return replace(inputs, shapes=shapes)


def fits(inputs: Inputs, arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether the user's arrays have one size for each name."""
    sizes: dict[str | None, int] = {}
    return all(
        sizes.setdefault(_name(dim), size) == size
        for name, array in arrays.items()
        for dim, size in zip(inputs.shapes[name], array.shape, strict=True)
        if isinstance(dim, ir.SymbolicDim)
    )


def _is_own(dim: Dim, axis: int) -> bool:
    """Whether a dimension has the name that it gets without the user."""
    name = _name(dim)
    return name is not None and (name == BATCH if axis == 0 else name.startswith(LATER))


def _name(dim: Dim) -> str | None:
    return str(dim.value) if isinstance(dim, ir.SymbolicDim) and dim.value is not None else None


def _carried(graph: ir.Graph) -> dict[ir.Value, ir.Value]:
    """From what the body of a loop gets to what the first pass gets."""
    begin_of: dict[ir.Value, ir.Value] = {}
    for node in graph.all_nodes():
        if node.op_type == "Loop":
            begins = node.inputs[2:]
            inside = node.attributes["body"].as_graph().inputs[2:]
            begin_of.update({value: begin for value, begin in zip(inside, begins, strict=True) if begin is not None})
    return begin_of


def _dims(value: ir.Value | None, carried: Mapping[ir.Value, ir.Value]) -> Dims | None:
    """The dimensions of a value; where a loop does not say one that it carries, the one of the first pass."""
    dims = dims_of(value)
    begin = dims_of(carried.get(value)) if value is not None and value in carried else None
    if dims is None or begin is None or len(dims) != len(begin):
        return dims
    return [one if isinstance(one, int) or _name(one) else other for one, other in zip(dims, begin, strict=True)]


def _equal(node: ir.Node, shapes: Sequence[Dims | None]) -> Iterator[Sequence[Dim]]:
    """Dimensions of a node's inputs that have to be equal for it to work, but for a 1 that is repeated."""
    known_shapes = [shape for shape in shapes if shape is not None]
    kind = node.op_type
    if kind in BROADCASTING:
        yield from _at_the_end(known_shapes)
    elif kind == "Expand":
        yield from _at_the_end([shape for shape in (shapes[0], sizes_in(node.inputs[1])) if shape is not None])
    elif kind == "MatMul" and len(known_shapes) == 2:
        yield from _at_the_end([shape[:-2] for shape in known_shapes])
        yield [known_shapes[0][-1], known_shapes[1][-2 if len(known_shapes[1]) > 1 else -1]]
    elif kind in ("Concat", "GatherElements", "ScatterElements"):
        axis = node.attributes.get_int("axis", 0)
        for i, dims in enumerate(zip(*known_shapes, strict=False)):
            if known_shapes and i != axis % len(known_shapes[0]):
                yield dims
    elif kind in ("LSTM", "GRU", "RNN"):
        rows = [shapes[i][at] for i, at in ((0, 1), (4, 0), (5, 1), (6, 1)) if i < len(shapes) and shapes[i]]  # type: ignore[index]
        yield rows
    elif kind in ("GridSample", "NonMaxSuppression", "Attention"):
        yield [shape[0] for shape in known_shapes if len(shape) > 2]
    elif kind == "Reshape":
        yield from _left_over(shapes[0], dims_of(node.outputs[0]))


def _left_over(before: Dims | None, after: Dims | None) -> Iterator[Sequence[Dim]]:
    """The one dimension on each side of a Reshape that the other has not, if the fixed ones agree."""
    if before is None or after is None:
        return
    fixed = [math.prod(dim for dim in dims if isinstance(dim, int)) for dims in (before, after)]
    names = [[_name(dim) for dim in dims if not isinstance(dim, int)] for dims in (before, after)]
    rest = [[name for name in names[i] if name not in names[1 - i]] for i in (0, 1)]
    if fixed[0] == fixed[1] and len(names[0]) == len(names[1]) and [len(part) for part in rest] == [1, 1]:
        yield [ir.SymbolicDim(part[0]) for part in rest]


def _at_the_end(shapes: Sequence[Sequence[Dim]]) -> Iterator[Sequence[Dim]]:
    for i in range(1, max(map(len, shapes), default=0) + 1):
        yield [shape[-i] for shape in shapes if len(shape) >= i]
