"""Windows neither moves nor removes a file that is open or mapped: its rule, for tests on Linux."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tonnx.io import staging

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="open files are looked up in /proc")


def held(under: str) -> set[str]:
    """The files of a folder, or a file, that this process has open or mapped."""
    paths = [line.split(maxsplit=5)[5:] for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    mapped = {path[0].strip() for path in paths if path}
    opened = set()
    for number in os.listdir("/proc/self/fd"):
        if os.path.islink(link := f"/proc/self/fd/{number}"):  # the listing's own is closed by now
            opened.add(os.readlink(link))
    return {path for path in mapped | opened if path == under or path.startswith(under + os.sep)}


def move_like_windows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on `os.replace` and `shutil.rmtree` refuse what Windows refuses. Returns what they were asked to do."""
    moves: list[str] = []

    def guarded(function: Callable[..., Any], count: int) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            for path in map(os.path.realpath, arguments[:count]):
                assert not (files := held(path)), f"{function.__name__}: open or mapped: {files}"
                moves.append(os.path.basename(path))
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(staging, "OPEN_FILES_STAY", True)
    monkeypatch.setattr(os, "replace", guarded(os.replace, 2))
    monkeypatch.setattr(shutil, "rmtree", guarded(shutil.rmtree, 1))
    return moves
