"""What a model holds, looked at before a run and put back after it where the run changed something.

A model may count its calls, fill a cache, or build what it needs at the first call; every run has to start from the
state that was exported. Nothing is touched that did not change: what a model holds belongs to the user, and a class of
theirs may well refuse to be written to.
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import types
from collections import OrderedDict, deque
from typing import Any

import torch

from tonnx.frontends.patching import restored

_ATOMS = (str, bytes, int, float, complex, bool, type(None), range, type, types.ModuleType, types.CodeType)
_CALLABLES = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_LEAVES = frozenset((*_ATOMS, *_CALLABLES, torch.nn.Parameter, torch.dtype, torch.device))
"""Classes of most of what a model holds, asked for first: they hold nothing that a run changes."""
_CONTAINERS = (OrderedDict, dict, list, set, deque)
_EMPTY: list[Any] = []
"""The content of whatever is empty: a module has ten dicts for hooks, and hardly ever one inside."""
_FOREIGN = ("torch", "numpy", "threading", "logging", "_thread")
"""Packages whose objects are left alone, but for modules: what they hold is not the model's state."""


class _Snapshot:
    """Everything that can be reached from a module by attributes and containers, as it is now."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._seen: dict[int, Any] = {}
        """By identity; held, so that no other object gets the same one meanwhile."""
        self._containers: list[tuple[Any, list[Any]]] = []
        self._slots: list[tuple[Any, dict[str, Any]]] = []
        self._tensors: list[tuple[torch.Tensor, int, torch.Tensor]] = []
        self._memory = memory(module)
        left: list[Any] = [module]
        while left:
            thing = left.pop()
            if id(thing) in self._seen:
                continue
            self._seen[id(thing)] = thing
            if type(thing) in _CONTAINERS and not thing:
                self._containers.append((thing, _EMPTY))
                continue
            left += [part for part in self._parts(thing) if type(part) not in _LEAVES]

    def _parts(self, thing: Any) -> list[Any]:
        """What an object holds; remembered, if a run could change it."""
        if isinstance(thing, _CONTAINERS):
            content = _content(thing)
            self._containers.append((thing, content))
            return content
        if isinstance(thing, torch.nn.Module):
            return [vars(thing)]
        if isinstance(thing, _ATOMS):
            return []
        if isinstance(thing, torch.Tensor):
            if type(thing) is torch.Tensor and thing.layout is torch.strided:  # parameters are not written in a run
                self._tensors.append((thing, _version(thing), thing.detach().clone()))
            return []
        if isinstance(thing, (tuple, frozenset)):
            return _content(thing)
        if isinstance(thing, _CALLABLES) or not _is_state(thing):
            return []
        parts: list[Any] = []
        if isinstance(getattr(thing, "__dict__", None), dict):
            parts.append(vars(thing))
        if dataclasses.is_dataclass(thing) and not parts:
            slots = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
            self._slots.append((thing, slots))
            parts += slots.values()
        return parts

    def put_back(self) -> None:
        for thing, content in self._containers:
            if content is _EMPTY and not thing:
                continue
            if not _same(_content(thing), content):
                _refill(thing, content)
        for thing, slots in self._slots:
            for name, value in slots.items():
                if getattr(thing, name, None) is not value:
                    object.__setattr__(thing, name, value)
        for tensor, data in exchanged(self._memory):
            tensor.data = data
        with torch.no_grad():
            for tensor, version, before in self._tensors:
                # Batch normalisation writes its statistics without counting that as a version.
                if _version(tensor) != version or not torch.equal(tensor, before):
                    with torch.inference_mode(tensor.is_inference()):
                        tensor.copy_(before)


def _version(tensor: torch.Tensor) -> int:
    """How often it was written to; PyTorch does not count that of what `torch.inference_mode` has made."""
    return 0 if tensor.is_inference() else tensor._version


Memory = list[tuple[torch.Tensor, torch.Tensor]]


def memory(module: torch.nn.Module) -> Memory:
    """The weights, each with the memory that it has now; a model may exchange it: ``self.fused.weight.data = ...``."""
    weights = (*module.parameters(), *module.buffers())
    plain = [one for one in weights if type(one) in (torch.nn.Parameter, torch.Tensor) and not one.is_meta]
    return [(one, one.data) for one in plain if one.layout is torch.strided]


def exchanged(before: Memory) -> Memory:
    return [
        (one, data)
        for one, data in before
        if one.device != data.device or one.data_ptr() != data.data_ptr() or one.shape != data.shape
    ]


def names_of_tensors(model: torch.nn.Module, state: dict[str, torch.Tensor]) -> dict[int, str]:
    """The tensors that hang on a module, by identity."""
    names = {id(tensor): name for name, tensor in state.items()}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                names.setdefault(id(value), f"{path}.{name}" if path else name)
    return names


def _is_state(thing: Any) -> bool:
    return isinstance(thing, torch.nn.Module) or type(thing).__module__.partition(".")[0] not in _FOREIGN


def _content(container: Any) -> list[Any]:
    """The elements; of a dict, its keys and then its values.

    Read by the built-in class: a subclass may count reads, or make what it lacks.
    """
    kind = _built_in(container)
    if issubclass(kind, dict):
        return [*kind.keys(container), *kind.values(container)]
    return list(kind.__iter__(container))


def _built_in(container: Any) -> Any:
    kind = type(container)
    if kind in _CONTAINERS:
        return kind
    return next(kind for kind in (*_CONTAINERS, tuple, frozenset) if isinstance(container, kind))


def _same(now: list[Any], before: list[Any]) -> bool:
    """Whether the very same objects are there, in the same order."""
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _refill(container: Any, content: list[Any]) -> None:
    kind = _built_in(container)
    if kind is list:
        list.__setitem__(container, slice(None), content)
        return
    kind.clear(container)
    if kind in (set, deque):
        (set.update if kind is set else deque.extend)(container, content)
        return
    half = len(content) // 2
    for key, value in zip(content[:half], content[half:], strict=True):
        kind.__setitem__(container, key, value)


def state_kept(module: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
    """Whatever the model changes of what it holds is put back, also when it fails."""
    return restored(_Snapshot(module).put_back)
