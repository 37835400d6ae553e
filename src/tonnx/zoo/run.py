"""A run of a zoo: which jobs are to be done, done, taken down, shown on a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tonnx.errors import InvalidArgument, did_you_mean
from tonnx.zoo.engines import LOST, Engine
from tonnx.zoo.manifest import Job
from tonnx.zoo.page import write_page
from tonnx.zoo.process import MEMORY, OK, TIMEOUT
from tonnx.zoo.results import Journal, read_rows
from tonnx.zoo.sources import Sources, versions
from tonnx.zoo.store import Store
from tonnx.zoo.work import Row

_GUESS = 15.0
"""Seconds of a job of which nothing is known yet."""


@dataclass(frozen=True)
class Selection:
    """Which jobs: those whose names match, those that failed, all of them again."""

    only: Sequence[str] = ()
    failed: bool = False
    force: bool = False


@dataclass
class Outcome:
    """What a run came to."""

    rows: dict[str, Row]
    """The last row of each job of the manifest that was ever done, in its order."""
    earlier: dict[str, Row]
    """The rows that were there before."""
    asked: dict[str, Row] = field(default_factory=dict)
    """Those of the rows that the run is about: all, or the ones that were named."""
    done: list[str] = field(default_factory=list)
    kept: int = 0
    """Jobs that were done before, and of which nothing has changed."""

    @property
    def failing(self) -> list[Row]:
        """Those that were asked for and did not give a file."""
        return [row for row in self.asked.values() if row["status"] != OK]


@dataclass(frozen=True)
class Step:
    """A job that ended, and how far the run is."""

    row: Row
    done: int
    total: int
    left: float
    """Seconds that the others will take, by what they took last time, or by what others took."""


def run_zoo(
    jobs: Sequence[Job],
    store: Store,
    engine: Engine,
    selection: Selection | None = None,
    progress: Callable[[Step], None] | None = None,
) -> Outcome:
    """Do what is to be done. Rows are there as soon as jobs end; the page comes last, also when a run is stopped."""
    selection = selection or Selection()
    earlier = read_rows(store)
    chosen = chosen_jobs(jobs, selection, earlier)
    sources = Sources()
    marks = {job.name: sources.fingerprint(job) for job in chosen}
    todo = [job for job in chosen if _is_due(job, marks[job.name], earlier, selection, store)]
    outcome = Outcome({}, earlier, kept=len(chosen) - len(todo))
    store.write("manifest.json", _listing(jobs))
    journal = Journal(store, earlier)
    estimate = _Estimate(todo, earlier, engine.slots)
    try:
        for row in engine.run([(job, marks[job.name]) for job in todo], store):
            row["fingerprint"] = marks[row["job"]]
            row["versions"] = versions()
            journal.add(row)
            outcome.done.append(row["job"])
            left = estimate.after(row)
            if progress is not None:
                progress(Step(row, len(outcome.done), len(todo), left))
    finally:
        store.sweep()
        outcome.rows = {job.name: journal.rows[job.name] for job in jobs if job.name in journal.rows}
        named = {job.name for job in _named(jobs, selection)}
        outcome.asked = {name: row for name, row in outcome.rows.items() if name in named}
        journal.write(outcome.rows.values())
        write_page(store, outcome.rows.values(), jobs)
    return outcome


def _listing(jobs: Sequence[Job]) -> str:
    """The jobs of the manifest as it was read, for scripts that want to know which are missing."""
    return json.dumps([{"job": job.name, "model": job.title, "opset": job.opset} for job in jobs], indent=1) + "\n"


def chosen_jobs(jobs: Sequence[Job], selection: Selection, earlier: Mapping[str, Row]) -> list[Job]:
    """The jobs that a selection names, by what became of them earlier; whether anything changed is not asked."""
    for pattern in selection.only:
        if not any(_matches(job, pattern) for job in jobs):
            names = [*dict.fromkeys(job.title for job in jobs), *(job.name for job in jobs)]
            hint = did_you_mean(pattern, names, f"such as {names[0]}, or 'resnet*'")
            raise InvalidArgument(f"no job is called {pattern!r}", hint=hint)
    chosen = _named(jobs, selection)
    if selection.failed:
        chosen = [job for job in chosen if job.name in earlier and earlier[job.name]["status"] != OK]
    return chosen


def _named(jobs: Sequence[Job], selection: Selection) -> list[Job]:
    if not selection.only:
        return list(jobs)
    return [job for job in jobs if any(_matches(job, pattern) for pattern in selection.only)]


def _matches(job: Job, pattern: str) -> bool:
    return fnmatchcase(job.name, pattern) or fnmatchcase(job.title, pattern) or job.title.split(" ")[0] == pattern


def _is_due(job: Job, mark: str, earlier: Mapping[str, Row], selection: Selection, store: Store) -> bool:
    row = earlier.get(job.name)
    if row is None or selection.force or selection.failed or row.get("fingerprint") != mark:
        return True
    if row["status"] in (TIMEOUT, MEMORY):  # it may have got more of what it lacked
        return row.get("limits") != [job.limits.seconds, job.limits.memory]
    if row["status"] == LOST:
        return True
    return row["status"] == OK and not store.has(job.output)


class _Estimate:
    """How long the rest of a run takes."""

    def __init__(self, todo: Sequence[Job], earlier: Mapping[str, Row], slots: int) -> None:
        self._known = {job.name: (earlier.get(job.name) or {}).get("seconds") for job in todo}
        self._slots = slots
        self._seen: list[float] = [seconds for seconds in self._known.values() if seconds]

    def after(self, row: Row) -> float:
        """Seconds that are left once this row is there."""
        self._known.pop(row["job"], None)
        if row["seconds"] is not None:
            self._seen.append(row["seconds"])
        usual = sum(self._seen) / len(self._seen) if self._seen else _GUESS
        return sum(seconds or usual for seconds in self._known.values()) / min(self._slots, max(1, len(self._known)))
