"""SIGTERM ends a command as Ctrl-C does: what was begun is taken back, and no half file stays."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


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
