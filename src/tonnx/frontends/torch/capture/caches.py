"""Caches by size, while a capture runs: sizes are keys in them, and nothing of the capture stays in them.

A model may keep what it computes of a size: in a dict of a module or a file, in a global variable, or by
``functools.lru_cache``. During a capture sizes are symbols and tensors have no values; both would be found there by the
next run of the model.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from tonnx.frontends.patching import Patch, patched, restored
from tonnx.frontends.torch.call.plain import original_of
from tonnx.frontends.torch.capture.except_blocks import handler_of
from tonnx.frontends.torch.source import is_users

_PLAIN = frozenset((str, bytes, int, float, bool, type, type(None), FunctionType))
"""Classes of most of what files and caches hold, asked for first."""
_SYMBOLIC = (torch._subclasses.FakeTensor, torch.SymInt, torch.SymFloat, torch.SymBool)
_LRU = type(functools.lru_cache(lambda: None))


@contextlib.contextmanager
def sizes_as_keys(model: torch.nn.Module) -> Iterator[Caches]:
    """Symbolic sizes can be looked up in dicts; afterwards no file, class or cached function holds one."""
    caches = Caches([_Scope(scope) for scope in _scopes(model)])
    key = Patch("torch.SymInt", "__hash__", caches.hashed, "models keep what they compute of a size by that size")
    with restored(caches.clean), patched([key]):
        yield caches


class Caches:
    """Where a model may keep what it computes of a size."""

    def __init__(self, scopes: list[_Scope]) -> None:
        self._scopes = scopes
        self._sizes_are_keys = False
        self._held = self._has_sizes = True

    def hashed(self, original: Any, size: torch.SymInt) -> int:
        """The hash of a size: somebody looks it up."""
        self._sizes_are_keys = True
        return _hashed(original, size)

    def clear_of(self, tensors: list[torch.Tensor], has_sizes: bool) -> None:
        """Leave out what needs no look: these are all tensors of a capture, one for each reference that is ours.

        If nobody else holds one, none is in a cache. Sizes, of which nobody knows who holds them, are in that of a
        function by way of their hash.
        """
        own = Counter(map(id, tensors))
        inside = _references_from_inside()
        # Each is held by the list, too, by the loop, and by the call.
        self._held = any(
            sys.getrefcount(tensor) > 2 * own[id(tensor)] + 2 + (inside if tensor._use_count() > 1 else 0)
            for tensor in tensors
        )
        self._has_sizes = has_sizes

    def clean(self) -> None:
        """Take out what is left of the capture."""
        if self._held or self._has_sizes:
            for scope in self._scopes:
                scope.clean()
        if self._held or self._sizes_are_keys:
            _clean_functions()


def _references_from_inside() -> int:
    """How often PyTorch itself refers to a tensor that has views; that depends on its version."""
    tensor = torch.empty(1)
    before = sys.getrefcount(tensor)
    view = tensor.view(1)
    return sys.getrefcount(tensor) - before if view._base is tensor else 0


def _hashed(original: Any, size: torch.SymInt) -> int:
    number = size.node.maybe_as_int()
    if number is not None:
        return hash(number)
    if size.node.is_nested_int() or handler_of(sys._getframe(1)) is not None:
        return int(original(size))  # whoever catches the error has another way, without a cache
    return hash((id(size.node.shape_env), size.node.expr))  # of no other capture


def _of_capture(value: Any, depth: int = 3) -> bool:
    """Whether a value is, or holds, something that means nothing outside of a capture."""
    if type(value) in _PLAIN:
        return False
    if isinstance(value, _SYMBOLIC):
        return True
    if not depth or not isinstance(value, (tuple, list, dict)):
        return False
    parts: Iterable[Any] = (*value, *value.values()) if isinstance(value, dict) else value
    return any(_of_capture(part, depth - 1) for part in parts)


def _scopes(model: torch.nn.Module) -> list[Any]:
    """The classes of a model, and the files that they and the functions which they see are written in."""
    modules = [original_of(module) for module in model.modules()]
    classes = {base for module in modules for base in type(module).__mro__ if _is_written(base)}
    files = [vars(sys.modules[kind.__module__]) for kind in classes]
    functions = [getattr(module.forward, "__func__", module.forward) for module in modules]
    functions += [value for scope in files for value in scope.values()]
    files += [value.__globals__ for value in functions if _is_function(value)]
    return [*classes, *{id(scope): scope for scope in files}.values()]


def _is_written(kind: type) -> bool:
    module = sys.modules.get(kind.__module__)
    return module is not None and is_users(getattr(module, "__file__", None) or "__main__")


def _is_function(value: Any) -> bool:
    return isinstance(value, FunctionType) and is_users(value.__code__.co_filename)


@dataclass
class _Scope:
    """The variables of a file or a class, and what those hold that hold something, as they were."""

    owner: Any

    def __post_init__(self) -> None:
        self._before = dict(self._variables())
        self._contents = {name: copy(value) for name, value in self._before.items() if type(value) in (dict, list)}

    def _variables(self) -> Any:
        return self.owner if isinstance(self.owner, dict) else vars(self.owner)

    def clean(self) -> None:
        for name, value in list(self._variables().items()):
            if name in self._contents and value is self._before[name]:
                if _of_capture(value):
                    value.clear()
                    (value.update if isinstance(value, dict) else value.extend)(self._contents[name])
            elif _of_capture(value):
                self._put_back(name)

    def _put_back(self, name: str) -> None:
        if isinstance(self.owner, dict):
            self.owner.pop(name)
            self.owner.update({name: self._before[name]} if name in self._before else {})
        elif name in self._before:
            setattr(self.owner, name, self._before[name])
        else:
            delattr(self.owner, name)


def _clean_functions() -> None:
    """Empty the caches of functions that hold something of the capture; what else they held is computed again."""
    for function in _cached_functions():
        if any(map(_of_capture, gc.get_referents(function))):
            function.cache_clear()


def _cached_functions() -> Iterator[Any]:
    """The functions of files and classes that are neither PyTorch's nor ours; a look at all objects takes too long."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")  # asked of the dict: modules may do anything else
        if name != "__main__" and (not isinstance(file, str) or not is_users(file)):
            continue
        for value in list(vars(module).values()):
            if type(value) is _LRU:
                yield value
            elif issubclass(type(value), type) and vars(value).get("__module__") == name:
                yield from (method for method in list(vars(value).values()) if type(method) is _LRU)
