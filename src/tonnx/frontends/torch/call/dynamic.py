"""Which dimensions are dynamic: ``dynamic_axes`` and ``dynamic_shapes``, checked and brought to one form.

``dynamic_axes`` is ``{"in": [0, 2]}`` or ``{"in": {0: "batch"}}``, also for outputs; ``dynamic_shapes`` is what
torch.export takes, with strings allowed as dimensions.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tonnx.errors import InvalidArgument
from tonnx.frontends.dynamic_axes import axis_names, checked_axes, unknown_axes_name
from tonnx.frontends.torch.call.containers import Node, tree_of
from tonnx.frontends.torch.call.signature import DimSpec, Leaf, ModelCall
from tonnx.ir.size_expressions import derived_sizes


def apply_dynamic_axes(
    call: ModelCall, axes: Mapping[str, Any] | None, output_names: Sequence[str]
) -> dict[str, dict[int, str]]:
    """Enter the inputs' part of ``dynamic_axes`` into the call; returns the outputs' part.

    Without ``output_names`` it is only known after the capture what the outputs are called.
    """
    by_name, arguments = {leaf.name: leaf for leaf in call.leaves}, call.leaves_of_arguments()
    outputs: dict[str, dict[int, str]] = {}
    for name, wanted in checked_axes(axes).items():
        named = axis_names(name, wanted)
        # A part of a cache, or an argument: all that it holds.
        inside = [leaf for leaf in call.leaves if leaf.name.startswith(f"{name}.")] or arguments.get(name, [])
        if name in by_name or inside:
            leaves = [by_name[name]] if name in by_name else inside
            for axis, dim in named.items():
                for leaf in _having(axis, leaves):
                    place = _checked_axis(leaf, axis)
                    leaf.dynamic[place] = replace(leaf.dynamic.get(place) or DimSpec(dim), name=dim, optional=False)
        elif name in output_names or not output_names:
            outputs[name] = named
        else:
            raise unknown_axes_name(name, list(by_name), output_names)
    return outputs


def settle_expressions(call: ModelCall) -> None:
    """Find the dimensions that are expressions of others: ``past + sequence``. The example must agree with them."""
    dims = [(leaf, axis, dim) for leaf in call.leaves for axis, dim in leaf.dynamic.items()]
    derived = derived_sizes([dim.name for _, _, dim in dims])
    sizes = {dim.name: leaf.tensor.shape[axis] for leaf, axis, dim in dims}
    for leaf, axis, dim in dims:
        expression = derived.get(dim.name)
        if expression is None:
            continue
        size, actual = expression.of(sizes), leaf.tensor.shape[axis]
        if size != actual:
            terms = ", ".join(f"{name} = {sizes[name]}" for name in sorted(expression.names))
            raise InvalidArgument(
                f"axis {axis} of the input {leaf.name!r} has size {actual} in the example, "
                f"but {expression.text} is {size} there",
                why=f"in the example {terms}",
                hint="give an example in which they agree, or name the dimension by itself",
            )
        leaf.dynamic[axis] = replace(dim, name=expression.text, expression=expression)


def _having(axis: Any, leaves: list[Leaf]) -> list[Leaf]:
    """Of what a container holds, the tensors that have an axis: counts beside keys and values have none."""
    having = [leaf for leaf in leaves if isinstance(axis, int) and -leaf.tensor.dim() <= axis < leaf.tensor.dim()]
    return having or leaves


def _checked_axis(leaf: Leaf, axis: Any) -> int:
    rank = leaf.tensor.dim()
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise InvalidArgument(f"the dynamic axes of the input {leaf.name!r} are integers, not {axis!r}")
    if not -rank <= axis < rank:
        raise InvalidArgument(
            f"the input {leaf.name!r} has no axis {axis}", why=f"its shape is {tuple(leaf.tensor.shape)}"
        )
    return axis % rank


def apply_dynamic_shapes(call: ModelCall, shapes: Any, model: torch.nn.Module) -> None:
    """Enter ``dynamic_shapes`` (torch.export's form, names as strings allowed) into the call."""
    if shapes is None:
        return
    if hasattr(shapes, "dynamic_shapes"):  # a torch.export.ShapesCollection
        shapes = shapes.dynamic_shapes(model, call.args, call.kwargs)
    bound = dict(inspect.signature(model.forward).bind(*call.args, **call.kwargs).arguments)
    tree = tree_of(bound)
    leaves = iter(call.leaves)
    # By place, not by tensor: the same tensor may be given to two inputs.
    by_place = {id(node): next(leaves) for node in _tensor_nodes(tree)}
    arguments = {step.key: node for step, node in tree.parts}
    for name, spec in _by_parameter(shapes, bound).items():
        _enter(spec, arguments[name], name, by_place)


def _tensor_nodes(node: Node) -> Iterator[Node]:
    if isinstance(node.value, torch.Tensor):
        yield node
    for _, part in node.parts:
        yield from _tensor_nodes(part)


def _by_parameter(shapes: Any, bound: dict[str, Any]) -> dict[str, Any]:
    """``dynamic_shapes`` by the parameters of forward: given by name, or in their order."""
    if isinstance(shapes, Mapping):
        if len(bound) == 1 and shapes and all(isinstance(key, int) for key in shapes):
            return dict.fromkeys(bound, shapes)  # the spec of the only input, not wrapped
        spread = {key: name for name, value in bound.items() if isinstance(value, dict) for key in value}
        result: dict[str, Any] = {}
        for key, spec in shapes.items():
            if key in bound:
                result[key] = spec
            elif key in spread:  # what **kwargs took, by its own name
                result.setdefault(spread[key], {})[key] = spec
            else:
                raise InvalidArgument(
                    f"dynamic_shapes names {key!r}, which is not an argument of the model",
                    why=f"the arguments given are {', '.join(bound) or '(none)'}",
                )
        return result
    if not isinstance(shapes, (list, tuple)):
        raise InvalidArgument(f"dynamic_shapes must be a dict, list or tuple, not {shapes!r}")
    if len(shapes) > len(bound):
        raise InvalidArgument(f"dynamic_shapes has {len(shapes)} entries for {len(bound)} arguments")
    return dict(zip(bound, shapes, strict=False))


def _enter(spec: Any, node: Node, path: str, leaves: dict[int, Leaf]) -> None:
    """One level of ``dynamic_shapes`` beside the same level of the arguments."""
    if spec is None:
        return
    if isinstance(node.value, torch.Tensor):
        leaf = leaves[id(node)]
        if not isinstance(spec, (Mapping, list, tuple)):
            raise InvalidArgument(f"dynamic_shapes of {leaf.name!r} must be a dict axis → dimension, not {spec!r}")
        for axis, dim in spec.items() if isinstance(spec, Mapping) else enumerate(spec):
            dim_spec = _dim_spec(dim, leaf, _checked_axis(leaf, axis))
            if dim_spec is not None:
                leaf.dynamic[_checked_axis(leaf, axis)] = dim_spec
        return
    if node.parts and _is_of_a_tensor(spec):
        inside = {id(leaves[id(part)]): part for part in _tensor_nodes(node)}
        for axis, dim in spec.items():
            for leaf in _having(axis, [leaves[id(part)] for part in inside.values()]):
                _enter({axis: dim}, inside[id(leaf)], path, leaves)
        return
    if (alike := _alike(spec, node)) is not None:
        _enter(alike, node, path, leaves)
        return
    children = {step.key: part for step, part in node.parts}
    for key, part in _items(spec, list(children)):
        if key not in children:
            raise InvalidArgument(
                f"dynamic_shapes names {key!r} below {path!r}, which has no such part",
                why=f"its parts are {', '.join(map(str, children)) or '(none)'}",
            )
        _enter(part, children[key], f"{path}_{key}", leaves)


def _is_of_a_tensor(spec: Any) -> bool:
    """``{0: "batch"}`` where a cache stands: for every tensor that it holds."""
    return (
        isinstance(spec, Mapping)
        and any(spec.values())
        and all(isinstance(axis, int) and not isinstance(dim, (Mapping, list, tuple)) for axis, dim in spec.items())
    )


def _alike(spec: Any, node: Node) -> Any:
    """The one spec of every tensor of an object that was taken apart otherwise: torch.export has lists of a cache's."""
    if isinstance(node.value, (Mapping, list, tuple)) or not isinstance(spec, (Mapping, list, tuple)):
        return None
    parts = pytree.tree_leaves(spec, is_leaf=_is_of_a_tensor)
    is_one = len(parts) == len([*_tensor_nodes(node)]) > 1 and all(part == parts[0] for part in parts)
    return parts[0] if is_one and _is_of_a_tensor(parts[0]) else None


def _items(spec: Any, keys: list[Any]) -> list[tuple[Any, Any]]:
    if isinstance(spec, Mapping):
        return list(spec.items())
    if isinstance(spec, (list, tuple)):  # in order; what is beyond the end is reported by its index
        return [(keys[i] if i < len(keys) else i, part) for i, part in enumerate(spec)]
    return [(key, getattr(spec, str(key), None)) for key in keys]  # the same class, holding dimensions


def _dim_spec(dim: Any, leaf: Leaf, axis: int) -> DimSpec | None:
    from torch.export import Dim

    size = leaf.tensor.shape[axis]
    if isinstance(dim, int) and not isinstance(dim, bool) and dim != size:
        raise InvalidArgument(
            f"dynamic_shapes fixes axis {axis} of the input {leaf.name!r} to {dim}, but the example has {size}"
        )
    if dim is None or isinstance(dim, int) or dim is Dim.STATIC:
        return None
    if isinstance(dim, str):
        return DimSpec(dim)
    if type(dim).__name__ == "_DimHint":  # Dim.AUTO, Dim.DYNAMIC(min=2)
        optional = dim.type == Dim.AUTO.type
        spec = DimSpec(f"{leaf.name}_dim_{axis}", dim.min, _finite(dim.max), optional)
    elif hasattr(dim, "__name__") and hasattr(dim, "min"):
        spec = DimSpec(dim.__name__, dim.min, _finite(dim.max))
    else:
        raise InvalidArgument(
            f"dynamic_shapes has {dim!r} for axis {axis} of the input {leaf.name!r}",
            hint="a dimension is a name, a torch.export.Dim, an int or None",
        )
    if size < (spec.minimum or 0) or (spec.maximum is not None and size > spec.maximum):
        raise InvalidArgument(
            f"axis {axis} of the input {leaf.name!r} has size {size} in the example, outside of {spec.name}: "
            f"{spec.minimum or 0} to {'any size' if spec.maximum is None else spec.maximum}"
        )
    return spec


def _finite(limit: Any) -> int | None:
    return limit if isinstance(limit, int) and limit < 2**31 else None
