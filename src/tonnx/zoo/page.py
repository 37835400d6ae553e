"""The page of a zoo: model × opset, and every job in a table that can be sorted, with its report behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tonnx.reporting.page import fill
from tonnx.zoo.manifest import Job
from tonnx.zoo.sources import versions
from tonnx.zoo.store import Store
from tonnx.zoo.work import Row

NAME = "index.html"
_HERE = Path(__file__).parent
_SHOWN = ("job", "model", "opset", "status", "size", "nodes", "seconds", "difference", "latency", "peak", "command")


def write_page(store: Store, rows: Iterable[Row], jobs: Sequence[Job]) -> None:
    """Write the page into the store, beside the files that it links to."""
    store.write(NAME, fill(_HERE / "page.html", [_HERE / "page.js"], page_data(rows, jobs)))


def page_data(rows: Iterable[Row], jobs: Sequence[Job]) -> dict[str, Any]:
    """What the page shows; jobs that were never done are there as well."""
    by_job = {row["job"]: row for row in rows}
    return {
        "versions": versions(),
        "rows": [
            _entry(by_job[job.name])
            if job.name in by_job
            else {"job": job.name, "model": job.title, "opset": job.opset, "status": "not run"}
            for job in jobs
        ],
    }


def _entry(row: Row) -> dict[str, Any]:
    entry = {key: row.get(key) for key in _SHOWN}
    entry |= {key: None for key, value in entry.items() if isinstance(value, float) and not math.isfinite(value)}
    for suffix, key in ((".html", "page"), (".log", "log")):
        name = f"{row['job']}{suffix}"
        entry[key] = name if name in row["files"] else None
    error = row.get("error") or {}
    entry["error"] = "\n".join(str(error[key]) for key in ("what", "where", "why", "hint") if error.get(key)) or None
    entry["kind"] = error.get("type")
    return entry
