"""One generic registry: names to functions. A second registration of a name is an error."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Generic, TypeVar

T = TypeVar("T")


def import_all(package: str) -> None:
    """Import every module of a package: that fills the registries its rules are entered into."""
    for module in pkgutil.iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")


class Registry(Generic[T]):
    """Filled while the rule modules are imported, read-only afterwards."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}
        self._frozen = False

    def add(self, name: str, entry: T) -> None:
        if self._frozen:
            raise RuntimeError(f"the registry of {self.kind}s is frozen; {name!r} came too late")
        if name in self._entries:
            raise RuntimeError(f"two {self.kind}s for {name!r}: {self._entries[name]!r} and {entry!r}")
        self._entries[name] = entry

    def freeze(self) -> None:
        """No registration after this: the registry is plain data from here on."""
        self._frozen = True

    def get(self, name: str) -> T | None:
        return self._entries.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
