"""The inputs and outputs of a graph: the outputs' names, and numbers among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
from torch.utils import _pytree as pytree

from tonnx.errors import InvalidArgument, LoweringError
from tonnx.frontends.dynamic_axes import name_axes, unknown_axes_name
from tonnx.frontends.torch.call.signature import Leaf
from tonnx.ir import facts
from tonnx.ir.build import Builder


def add_input(graph: ir.Graph, leaf: Leaf, dtype: ir.DataType, shape: list[Any]) -> ir.Value:
    """A tensor of the example as an input; complex numbers have an axis for their two parts."""
    for axis, dim in leaf.dynamic.items():
        shape[axis] = ir.SymbolicDim(dim.name)
    parts = [2] if leaf.tensor.is_complex() else []
    value = ir.Value(name=leaf.name, type=ir.TensorType(dtype), shape=ir.Shape([*shape, *parts]))
    if parts:
        facts.COMPLEX.add(value)
    graph.inputs.append(value)
    return value


def add_results(
    op: Builder,
    results: Sequence[Any],
    paths: Sequence[str],
    inputs: Sequence[Leaf],
    output_names: Sequence[str],
    output_axes: Mapping[str, dict[int, str]],
) -> tuple[list[int], list[str]]:
    """Make the flattened results the outputs of the graph; returns which of them it has, and what to tell the user.

    ``paths`` are the names of those for which ``output_names`` has none.
    """
    kept = [i for i, result in enumerate(results) if result is not None]
    if not kept:
        raise InvalidArgument(
            "the model returns nothing that a file could have as an output",
            hint="return the tensors that you want from forward",
        )
    if len(output_names) > len(kept):
        raise InvalidArgument(f"output_names has {len(output_names)} names, but the model has {len(kept)} outputs")
    final = [*output_names, *(op.names.unique(paths[i]) for i in kept[len(output_names) :])]
    for name in output_axes:
        if not any(_is_within(output, name) for output in final):
            raise unknown_axes_name(name, [leaf.name for leaf in inputs], final)
    taken = {dim.name: dim.name for leaf in inputs for dim in leaf.dynamic.values()}
    notes: list[str] = []
    for i, name in zip(kept, final, strict=True):
        value = op.add_output(_as_value(op, results[i]), name)
        for asked, axes in output_axes.items():
            notes += name_axes(value, axes, taken) if _is_within(name, asked) else []
    return kept, notes


def _is_within(name: str, asked: str) -> bool:
    """Whether an output is the one that was named, or in a cache of that name."""
    return name == asked or name.startswith(f"{asked}.")


def _as_value(op: Builder, result: Any) -> ir.Value:
    if not isinstance(result, ir.Value):
        return _number_as_value(op, result)
    if result in facts.DIM:  # a size: of shape [1] inside the graph, a plain number for the user
        return op.Squeeze(result, [0])
    if result in facts.NUMBER:
        return op.Squeeze(op.cast(result, ir.DataType.FLOAT) if result.dtype == ir.DataType.DOUBLE else result, [0])
    return result


def _number_as_value(op: Builder, number: Any) -> ir.Value:
    """A Python number among the outputs, as a tensor of rank 0."""
    if isinstance(number, bool):
        return op.constant(number, ir.DataType.BOOL)
    if isinstance(number, int):
        return op.constant(number, ir.DataType.INT64)
    if isinstance(number, float):
        return op.constant(number, ir.DataType.FLOAT)
    raise LoweringError(
        f"an output of type {type(number).__name__} cannot be expressed in ONNX",
        hint="return tensors and numbers only, in tuples, lists or dicts",
    )


def result_names(tree: Any) -> list[str]:
    """A name for each flattened result: the key in a dict or named tuple, else ``output``."""
    paths = pytree.tree_flatten_with_path(tree)[0]
    if len(paths) == 1 and not paths[0][0]:
        return ["output"]
    names = []
    for path, _ in paths:
        keys = [str(getattr(p, "key", getattr(p, "name", getattr(p, "idx", "")))) for p in path]
        names.append("_".join(keys) if not keys[0].isdigit() else "_".join(["output", *keys]))
    return ["output"] if names == ["output_0"] else names
