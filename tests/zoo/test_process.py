"""A process of its own: however it ends, there is an answer, and nothing of it is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tonnx.zoo.process import Limits, run_limited

PROBE = """
import os, signal, subprocess, sys, time
what = sys.argv[1]
print("[out]", flush=True)
print("[err]", file=sys.stderr, flush=True)
if what == "code": sys.exit(3)
if what == "raises": raise ValueError("told")
if what == "aborts": os.abort()
if what == "killed": os.kill(os.getpid(), signal.SIGKILL)
if what == "asks": input()
if what in ("sleeps", "deaf"):
    if what == "deaf": signal.signal(signal.SIGTERM, signal.SIG_IGN)
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open("helper", "w").write(str(helper.pid))
    open("own", "w").write(str(os.getpid()))
    time.sleep(60)
if what == "eats":
    kept = []
    while True: kept.append(bytearray(20_000_000)); time.sleep(0.02)
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "probe.py").write_text(PROBE, encoding="utf-8")
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{path}" if path else str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("what", "limits", "status", "reason"),
    [
        ("ends", Limits(), "ok", ""),
        ("code", Limits(), "failed", "exit code"),
        ("raises", Limits(), "failed", ""),
        ("asks", Limits(20), "failed", ""),
        ("aborts", Limits(), "crashed", "SIGABRT"),
        ("killed", Limits(), "killed", "SIGKILL"),
        ("sleeps", Limits(1), "timeout", "longer than the 1 s"),
        pytest.param("eats", Limits(30, 150_000_000), "memory", "150 MB", marks=linux),
    ],
)
def test_how_a_process_ends(what: str, limits: Limits, status: str, reason: str, folder: Path) -> None:
    ended = run_limited(["probe", what], limits, cwd=folder)
    assert ended.status == status and reason in ended.reason
    assert ended.output == "[out]\n" and ended.told.startswith("[err]\n")
    if what == "sleeps":
        wait_for(lambda: not alive(int((folder / "helper").read_text())))


@linux
def test_a_process_ends_with_its_parent(folder: Path) -> None:
    code = "from tonnx.zoo.process import *; run_limited(['probe', 'sleeps'])"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=folder)
    wait_for(lambda: (folder / "own").exists() and (folder / "own").read_text())
    parent.kill()
    parent.wait()
    own, helper = (int((folder / name).read_text()) for name in ("own", "helper"))
    wait_for(lambda: not alive(own) and not alive(helper))


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        return stat.rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
