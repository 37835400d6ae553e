"""The variables of recorded code, read and set through the cells of its closures; and the objects in them."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import CellType, ModuleType
from typing import Any

import torch

from tonnx.frontends.torch.capture.python_flow.recorded_list import RecordedList
from tonnx.frontends.torch.capture.python_flow.values import UNBOUND


class Snapshot(dict[str, Any]):
    """Values of variables by name."""


class Variables:
    """The variables that some functions have in common with the one around them, by name; and attributes of objects."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self._cells: dict[str, CellType] = {}
        self._attributes: dict[str, tuple[Any, str, bool]] = {}
        """By a name that no variable has: the object, the attribute, and whether it has a value at first."""
        for function in functions:
            self._cells |= dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def add(self, owner: Any, attribute: str) -> str:
        """Let an attribute be one of them; returns its name."""
        name = f"the attribute {attribute} of a {type(owner).__name__}"
        while name in self._attributes:
            name += "'"
        self._attributes[name] = (owner, attribute, hasattr(owner, attribute))
        return name

    def has(self, owner: Any, attribute: str) -> bool:
        return any(known is owner and attribute == name for known, name, _ in self._attributes.values())

    def get(self, name: str) -> Any:
        """The value of a variable, UNBOUND if it has none."""
        if name in self._attributes:
            owner, attribute, _ = self._attributes[name]
            return getattr(owner, attribute, UNBOUND)
        try:
            return self._cells[name].cell_contents
        except (KeyError, ValueError):  # a global, which bodies only read; or not bound yet
            return UNBOUND

    def set(self, name: str, value: Any) -> None:
        """Set a variable, or take its value away."""
        if name in self._attributes:
            owner, attribute, bound = self._attributes[name]
            if value is not UNBOUND or not bound:  # a buffer that is taken away would not be one afterwards
                put_attribute(owner, attribute, value)
        elif value is not UNBOUND:
            self._cells[name].cell_contents = value
        elif self.get(name) is not UNBOUND:
            del self._cells[name].cell_contents

    def values(self) -> Snapshot:
        return Snapshot({name: self.get(name) for name in (*self._cells, *self._attributes)})

    def restore(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            self.set(name, value)


@dataclass(eq=False, slots=True)
class Content:
    """A list or dict, and what was in it. With slots it is what refers to it, not a dict of its own."""

    owner: Any
    held: Any


Contents = dict[int, Content]
"""By the id of the list or dict."""


def contents_of(values: Iterable[Any]) -> Contents:
    """What is in the lists and dicts among some values, and in those inside them."""
    contents: Contents = {}
    left = list(values)
    left += [value for module in left if isinstance(module, torch.nn.Module) for value in _held_by(module)]
    while left:
        value = left.pop()
        if id(value) in contents:
            continue
        if isinstance(value, RecordedList):
            contents[id(value)] = Content(value, value.copied())
        elif type(value) is list or type(value) is dict:
            contents[id(value)] = Content(value, value.copy())
            left += value if isinstance(value, list) else value.values()
        elif type(value) is tuple:
            left += value
    return contents


_BASE = frozenset(vars(torch.nn.Module()))


def _held_by(module: torch.nn.Module) -> Iterator[Any]:
    for part in module.modules():
        yield from (value for name, value in vars(part).items() if type(value) in (list, dict) and name not in _BASE)


def _references(value: Any) -> int:
    return sys.getrefcount(value)


_HOLDER: list[list[Any]] = [[]]
"""Holds a list that nobody else does."""


def held_elsewhere(value: Any, references: int) -> bool:
    """Whether somebody else than one variable holds a list; ``references`` are those that the caller knows of."""
    # Those of the holder, of the argument of the function that counts, and of getrefcount's; and of a caller's, up to
    # Python 3.10, and wherever torch._dynamo has run: then functions are called in another way.
    references += _references(_HOLDER[0])
    if sys.getrefcount(value) <= references:
        return False
    ours = sum(isinstance(holder, (Snapshot, Content)) for holder in gc.get_referrers(value))
    return sys.getrefcount(value) > references + ours


def fill(container: Any, content: Any) -> None:
    """Put contents back into a list or dict."""
    if isinstance(container, RecordedList):
        container.become(content)
    elif isinstance(container, list):
        container[:] = content
    else:
        container.clear()
        container.update(content)


def changed(before: Contents, after: Contents) -> list[int]:
    """The ids of the lists and dicts that are not what they were."""
    return [key for key, content in before.items() if not _same(content.held, after[key].held)]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, RecordedList):
        return a.is_as(b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(x is y for x, y in zip(a.values(), b.values(), strict=True))
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


# Attributes


class Attributes:
    """The attributes that the code which runs sets, and what they were."""

    def __init__(self) -> None:
        self.before: dict[tuple[int, str], tuple[Any, Any]] = {}
        """By the id of an object and the name: the object, and the value before."""

    def values(self) -> dict[tuple[int, str], Any]:
        return {key: getattr(owner, key[1], UNBOUND) for key, (owner, _) in self.before.items()}

    def undo(self) -> None:
        for (_, name), (owner, value) in self.before.items():
            put_attribute(owner, name, value)

    def watched(self) -> contextlib.AbstractContextManager[None]:
        """Listen to modules, and to `set_attribute`."""
        return _watched_by(self._see)

    def _see(self, owner: Any, name: str, value: Any) -> None:
        self.before.setdefault((id(owner), name), (owner, getattr(owner, name, UNBOUND)))


class Objects:
    """The attributes of the objects among some values. Of those that are no modules, nobody hears when they are set."""

    def __init__(self, values: Iterable[Any]) -> None:
        plain = [value for value in values if isinstance(getattr(value, "__dict__", None), dict)]
        plain = [value for value in plain if not isinstance(value, (type, ModuleType, torch.nn.Module, torch.Tensor))]
        self._before = [(owner, dict(vars(owner))) for owner in plain if not callable(owner)]

    def changed(self) -> list[tuple[Any, str]]:
        return [
            (owner, name)
            for owner, before in self._before
            for name, value in list(vars(owner).items())
            if before.get(name, UNBOUND) is not value
        ]

    def undo(self) -> None:
        for owner, name in self.changed():
            put_attribute(owner, name, next(b for o, b in self._before if o is owner).get(name, UNBOUND))


def put_attribute(owner: Any, name: str, value: Any) -> None:
    if value is not UNBOUND:
        setattr(owner, name, value)
    elif hasattr(owner, name):
        delattr(owner, name)


def set_attribute(owner: Any, name: str, value: Any) -> None:
    """``owner.name = value`` in rewritten code."""
    if not isinstance(owner, torch.nn.Module):  # modules are watched wherever they are set
        _seen(owner, name, value)
    setattr(owner, name, value)


_Watcher = Callable[[Any, str, Any], None]
_watchers: ContextVar[tuple[_Watcher, ...]] = ContextVar("_watchers", default=())


def is_watched() -> bool:
    """Whether the code that runs is a side or a pass: what it changes may not happen, or happen again."""
    return bool(_watchers.get())


def _seen(owner: Any, name: str, value: Any) -> None:
    tracer = type(owner).__module__.startswith("torch.")  # it keeps the constants that it finds
    if not tracer:
        for watcher in reversed(_watchers.get()):
            watcher(owner, name, value)


def set_module_attribute(original: Any, module: Any, name: str, value: Any) -> None:
    """``torch.nn.Module.__setattr__`` while a capture runs."""
    _seen(module, name, value)
    original(module, name, value)


def register_buffer(original: Any, module: Any, name: str, tensor: Any, *args: Any, **kwargs: Any) -> None:
    """``torch.nn.Module.register_buffer``, which sets no attribute by `__setattr__`."""
    _seen(module, name, tensor)
    original(module, name, tensor, *args, **kwargs)


@contextlib.contextmanager
def _watched_by(watcher: _Watcher) -> Iterator[None]:
    token = _watchers.set((*_watchers.get(), watcher))
    try:
        yield
    finally:
        _watchers.reset(token)


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """A capture that another one starts is none of that one's business."""
    token = _watchers.set(())
    try:
        yield
    finally:
        _watchers.reset(token)


def attributes_refused(refuse: Callable[[Any, str], None]) -> contextlib.AbstractContextManager[None]:
    """Call ``refuse`` for every attribute that gets another value."""

    def see(owner: Any, name: str, value: Any) -> None:
        before = getattr(owner, name, UNBOUND)
        constant = isinstance(value, (bool, int, float, str, type(None)))
        if value is not before and not (constant and type(value) is type(before) and value == before):
            refuse(owner, name)

    return _watched_by(see)
