"""What became worse since an earlier run: newly failing, slower, larger, less precise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tonnx.zoo.process import OK
from tonnx.zoo.work import Row, error_line


@dataclass(frozen=True)
class Allowed:
    """From which factor on a figure counts as worse; below the floor a difference is noise."""

    slower: float = 1.5
    larger: float = 1.05
    less_precise: float = 10.0


_FLOORS = {"latency": 0.2e-3, "seconds": 5.0, "size": 4096.0, "nodes": 1.0, "difference": 1e-6}
"""By how much at least a figure has to grow: seconds, bytes, nodes, and what the outputs differ by."""


@dataclass(frozen=True)
class Regression:
    """One thing about one job that became worse."""

    job: str
    kind: str
    """newly failing, slower, larger, less precise."""
    figure: str
    before: Any
    after: Any

    def __str__(self) -> str:
        if self.figure == "status":
            return f"{self.job}: {self.kind}: {self.after}"
        before, after = shown(self.figure, self.before), shown(self.figure, self.after)
        return f"{self.job}: {self.kind}: {self.figure} {before} → {after}"


def regressions(
    before: Mapping[str, Row], after: Mapping[str, Row], allowed: Allowed | None = None
) -> list[Regression]:
    """What is worse, job by job. A job that failed before, or that was not there, cannot regress."""
    allowed = allowed or Allowed()
    worse: list[Regression] = []
    for name, row in after.items():
        earlier = before.get(name)
        if earlier is not None and earlier["status"] == OK and earlier is not row:
            worse += _of_job(earlier, row, allowed)
    return worse


def _of_job(before: Row, after: Row, allowed: Allowed) -> Iterator[Regression]:
    name = after["job"]
    if after["status"] != OK:
        yield Regression(name, "newly failing", "status", OK, f"{after['status']}: {error_line(after)}".rstrip(": "))
        return
    kinds = (
        ("slower", "latency", allowed.slower),
        ("slower", "seconds", 2 * allowed.slower),  # of a whole export, on a machine that does other things, too
        ("larger", "size", allowed.larger),
        ("larger", "nodes", allowed.larger),
        ("less precise", "difference", allowed.less_precise),
    )
    for kind, figure, factor in kinds:
        old, new = before.get(figure), after.get(figure)
        if old is not None and new is not None and new > old * factor and new - old >= _FLOORS[figure]:
            yield Regression(name, kind, figure, old, new)
    if before.get("difference") is not None and after.get("difference") is None and not after.get("compared"):
        yield Regression(name, "less precise", "difference", before["difference"], None)


def shown(figure: str, value: Any) -> str:
    """A figure for people."""
    if value is None:
        return "not compared"
    if figure == "latency":
        return f"{value * 1e3:.3g} ms"
    if figure == "seconds":
        return f"{value:.1f} s"
    if figure == "size":
        return f"{value:,} bytes"
    return f"{value:.2g}" if isinstance(value, float) else str(value)
