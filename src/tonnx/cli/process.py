"""A command's own process: SIGTERM ends it as Ctrl-C does, and sympy waits until it is needed.

On SIGTERM, what was begun is taken back, and no half file stays. onnx-ir imports sympy for arithmetic on names of
dimensions, which tonnx never does. That import takes as long as converting a network, so in the process of a command
it waits until somebody asks the module for something.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import FrameType

from tonnx.late_modules import late


class Terminated(KeyboardInterrupt):
    """The process was asked to end."""


@contextlib.contextmanager
def sigterm_raises() -> Iterator[None]:
    """While it lasts, SIGTERM raises `Terminated` in the main thread. Windows ends a process without asking it."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    try:
        former = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # only the main thread may set handlers
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former if former is not None else signal.SIG_DFL)


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
