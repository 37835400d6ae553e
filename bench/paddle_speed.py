"""Saved Paddle models beside the stock paddle2onnx command, as ratios from one run.

    python bench/paddle_speed.py --paddle2onnx .venv-paddle2onnx/bin/paddle2onnx [--models a,b] [--rounds 3] [--write F]

Both are whole processes, started in turn, and the best of the rounds counts: machines are shared, so only ratios taken
side by side mean anything. tonnx runs without its proof, since the other has none; the time with it is in a column of
its own. The two files of a model are then run by ONNX Runtime in turn, on the same input.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from document import write_section

MODELS = "resnet50,densenet121,inception_v3"
OPSET = 11


@dataclass
class Cost:
    """What a command took, at its best, and what it made."""

    seconds: float = float("inf")
    memory: float = float("inf")
    nodes: int = 0
    latency: float = 0.0

    def best(self, seconds: float, memory: float) -> None:
        self.seconds, self.memory = min(self.seconds, seconds), min(self.memory, memory)


@dataclass
class Row:
    """One model: tonnx, tonnx with its proof, and the other."""

    model: str
    costs: dict[str, Cost]
    latency: float = 0.0
    """tonnx's file to the other: the median of the turns, in each of which both ran."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--paddle2onnx", required=True, type=Path, help="the stock command, in an environment of its own"
    )
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path, help="put the table into this Markdown file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [convert(name, options.paddle2onnx, options.rounds, Path(folder)) for name in options.models.split(",")]
        for row in rows:  # later: a process that is started has at least the memory of the one that starts it
            look(row, Path(folder))
    table = render(rows, options.rounds)
    print(table)
    if options.write:
        write_section(options.write, "paddle2onnx", "Saved Paddle models", table)


def size_of(name: str) -> int:
    return 299 if name == "inception_v3" else 224


def files_of(name: str, folder: Path) -> dict[str, Path]:
    return {kind: folder / f"{name}.{kind}.onnx" for kind in ("tonnx", "proven", "other")}


def convert(name: str, paddle2onnx: Path, rounds: int, folder: Path) -> Row:
    """Both commands in turn."""
    save(name, size_of(name), folder / name)
    files = files_of(name, folder)
    export = [str(Path(sys.executable).with_name("tonnx")), "export", str(folder / name), "--opset", str(OPSET), "-q"]
    commands = {
        "tonnx": [*export, "-o", str(files["tonnx"]), "--no-verify"],
        "other": [
            str(paddle2onnx), "--model_dir", str(folder / name), "--model_filename", "inference.json",
            "--params_filename", "inference.pdiparams", "--save_file", str(files["other"]),
            "--opset_version", str(OPSET),
        ],
        "proven": [*export, "-o", str(files["proven"])],
    }  # fmt: skip
    costs = {kind: Cost() for kind in commands}
    for kind, command in commands.items():
        run(command)  # Python compiles its modules, and the other installs what it wants, the first time
        assert files[kind].stat().st_size, f"{kind} wrote nothing for {name}"
    for _ in range(rounds):
        for kind in ("tonnx", "other"):
            files[kind].unlink()
            costs[kind].best(*run(commands[kind]))
    costs["proven"].best(*run(commands["proven"]))
    row = Row(name, costs)
    print(f"{name}: {costs}", file=sys.stderr)
    return row


def save(name: str, size: int, folder: Path) -> None:
    """The saved model, made in a process of its own: Paddle's memory would count as ours."""
    code = (
        "import paddle; from paddle.static import InputSpec; paddle.seed(0)\n"
        f"net = paddle.vision.models.{name}(); net.eval()\n"
        f"spec = InputSpec([None, 3, {size}, {size}], 'float32', 'x')\n"
        f"paddle.jit.save(net, {str(folder / 'inference')!r}, input_spec=[spec])"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def run(command: list[str]) -> tuple[float, float]:
    """Wall seconds and peak memory in bytes of a whole process, with the memory of those that it starts."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{said.decode(errors='replace')[-2000:]}")
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def look(row: Row, folder: Path) -> None:
    """What the files are like: valid, of the opset asked for, how many nodes, how quick."""
    import onnx

    files = files_of(row.model, folder)
    for kind, cost in row.costs.items():
        model = onnx.load(files[kind])
        onnx.checker.check_model(model, full_check=True)
        version = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
        assert version == OPSET, f"{kind} wrote opset {version}"
        cost.nodes = len(model.graph.node)
    row.latency = latencies(row.costs, files, size_of(row.model))


def latencies(costs: dict[str, Cost], files: dict[str, Path], size: int, repeat: int = 40) -> float:
    """The best time for one picture, the two files in turn, one thread each; both must give the same numbers."""
    import numpy as np
    import onnxruntime

    feeds = {"x": np.random.default_rng(0).standard_normal((1, 3, size, size)).astype(np.float32)}
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    sessions = {
        kind: onnxruntime.InferenceSession(files[kind], settings, providers=["CPUExecutionProvider"])
        for kind in ("tonnx", "other")
    }
    results = {kind: session.run(None, feeds)[0] for kind, session in sessions.items()}
    largest = np.abs(results["other"]).max()
    assert np.abs(results["tonnx"] - results["other"]).max() < 1e-5 * max(1.0, largest), "the files differ"
    taken: dict[str, list[float]] = {kind: [] for kind in sessions}
    for turn in range(repeat):
        for kind in sorted(sessions, reverse=bool(turn % 2)):
            start = time.thread_time()  # of the one thread that computes: others on the machine do not count
            sessions[kind].run(None, feeds)
            taken[kind].append(time.thread_time() - start)
    for kind, seconds in taken.items():
        costs[kind].latency = min(seconds)
    return statistics.median(ours / theirs for ours, theirs in zip(taken["tonnx"], taken["other"], strict=True))


def render(rows: list[Row], rounds: int) -> str:
    lines = [
        f"Whole processes on {platform.machine()}, {os.cpu_count()} cores, opset {OPSET}, dynamic batch, best of "
        f"{rounds} rounds taken in turn: `tonnx export --no-verify` and `paddle2onnx` 2.1.0. *proven*: `tonnx export` "
        "with its comparison against Paddle's predictor at several batch sizes. "
        "Latency: ONNX Runtime, one picture, processor time of one thread, and the median ratio of 40 turns.",
        "",
        "| model | wall time | | ratio | peak memory | | ratio | nodes | | ratio | latency | | ratio | proven |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours, theirs = row.costs["tonnx"], row.costs["other"]
        cells = [
            f"{ours.seconds:.2f} s", f"{theirs.seconds:.2f} s", f"**{ours.seconds / theirs.seconds:.2f}**",
            f"{ours.memory / 1e6:.0f} MB", f"{theirs.memory / 1e6:.0f} MB", f"**{ours.memory / theirs.memory:.2f}**",
            str(ours.nodes), str(theirs.nodes), f"**{ours.nodes / theirs.nodes:.2f}**",
            f"{ours.latency * 1e3:.1f} ms", f"{theirs.latency * 1e3:.1f} ms",
            f"**{row.latency:.2f}**", f"{row.costs['proven'].seconds:.2f} s",
        ]  # fmt: skip
        lines.append(f"| {row.model} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
