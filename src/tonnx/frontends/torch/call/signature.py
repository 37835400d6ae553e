"""The user's call: arguments bound to the model's signature, and every tensor among them named."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from tonnx.errors import InvalidArgument
from tonnx.frontends.torch.call.containers import Node, named_leaves, tree_of
from tonnx.ir.size_expressions import SizeExpression


@dataclass
class DimSpec:
    """A dimension that was asked to be dynamic."""

    name: str
    minimum: int | None = None
    maximum: int | None = None
    optional: bool = False
    """Dim.AUTO: dynamic if the model allows it."""
    expression: SizeExpression | None = None
    """What it is computed of: its name is the text of it."""

    @property
    def limits(self) -> tuple[int, int | None]:
        """The lowest and the highest size that was asked for."""
        return self.minimum or 0, self.maximum

    def size(self, sizes: Mapping[str, int]) -> int:
        return sizes[self.name] if self.expression is None else int(self.expression.of(sizes))


@dataclass
class Leaf:
    """One tensor among the (possibly nested) inputs."""

    name: str
    tensor: torch.Tensor
    dynamic: dict[int, DimSpec] = field(default_factory=dict)


FUNCTION = "tonnx_function"
"""The attribute of a module around a function, with the function."""


@dataclass
class ModelCall:
    """The arguments of the example call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Leaf]
    """The tensors, in the order of the flattened (args, kwargs)."""
    weights: dict[str, str] = field(default_factory=dict)
    """Names that were asked for parameters: ``input_names`` goes on with them after the inputs."""

    names: tuple[str, ...] = ()
    """The names of the arguments, positional ones first."""

    @cached_property
    def tree(self) -> Node:
        return tree_of((self.args, self.kwargs))

    def leaves_of_arguments(self) -> dict[str, list[Leaf]]:
        """The tensors that each argument holds, by its name."""
        arguments = [argument for _, given in self.tree.parts for _, argument in given.parts]
        leaves = iter(self.leaves)
        counts = zip(self.names, (len(argument.tensors()) for argument in arguments), strict=True)
        return {name: list(itertools.islice(leaves, count)) for name, count in counts}

    def with_tensors(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same call with other tensors. The containers among the arguments are copies."""
        args, kwargs = self.tree.rebuilt(iter(tensors))
        return args, kwargs


def bind_call(
    model: torch.nn.Module, args: Any, kwargs: Mapping[str, Any] | None, input_names: Sequence[str] | None
) -> ModelCall:
    """Bring ``args`` into the form ``(args, kwargs)`` and give every tensor a name."""
    signature = inspect.signature(model.forward)
    positional, keywords = _split_trailing_dict(signature, *as_call(args, kwargs))
    try:
        bound = signature.bind(*positional, **keywords)
    except TypeError as error:
        raise InvalidArgument(
            f"the example arguments do not fit {type(model).__name__}.forward: {error}",
            why=f"its signature is {_readable(signature)}",
            hint="pass the positional arguments as a tuple `args`, the others as `kwargs`",
        ) from None
    keywords = {name: keywords[name] for name in _keyword_order(bound, keywords)}
    names = (*_positional_names(signature, len(positional)), *keywords)
    call = ModelCall(positional, keywords, [], names=names)
    call.leaves = _leaves(call)
    call.weights = rename_inputs(call.leaves, input_names, model.state_dict(keep_vars=True))
    return call


def as_call(args: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``args`` as a tuple, ``kwargs`` as a dict. A lone tensor is one argument; so is a list of anything else."""
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise InvalidArgument(f"kwargs must be a dict of the keyword arguments, not a {type(kwargs).__name__}")
    if args is None:
        return (), dict(kwargs or {})
    positional = args if type(args) is tuple else tuple(args) if isinstance(args, list) else (args,)
    for _, value in tree_of((positional, dict(kwargs or {}))).leaves():
        if isinstance(value, np.ndarray):
            raise InvalidArgument(
                f"an example input is a numpy array of shape {value.shape}, not a tensor",
                hint="give torch.from_numpy(array)",
            )
    return positional, dict(kwargs or {})


def _readable(signature: inspect.Signature) -> str:
    text = str(signature)
    return f"forward{text}" if len(text) <= 200 else f"forward({', '.join(signature.parameters)})"


def _split_trailing_dict(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The classic way to pass keyword arguments: a dict at the end of ``args``; ``{}`` there says there are none."""
    if kwargs or not args or not isinstance(args[-1], dict):
        return args, kwargs
    last = args[-1]
    names = [p.name for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_POSITIONAL]
    remaining = set(names[len(args) - 1 :])
    if last and all(isinstance(key, str) and key in remaining for key in last):
        return args[:-1], dict(last)
    if not last:
        try:
            signature.bind(*args)
        except TypeError:
            return args[:-1], {}
        if len(names) < len(args) or len(args) == 1:
            return args[:-1], {}
    return args, kwargs


def _positional_names(signature: inspect.Signature, count: int) -> list[str]:
    names: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{i}" for i in range(count - len(names))]
        elif parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return names[:count]


def _keyword_order(bound: inspect.BoundArguments, kwargs: dict[str, Any]) -> list[str]:
    """Keyword inputs in the order of the signature, not of the call: that is how torch.export orders them."""
    order = [name for name in bound.arguments if name in kwargs]
    return order + [name for name in kwargs if name not in order]


def _leaves(call: ModelCall) -> list[Leaf]:
    args, kwargs = (part for _, part in call.tree.parts)
    arguments = [part for _, part in (*args.parts, *kwargs.parts)]
    return [
        Leaf(name, value)
        for root, argument in zip(call.names, arguments, strict=True)
        for name, value in named_leaves(root, argument)
        if isinstance(value, torch.Tensor)
    ]


def _check_tensors(leaves: Sequence[Leaf]) -> None:
    for leaf in leaves:
        if leaf.tensor.layout != torch.strided:
            raise InvalidArgument(
                f"the input {leaf.name!r} is a sparse tensor ({leaf.tensor.layout})",
                why="no ONNX runtime takes such inputs",
                hint="give it dense: x.to_dense()",
            )
        if leaf.tensor.is_quantized:
            raise InvalidArgument(
                f"the input {leaf.name!r} is a quantised tensor", hint="let the model quantise it: give x.dequantize()"
            )


def rename_inputs(leaves: list[Leaf], names: Sequence[str] | None, state: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Give the first inputs the names that were asked for; every input has a name of its own afterwards.

    Further names are for the parameters and buffers, in the order of the state dict: returned by their own names.
    """
    wanted = checked_names("input_names", names)
    _check_tensors(leaves)
    unique = {id(tensor): name for name, tensor in reversed(list(state.items()))}
    parameters = [name for name, tensor in state.items() if unique[id(tensor)] == name]
    if len(wanted) > len(leaves) + len(parameters):
        raise InvalidArgument(
            f"input_names has {len(wanted)} names, but the model has {len(leaves)} tensor inputs"
            + (f" and {len(parameters)} parameters" if parameters else ""),
            why=f"its inputs are {', '.join(leaf.name for leaf in leaves) or '(none)'}",
        )
    renamed = dict(zip(parameters, wanted[len(leaves) :], strict=False))
    for leaf, name in zip(leaves, wanted, strict=False):
        leaf.name = name
    taken = set(wanted)
    for leaf in leaves[len(wanted) :]:
        if leaf.name in wanted:
            raise InvalidArgument(
                f"two inputs are called {leaf.name!r}: one by input_names, one by the model",
                hint=f"give all {len(leaves)} inputs a name",
            )
        # Nested inputs can come to the same name by two paths: {"a": {"b": x}, "a_b": y}.
        base, count = leaf.name, 0
        while leaf.name in taken:
            count += 1
            leaf.name = f"{base}_{count}"
        taken.add(leaf.name)
    return renamed


def checked_names(option: str, names: Sequence[str] | None) -> list[str]:
    """``input_names`` or ``output_names`` as a list of different, non-empty strings. A lone string is one name."""
    if names is None:
        return []
    if not isinstance(names, (str, list, tuple)):
        raise InvalidArgument(f"{option} must be a list of strings, not {names!r}")
    listed = [names] if isinstance(names, str) else list(names)
    for i, name in enumerate(listed):
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"{option} must be non-empty strings, not {name!r}")
        if name in listed[:i]:
            raise InvalidArgument(f"{option} has the name {name!r} twice")
    return listed


def plain_arguments(call: ModelCall) -> list[str]:
    """A note of the numbers and texts among the arguments: they are not inputs of the file."""
    args, kwargs = (part for _, part in call.tree.parts)
    described = []
    for root, (_, argument) in zip(call.names, (*args.parts, *kwargs.parts), strict=True):
        for path, value in argument.leaves():
            # What an object holds beside tensors are its settings, not arguments.
            if isinstance(value, (bool, int, float, str)) and not any(step.attribute for step in path):
                described.append(f"{root}{''.join(f'[{step.key!r}]' for step in path)} = {value!r}")
    if not described:
        return []
    shown = ", ".join(described[:6]) + (f" and {len(described) - 6} more" if len(described) > 6 else "")
    return [f"fixed in the file, not inputs of it: {shown} (give a tensor to have one as an input)"]
