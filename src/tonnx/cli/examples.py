"""Example inputs for a model, from what the command line says of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tonnx.cli.specs import InputSpec
from tonnx.errors import InvalidArgument
from tonnx.frontends.named import Loaded
from tonnx.frontends.torch.call.program import program_inputs
from tonnx.frontends.torch.call.signature import bind_call
from tonnx.frontends.torch.convert import as_module

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass
class Example:
    """What `tonnx.export` is given."""

    args: Any
    kwargs: dict[str, Any] = field(default_factory=dict)
    input_names: list[str] | None = None
    dynamic_axes: dict[str, dict[int, str | None]] = field(default_factory=dict)


def make_example(
    loaded: Loaded,
    specs: Sequence[InputSpec],
    arrays: Mapping[str, np.ndarray],
    dynamic: Sequence[tuple[str, Mapping[int, str | None]]],
    input_names: Sequence[str] | None,
) -> Example:
    """Values for the inputs that are named, and the example that came with the model for the others."""
    by_name = {spec.name or f"#{i}": spec for i, spec in enumerate(specs)}
    wishes = [*by_name, *(name for name in arrays if name not in by_name)]
    if not isinstance(loaded.model, torch.export.ExportedProgram):
        loaded = replace(loaded, model=as_module(loaded.model))  # TorchScript has no Python signature
    device = _device(loaded.model)
    values = {name: _value(name, by_name.get(name), arrays.get(name)).to(device) for name in wishes}
    if isinstance(loaded.model, torch.export.ExportedProgram):
        own_names = [name for name, fake in program_inputs(loaded.model) if fake is not None]
        places = _places(wishes, own_names, set(own_names))
        example = _of_program(loaded, {places[wish]: value for wish, value in values.items()})
    else:
        places, example = _of_module(loaded, values)
        own_names = [leaf.name for leaf in bind_call(loaded.model, example.args, example.kwargs, None).leaves]
    # A wish that is not a name of the model's is the name that the input gets in the file.
    final = {name: name for name in own_names} | {place: wish for wish, place in places.items() if wish[0] != "#"}
    final |= dict(zip(own_names, input_names or (), strict=False))
    if any(old != new for old, new in final.items()) or input_names:
        example.input_names = [*(final[name] for name in own_names), *list(input_names or ())[len(own_names) :]]
    for name, axes in [*((name, spec.dynamic) for name, spec in by_name.items()), *dynamic]:
        place = places.get(name, name)
        example.dynamic_axes.setdefault(final.get(place, place), {}).update(
            {axis: dim or None for axis, dim in axes.items()}
        )
    example.dynamic_axes = {name: axes for name, axes in example.dynamic_axes.items() if axes}
    return example


def _device(model: Any) -> torch.device:
    weights = model.state_dict.values() if isinstance(model, torch.export.ExportedProgram) else model.parameters()
    return next((weight.device for weight in weights), torch.device("cpu"))


# Values


def _value(name: str, spec: InputSpec | None, array: np.ndarray | None) -> torch.Tensor:
    if array is None:
        assert spec is not None  # a name comes from one or the other
        return _drawn(name, [dim.size or 0 for dim in spec.dims], getattr(torch, spec.dtype or "float32"))
    try:
        tensor = torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    except TypeError as error:
        raise InvalidArgument(f"the array {name!r} is {array.dtype}, which is not a dtype of torch") from error
    if spec is None:
        return tensor
    fixed = [dim.size if dim.name is None else None for dim in spec.dims]
    if tensor.dim() != len(fixed) or any(f not in (None, size) for f, size in zip(fixed, tensor.shape, strict=True)):
        raise InvalidArgument(f"the array {name!r} has shape {array.shape}, which is not the one that --input gives")
    return tensor.to(getattr(torch, spec.dtype)) if spec.dtype else tensor


def _drawn(name: str, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Values that most models take: normal ones, pixels, masks that hide nothing, the ids 0 and 1."""
    generator = torch.Generator().manual_seed(0)  # the same file for the same command; the global state stays
    if dtype == torch.bool or (not dtype.is_floating_point and not dtype.is_complex and "mask" in name):
        return torch.ones(shape, dtype=dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=dtype)
    top = 256 if dtype == torch.uint8 else 2  # how many ids a model knows cannot be seen from outside
    return torch.randint(0, top, shape, generator=generator).to(dtype)


# Places


def _places(wishes: Sequence[str], order: Sequence[str], own_names: set[str], any_name: bool = False) -> dict[str, str]:
    """Which of the model's inputs each wish is for: by name if the names are the model's, else in order."""
    named = [wish for wish in wishes if wish[0] != "#"]
    theirs = [wish for wish in named if wish in own_names or any_name]
    if theirs and len(theirs) < len(named):
        stranger = next(wish for wish in named if wish not in theirs)
        raise InvalidArgument(
            f"the model has no input {stranger!r}",
            why=f"its inputs are {', '.join(order) or '(none)'}",
            hint="name all inputs as the model does, or none of them",
        )
    places = {wish: wish for wish in theirs}
    free = iter([name for name in order if name not in places])
    for wish in wishes:
        if wish not in places:
            place = next(free, None)
            if place is None:
                raise InvalidArgument(
                    f"{len(wishes)} inputs are given, but the model has {len(order)}",
                    why=f"its inputs are {', '.join(order) or '(none)'}",
                )
            places[wish] = place
    return places


def _of_program(loaded: Loaded, values: dict[str, torch.Tensor]) -> Example:
    program = loaded.model
    if not values:
        return Example(loaded.args if loaded.args is not None else (), loaded.kwargs or {})
    names = [name for name, _ in program_inputs(program)]
    before = pytree.tree_leaves(program.example_inputs) if program.example_inputs is not None else [None] * len(names)
    flat = [values.get(name, value) for name, value in zip(names, before, strict=True)]
    args, kwargs = pytree.tree_unflatten(flat, program.call_spec.in_spec)
    return Example(args, kwargs)


def _of_module(loaded: Loaded, values: dict[str, torch.Tensor]) -> tuple[dict[str, str], Example]:
    signature = inspect.signature(loaded.model.forward)
    parameters = signature.parameters.values()
    order = [p.name for p in parameters if p.kind in _POSITIONAL]
    order += [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    if rest:
        order += [f"{rest}_{i}" for i in range(max(0, len(values) - len(order)))]
    any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
    places = _places(list(values), order, set(order), any_name)
    bound: dict[str, Any] = {}
    if loaded.has_example:
        call = bind_call(loaded.model, loaded.args if loaded.args is not None else (), loaded.kwargs, None)
        bound = dict(signature.bind(*call.args, **call.kwargs).arguments)
    elif not values:
        _check_required(type(loaded.model).__name__, signature, set())
    bound.update({places[wish]: value for wish, value in values.items()})
    _check_required(type(loaded.model).__name__, signature, set(bound))
    return places, _call(signature, bound)


def _call(signature: inspect.Signature, bound: dict[str, Any]) -> Example:
    """Arguments by parameter as a call: by position as far as there is no gap, the others by name."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    gap = False
    for name, parameter in signature.parameters.items():
        value = bound.pop(name, inspect.Parameter.empty)
        if parameter.kind in _POSITIONAL and not gap and value is not parameter.empty:
            args.append(value)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            args += [] if value is parameter.empty else value
            while (extra := bound.pop(f"{name}_{len(args) - _count(signature)}", None)) is not None:
                args.append(extra)
        elif parameter.kind is parameter.VAR_KEYWORD:
            kwargs |= ({} if value is parameter.empty else value) | bound
        elif value is not parameter.empty:
            kwargs[name] = value
        gap = gap or (parameter.kind in _POSITIONAL and value is parameter.empty)
    return Example(tuple(args), kwargs)


def _count(signature: inspect.Signature) -> int:
    return sum(parameter.kind in _POSITIONAL for parameter in signature.parameters.values())


def _check_required(model: str, signature: inspect.Signature, passed: set[str]) -> None:
    for name, parameter in signature.parameters.items():
        variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if not variable and parameter.default is parameter.empty and name not in passed:
            raise InvalidArgument(
                f"there is no example for the input {name!r} of {model}",
                hint=f'describe it: --input "{name}:float32[batch,3,224,224]", or give values: --inputs {name}.npy',
            )
