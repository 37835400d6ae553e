"""Python's operators on values: each thread's go to the builder that it has entered.

onnx_ir has one handler for the whole process. While any thread is inside a builder, it is the one here.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar, Token
from typing import Any

import onnx_ir as ir

_builder: ContextVar[Any] = ContextVar("_builder", default=None)


class _Handler:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._outer: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(_builder.get() or self._outer, name)

    def install(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._outer = ir.set_value_magic_handler(self)  # type: ignore[arg-type]
            self._inside += 1

    def remove(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                ir.set_value_magic_handler(self._outer)


_handler = _Handler()


def enter(builder: Any) -> Token[Any]:
    """``x + y`` in this thread is made by this builder, until `leave`."""
    _handler.install()
    return _builder.set(builder)


def leave(token: Token[Any]) -> None:
    """What was before `enter`."""
    _builder.reset(token)
    _handler.remove()
