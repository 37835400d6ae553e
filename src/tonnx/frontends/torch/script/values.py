"""What a TorchScript program works on, as far as it is known before run time.

- Numbers and strings are Python's; a number known only at run time is an `ir.Value` of shape [1] (int64, double, bool).
- Tensors, lists, dicts and objects have an identity, since a program may write to them: they are cells.
- Tuples are Python's; a named tuple is a `Fields`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.lowering.regions.lists import DynamicList

_clock = itertools.count(1)


def tick() -> int:
    """A number that is larger than all before it."""
    return next(_clock)


class Vague(str):
    """A text with parts that only the run knows: good for messages, and for nothing else."""

    __slots__ = ()


class Cell:
    """Something that a program can write to."""

    __slots__ = ("born", "kin", "poison")

    def __init__(self) -> None:
        self.born = tick()
        self.kin: set[Cell] = set()
        """Cells that may be this very one, or share memory with it, depending on the path taken at run time."""
        self.poison = ""
        """Why the content is not known any more: somebody wrote to one of the kin."""

    def state(self) -> Any:
        raise NotImplementedError

    def restore(self, state: Any) -> None:
        raise NotImplementedError


class Tensor(Cell):
    """A tensor: one that owns its memory (a root), or a view of another."""

    __slots__ = ("again", "back", "has_views", "packed", "parent", "value", "version")

    def __init__(
        self,
        value: ir.Value,
        parent: Tensor | None = None,
        again: Callable[[Builder, ir.Value], ir.Value] | None = None,
        back: Callable[[Builder, ir.Value, ir.Value], ir.Value] | None = None,
    ) -> None:
        super().__init__()
        self.value = value
        self.parent = parent
        self.has_views: bool = False
        if parent is not None:
            parent.has_views = True
        self.packed: bool = True
        """Whether the elements certainly lie in memory one after the other: then a reshape is a view."""
        self.again = again
        """Computes the view from the value of the parent."""
        self.back = back
        """Computes the value of the parent, from its old one and that of the view."""
        self.version: int = self.root.version if parent is not None else tick()
        """When the root was last written to; a view is up to date while its version is the root's."""

    @property
    def root(self) -> Tensor:
        at = self
        while at.parent is not None:
            at = at.parent
        return at

    def state(self) -> Any:
        return self.value, self.version, self.poison

    def restore(self, state: Any) -> None:
        self.value, self.version, self.poison = state


class Compound(Cell):
    """A list, a dict or an object. Its content never changes: a write gives it another one."""

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        super().__init__()
        self.content = content

    def state(self) -> Any:
        return self.content, self.poison

    def restore(self, state: Any) -> None:
        self.content, self.poison = state


class List(Compound):
    """A list. ``content`` is its elements, or a `DynamicList`."""

    __slots__ = ()

    def __init__(self, content: Iterable[Any] | DynamicList) -> None:
        super().__init__(content if isinstance(content, DynamicList) else list(content))


class Dict(Compound):
    """A dict; its keys are known."""

    __slots__ = ()


class Object(Compound):
    """A module, or an instance of a TorchScript class. ``content`` are the attributes that the program has set."""

    __slots__ = ("handle", "loaded", "path")

    def __init__(self, handle: Any, path: str) -> None:
        super().__init__({})
        self.handle = handle
        """PyTorch's object; None for one that the program makes."""
        self.path = path
        self.loaded: dict[str, Any] = {}


class Fields(tuple):  # type: ignore[type-arg]
    """A named tuple."""

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, items: Iterable[Any], names: Sequence[str]) -> Fields:
        fields = cls(items)
        fields.names = tuple(names)
        return fields


class Maybe:
    """An Optional of which only the run tells whether it is None. ``present`` is a bool value of shape [1]."""

    __slots__ = ("inner", "present")

    def __init__(self, present: ir.Value, inner: Any) -> None:
        self.present = present
        self.inner = inner


def values_in(thing: Any) -> list[ir.Value]:
    """The values that a thing holds now; those of views that are stale are of the memory that they look at."""
    if isinstance(thing, ir.Value):
        return [thing]
    if isinstance(thing, Tensor):
        return [thing.value, thing.root.value]
    if isinstance(thing, DynamicList):
        return [thing.value]
    if isinstance(thing, Maybe):
        return [thing.present, *values_in(thing.inner)]
    parts: Iterable[Any] = ()
    if isinstance(thing, (list, tuple)):
        parts = thing
    elif isinstance(thing, List):
        parts = [thing.content] if isinstance(thing.content, DynamicList) else thing.content
    elif isinstance(thing, (Dict, Object)):
        parts = thing.content.values()
    return [value for part in parts for value in values_in(part)]
