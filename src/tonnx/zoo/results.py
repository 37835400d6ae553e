"""The rows of a zoo: a line of JSON a job, written as they come, so that a run that was stopped goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tonnx.errors import InvalidArgument
from tonnx.zoo.store import Store
from tonnx.zoo.work import Row

NAME = "results.jsonl"
_EVERY = 5.0
"""Seconds between two writes to a place that cannot append."""


def read_rows(store: Store) -> dict[str, Row]:
    """The last row of every job; none where no run has been."""
    return parse_rows(store.read(NAME) or "")


def read_earlier(place: str) -> dict[str, Row]:
    """The rows of another run, given by its folder or its file."""
    folder, _, name = place.rstrip("/").rpartition("/")
    store, file = (Store(folder or "."), name) if place.endswith(".jsonl") else (Store(place), NAME)
    text = store.read(file)
    if text is None:
        raise InvalidArgument(f"there is no run in {place}", why=f"it has no {file}")
    return parse_rows(text)


def parse_rows(text: str) -> dict[str, Row]:
    """Rows by job. A line that was cut off when a run was stopped does not count."""
    rows: dict[str, Row] = {}
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("job"), str) and "status" in row:
            rows[row["job"]] = row
    return rows


class Journal:
    """Takes rows down as they come."""

    def __init__(self, store: Store, rows: Mapping[str, Row]) -> None:
        self._store, self.rows = store, dict(rows)
        self._written = time.monotonic()
        self._begun = False

    def add(self, row: Row) -> None:
        """Enter a row; on a local disk it is there when this returns."""
        self.rows[row["job"]] = row
        if self._store.remote:
            if time.monotonic() - self._written > _EVERY:
                self.write(self.rows.values())
            return
        with Path(self._store.place, NAME).open("a", encoding="utf-8") as file:
            # The end of a line that a stopped run left half would spoil this one.
            file.write(("" if self._begun else "\n") + _line(row))
        self._begun = True

    def write(self, rows: Iterable[Row]) -> None:
        self._store.write(NAME, "".join(map(_line, rows)))
        self._written = time.monotonic()


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
