"""Where the bytes of a tensor lie on the disk."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tonnx.errors import TonnxError, system_says, told_as

LOAD_AGAIN = 'load the weights again, or let them be copied: weights="copy" (--weights copy)'


@dataclass(frozen=True)
class WeightFile:
    """A file that holds weights, as it was when it was first looked at."""

    path: str
    inode: int
    size: int
    modified: int
    """Nanoseconds, as the file system counts them."""

    @classmethod
    def look_at(cls, path: str | os.PathLike[str]) -> WeightFile:
        with told_as(TonnxError, f"the weights file {os.fspath(path)} cannot be read", OSError, why=system_says):
            status = os.stat(path)
        return cls(os.path.realpath(path), status.st_ino, status.st_size, status.st_mtime_ns)

    def check_unchanged(self) -> None:
        """Raises if the file is no longer what it was."""
        now = WeightFile.look_at(self.path)
        if now.size < self.size:
            why: str | None = f"it was cut from {self.size:,} to {now.size:,} bytes"
        elif now.inode != self.inode:
            why = "another file has taken its place"
        else:
            why = "it was written to" if now != self else None
        if why is not None:
            raise TonnxError(f"the weights file {self.path} changed since it was loaded", why=why, hint=LOAD_AGAIN)


@dataclass(frozen=True)
class Place:
    """A part of a file."""

    file: WeightFile
    offset: int
    nbytes: int

    def check_inside(self) -> None:
        """Raises if the file ends before the part does."""
        if self.offset + self.nbytes > self.file.size:
            raise TonnxError(
                f"the weights file {self.file.path} is cut",
                why=f"a tensor ends at byte {self.offset + self.nbytes:,}, the file at {self.file.size:,}",
                hint="copy or download it again",
            )
