"""``dynamic_axes``, as every front end takes it: ``{"x": [0]}`` or ``{"x": {0: "batch"}}``, inputs and outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from tonnx.errors import InvalidArgument, did_you_mean
from tonnx.ir.size_expressions import SizeExpression, size_expression


def checked_axes(axes: Any) -> Mapping[str, Any]:
    """``dynamic_axes`` itself, or nothing; refuses what is no dict."""
    if axes is not None and not isinstance(axes, Mapping):
        raise InvalidArgument(f'dynamic_axes must be a dict such as {{"x": {{0: "batch"}}}}, not {axes!r}')
    return axes or {}


def axis_names(name: str, wanted: Any) -> dict[int, str]:
    """The axes of one input or output and their names."""
    if isinstance(wanted, Mapping):
        named = {axis: _dim_name(name, axis, dim) for axis, dim in wanted.items()}
    elif isinstance(wanted, (list, tuple, set)):
        named = {axis: f"{name}_dim_{axis}" for axis in wanted}
    else:
        raise InvalidArgument(f"dynamic_axes[{name!r}] must be a list of axes or a dict axis → name, not {wanted!r}")
    for axis in named:
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise InvalidArgument(f"dynamic_axes[{name!r}] has the axis {axis!r}; axes are integers")
    return named


def _dim_name(name: str, axis: Any, dim: Any) -> str:
    if dim is None:
        return f"{name}_dim_{axis}"
    if not isinstance(dim, str):
        dim = getattr(dim, "__name__", None)  # a torch.export.Dim
    if not dim:
        raise InvalidArgument(f"dynamic_axes[{name!r}][{axis!r}] must be the name of the dimension, a string")
    return str(dim)


def unknown_axes_name(name: str, inputs: Sequence[str], outputs: Sequence[str]) -> InvalidArgument:
    """``dynamic_axes`` has a name that the file will not have."""
    return InvalidArgument(
        f"dynamic_axes names {name!r}, which is neither an input nor an output",
        why=f"inputs: {', '.join(inputs) or '(none)'}; outputs: {', '.join(outputs) or '(none)'}",
        hint=did_you_mean(name, [*inputs, *outputs]),
    )


def _is_same(text: str, expression: SizeExpression, names: Collection[str]) -> bool:
    """Whether a size is what an expression says, as far as a few numbers tell."""
    own = size_expression(text, names)
    numbers = [{name: factor + 7 * place for place, name in enumerate(names)} for factor in (2, 11, 30)]
    return own is not None and all(own.of(sizes) == expression.of(sizes) for sizes in numbers)


def name_axes(value: ir.Value, axes: dict[int, str], taken: dict[str, str]) -> list[str]:
    """Give an output's dimensions the names that were asked for; says where the model does not allow it.

    ``taken`` are the names in use, with the size that each stands for: a name means one size in the whole file.
    """
    if not axes or value.shape is None:
        return []
    shape, notes = list(value.shape.dims), []
    for axis, name in axes.items():
        if not -len(shape) <= axis < len(shape):
            raise InvalidArgument(f"the output {value.name!r} has no axis {axis}", why=f"its rank is {len(shape)}")
        size = shape[axis]
        text = str(size if isinstance(size, int) else size.value)
        expression = size_expression(name, taken)
        if expression is not None and _is_same(text, expression, taken):
            shape[axis] = ir.SymbolicDim(expression.text)
        elif not isinstance(size, int) and expression is None and taken.setdefault(name, text) == text:
            shape[axis] = ir.SymbolicDim(name)
        else:
            notes.append(f"axis {axis} of the output {value.name} is {text} in the model; it is not called {name}")
    value.shape = ir.Shape(shape)
    return notes
