"""How fast ONNX Runtime runs tonnx's file, beside those of torch.onnx.export, dynamo or not, and of paddle2onnx.

    python bench/latency.py [--kinds "BERT,T5"] [--turns 60] [--paddle2onnx COMMAND] [--write docs/bench.md]

All at one opset, with static sizes, one thread. The files of a model run in turns in one process, and a ratio is the
median of the turns: machines are shared. A peer that fails, or whose file does not load, is a result, too. With
``--fusions``, also which fused operators ONNX Runtime makes of each file.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import logging
import math
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import kinds
import numpy as np
import onnx
import onnxruntime
import torch
from document import write_section

import tonnx

OPSET, PADDLE_OPSET = 18, 11
TONNX, DYNAMO, CLASSIC, STOCK = "tonnx", "dynamo=True", "dynamo=False", "paddle2onnx"


@dataclass
class Row:
    """One model: milliseconds and nodes by exporter, and tonnx's share of each other's time."""

    kind: str
    milliseconds: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    fused: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Beside the best of the others."""
        return max(self.ratios.values(), default=math.nan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join((*kinds.KINDS, *kinds.PADDLE)))
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--paddle2onnx", type=Path, help="the stock command, in an environment of its own")
    parser.add_argument("--fusions", action="store_true")
    parser.add_argument("--write", type=Path, help="put the table into this Markdown file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    rows = []
    for kind in options.kinds.split(","):
        with tempfile.TemporaryDirectory() as folder:
            files, feeds = exported(kind, Path(folder), options.paddle2onnx)
            rows.append(measured(kind, files, feeds, options.turns))
        times = ", ".join(f"{name} {value:.2f} ms" for name, value in rows[-1].milliseconds.items())
        print(f"{kind}: {times}; ratio {rows[-1].ratio:.3f}; nodes {rows[-1].nodes}", file=sys.stderr, flush=True)
        if options.fusions:
            for name, operators in rows[-1].fused.items():
                print(f"    {name}: {operators}", file=sys.stderr)
        if options.write:  # after each: exports take minutes
            write_section(options.write, "latency", "Latency of the files", render(rows, options.turns))
    print(render(rows, options.turns))


def exported(
    kind: str, folder: Path, paddle2onnx: Path | None
) -> tuple[dict[str, Path], dict[str, np.ndarray]]:
    """The files of all exporters that can, and inputs for them."""
    files = {name: folder / f"{i}.onnx" for i, name in enumerate((TONNX, DYNAMO, CLASSIC, STOCK))}
    if kind in kinds.PADDLE:
        return _exported_paddle(kind, folder, files, paddle2onnx)
    built = kinds.make(kind)
    names = [f"x{i}" for i in range(len(built.args) + len(built.kwargs))]
    model, args, kwargs = built.model, built.args, built.kwargs
    every = (*args, kwargs) if kwargs else args

    def export_tonnx() -> None:
        tonnx.export(model, args, files[TONNX], kwargs=kwargs, input_names=names, opset_version=OPSET, verify=False)

    attempts: dict[str, Callable[[], object]] = {
        TONNX: export_tonnx,
        DYNAMO: lambda: torch.onnx.export(
            model, args, files[DYNAMO], kwargs=kwargs, input_names=names, opset_version=OPSET, dynamo=True,
            verbose=False,
        ),
        CLASSIC: lambda: torch.onnx.export(
            model, every, files[CLASSIC], input_names=names, opset_version=OPSET, dynamo=False
        ),
    }
    feeds = {name: tensor.numpy() for name, tensor in zip(names, (*args, *kwargs.values()), strict=True)}
    return {name: files[name] for name, attempt in attempts.items() if succeeds(kind, name, attempt)}, feeds


def _exported_paddle(
    kind: str, folder: Path, files: Mapping[str, Path], paddle2onnx: Path | None
) -> tuple[dict[str, Path], dict[str, np.ndarray]]:
    import paddle

    layer, shape = kinds.paddle_layer(kind)
    layer.eval()
    paddle.jit.save(layer, str(folder / "inference"), input_spec=[paddle.static.InputSpec(shape, "float32", "x")])

    def export_stock() -> None:
        command = [str(paddle2onnx), "--model_dir", str(folder), "--save_file", str(files[STOCK])]
        command += ["--model_filename", "inference.json", "--params_filename", "inference.pdiparams"]
        subprocess.run([*command, "--opset_version", str(PADDLE_OPSET)], check=True, capture_output=True)

    attempts: dict[str, Callable[[], object]] = {
        TONNX: lambda: tonnx.export(
            folder / "inference.json", f=files[TONNX], opset_version=PADDLE_OPSET, verify=False
        )
    }
    if paddle2onnx is not None:
        attempts[STOCK] = export_stock
    made = {name: files[name] for name, attempt in attempts.items() if succeeds(kind, name, attempt)}
    return made, {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}


def succeeds(kind: str, name: str, attempt: Callable[[], object]) -> bool:
    quiet = io.StringIO()
    try:
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            attempt()
    except Exception as error:  # a peer that cannot export a model is a result, too
        if name == TONNX:
            raise
        print(f"  {kind}, {name}: {type(error).__name__}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
        return False
    return True


def measured(kind: str, files: Mapping[str, Path], feeds: Mapping[str, np.ndarray], turns: int) -> Row:
    """Run the files in turns."""
    row = Row(kind)
    sessions: dict[str, tuple[onnxruntime.InferenceSession, dict[str, np.ndarray]]] = {}
    for name, path in files.items():
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        optimised = path.with_suffix(".optimised.onnx")
        options.optimized_model_filepath = str(optimised)
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            taken = {value.name: feeds[value.name] for value in session.get_inputs()}
            session.run(None, taken)
        except Exception as error:  # ONNX Runtime's errors have no base class of their own
            if name == TONNX:
                raise
            print(f"  {kind}, {name}: not run: {str(error)[:100]}", file=sys.stderr)
            continue
        sessions[name] = session, taken
        row.nodes[name] = count(path)
        row.fused[name] = fused_in(optimised)
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for turn in range(turns + 3):
        order = [*sessions][turn % len(sessions) :] + [*sessions][: turn % len(sessions)]
        for name in order:  # whoever comes first finds the caches full of something else
            session, taken = sessions[name]
            start = time.process_time()
            session.run(None, taken)
            if turn >= 3:
                times[name].append(time.process_time() - start)
    row.milliseconds = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    row.ratios = {
        name: statistics.median(a / b for a, b in zip(times[TONNX], values, strict=True))
        for name, values in times.items()
        if name != TONNX
    }
    return row


def count(path: Path) -> int:
    """The nodes of a file, in all of its graphs."""

    def inside(graph: onnx.GraphProto) -> int:
        graphs = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
        return len(graph.node) + sum(map(inside, graphs))

    model = onnx.load(path, load_external_data=False)
    return inside(model.graph)


def fused_in(path: Path) -> dict[str, int]:
    """The operators of ONNX Runtime's own in a file that it optimised."""
    nodes = onnx.load(path, load_external_data=False).graph.node
    fused = [n.op_type for n in nodes if n.domain not in ("", "ai.onnx") or n.op_type == "SimplifiedLayerNormalization"]
    return dict(collections.Counter(fused))


def render(rows: list[Row], turns: int) -> str:
    lines = [
        f"`bench/latency.py`: ONNX Runtime {onnxruntime.__version__}, one thread, static sizes, opset {OPSET} (Paddle "
        f"{PADDLE_OPSET}); processor milliseconds, median of {turns} turns in which all files of a model ran. *ratio*: "
        "tonnx's time beside the best peer's, the median over the turns. *nodes*: of the files.",
        "",
        "| | tonnx | dynamo=True | dynamo=False | paddle2onnx | ratio | nodes | | | |",
        "|---" * 10 + "|",
    ]
    names = (TONNX, DYNAMO, CLASSIC, STOCK)
    for row in rows:
        times = [f"{row.milliseconds[name]:.2f}" if name in row.milliseconds else "–" for name in names]
        nodes = [str(row.nodes.get(name, "–")) for name in names]
        ratio = f"**{row.ratio:.2f}**" if row.ratios else "–"
        lines.append(f"| {row.kind} | {' | '.join(times)} | {ratio} | {' | '.join(nodes)} |")
    logarithms = [math.log(row.ratio) for row in rows if row.ratios]
    if logarithms:
        mean = math.exp(sum(logarithms) / len(logarithms))
        lines.append(f"| **geometric mean** | | | | | **{mean:.2f}** | | | | |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
