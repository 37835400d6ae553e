"""Whose line an error of Paddle's is about: its messages quote the user's code, its tracebacks what it generated."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from pathlib import Path

from tonnx.errors import first_line, innermost, short_path

_PLACE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_HERE = re.compile(r"^(?P<code>.*)\n\s*~*\s*<--- HERE", re.MULTILINE)
_CAUSE = re.compile(r"^\s*(?P<cause>\w*(?:Error|Exception|Interrupt|Exit)\b.*|\(\w+\) .*)$", re.MULTILINE)
_NOISE = re.compile(r"\s*\(at /\S+:\d+\)|\s*\[operator < \S+ > error\]")


def blame(error: BaseException) -> tuple[str | None, str]:
    """The place in the user's code, as far as it can be known, and the cause in one line."""
    text = str(error)
    return _quoted(text) or innermost(error, _is_users), cause(error)


def cause(error: BaseException) -> str:
    """What Paddle says, without its stack: the last line that names an error, else the first that is not empty."""
    text = _NOISE.sub("", str(error))
    named = [match["cause"].strip() for match in _CAUSE.finditer(text)]
    line = named[-1] if named else first_line(text)
    kind = type(error).__name__
    return (line if line.startswith(kind) or "Error" in line.partition(":")[0] else f"{kind}: {line}")[:400]


def _quoted(text: str) -> str | None:
    """The innermost place that Paddle itself quotes from the user's files."""
    places = list(_PLACE.finditer(text))
    for i in range(len(places) - 1, -1, -1):
        place = places[i]
        if not _is_users(place["file"]):
            continue
        end = places[i + 1].start() if i + 1 < len(places) else len(text)
        here = _HERE.search(text, place.end(), end)
        code = f": {here['code'].strip()}" if here else ""
        return f"{short_path(place['file'])}:{place['line']}{code}"
    return None


def place_now() -> str:
    """The innermost line of the model that is running, also of code that Paddle has written anew for a capture."""
    from paddle.jit.dy2static.origin_info import global_origin_info_map as originals

    for frame in reversed(traceback.extract_stack()):
        original = originals.get((frame.filename, frame.lineno))
        if original is not None:
            place = original.location
            return f"{short_path(place.filepath)}:{place.lineno}: {original.source_code.strip()}"
        if not frame.filename.startswith(_FRAMEWORK) and os.path.isfile(frame.filename):
            return f"{short_path(frame.filename)}:{frame.lineno}: {frame.line}"
    return "the model"


_FRAMEWORK = (
    str(Path(__file__).resolve().parents[2]),
    *{os.path.join(sysconfig.get_path(kind), "paddle" + os.sep) for kind in ("purelib", "platlib")},
    os.path.expanduser(os.path.join("~", ".cache", "paddle")),  # what it has made of the user's code
    "<",
)
_NOT_USERS = (
    str(Path(__file__).resolve().parents[2]),
    *{sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")},
    "<",
)


def _is_users(file: str) -> bool:
    return not file.startswith(_NOT_USERS) and f"{os.sep}site-packages{os.sep}" not in file and os.path.isfile(file)
