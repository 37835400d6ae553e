"""TOML with places: what stands in a file (a manifest, a recipe, a target), and on which line a key stands."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tonnx.errors import InvalidArgument, did_you_mean

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]")
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")

Place = tuple[str | int, ...]
"""The way to a value: ``("model", 2, "matrix", "runtime")``."""


@dataclass(frozen=True)
class Document:
    """A TOML file that was read."""

    path: Path
    data: Mapping[str, Any]
    lines: Mapping[Place, int]

    def error(self, place: Place, what: str, hint: str | None = None) -> InvalidArgument:
        """An error about what stands at a place, or at the nearest one around it that has a line."""
        lines: list[int] = []
        while place and not lines:  # what is inside a place begins where the place does
            lines = [line for other, line in self.lines.items() if other[: len(place)] == place]
            place = place[:-1]
        line = f":{min(lines)}" if lines else ""
        return InvalidArgument(what, where=f"{self.path}{line}", hint=hint)

    def check_keys(self, place: Place, keys: Mapping[str, Any], allowed: list[str], of: str) -> None:
        """Raises for the first key that is none of ``allowed``, with those that are written nearly so."""
        for key in keys:
            if key not in allowed:
                hint = did_you_mean(key, allowed, f"there are {', '.join(sorted(allowed))}")
                raise self.error((*place, key), f"{of} has no key {key!r}", hint)


def read_toml(path: Path) -> Document:
    """Read a file. A mistake of TOML itself is said with its line, too."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"cannot read {path}", why=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"cannot read {path}", why=f"it is not a text in UTF-8: {error.reason}") from error
    try:
        return Document(path, toml.loads(text), _lines(text))
    except toml.TOMLDecodeError as error:
        told = re.fullmatch(r"(.*?) \(at (?:line (\d+), column \d+|end of document)\)", str(error))
        line = (told and told[2]) or len(text.splitlines())
        raise InvalidArgument(f"{path} is not TOML: {told[1] if told else error}", where=f"{path}:{line}") from error


def _lines(text: str) -> dict[Place, int]:
    """The line of every table and key: the parser of the standard library does not say."""
    lines: dict[Place, int] = {}
    counts: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = ()
            parts = _parts(header[2])
            for i, part in enumerate(parts):
                table = (*table, part)
                if header[1] == "[[" and i == len(parts) - 1:
                    counts[table] = counts.get(table, -1) + 1
                if table in counts:  # of an array of tables, the last one is meant
                    table = (*table, counts[table])
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            place = table
            for part in _parts(key[1]):
                place = (*place, part)
                lines.setdefault(place, number)
            inside = line[key.end() :].lstrip()
            if inside.startswith("{"):  # an inline table: its keys stand on the same line
                for inner in re.finditer(rf"[{{,]\s*({_PART})\s*=", inside):
                    lines.setdefault((*place, inner[1].strip("\"'")), number)
    return lines


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in re.findall(_PART, dotted)]
