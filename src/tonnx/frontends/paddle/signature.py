"""How a Paddle layer is called: the user's tensors, arrays and InputSpecs, each with a name, a shape and a dtype."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tonnx.errors import InvalidArgument
from tonnx.ir.build import Names


@dataclass(frozen=True)
class Leaf:
    """One tensor among the arguments. -1 is a dynamic dimension; ``value`` is the example, if the user gave one."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    value: Any = None


@dataclass(frozen=True)
class LayerCall:
    """The positional arguments, nested as the user nested them, with a `Leaf` in the place of every tensor."""

    arguments: list[Any]

    @property
    def leaves(self) -> list[Leaf]:
        """The tensors, in the order of the arguments."""
        return [leaf for leaf in flat(self.arguments) if isinstance(leaf, Leaf)]

    def mapped(self, change: Callable[[Leaf], Any]) -> list[Any]:
        """The arguments with something else in the place of every tensor."""
        return [_mapped(argument, change) for argument in self.arguments]

    def with_shapes(self, shapes: Mapping[str, Sequence[int]]) -> LayerCall:
        return LayerCall(self.mapped(lambda leaf: replace(leaf, shape=tuple(shapes.get(leaf.name, leaf.shape)))))


def bind(function: Any, args: Any, kwargs: Mapping[str, Any] | None, input_spec: Any) -> LayerCall:
    """The arguments of ``function`` in the order of its parameters; a given ``input_spec`` says what the tensors are.

    With both, the shapes are those of ``input_spec`` and the values those of ``args``.
    """
    positional = _listed(args)
    if input_spec is None:
        return LayerCall(_named(function, positional, dict(kwargs or {})))
    if isinstance(input_spec, Mapping):
        call = LayerCall(_named(function, [], dict(input_spec)))
    else:
        for part in _listed(input_spec):
            if isinstance(part, (list, tuple)) and part and all(d is None or isinstance(d, int) for d in part):
                raise InvalidArgument(
                    f"input_spec has the plain shape {list(part)}",
                    hint=f'say what it is of: InputSpec({list(part)}, "float32", "x")',
                )
        call = LayerCall(_named(function, _listed(input_spec), {}))
    if not positional and not kwargs:
        return call
    values = LayerCall(_named(function, positional, dict(kwargs or {}))).leaves
    if len(values) != len(call.leaves):
        raise InvalidArgument(
            f"input_spec describes {len(call.leaves)} tensors, but {len(values)} are given as example inputs"
        )
    examples = iter(values)
    return LayerCall(call.mapped(lambda leaf: replace(leaf, value=next(examples).value)))


def flat(structure: Any) -> Iterator[Any]:
    """What is in nested lists, tuples and dicts, in Paddle's order: that of the keys for dicts."""
    if isinstance(structure, (list, tuple)):
        for part in structure:
            yield from flat(part)
    elif isinstance(structure, dict):
        for key in sorted(structure, key=str):
            yield from flat(structure[key])
    else:
        yield structure


def _mapped(structure: Any, change: Callable[[Leaf], Any]) -> Any:
    if isinstance(structure, Leaf):
        return change(structure)
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(_mapped(part, change) for part in structure))
    if isinstance(structure, (list, tuple)):
        return type(structure)(_mapped(part, change) for part in structure)
    if isinstance(structure, dict):
        by_key = {key: _mapped(structure[key], change) for key in sorted(structure, key=str)}
        return {key: by_key[key] for key in structure}
    return structure


def _listed(args: Any) -> list[Any]:
    if args is None:
        return []
    return list(args) if isinstance(args, (list, tuple)) else [args]


def _named(function: Any, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments with leaves, in the order of the parameters; what is left out before one that is given is its
    default."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        expected = ", ".join(signature.parameters) or "none"
        raise InvalidArgument(
            f"the inputs do not fit the model: {error}",
            why=f"its parameters are {expected}",
            hint='describe them: input_spec=[InputSpec([None, 784], "float32", "x")], or give example tensors',
        ) from None
    last = list(bound.arguments)[-1] if bound.arguments else None
    names = Names()
    arguments: list[Any] = []
    for name, parameter in signature.parameters.items():
        if last is None:
            break
        value = bound.arguments.get(name, parameter.default)
        if parameter.kind is parameter.VAR_POSITIONAL:
            arguments += [_leaves(part, f"{name}_{i}", names) for i, part in enumerate(value)]
        elif parameter.kind is parameter.VAR_KEYWORD or parameter.kind is parameter.KEYWORD_ONLY:
            raise InvalidArgument(
                f"{name!r} can be given by name only",
                why="Paddle's dynamic-to-static takes positional arguments",
                hint="make it a plain parameter of forward",
            )
        else:
            arguments.append(_leaves(value, name, names))
        if name == last:
            break
    return arguments


def _leaves(value: Any, name: str, names: Names) -> Any:
    """Every tensor, array and InputSpec as a leaf; parts are named as Paddle names them."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_leaves(part, f"{name}_{i}", names) for i, part in enumerate(value)))
    if isinstance(value, (list, tuple)):
        return type(value)(_leaves(part, f"{name}_{i}", names) for i, part in enumerate(value))
    if isinstance(value, dict):
        return {key: _leaves(part, str(key), names) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return Leaf(names.unique(name), value.shape, value.dtype.name, value)
    kind = type(value).__name__
    if kind == "InputSpec":
        shape = tuple(-1 if d is None or d < 0 else int(d) for d in value.shape)
        return Leaf(names.unique(value.name or name), shape, _dtype(value.dtype))
    if kind in ("Tensor", "EagerParamBase"):
        return Leaf(names.unique(name), tuple(int(d) for d in value.shape), _dtype(value.dtype), value)
    if type(value).__module__.partition(".")[0] == "torch":
        raise InvalidArgument("a Paddle model takes paddle tensors or numpy arrays, not torch tensors")
    return value


def _dtype(dtype: Any) -> str:
    """``paddle.float32`` as ``float32``."""
    return str(dtype).rpartition(".")[2].lower()  # its name would be FP32 where FLAGS_enable_pir_api is off
