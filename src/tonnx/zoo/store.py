"""Where a zoo is kept: a folder, or any place that fsspec has a name for (``s3://bucket/zoo``)."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tonnx.errors import InvalidArgument, cause_of, told_as
from tonnx.io.staging import remote, replacing, writing

_HIDDEN = ".tonnx-zoo-"
"""How the folders begin that jobs work in."""


class Store:
    """Files by name. It can be pickled, and opens its place where it is used."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.remote = "://" in place
        self._system: Any = None

    def __reduce__(self) -> tuple[type[Store], tuple[str]]:
        return Store, (self.place,)

    def read(self, name: str) -> str | None:
        """A text; None if there is no such file."""
        try:
            if not self.remote:
                return Path(self.place, name).read_text(encoding="utf-8")
            return str(self._files().cat_file(self._path(name)).decode("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"cannot read {name} of {self.place}", why=cause_of(error)) from error

    def write(self, name: str, text: str) -> None:
        """Write a text, whole or not at all."""
        if self.remote:
            with writing(f"{self.place}/{name}"):
                self._files().pipe_file(self._path(name), text.encode("utf-8"))
            return
        with writing(self.place):
            Path(self.place).mkdir(parents=True, exist_ok=True)
        with replacing(Path(self.place, name)) as path:
            path.write_text(text, encoding="utf-8")

    def put(self, folder: Path, names: list[str], prefix: str) -> None:
        """Take files and folders of a local folder, in the place of whatever a job left before under ``prefix``."""
        with writing(self.place):
            for name in self.left_by(prefix):
                self._remove(name)
            for name in names:
                self._take(folder / name, name)

    def left_by(self, job: str) -> list[str]:
        """What is there of a job: names that are its own, or begin with its own and a dot."""
        if self.remote:
            found = self._files().glob(f"{self._path(job)}*")
            there = [path.rpartition("/")[2] for path in found]
        else:
            there = [path.name for path in Path(self.place).glob(f"{_literal(job)}*")]
        return [name for name in there if name == job or name.startswith(f"{job}.")]

    def has(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        return bool(self._files().exists(self._path(name))) if self.remote else Path(self.place, name).exists()

    def workplace(self) -> tempfile.TemporaryDirectory[str]:
        """A hidden folder to work in: in the store's own file system, where it is a local one."""
        if self.remote:
            return tempfile.TemporaryDirectory(prefix="tonnx-zoo-")
        with writing(self.place):
            Path(self.place).mkdir(parents=True, exist_ok=True)
            return tempfile.TemporaryDirectory(prefix=_HIDDEN, dir=self.place, ignore_cleanup_errors=True)

    def sweep(self) -> None:
        """Remove what workers that were killed have left: a folder is the place of one run at a time."""
        if not self.remote:
            for path in Path(self.place).glob(f"{_HIDDEN}*"):
                shutil.rmtree(path, ignore_errors=True)

    def _remove(self, name: str) -> None:
        if self.remote:
            self._files().rm(self._path(name), recursive=True)
        elif Path(self.place, name).is_dir():
            shutil.rmtree(Path(self.place, name))
        else:
            Path(self.place, name).unlink(missing_ok=True)

    def _take(self, file: Path, name: str) -> None:
        if self.remote:
            self._files().put(os.fspath(file), self._path(name), recursive=file.is_dir())
        else:
            os.replace(file, Path(self.place, name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _files(self) -> Any:
        if self._system is None:
            self._system, root = remote(self.place)
            self._root = root.rstrip("/")
            with told_as(InvalidArgument, f"{self.place} cannot be opened", ValueError, OSError):
                self._system.makedirs(self._root, exist_ok=True)
        return self._system


def _literal(name: str) -> str:
    import glob

    return glob.escape(name)
