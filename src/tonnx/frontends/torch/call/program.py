"""A torch.export program that the user made: its example inputs, and the dimensions that it left dynamic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils import _pytree as pytree

from tonnx.errors import InvalidArgument
from tonnx.frontends.torch.call.containers import Node, Step
from tonnx.frontends.torch.call.dynamic import apply_dynamic_axes
from tonnx.frontends.torch.call.signature import DimSpec, Leaf, ModelCall, as_call, rename_inputs
from tonnx.frontends.torch.versions import tree_child


def program_call(
    program: ExportedProgram, args: Any, kwargs: Mapping[str, Any] | None, input_names: Sequence[str] | None
) -> ModelCall:
    """The call of a program: the arguments given, or its own example. Its dimensions have PyTorch's names."""
    positional, keywords = as_call(args, kwargs)
    if not positional and not keywords:
        if program.example_inputs is None:
            raise InvalidArgument("this program has no example inputs", hint="pass them as args")
        positional, keywords = program.example_inputs
    keywords = _in_order(program, keywords)
    flat, tree = pytree.tree_flatten((positional, keywords))
    if tree != program.call_spec.in_spec:
        names = [name for name, _ in program_inputs(program)]
        raise InvalidArgument(
            "the example arguments do not fit the program",
            why=f"it was exported for {_arguments(*pytree.tree_unflatten(names, _spec(program)))}",
            hint="pass the arguments in the same form as to torch.export.export",
        )
    leaves = []
    for value, (name, fake) in zip(flat, program_inputs(program), strict=True):
        if isinstance(value, torch.Tensor) and fake is not None:
            leaves.append(_leaf(name, value, fake))
    call = ModelCall(tuple(positional), keywords, leaves, rename_inputs(leaves, input_names, program.state_dict))
    parts = [(Step(place), Node(value)) for place, value in enumerate(flat)]
    call.tree = Node((positional, keywords), parts, lambda _, values: pytree.tree_unflatten(values, tree))
    return call


def _spec(program: ExportedProgram) -> pytree.TreeSpec:
    return program.call_spec.in_spec


def _in_order(program: ExportedProgram, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments in the order of the program, which is that of its placeholders."""
    order = [name for name in tree_child(_spec(program), 1).context or () if name in kwargs]
    return {name: kwargs[name] for name in [*order, *(name for name in kwargs if name not in order)]}


def program_inputs(program: ExportedProgram) -> list[tuple[str, torch.Tensor | None]]:
    """The program's inputs in order: placeholder and its fake tensor, None for what is not a tensor."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs = []
    for spec in program.graph_signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            tensor = placeholders[spec.arg.name].meta["val"] if isinstance(spec.arg, TensorArgument) else None
            inputs.append((spec.arg.name, tensor))
    return inputs


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """``(x, [y, z], scale=s)``: the form of a call, in the names of the placeholders."""
    parts = [*map(str, args), *(f"{name}={value}" for name, value in kwargs.items())]
    return f"({', '.join(parts)})".replace("'", "")


def _leaf(name: str, tensor: torch.Tensor, fake: torch.Tensor) -> Leaf:
    leaf = Leaf(name, tensor)
    fits = tensor.dim() == fake.dim() and tensor.dtype == fake.dtype
    for axis, size in enumerate(fake.shape):
        if not isinstance(size, int):
            leaf.dynamic[axis] = DimSpec(str(size))
        elif fits and tensor.shape[axis] != size:
            fits = False
    if not fits:
        raise InvalidArgument(
            f"the input {name!r} of the program is {fake.dtype} of shape {_shape(fake)}, "
            f"not {tensor.dtype} of shape {_shape(tensor)}"
        )
    return leaf


def _shape(tensor: torch.Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"


def name_dimensions(
    call: ModelCall, axes: Mapping[str, Any] | None, output_names: Sequence[str]
) -> dict[str, dict[int, str]]:
    """``dynamic_axes`` for a program gives names to what is dynamic in it already; returns the outputs' part.

    One of PyTorch's symbols is one dimension: a name given at one place holds at all others.
    """
    before = [dict(leaf.dynamic) for leaf in call.leaves]
    outputs = apply_dynamic_axes(call, axes, output_names)
    names: dict[str, str] = {}
    for leaf, asked in zip(call.leaves, before, strict=True):
        for axis, wanted in leaf.dynamic.items():
            if axis not in asked:
                raise InvalidArgument(
                    f"axis {axis} of the input {leaf.name!r} is fixed in this program, to {leaf.tensor.shape[axis]}",
                    hint="give dynamic_shapes to torch.export.export, or export the torch.nn.Module",
                )
            symbol = asked[axis].name
            if wanted.name != symbol and names.setdefault(symbol, wanted.name) != wanted.name:
                raise InvalidArgument(
                    f"the dimensions {names[symbol]!r} and {wanted.name!r} are one in this program ({symbol})"
                )
    for leaf in call.leaves:
        for axis, dim in leaf.dynamic.items():
            leaf.dynamic[axis] = replace(dim, name=names.get(dim.name, dim.name))
    return outputs
