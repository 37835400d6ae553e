"""What a call is made of: arguments and results as trees of tensors, whatever classes they nest in.

A file takes and gives tensors. Models take and give caches, output classes, dataclasses, dicts. Here every such
value is taken apart by its own structure, and put together again around other tensors. Nothing is registered with
PyTorch, and nothing of the user's is changed: what is put together is a copy.
"""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from tonnx.errors import CaptureError, InvalidArgument

Path = tuple["Step", ...]

_ATOMS = (str, bytes, int, float, complex, bool, type(None), range, slice, type, types.ModuleType, types.CodeType)
_CALLABLES = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, torch.nn.Module)
_FOREIGN = ("torch", "numpy", "threading", "logging", "_thread", "functools", "enum", "sympy", "tonnx")
"""Packages whose objects are taken as they are: they hold nothing that a model is given by its arguments."""

USERS: dict[type, tuple[Callable[[Any], Mapping[str, Any]], Callable[[dict[str, Any]], Any]]] = {}
"""Classes that were registered: into parts by name, and back."""


@dataclass(frozen=True)
class Step:
    """One step from a container to a part of it."""

    key: Any
    attribute: bool = False
    """Whether the part is an attribute of an object: such names are written with dots."""


@dataclass
class Node:
    """A value with its parts; a leaf has none, and no ``make``."""

    value: Any
    parts: list[tuple[Step, Node]] = field(default_factory=list)
    make: Callable[[Any, list[Any]], Any] | None = None
    """Puts the value together from its parts; given a copy of it, if it is ``copied``."""
    copied: bool = False
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Numbers of an object that are the size of one of its parts: attribute → (part, axis)."""

    def leaves(self, path: Path = ()) -> Iterator[tuple[Path, Any]]:
        """Every leaf with the way to it."""
        if self.make is None:
            yield path, self.value
        for step, part in self.parts:
            yield from part.leaves((*path, step))

    def tensors(self) -> list[tuple[Path, torch.Tensor]]:
        return [(path, value) for path, value in self.leaves() if isinstance(value, torch.Tensor)]

    def rebuilt(self, tensors: Iterator[Any], copies: dict[int, Any] | None = None) -> Any:
        """The same value with other tensors. Containers are copies; ``copies`` are those around this one."""
        copies = {} if copies is None else copies
        if self.make is None:
            return next(tensors) if isinstance(self.value, torch.Tensor) else copies.get(id(self.value), self.value)
        copied = _copied(self.value) if self.copied else None
        if self.copied:  # before its parts are, which may hold it
            copies[id(self.value)] = copied
        parts = [part.rebuilt(tensors, copies) for _, part in self.parts]
        value = self.make(copied, parts)
        for name, (place, axis) in self.sizes.items():
            object.__setattr__(value, name, parts[place].shape[axis])
        return value

    def objects(self, path: Path = ()) -> Iterator[tuple[Path, Node]]:
        """The nodes of objects with attributes, each with the way to it."""
        if self.make is not None and any(step.attribute for step, _ in self.parts):
            yield path, self
        for step, part in self.parts:
            yield from part.objects((*path, step))


def tree_of(value: Any) -> Node:
    return _node(value, ())


def _node(value: Any, around: tuple[int, ...]) -> Node:
    # An object that holds one that it is held by is left whole there.
    taken_apart = None if isinstance(value, (torch.Tensor, *_ATOMS)) or id(value) in around else _parts(value)
    if taken_apart is None:
        return Node(value)
    inner = (*around, id(value))
    parts = [(step, _node(part, inner)) for step, part in taken_apart.parts]
    return Node(value, parts, taken_apart.make, taken_apart.copied)


class _Parts(NamedTuple):
    parts: list[tuple[Step, Any]]
    make: Callable[[Any, list[Any]], Any]
    copied: bool = False


def _parts(value: Any) -> _Parts | None:
    """The parts of a container, and how it is put together of others; None for what is no container."""
    kind = type(value)
    if (registered := next((USERS[base] for base in kind.__mro__ if base in USERS), None)) is not None:
        return _users_parts(value, *registered)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        fields = [(Step(name), getattr(value, name)) for name in kind._fields]
        return _Parts(fields, lambda _, parts: kind(*parts))
    if kind in (tuple, list) or kind.__module__ == "torch.return_types":
        return _Parts([(Step(place), part) for place, part in enumerate(value)], lambda _, parts: kind(parts))
    if isinstance(value, _CALLABLES) or kind.__module__.partition(".")[0] in _FOREIGN:
        return _pytree_parts(value)
    if isinstance(value, (list, tuple)):
        return _Parts([(Step(place), part) for place, part in enumerate(value)], lambda _, parts: kind(parts))
    if isinstance(value, Mapping):
        return _mapping_parts(value)
    return _object_parts(value) or _pytree_parts(value)


def _users_parts(value: Any, flatten: Callable[[Any], Mapping[str, Any]], unflatten: Callable[..., Any]) -> _Parts:
    parts = flatten(value)
    names = list(parts)
    named = [(Step(name, attribute=True), parts[name]) for name in names]
    return _Parts(named, lambda _, others: unflatten(dict(zip(names, others, strict=True))))


def _mapping_parts(value: Mapping[Any, Any]) -> _Parts:
    keys = list(value)

    def make(result: Any, parts: list[Any]) -> Any:
        for key, part in zip(keys, parts, strict=True):
            if result[key] is not part:
                result[key] = part
        return result

    return _Parts([(Step(key), value[key]) for key in keys], make, copied=True)


def _object_parts(value: Any) -> _Parts | None:
    """An object by its public attributes; those of a dataclass are its fields."""
    if dataclasses.is_dataclass(value):
        fields = [each.name for each in dataclasses.fields(value) if hasattr(value, each.name)]
        attributes, dotted = {name: getattr(value, name) for name in fields}, False
    else:
        slots = [name for base in type(value).__mro__ for name in _slots(base) if hasattr(value, name)]
        attributes = {name: getattr(value, name) for name in slots} | dict(getattr(value, "__dict__", {}))
        dotted = True
    held = attributes
    if dotted:
        public = {name: part for name, part in attributes.items() if not name.startswith("_")}
        held = {name: part for name, part in public.items() if not isinstance(part, _ATOMS)}
    if not held:
        return None

    def make(result: Any, parts: list[Any]) -> Any:
        for name, part in zip(held, parts, strict=True):
            if getattr(result, name) is not part:
                object.__setattr__(result, name, part)
        return result

    return _Parts([(Step(name, dotted), part) for name, part in held.items()], make, copied=True)


def _copied(value: Any) -> Any:
    try:
        return copy.copy(value)
    except Exception as error:  # whatever the user's class does in its place
        raise InvalidArgument(
            f"an argument of the class {type(value).__name__} cannot be copied",
            why=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}",
            hint=f"say how it is put together: tonnx.register_container({type(value).__name__}, flatten, unflatten)",
        ) from error


def _slots(kind: type) -> Sequence[str]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _pytree_parts(value: Any) -> _Parts | None:
    """A class that somebody registered with PyTorch."""
    entry = pytree.SUPPORTED_NODES.get(type(value))
    if entry is None:
        return None
    children, context = entry.flatten_fn(value)
    keys: list[Any] = list(range(len(children)))
    if entry.flatten_with_keys_fn is not None:
        keys = [_key(key) for key, _ in entry.flatten_with_keys_fn(value)[0]]
    named = [(Step(key), part) for key, part in zip(keys, children, strict=True)]
    return _Parts(named, lambda _, parts: entry.unflatten_fn(parts, context))


def _key(key: Any) -> Any:
    return getattr(key, "key", getattr(key, "idx", getattr(key, "name", str(key))))


# Names

PAST, PRESENT = "past_key_values", "present"
"""What a model calls its cache, and what runtimes call the one that it gives back."""
_PARTS = {"keys": "key", "values": "value"}
_HALVES = {"self_attention_cache": "decoder", "cross_attention_cache": "encoder"}
_LEGACY = {
    2: ("key", "value"),
    4: ("decoder.key", "decoder.value", "encoder.key", "encoder.value"),
}
"""What stands in a layer of a cache that is a tuple of tuples."""


def leaf_name(root: str, path: Path, siblings: int = 0) -> str:
    """The name of a tensor: ``cache_0_key`` by keys and places, ``state.hidden`` by attributes of objects.

    Caches have the names that runtimes expect: ``past_key_values.0.key``. ``siblings``: how many parts the last
    container of the path has.
    """
    keys = [step.key for step in path]
    if root in (PAST, PRESENT) and len(path) == 2 and siblings in _LEGACY and all(isinstance(k, int) for k in keys):
        return f"{root}.{keys[0]}.{_LEGACY[siblings][keys[1]]}"
    first = next((place for place, step in enumerate(path) if step.attribute), len(path))
    plain = "_".join([root, *map(str, keys[:first])])
    return ".".join([plain, *_cache_words(keys[first:])])


def _cache_words(keys: list[Any]) -> list[str]:
    """``layers, 0, keys`` is ``0.key``; a half of a cache in two comes after the layer: ``0.decoder.key``."""
    words = [_PARTS.get(key, str(key)) for key in keys if key != "layers"]
    halves = [_HALVES[word] for word in words if word in _HALVES]
    words = [word for word in words if word not in _HALVES]
    return [*words[:1], *halves, *words[1:]]


def named_leaves(root: str, node: Node) -> Iterator[tuple[str, Any]]:
    """The leaves below an argument or a result with their names. Of objects only the tensors: the rest is their own."""
    yield from _named(root, node, (), 0)


def _named(root: str, node: Node, path: Path, siblings: int) -> Iterator[tuple[str, Any]]:
    inside = any(step.attribute for step in path)
    if node.make is None and (not inside or isinstance(node.value, torch.Tensor)):
        yield leaf_name(root, path, siblings), node.value
    for step, part in node.parts:
        if not dataclasses.is_dataclass(node.value) or not isinstance(part.value, (str, type)):
            yield from _named(root, part, (*path, step), len(node.parts))


def results_of(value: Any, arguments: Collection[str] = ()) -> dict[str, Any]:
    """What a model returned, by the names that the outputs have: tensors, numbers, and None where there is nothing.

    ``arguments`` are the names of the model's: a state that it takes and gives back has two names in the file.
    """
    tree = tree_of(value)
    if tree.make is None:
        _check_known(value)
        return {"output": value}
    results: dict[str, Any] = {}
    by_place = isinstance(value, (list, tuple)) and not hasattr(type(value), "_fields")
    for name, leaf in _result_names(tree, by_place, arguments):
        _check_known(leaf)
        while name in results:  # {"a": {"b": x}, "a_b": y}
            name = f"{name}_"
        results[name] = leaf
    return {"output": next(iter(results.values()))} if list(results) == ["output_0"] else results


def _check_known(leaf: Any) -> None:
    kind = type(leaf)
    if isinstance(leaf, (*_ATOMS, *_CALLABLES)) or kind.__module__.partition(".")[0] in (*_FOREIGN, "builtins"):
        return
    raise CaptureError(
        f"the model returns a {kind.__name__}, of which nobody knows what is in it",
        why="it has no public attributes",
        hint=f"say what it holds: tonnx.register_container({kind.__name__}, flatten, unflatten); or return tensors",
    )


def _result_names(tree: Node, by_place: bool, arguments: Collection[str]) -> Iterator[tuple[str, Any]]:
    if any(step.attribute for step, _ in tree.parts):  # an object itself
        yield from ((name.partition(".")[2], leaf) for name, leaf in named_leaves("output", tree))
        return
    for step, part in tree.parts:
        root = f"output_{step.key}" if by_place or str(step.key).isdigit() else str(step.key)
        if root == PAST:
            root = PRESENT
        elif root in arguments and part.make is not None:
            root = f"{PRESENT}_{root}"
        yield from named_leaves(root, part)
