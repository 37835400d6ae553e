"""Modules of others that are executed when somebody asks them for something, not as soon as they are imported."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from importlib.machinery import ModuleSpec
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
        with _LOCK:
            if type(self) is _Late:
                if self._as_it_is:
                    raise AttributeError(name)
                _execute(self)
        return getattr(self, name)


class _Executed:
    """Finds the parts of a package that were imported while it was executed.

    An import asks the package for its ``__path__``, which executes it, and would then execute the part a second time.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._spec: ModuleSpec | None = None

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.rpartition(".")[0] != self._package or name not in sys.modules or target is not None:
            return None
        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self._spec = sys.modules[spec.name].__spec__
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


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
    spec: ModuleSpec, around: Callable[[], AbstractContextManager[None]] = nullcontext, **attributes: Any
) -> ModuleType:
    """Enter a module that waits, with what it has already; ``around`` makes what it is executed in."""
    module = _Late(spec.name)
    vars(module).update(attributes, __spec__=spec, __file__=spec.origin, _around=around)
    sys.modules[spec.name] = module
    if spec.submodule_search_locations is not None:
        sys.meta_path.insert(0, _Executed(spec.name))  # type: ignore[arg-type]
    return module


def import_parts(package: ModuleType, parts: Iterable[str]) -> None:
    """Import modules of a package that waits, without it; if they need it, the package is imported as ever."""
    name = package.__name__
    with _LOCK:
        assert package.__spec__ is not None
        vars(package).update(_as_it_is=True, __path__=package.__spec__.submodule_search_locations)
        try:
            for part in parts:
                importlib.import_module(f"{name}.{part}")
        except ImportError:
            for module in [module for module in sys.modules if f"{module}.".startswith(f"{name}.")]:
                del sys.modules[module]
        finally:
            del package.__path__
            del package._as_it_is
