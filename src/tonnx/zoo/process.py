"""One command in a process of its own, with a limit of time and memory: however it ends, the caller gets an answer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

OK, FAILED, TIMEOUT, MEMORY, KILLED, CRASHED = "ok", "failed", "timeout", "memory", "killed", "crashed"
"""How a process ends: with code 0, with another one, by either limit, by somebody's SIGKILL, by a signal of its own."""

_LOOK_EVERY = 0.05
_GRACE = 5.0
"""Seconds that a process gets to clean up after it was asked to end."""
_TAIL = 20_000
"""Characters of what a process says on stderr that are kept."""
_CHILD = "import sys; del sys.path[0]; from tonnx.zoo.child import main; main()"
"""Without the current folder: a file there that is called as a module of others is none of theirs."""
_KILL = int(getattr(signal, "SIGKILL", signal.SIGTERM))


@dataclass(frozen=True)
class Limits:
    """What a process may use; None: as much as there is."""

    seconds: float | None = None
    memory: int | None = None
    """Bytes that are resident at once, in the process and in those that it starts. Linux only."""


@dataclass(frozen=True)
class Ended:
    """What became of a process."""

    status: str
    seconds: float
    peak: int | None
    """The most bytes that were resident; None where the system does not say."""
    output: str
    """Its stdout."""
    told: str
    """The end of its stderr."""
    reason: str = ""
    """Why it did not end by itself, in words."""


def run_limited(
    command: Sequence[str],
    limits: Limits | None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> Ended:
    """Run a Python module with arguments, ``["tonnx", "export", …]``, and wait for it.

    ``stop`` ends it from another thread. The process and all that it started are gone when this returns, or when the
    calling process dies (`child`).
    """
    limits = limits or Limits()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=told,
            cwd=cwd,
            env={**os.environ, **_python_path(), **(environment or {})},
            start_new_session=True,  # so that its own children can be ended with it
        )
        start = time.monotonic()
        watch = _Watch(process, limits, start, stop or threading.Event())
        try:
            watch.wait()
        finally:
            _end(process)
        status, reason = watch.verdict()
        seconds = time.monotonic() - start
        return Ended(status, seconds, watch.peak or None, _text(output), _text(told)[-_TAIL:], reason)


def _python_path() -> dict[str, str]:
    """PYTHONPATH for a process that works in another folder."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, folders))} if any(folders) else {}


class _Watch:
    """Looks at a process until it ends or has used up what it may."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits, start: float, stop: threading.Event) -> None:
        self._process, self._limits, self._start, self._stop = process, limits, start, stop
        self.peak = 0
        self._stopped: tuple[str, str] | None = None

    def wait(self) -> None:
        """Until it ends, or is to be ended."""
        limits = self._limits
        while self._stopped is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_LOOK_EVERY)
                return
            resident = _resident(self._process.pid)
            self.peak = max(self.peak, resident)
            if self._stop.is_set():
                self._stopped = KILLED, "it was stopped"
            elif limits.seconds is not None and time.monotonic() - self._start > limits.seconds:
                self._stopped = TIMEOUT, f"it took longer than the {limits.seconds:g} s that it may take"
            elif limits.memory is not None and resident > limits.memory:
                self._stopped = MEMORY, f"it used more than the {_bytes(limits.memory)} that it may use"

    def verdict(self) -> tuple[str, str]:
        """How it ended, and why if not by itself."""
        code = self._process.returncode
        if self._stopped is not None:
            return self._stopped
        if code >= 0:
            return (FAILED, f"it ended with exit code {code}") if code else (OK, "")
        if -code == _KILL:
            return KILLED, "it was killed (SIGKILL): by the kernel if the machine ran out of memory"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = str(-code)
        return CRASHED, f"it ended by the signal {name}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the process to end, insist after a while, and take what it started with it."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    if process.poll() is None:
        process.kill()
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, _KILL)
    process.wait()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _resident(pid: int) -> int:
    """Bytes that a process and its descendants have in memory; 0 where the system does not say."""
    total, rest = 0, [pid]
    while rest:
        folder = Path("/proc") / str(one := rest.pop())
        with contextlib.suppress(OSError, ValueError, StopIteration):  # it has just ended
            lines = (folder / "status").read_text(encoding="utf-8", errors="replace").splitlines()
            total += next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
            children = (folder / "task" / str(one) / "children").read_text(encoding="ascii")
            rest += map(int, children.split())
    return total


def _bytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", errors="replace")
