"""Export time beside torch.onnx.export, as ratios from one run.

    python bench/export_speed.py [--models a,b] [--repeat 2] [--write docs/bench.md]

Every model is exported by all of them, in turn, in one process, with static sizes and with a dynamic batch (and
sequence), and the best of the rounds counts: machines are shared, so only ratios taken side by side mean anything, and
processor time says more than the clock. The others prove nothing, so tonnx is measured without its proof and with it.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import math
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from document import write_section
from tests.models import zoo

import tonnx

MODELS = (
    "resnet50 mobilenetv3_small_100 efficientnet_b0 convnext_tiny vit_tiny_patch16_224 swin_tiny_patch4_window7_224 "
)
MODELS += "densenet121 bert gpt2 llama"
TONNX, PROVEN, DYNAMO, CLASSIC = "tonnx", "proven", "dynamo=True", "dynamo=False"
Row = dict[str, float]
"""Seconds by exporter; infinite where it fails."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS.split()))
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--write", type=Path, help="write the table to this Markdown file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.models.split(",")
    measure(names[-1], 1, True)  # what an exporter does once in a process is nobody's here
    rows = {(name, dynamic): measure(name, options.repeat, dynamic) for name in names for dynamic in (False, True)}
    table = render(names, rows, options.repeat)
    print(table)
    if options.write:
        write_section(options.write, "export", "Export time", table)


def measure(name: str, repeat: int, dynamic: bool) -> Row:
    """Seconds of each exporter on one model."""
    example = zoo.example(name)
    if not dynamic:
        example = replace(example, dynamic={})
    best = dict.fromkeys((TONNX, PROVEN, DYNAMO, CLASSIC), math.inf)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        exports: dict[str, Callable[[], object]] = {
            TONNX: lambda: export_tonnx(example, path, verify=False),
            PROVEN: lambda: export_tonnx(example, path, verify=True),
            DYNAMO: lambda: export_torch(example, path, dynamo=True),
            CLASSIC: lambda: export_torch(example, path, dynamo=False),
        }
        for _ in range(repeat):
            for exporter, export in exports.items():
                best[exporter] = min(best[exporter], timed(export))
    sizes = "dynamic" if dynamic else "static"
    print(f"{name}, {sizes}: " + ", ".join(f"{k} {v:.2f} s" for k, v in best.items()), file=sys.stderr)
    return best


def export_tonnx(example: zoo.Example, path: str, verify: bool) -> tonnx.ExportResult:
    return tonnx.export(
        example.model, example.args, path, kwargs=example.kwargs, dynamic_axes=example.dynamic, verify=verify
    )


def export_torch(example: zoo.Example, path: str, dynamo: bool) -> None:
    if dynamo:
        dynamic = {name: dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for name, axes in example.dynamic.items()}
        args, kwargs = grown(example) if dynamic else (example.args, example.kwargs)
        shapes = dynamic or None
        torch.onnx.export(example.model, args, path, kwargs=kwargs, dynamic_shapes=shapes, dynamo=True, verbose=False)
    else:
        args = (*example.args, example.kwargs) if example.kwargs else example.args
        torch.onnx.export(
            example.model,
            args,
            path,
            dynamo=False,
            opset_version=18,
            input_names=list(example.dynamic),
            dynamic_axes=example.dynamic,
        )


def grown(example: zoo.Example) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    """torch.export freezes dimensions of size 1: the others are given batch 2, as tonnx does by itself."""

    def two(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x]) if x.shape[0] == 1 else x

    return tuple(two(x) for x in example.args), {k: two(v) for k, v in example.kwargs.items()}


def timed(export: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            export()
    except Exception as error:  # a peer that cannot export a model is a result, too
        print(f"  failed: {type(error).__name__}: {str(error).splitlines()[0][:120]}", file=sys.stderr)
        return math.inf
    return time.process_time() - start


RATIOS = ((TONNX, DYNAMO), (PROVEN, DYNAMO), (TONNX, CLASSIC))


def render(names: list[str], rows: dict[tuple[str, bool], Row], rounds: int) -> str:
    lines = [
        f"`make bench` on {platform.machine()}, torch {torch.__version__}, one thread; processor seconds, the best of "
        f"the rounds ({rounds}), all in one process, after another model. *proven*: with tonnx's own proof, the others "
        "have none. Ratios: tonnx to dynamo=True, tonnx with its proof to dynamo=True without, tonnx to dynamo=False.",
    ]
    for dynamic in (False, True):
        title = "dynamic batch (and sequence)" if dynamic else "static sizes"
        lines += ["", f"| {title} | tonnx | proven | dynamo=True | dynamo=False | ratio | proven | to dynamo=False |"]
        lines += ["|---" * 8 + "|"]
        for name in names:
            row = rows[name, dynamic]
            seconds = [f"{row[one]:.2f}" if math.isfinite(row[one]) else "fails" for one in row]
            ratios = [f"{ratio:.2f}" if (ratio := row[one] / row[other]) else "–" for one, other in RATIOS]
            lines.append(f"| {name} | {' | '.join(seconds)} | {' | '.join(ratios)} |")
        shown = [rows[name, dynamic] for name in names]
        means = [mean([row[one] / row[other] for row in shown]) for one, other in RATIOS]
        lines.append("| **geometric mean** | | | | | " + " | ".join(f"**{one:.2f}**" for one in means) + " |")
    return "\n".join(lines) + "\n"


def mean(ratios: list[float]) -> float:
    """The geometric mean, where the other exporter does not fail."""
    logarithms = [math.log(ratio) for ratio in ratios if ratio]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


if __name__ == "__main__":
    main()
