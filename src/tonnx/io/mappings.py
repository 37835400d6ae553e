"""Which file a piece of memory is a view of: weights that were loaded by mapping their file need not be searched for.

Linux says so in /proc; elsewhere nothing is known, and weights are found by their contents.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from pathlib import Path

from tonnx.errors import TonnxError
from tonnx.ir.place import LOAD_AGAIN, Place, WeightFile

_SMAPS = Path("/proc/self/smaps")
_HEAD = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ \d+\s+(/.*)")
_DELETED = " (deleted)"


@dataclass
class Mapping:
    """A part of a file in memory."""

    start: int
    end: int
    offset: int
    path: str
    written: bool = False
    """Somebody wrote to this memory: it holds something else than the file."""


class Mappings:
    """The files that are mapped now."""

    def __init__(self) -> None:
        self._mappings: list[Mapping] = []
        if not _SMAPS.exists():
            return
        head: re.Match[str] | None = None
        for line in _SMAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            if "-" in line.partition(" ")[0]:  # the first line about a piece of memory
                head = _HEAD.fullmatch(line)
                if head is not None:
                    start, end, offset = (int(head[i], 16) for i in (1, 2, 3))
                    self._mappings.append(Mapping(start, end, offset, head[4]))
            elif head is not None and line.startswith("Anonymous:"):
                self._mappings[-1].written = line.split()[1] != "0"
        self._starts = [mapping.start for mapping in self._mappings]

    def place_of(self, address: int, nbytes: int) -> tuple[Place, bool] | None:
        """Where memory lies on the disk, and whether it surely holds what the file does; None for other memory.

        Raises if the file is not there any more, or is shorter: to touch such memory would end the process.
        """
        index = bisect.bisect_right(self._starts, address) - 1 if self._mappings else -1
        if index < 0 or address + nbytes > self._mappings[index].end:
            return None
        mapping = self._mappings[index]
        if mapping.path.endswith(_DELETED):
            raise TonnxError(
                f"the weights file {mapping.path.removesuffix(_DELETED)} changed since it was loaded",
                why="it was deleted, or another file has taken its place",
                hint=LOAD_AGAIN,
            )
        file = WeightFile.look_at(mapping.path)
        place = Place(file, mapping.offset + address - mapping.start, nbytes)
        place.check_inside()
        return place, not mapping.written
