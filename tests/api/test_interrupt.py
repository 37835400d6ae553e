"""Ctrl-C and SIGTERM, in whatever stage: no half file, no hidden folder, and an older file as it was."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tonnx
from tests.like_windows import move_like_windows, on_linux
from tonnx.cli import main
from tonnx.io import write
from tonnx.stages import Stages

FIXTURES = Path(__file__).parents[1] / "frontends" / "paddle" / "fixtures"


class Net(torch.nn.Module):
    """Its weights are used where they lie: ONNX Runtime maps their file."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.nn.Parameter(torch.randn(20_000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.shift).relu()


EXAMPLE = (torch.randn(2, 20_000),)


def export_torch(path: Path) -> object:
    return tonnx.export(Net(), EXAMPLE, path, dynamic_axes={"x": {0: "n"}}, external_data=True)


class Looped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x[0]
        for row in range(x.shape[0]):
            total = total * 0.5 + x[row]
        return total


def export_looped(path: Path) -> object:
    return tonnx.export(Looped(), (torch.randn(3, 4),), path, dynamic_axes={"x": {0: "n"}})


def export_scripted(path: Path) -> object:
    return tonnx.export(torch.jit.script(Net()), EXAMPLE, path, external_data=True)


def export_paddle(path: Path) -> object:
    return tonnx.export(str(FIXTURES / "lenet.json"), f=path, external_data=True)


def retarget(path: Path) -> object:
    """In place: the file, which has its weights beside it, is replaced by what becomes of it."""
    return tonnx.retarget(path, 11, path, external_data=True)


def run_command(path: Path) -> object:
    code = main(["export", f"{path.with_name('net.py')}:net", "-o", str(path), "--input", "x:float32[n,40]", "-q"])
    if code == 130:
        raise KeyboardInterrupt
    assert code == 0
    return code


BEGINNING, DONE = False, True
WORK = [
    *((export_torch, stage, BEGINNING) for stage in ("capture", "lower", "optimise", "legalise", "write", "verify")),
    *((export_torch, stage, DONE) for stage in ("legalise", "write", "verify")),
    *((export_scripted, stage, BEGINNING) for stage in ("lower", "verify")),
    *((export_paddle, stage, DONE) for stage in ("read", "lower", "verify")),
    *((retarget, stage, DONE) for stage in ("read", "legalise", "write", "verify")),
    *((run_command, stage, BEGINNING) for stage in ("capture", "verify")),
]


@contextlib.contextmanager
def all_as_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    scratch = folder / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    yield
    # What Python and PyTorch keep for themselves, the latter from its first use in a process on.
    ignored = {path for path in folder.rglob("*") if "__pycache__" in path.parts or "torchinductor_" in str(path)}
    after = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*") if path not in ignored}
    assert after == before


def interrupt(monkeypatch: pytest.MonkeyPatch, at: str, done: bool) -> None:
    """As a stage begins, or when its work is done."""
    announced = Stages.announce
    timed = Stages.__call__

    def announce(self: Stages, stage: str) -> None:
        announced(self, stage)
        if stage == at and not done:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def call(self: Stages, stage: str) -> Iterator[None]:
        with timed(self, stage):
            yield
            if stage == at and done:
                raise KeyboardInterrupt

    monkeypatch.setattr(Stages, "announce", announce)
    monkeypatch.setattr(Stages, "__call__", call)


@pytest.mark.parametrize(("work", "stage", "done"), WORK)
def test_in_a_stage(
    work: Callable[[Path], object], stage: str, done: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.onnx"
    tonnx.export(Net(), EXAMPLE, path, external_data=True, verify=False)
    (tmp_path / "net.py").write_text("import torch\nnet = torch.nn.Linear(40, 40)\n", encoding="utf-8")
    with all_as_before(tmp_path, monkeypatch):
        interrupt(monkeypatch, stage, done)
        with pytest.raises(KeyboardInterrupt):
            work(path)


def test_while_bytes_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emit = write._Sink.write

    def write_a_little(self: write._Sink, data: bytes) -> None:
        emit(self, data)
        if self.count > 1000:
            raise KeyboardInterrupt

    path = tmp_path / "net.onnx"
    path.write_bytes(b"older")
    with all_as_before(tmp_path, monkeypatch):
        monkeypatch.setattr(write._Sink, "write", write_a_little)
        with pytest.raises(KeyboardInterrupt):
            export_torch(path)


SIGNALLING = """
import os, torch
runs = []

class Net(torch.nn.Module):
    def forward(self, x):
        runs.append(x)
        if len(runs) == {turn}:
            os.kill(os.getpid(), {number})
        return x + 1
"""


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C as in a terminal: it is ignored where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.skipif(os.name == "nt", reason="Windows ends a process without asking it")
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
@pytest.mark.parametrize("turn", [1, 2, 3])
@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_signals(
    number: signal.Signals, code: int, word: str, turn: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The model is run in the capture and in the proof; a command ends with one line and the code of the signal."""
    source = SIGNALLING.format(turn=turn, number=int(number))
    (tmp_path / "net.py").write_text(source, encoding="utf-8")
    path = tmp_path / "net.onnx"
    path.write_bytes(b"older")
    handler = signal.getsignal(signal.SIGTERM)
    with all_as_before(tmp_path, monkeypatch):
        command = ["export", f"{tmp_path / 'net.py'}:Net", "-o", str(path), "--input", "x:float32[n,4]", "--quiet"]
        assert main(command) == code
    assert signal.getsignal(signal.SIGTERM) is handler
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"error: {word}\n")


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread")
@pytest.mark.parametrize("work", [export_torch, export_looped])
@pytest.mark.parametrize("times", [1, 2])
def test_in_the_middle_of_an_operator(
    work: Callable[[Path], object], times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch ends the process if an exception leaves it there. Whoever asks twice wants it now."""
    calls: list[str] = []
    create_node = torch.fx.Graph.create_node

    def interrupt_and_go_on(graph: torch.fx.Graph, kind: str, *args: Any, **kwargs: Any) -> Any:
        if kind == "call_function" and not calls:
            calls.append("begun")
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            calls.append("went on")
        return create_node(graph, kind, *args, **kwargs)

    path = tmp_path / "net.onnx"
    path.write_bytes(b"older")
    with all_as_before(tmp_path, monkeypatch), monkeypatch.context() as patches:
        patches.setattr(torch.fx.Graph, "create_node", interrupt_and_go_on)
        with pytest.raises(KeyboardInterrupt):
            work(path)
    assert calls == ["begun", "went on"][: 3 - times]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    work(path)


@on_linux
@pytest.mark.parametrize("work", [export_torch, export_scripted, retarget])
def test_files_are_closed_before_they_are_moved(
    work: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.onnx"
    tonnx.export(Net(), EXAMPLE, path, external_data=True, verify=False)
    moves = move_like_windows(monkeypatch)
    work(path)
    assert {"net.onnx", "net.onnx.data"} <= set(moves)


@on_linux
def test_files_are_closed_before_they_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that was interrupted as it ran is still in the frames of the traceback."""

    def run(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tonnx.proof.session.Session.run", run)
    moves = move_like_windows(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        export_torch(tmp_path / "net.onnx")
    assert any(name.startswith(".tonnx-") for name in moves) and not list(tmp_path.iterdir())
