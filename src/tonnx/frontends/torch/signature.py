"""The user's call: arguments bound to the model's signature, inputs named, dynamic dimensions brought to one form."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tonnx.errors import InvalidArgument


@dataclass
class DimSpec:
    """A dimension that was asked to be dynamic."""

    name: str
    minimum: int | None = None
    maximum: int | None = None
    optional: bool = False
    """Dim.AUTO: dynamic if the model allows it."""


@dataclass
class Leaf:
    """One tensor among the (possibly nested) inputs."""

    name: str
    tensor: torch.Tensor
    dynamic: dict[int, DimSpec] = field(default_factory=dict)


@dataclass
class Call:
    """The arguments of the example call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Leaf]
    """The tensors, in the order of the flattened (args, kwargs)."""

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same call with other tensors."""
        given = iter(tensors)
        flat, spec = pytree.tree_flatten((self.args, self.kwargs))
        return pytree.tree_unflatten([next(given) if isinstance(x, torch.Tensor) else x for x in flat], spec)


def bind_call(
    model: torch.nn.Module | None, args: Any, kwargs: Mapping[str, Any] | None, input_names: Sequence[str] | None
) -> Call:
    """Bring ``args`` into the form ``(args, kwargs)`` and give every tensor a name."""
    positional = args if isinstance(args, tuple) else tuple(args) if isinstance(args, list) else (args,)
    keywords = dict(kwargs or {})
    signature = inspect.signature(model.forward) if model is not None else None
    if signature is not None:
        positional, keywords = _split_trailing_dict(signature, positional, keywords)
        try:
            bound = signature.bind(*positional, **keywords)
        except TypeError as error:
            raise InvalidArgument(
                f"the example arguments do not fit {type(model).__name__}.forward: {error}",
                why=f"forward{signature}",
                hint="pass the positional arguments as a tuple `args`, the others as `kwargs`",
            ) from None
        roots = _positional_names(signature, len(positional))
        keywords = {name: keywords[name] for name in _keyword_order(bound, keywords)}
    else:
        roots = [f"arg{i}" for i in range(len(positional))]
    leaves = _leaves(positional, keywords, roots)
    _rename(leaves, input_names)
    return Call(positional, keywords, leaves)


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


def _leaves(args: tuple[Any, ...], kwargs: dict[str, Any], roots: list[str]) -> list[Leaf]:
    leaves = []
    for path, value in pytree.tree_flatten_with_path((args, kwargs))[0]:
        if isinstance(value, torch.Tensor):
            leaves.append(Leaf(_path_name(path, roots), value))
    return leaves


def _path_name(path: Sequence[Any], roots: list[str]) -> str:
    where, first, *rest = (_key(part) for part in path)
    parts = [roots[int(first)] if where == "0" else first, *rest]
    return "_".join(parts)


def _key(part: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(part, attribute):
            return str(getattr(part, attribute))
    return str(part)


def _rename(leaves: list[Leaf], names: Sequence[str] | None) -> None:
    if not names:
        return
    names = [names] if isinstance(names, str) else list(names)
    if len(names) > len(leaves):
        raise InvalidArgument(
            f"input_names has {len(names)} names, but the model has {len(leaves)} tensor inputs",
            why=f"its inputs are {', '.join(leaf.name for leaf in leaves) or '(none)'}",
        )
    for leaf, name in zip(leaves, names, strict=False):
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"input_names must be non-empty strings, not {name!r}")
        leaf.name = name
    taken: set[str] = set()
    for leaf in leaves:
        if leaf.name in taken:
            raise InvalidArgument(f"two inputs are called {leaf.name!r}")
        taken.add(leaf.name)


# dynamic_axes: {"in": [0, 2]} or {"in": {0: "batch"}}, also for outputs


def apply_dynamic_axes(
    call: Call, axes: Mapping[str, Any] | None, output_names: Sequence[str]
) -> dict[str, dict[int, str]]:
    """Enter the inputs' part of ``dynamic_axes`` into the call; returns the outputs' part."""
    by_name = {leaf.name: leaf for leaf in call.leaves}
    outputs: dict[str, dict[int, str]] = {}
    for name, wanted in (axes or {}).items():
        named = _axis_names(name, wanted)
        if name in by_name:
            leaf = by_name[name]
            for axis, dim in named.items():
                leaf.dynamic[_checked_axis(leaf, axis)] = DimSpec(dim)
        elif name in output_names or not output_names:
            outputs[name] = named
        else:
            raise InvalidArgument(
                f"dynamic_axes names {name!r}, which is neither an input nor an output",
                why=f"inputs: {', '.join(by_name) or '(none)'}; outputs: {', '.join(output_names)}",
            )
    return outputs


def _axis_names(name: str, wanted: Any) -> dict[int, str]:
    if isinstance(wanted, Mapping):
        named = {axis: str(dim) if dim is not None else f"{name}_dim_{axis}" for axis, dim in wanted.items()}
    elif isinstance(wanted, (list, tuple, set)):
        named = {axis: f"{name}_dim_{axis}" for axis in wanted}
    else:
        raise InvalidArgument(f"dynamic_axes[{name!r}] must be a list of axes or a dict axis → name, not {wanted!r}")
    for axis in named:
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise InvalidArgument(f"dynamic_axes[{name!r}] has the axis {axis!r}; axes are integers")
    return named


def _checked_axis(leaf: Leaf, axis: int) -> int:
    rank = leaf.tensor.dim()
    if not -rank <= axis < rank:
        raise InvalidArgument(
            f"the input {leaf.name!r} has no axis {axis}", why=f"its shape is {tuple(leaf.tensor.shape)}"
        )
    return axis % rank


# dynamic_shapes: as torch.export takes it


def apply_dynamic_shapes(call: Call, shapes: Any, model: torch.nn.Module | None) -> None:
    """Enter ``dynamic_shapes`` (torch.export's form, names as strings allowed) into the call."""
    if shapes is None:
        return
    by_path = _specs_by_path(call, shapes, model)
    tensors = iter(call.leaves)
    for path, value in pytree.tree_flatten_with_path((call.args, call.kwargs))[0]:
        if not isinstance(value, torch.Tensor):
            continue
        leaf = next(tensors)
        spec = _at(by_path, path)
        if spec is None:
            continue
        items = spec.items() if isinstance(spec, Mapping) else enumerate(spec)
        for axis, dim in items:
            made = _dim_spec(dim, leaf.name, axis)
            if made is not None:
                leaf.dynamic[_checked_axis(leaf, axis)] = made


def _specs_by_path(call: Call, shapes: Any, model: torch.nn.Module | None) -> tuple[Any, dict[str, Any]]:
    """``dynamic_shapes`` split like the call: a sequence for args, a dict for kwargs."""
    if isinstance(shapes, Mapping):
        names: list[str] = []
        if model is not None:
            names = _positional_names(inspect.signature(model.forward), len(call.args))
        known = {*names, *call.kwargs}
        unknown = [key for key in shapes if key not in known and not _is_var_keyword(key, shapes)]
        if unknown and len(call.leaves) == 1 and all(isinstance(key, int) for key in shapes):
            return (shapes,), {}  # the spec of the only input, not wrapped
        if unknown:
            raise InvalidArgument(
                f"dynamic_shapes names {unknown[0]!r}, which is not an argument of the model",
                why=f"its arguments are {', '.join(map(str, known)) or '(none)'}",
            )
        return tuple(shapes.get(name) for name in names), {k: shapes.get(k) for k in call.kwargs}
    flat = tuple(shapes)
    count = len(call.args)
    if len(flat) > count + len(call.kwargs):
        raise InvalidArgument(f"dynamic_shapes has {len(flat)} entries for {count + len(call.kwargs)} arguments")
    return flat[:count], dict(zip(call.kwargs, flat[count:], strict=False))


def _is_var_keyword(key: Any, shapes: Mapping[Any, Any]) -> bool:
    return key == "kwargs" and isinstance(shapes[key], Mapping)


def _at(specs: Any, path: Sequence[Any]) -> Any:
    spec: Any = specs
    for part in path:
        if spec is None:
            return None
        key = getattr(part, "key", getattr(part, "idx", getattr(part, "name", None)))
        if isinstance(spec, Mapping):
            spec = spec.get(key)
        elif isinstance(key, int) and key < len(spec):
            spec = spec[key]
        else:
            return None
    return spec


def _dim_spec(dim: Any, leaf: str, axis: int) -> DimSpec | None:
    from torch.export import Dim

    if dim is None or isinstance(dim, int) or dim is Dim.STATIC:
        return None
    if isinstance(dim, str):
        return DimSpec(dim)
    if dim is Dim.AUTO or dim is Dim.DYNAMIC or type(dim).__name__ == "_DimHint":
        optional = getattr(dim, "type", dim) == getattr(Dim.AUTO, "type", Dim.AUTO)
        return DimSpec(f"{leaf}_dim_{axis}", getattr(dim, "min", None), getattr(dim, "max", None), optional)
    name = getattr(dim, "__name__", str(dim))
    return DimSpec(name, getattr(dim, "min", None), _finite(getattr(dim, "max", None)))


def _finite(limit: Any) -> int | None:
    return limit if isinstance(limit, int) and limit < 2**31 else None
