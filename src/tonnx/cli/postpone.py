"""Keeps sympy out of commands that do not need it.

onnx-ir imports sympy for arithmetic on names of dimensions, which tonnx never does. That import takes as long as
converting a network, so in the process of a command it waits until somebody asks the module for something.
"""

from __future__ import annotations

import sys
import threading
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

_LOCK = threading.RLock()


class _Postponed(ModuleType):
    """A module that is executed when its first attribute is read; from then on an ordinary one."""

    def __getattr__(self, name: str) -> Any:
        with _LOCK:
            if type(self) is _Postponed:
                spec: ModuleSpec = self.__dict__["__spec__"]
                self.__class__ = ModuleType  # type: ignore[assignment]
                vars(self).update(vars(module_from_spec(spec)))
                assert spec.loader is not None
                spec.loader.exec_module(self)
        return getattr(self, name)


def postpone_sympy() -> None:
    """To be called before onnx-ir is imported; does nothing where it is too late, or where there is no sympy."""
    if "sympy" in sys.modules or "onnx_ir" in sys.modules:
        return
    sympy, package = find_spec("sympy"), find_spec("onnx_ir")
    if sympy is None or package is None or package.origin is None:
        return
    uses = Path(package.origin).with_name("_symbolic_shapes.py")  # it reads sympy.Max as it is imported
    if not uses.is_file():
        return
    for spec in (sympy, spec_from_file_location("onnx_ir._symbolic_shapes", uses)):
        if spec is not None and spec.loader is not None:
            module = _Postponed(spec.name)
            module.__spec__ = spec
            sys.modules[spec.name] = module
