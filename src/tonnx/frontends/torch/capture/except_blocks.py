"""The user's own ``except``: an exception that it catches decides what is computed."""

from __future__ import annotations

import ast
import linecache
from functools import cache
from types import FrameType

from tonnx.frontends.torch.source import is_users, outside_the_model

_TRIES = tuple(getattr(ast, name) for name in ("Try", "TryStar") if hasattr(ast, name))  # the second from Python 3.11


@cache
def _handlers(file: str) -> list[tuple[int, int, int]]:
    """The blocks of a file whose exceptions are caught, and not only passed on: first and last line, the handler's."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)), file)
    except SyntaxError:
        return []
    handlers = []
    for node in ast.walk(tree):
        if isinstance(node, _TRIES):
            catches = [handler for handler in node.handlers if not isinstance(handler.body[-1], ast.Raise)]
            if catches:
                handlers.append((node.body[0].lineno, node.body[-1].end_lineno or 0, catches[0].lineno))
    return handlers


def handler_of(frame: FrameType | None) -> tuple[FrameType, int] | None:
    """The frame and line of the ``except`` that would catch an exception raised in a frame; None if there is none."""
    while frame is not None and not outside_the_model(frame):
        file = frame.f_code.co_filename
        if is_users(file):
            for first, last, handler in _handlers(file):
                if first <= frame.f_lineno <= last:
                    return frame, handler
        frame = frame.f_back
    return None
