"""What a command prints: progress and errors on stderr, its report, and nothing else, on stdout."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tonnx.errors import TonnxError

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.status import Status

    from tonnx.proof.trials.verification import Verification

T = TypeVar("T")


@dataclass
class Report:
    """What a command came to: for people, with more under ``-v``, and for machines."""

    text: str
    data: Callable[[], dict[str, Any]]
    details: Callable[[], str] | None = None
    failed: bool = False
    """The command did its work, and what it found is bad: exit code 1."""
    pieces: Iterator[str] | None = None
    """Text that is shown as it comes, in the place of ``text``."""


class Console:
    """Shows stages as they begin: a spinner and ticks on a terminal, plain lines elsewhere."""

    def __init__(self, *, quiet: bool = False, json: bool = False, verbose: bool = False) -> None:
        self.quiet, self.json, self.verbose = quiet, json, verbose
        self._rich: RichConsole | None = None
        self._status: Status | None = None
        self._stage: tuple[str, float] | None = None

    def __enter__(self) -> Console:
        if not self.quiet and not self.json and sys.stderr.isatty():
            from rich.console import Console as RichConsole

            self._rich = RichConsole(stderr=True, highlight=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(failed=kind is not None)

    def stage(self, name: str) -> None:
        """A stage begins, and the one before it is done."""
        if self.quiet or self.json:
            return
        self._end()
        self._stage = (name, time.perf_counter())
        if self._rich is None:
            print(f"tonnx: {name}", file=sys.stderr, flush=True)
        else:
            self._status = self._rich.status(f"{name} …")
            self._status.start()

    def line(self, text: str) -> None:
        """Something that has happened, on a line of its own."""
        if self.quiet or self.json:
            return
        self._end()
        if self._rich is None:
            print(f"tonnx: {text}", file=sys.stderr, flush=True)
        else:
            self._rich.print(text, markup=False)

    def progress(self, items: Iterable[T], total: int, what: str) -> Iterator[T]:
        """Go through ``items`` with a bar on a terminal; elsewhere without a word."""
        self._end()
        if self._rich is None:
            yield from items
            return
        from rich.progress import Progress

        with Progress(console=self._rich, transient=True) as bar:
            task = bar.add_task(what, total=total)
            for item in items:
                yield item
                bar.advance(task)

    def _end(self, failed: bool = False) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._stage is not None and self._rich is not None:
            name, start = self._stage
            mark = "[red]✗[/red]" if failed else "[green]✓[/green]"
            self._rich.print(f"{mark} {name} [dim]{time.perf_counter() - start:.2f} s[/dim]")
        self._stage = None

    def report(self, report: Report) -> None:
        try:
            self._print_report(report)
            sys.stdout.flush()
        except BrokenPipeError:  # `| head` has read enough; Python would try the rest once more when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _print_report(self, report: Report) -> None:
        if self.json:
            _print_json({"ok": not report.failed, **report.data()})
        elif report.pieces is not None:
            for piece in report.pieces:
                print(piece, end="", flush=True)
            print()
        elif not self.quiet:
            if report.text:
                print(report.text)
            if self.verbose and report.details is not None:
                print(report.details())

    def error(self, error: TonnxError, *, debug: bool = False, see: bool = True) -> None:
        """An error as what, where, why, do, and where to read on (``see``); the traceback only if it was asked for."""
        trace = "".join(traceback.format_exception(error)) if debug else None
        if self.json:
            from tonnx.api.result import error_data

            _print_json({"ok": False, "error": {**error_data(error), **({"traceback": trace} if trace else {})}})
            return
        if trace:
            print(trace, file=sys.stderr)
        page = f"\n  see:   docs/{error.page}" if see else ""
        print(f"error: {error}{page}", file=sys.stderr)

    def usage(self, message: str, usage: str) -> None:
        """A command line that cannot be understood."""
        if self.json:
            _print_json({"ok": False, "error": {"type": "Usage", "what": message, "hint": usage}})
        else:
            print(f"{usage}\nerror: {message}", file=sys.stderr)


def trial_lines(verification: Verification) -> list[str]:
    lines = ["  trials:"]
    for trial in verification.trials:
        mark = "-" if trial.skipped else "✓" if trial.ok else "✗"
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in trial.shapes.items())
        lines.append(f"    [{mark}] {trial.label}: {shapes}")
    return lines


def _print_json(data: dict[str, Any]) -> None:
    print(json.dumps(_finite(data), ensure_ascii=False, allow_nan=False))


def _finite(data: Any) -> Any:
    """The same for JSON, which has no number for infinity or NaN: a signal without any noise, a difference from NaN."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """While it lasts, what anybody prints goes to stderr: the user's model, libraries, and processes they start.

    stdout then holds the report alone, which a script can read.
    """
    with contextlib.redirect_stdout(sys.stderr):
        sys.__stdout__.flush() if sys.__stdout__ else None
        try:
            saved = os.dup(1)
        except OSError:  # there is no stdout
            yield
            return
        try:
            os.dup2(2, 1)
            yield
        finally:
            os.dup2(saved, 1)
            os.close(saved)
