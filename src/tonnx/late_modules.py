"""Modules of others that are executed when somebody asks them for something, not as soon as they are imported."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

_LOCK = threading.RLock()


class _Late(ModuleType):
    """A module that is executed when an attribute is read that it has not; from then on an ordinary one."""

    __spec__: ModuleSpec
    _as_it_is = False
    """Whether the thread that has the lock is at work on it: what it has not is missing then."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":  # which every import asks for; packages have it from the beginning
            raise AttributeError(name)
        with _LOCK:
            if type(self) is _Late:
                if self._as_it_is:
                    raise AttributeError(name)
                _execute(self)
        return getattr(self, name)


class _Parts:
    """Imports parts of a package that waits: the few that do without it, or else it is executed first."""

    def __init__(self, package: str, alone: Sequence[str]) -> None:
        self._package = package
        self._alone = [f"{package}.{part}" for part in alone]

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.rpartition(".")[0] != self._package or target is not None:
            return None
        with _LOCK:
            return ModuleSpec(name, self) if self._waiting() else None  # type: ignore[arg-type]

    def _waiting(self) -> _Late | None:
        package = sys.modules[self._package]
        return package if type(package) is _Late and not package._as_it_is else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        with _LOCK:
            if spec.name not in self._alone and (package := self._waiting()) is not None:
                _execute(package)
        if spec.name in sys.modules:  # imported while the package was executed: once is enough
            spec.loader_state = sys.modules[spec.name].__spec__, True
            return sys.modules[spec.name]
        own = PathFinder.find_spec(spec.name, sys.modules[self._package].__path__)
        if own is None:
            raise ModuleNotFoundError(f"No module named {spec.name!r}", name=spec.name)
        spec.loader_state = own, False
        return module_from_spec(own)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        spec, executed = module.__spec__.loader_state
        module.__spec__ = spec
        if executed:
            return
        with _LOCK:
            if (package := self._waiting()) is None:
                spec.loader.exec_module(module)
                return
            vars(package)["_as_it_is"] = True
            try:
                spec.loader.exec_module(module)
                return
            except ImportError:  # it needs the package after all
                for part in [part for part in sys.modules if part.startswith(f"{self._package}.")]:
                    del sys.modules[part]
            finally:
                del package._as_it_is
            _execute(package)
            importlib.import_module(spec.name)


def _execute(module: _Late) -> None:
    spec, around = module.__spec__, vars(module).pop("_around")
    vars(module).update(vars(module_from_spec(spec)), _as_it_is=True)
    assert spec.loader is not None
    try:
        with around():
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(spec.name, None)  # as any import that fails
        raise
    finally:
        del module._as_it_is
        module.__class__ = ModuleType  # type: ignore[assignment]


def late(
    spec: ModuleSpec,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
    alone: Sequence[str] = (),
    **attributes: Any,
) -> None:
    """Enter a module that waits, with what it has already; ``around`` makes what it is executed in.

    ``alone``: parts of a package that are imported without it; if one of them needs it, it is executed.
    """
    module = _Late(spec.name)
    vars(module).update(attributes, __spec__=spec, __file__=spec.origin, _around=around)
    sys.modules[spec.name] = module
    if spec.submodule_search_locations is not None:
        vars(module)["__path__"] = spec.submodule_search_locations
        sys.meta_path.insert(0, _Parts(spec.name, alone))  # type: ignore[arg-type]
