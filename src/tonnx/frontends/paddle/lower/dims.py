"""The shapes of a model's inputs: names for what is dynamic, what the user fixed or renamed, and sizes to try.

A leading -1 is called ``batch``, every other one ``DIM_n``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from tonnx.errors import InvalidArgument
from tonnx.frontends.paddle.read.graph import Kind, Program
from tonnx.ir.infer import Dim

BATCH = "batch"
LATER = "DIM_"
_MEASURES = frozenset("im_shape im_size img_size image_shape im_info origin_shape ori_shape".split())
_FACTORS = frozenset({"scale_factor"})
Wanted = Mapping[str, Sequence[int | str | None]]


@dataclass(frozen=True)
class Inputs:
    """The inputs in order, by their names in the program."""

    shapes: dict[str, list[Dim]]
    dtypes: dict[str, ir.DataType]
    own_sizes: dict[str, int]
    """Sizes that the model itself has where the user wants a dynamic dimension: they work for certain."""
    contradicts: bool
    """Whether the user changed a dimension that the program has fixed: what it says of other shapes is wrong then."""
    measures: frozenset[str] = frozenset()
    """Inputs that hold the size of a picture: with any other numbers, detectors give boxes that nobody can order."""

    def dynamic(self) -> dict[str, dict[int, str]]:
        """The dynamic axes of each input and their names."""
        named = {
            name: {axis: str(dim.value) for axis, dim in enumerate(shape) if isinstance(dim, ir.SymbolicDim)}
            for name, shape in self.shapes.items()
        }
        return {name: axes for name, axes in named.items() if axes}


def inputs_of(program: Program, wanted: Wanted | None = None) -> Inputs:
    """The inputs, with ``wanted`` in the place of what the program says: sizes, names, and -1 or None to keep."""
    wanted = dict(wanted or {})
    for name in wanted:
        if name not in program.inputs:
            there = ", ".join(program.inputs) or "none"
            raise InvalidArgument(f"input_shapes: the model has no input {name!r}", why=f"its inputs are {there}")
    shapes, dtypes, own_sizes = dict[str, list[Dim]](), dict[str, ir.DataType](), dict[str, int]()
    contradicts, count = False, 0
    for name, value in program.inputs.items():
        if value.kind is not Kind.TENSOR or value.dtype is None or value.shape is None:
            raise InvalidArgument(f"the input {name!r} is not a tensor of a known rank")
        asked = list(wanted.get(name, value.shape))
        if len(asked) != len(value.shape):
            raise InvalidArgument(
                f"input_shapes: {name!r} has {len(value.shape)} dimensions, not {len(asked)}",
                why=f"its shape in the model is {list(value.shape)}",
            )
        shape: list[Dim] = []
        for axis, (own, new) in enumerate(zip(value.shape, asked, strict=True)):
            if isinstance(new, str):
                shape.append(ir.SymbolicDim(new))
                if own >= 0:
                    own_sizes.setdefault(new, own)
            elif new is not None and not isinstance(new, bool) and isinstance(new, (int, np.integer)) and new >= 0:
                shape.append(int(new))
            elif new is not None and new != -1:
                raise InvalidArgument(f"input_shapes: a dimension of {name!r} is {new!r}, not a size or a name")
            elif own >= 0:
                shape.append(own)
            elif axis == 0:
                shape.append(ir.SymbolicDim(BATCH))
            else:
                shape.append(ir.SymbolicDim(f"{LATER}{count}"))
                count += 1
            contradicts = contradicts or (own >= 0 and shape[-1] != own)
        shapes[name], dtypes[name] = shape, value.dtype
    return Inputs(shapes, dtypes, own_sizes, contradicts, _measures(program))


def _measures(program: Program) -> frozenset[str]:
    """The inputs that an operator takes for the size of a picture, or that are called so, as PaddleDetection does."""
    read = {
        id(value)
        for op in program.walk()
        if op.name.rpartition(".")[2] == "yolo_box"
        for value in (*op.operands[1:2], *op.inputs.get("ImgSize", ()))
    }
    names = {name for name, value in program.inputs.items() if id(value) in read or name in _MEASURES}
    return frozenset(name for name in names if (program.inputs[name].shape or (0,))[-1] in (2, 3))


def apart(inputs: Inputs, arrays: Mapping[str, np.ndarray]) -> Inputs:
    """With a name of its own for a leading dimension whose size in ``arrays`` is not that of the others."""
    shapes = {name: list(shape) for name, shape in inputs.shapes.items()}
    sizes: dict[str, int] = {}
    for name, array in arrays.items():
        for axis, (dim, size) in enumerate(zip(inputs.shapes[name], array.shape, strict=True)):
            if not isinstance(dim, ir.SymbolicDim) or dim.value != BATCH:
                continue
            if sizes.setdefault(BATCH, size) != size:
                shapes[name][axis] = ir.SymbolicDim(f"{BATCH}_of_{name}")
    return replace(inputs, shapes=shapes)


def usual_sizes(inputs: Inputs, image: int, length: int) -> dict[str, int]:
    """A size for every dynamic dimension that most models accept; ``image`` for the sides of pictures.

    What is longest is meant for signals: rows of numbers, with a channel at most.
    """
    sizes = dict(inputs.own_sizes)
    for name, shape in inputs.shapes.items():
        is_signal = inputs.dtypes[name].is_floating_point() and (len(shape) == 2 or (len(shape) == 3 and shape[1] == 1))
        most = length if is_signal else 1024
        for axis, dim in enumerate(shape):
            if isinstance(dim, ir.SymbolicDim):
                usual = 2 if axis == 0 else image if len(shape) >= 4 and axis >= 2 else min(length, most)
                sizes.setdefault(str(dim.value), usual)
    return sizes


def example(inputs: Inputs, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Random inputs at these sizes. Integers are 0 and 1: as indices these are most often valid."""
    rng = np.random.default_rng(0)
    arrays = {}
    pictures = [shape for shape in inputs.shapes.values() if len(shape) == 4]
    sides = _fixed(pictures[0], sizes)[2:] if pictures else (64, 64)
    for name, shape in inputs.shapes.items():
        dtype = inputs.dtypes[name]
        dims = _fixed(shape, sizes)
        if name in inputs.measures:
            arrays[name] = np.broadcast_to((*sides, 1)[: dims[-1]], dims).astype(dtype.numpy())
        elif name in _FACTORS:
            arrays[name] = np.ones(dims, dtype.numpy())
        elif dtype.is_floating_point():
            arrays[name] = rng.standard_normal(dims).astype(dtype.numpy())
        else:
            arrays[name] = rng.integers(0, 2, size=dims).astype(dtype.numpy())
    return arrays


def zeros(inputs: Inputs, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Inputs that nobody computes with: they have the shapes, and cost nothing."""
    return {name: np.zeros(_fixed(shape, sizes), inputs.dtypes[name].numpy()) for name, shape in inputs.shapes.items()}


def _fixed(shape: Sequence[Dim], sizes: Mapping[str, int]) -> list[int]:
    return [dim if isinstance(dim, int) else sizes[str(dim.value)] for dim in shape]
