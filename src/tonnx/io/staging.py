"""Files appear whole or not at all: they are made in a hidden folder beside their destination, and moved at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tonnx.errors import InvalidArgument, TonnxError, needed, system_says, told_as

OPEN_FILES_STAY = os.name == "nt"
"""Windows does not move, replace or remove a file that is open or mapped."""

_Self = TypeVar("_Self", bound="Staging")


class Staging:
    """A hidden folder on the destination's file system; ``path`` in it has the final name.

    Leaving the ``with`` block without a commit removes all of it: what fails or is interrupted leaves no half file and
    keeps an older one. A destination that is a symbolic link stays one; the file that it points to is replaced.
    ``hidden_file``: the file is made beside that folder, under a hidden name, so that it finds what it points at.
    """

    def __init__(self, destination: str | os.PathLike[str], *, hidden_file: bool = False) -> None:
        asked = Path(destination)
        if not asked.parent.is_dir():
            raise TonnxError(f"cannot write {asked}", why=f"the folder {asked.parent} does not exist")
        self.destination = Path(os.path.realpath(asked))
        self.link_leaves = self.destination.parent != Path(os.path.realpath(asked.parent))
        """The destination is a link into another folder."""
        if self.destination.exists() and not self.destination.is_file():
            # Moving a file onto the null device would replace the device.
            raise TonnxError(f"cannot write {asked}", why="it exists and is not a regular file")
        with writing(self.destination):
            self._folder = Path(tempfile.mkdtemp(prefix=".tonnx-", dir=self.destination.parent))
        self.path = self._folder / self.destination.name
        if hidden_file:
            self.path = self._folder.with_name(f"{self._folder.name}.onnx")

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if OPEN_FILES_STAY and error is not None:
            traceback.clear_frames(error.__traceback__)  # a session in them has the file open
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # mostly gone with the folder
            self.path.unlink()

    def commit(self, *beside: Path) -> None:
        """Move the file to its destination, after others of this folder that belong beside it: all of them or none."""
        with writing(self.destination):
            try:
                for file in beside:
                    target = self.destination.with_name(file.name)
                    if target.exists():
                        shutil.copymode(target, file)
                        os.replace(target, _replaced(file))
                    os.replace(file, target)
                if self.destination.exists():
                    shutil.copymode(self.destination, self.path)  # as if the file had been opened and overwritten
                os.replace(self.path, self.destination)
            except BaseException:
                if self.path.exists():  # an interrupt may come right after the last move
                    self._take_back(beside)
                raise

    def _take_back(self, beside: Sequence[Path]) -> None:
        for file in beside:
            target = self.destination.with_name(file.name)
            if _replaced(file).exists():
                os.replace(_replaced(file), target)
            elif not file.exists():
                target.unlink()


def _replaced(file: Path) -> Path:
    """Where the older file waits until all have been moved."""
    return file.with_name(f"{file.name}.replaced")


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Where to write what becomes the file ``path`` at the end of the block."""
    with Staging(path) as staging:
        with writing(path):
            yield staging.path
        staging.commit()


def remote(address: str) -> tuple[Any, str]:
    """The file system of an address such as ``s3://bucket/zoo``, and the path in it."""
    hint = "pip install fsspec, and the package for that kind of place, such as s3fs"
    fsspec = needed("fsspec", f"{address} needs fsspec", hint)
    with told_as(InvalidArgument, f"{address} cannot be opened", ImportError, ValueError, OSError):
        system, path = fsspec.core.url_to_fs(address)
    return system, str(path)


def writing(name: str | os.PathLike[str]) -> contextlib.AbstractContextManager[None]:
    """An error of the operating system becomes one that names what was written."""
    return told_as(TonnxError, f"cannot write {name}", OSError, why=system_says)
