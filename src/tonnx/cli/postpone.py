"""Keeps sympy out of commands that do not need it.

onnx-ir imports sympy for arithmetic on names of dimensions, which tonnx never does. That import takes as long as
converting a network, so in the process of a command it waits until somebody asks the module for something.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path

from tonnx.late_modules import late


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
            late(spec)
