"""Export time beside torch.onnx.export, as ratios from one run.

    python bench/export_speed.py [--models a,b] [--repeat 2] [--write docs/bench.md]

Every model is exported by all three, in turn, in one process, and the best of the rounds counts:
machines are shared, so only ratios taken side by side mean anything. Verification is off: the others have none.
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
STAGES = ("lower", "optimise", "legalise", "write")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS.split()))
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--write", type=Path, help="write the table to this Markdown file")
    options = parser.parse_args()
    rows = [measure(name, options.repeat) for name in options.models.split(",")]
    table = render(rows)
    print(table)
    if options.write:
        write_section(options.write, "export", "Export time", table)


def measure(name: str, repeat: int) -> dict[str, float | str]:
    """Seconds of each exporter on one model; NaN where it fails."""
    example = zoo.example(name)
    best = {"tonnx": math.inf, "dynamo": math.inf, "classic": math.inf}
    own = math.inf
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        for _ in range(repeat):
            seconds, result = timed(lambda: export_tonnx(example, path))
            if result is not None and seconds < best["tonnx"]:
                best["tonnx"] = seconds
                own = sum(result.timings[stage] for stage in STAGES)
            best["dynamo"] = min(best["dynamo"], timed(lambda: export_torch(example, path, dynamo=True))[0])
            best["classic"] = min(best["classic"], timed(lambda: export_torch(example, path, dynamo=False))[0])
    row: dict[str, float | str] = {"model": name, **best, "own": own}
    print(f"{name}: " + ", ".join(f"{k} {v:.2f} s" for k, v in row.items() if isinstance(v, float)), file=sys.stderr)
    return row


def export_tonnx(example: zoo.Example, path: str) -> tonnx.ExportResult:
    return tonnx.export(
        example.model, example.args, path, kwargs=example.kwargs, dynamic_axes=example.dynamic, verify=False
    )


def export_torch(example: zoo.Example, path: str, dynamo: bool) -> None:
    if dynamo:
        dynamic = {name: dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for name, axes in example.dynamic.items()}
        torch.onnx.export(
            example.model,
            grown(example)[0],
            path,
            kwargs=grown(example)[1],
            dynamic_shapes=dynamic,
            dynamo=True,
            verbose=False,
        )
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


def timed(export: Callable[[], tonnx.ExportResult | None]) -> tuple[float, tonnx.ExportResult | None]:
    gc.collect()
    start = time.perf_counter()
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            result = export()
    except Exception as error:  # a peer that cannot export a model is a result, too
        print(f"  failed: {type(error).__name__}: {str(error).splitlines()[0][:120]}", file=sys.stderr)
        return math.inf, None
    return time.perf_counter() - start, result


def render(rows: list[dict[str, float | str]]) -> str:
    lines = [
        f"`make bench` on {platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}; seconds, best of "
        "the rounds, all three in one process. tonnx with `verify=False`. *own share*: all but `torch.export` itself.",
        "",
        "| model | tonnx | own share | torch.onnx dynamo=True | ratio | torch.onnx dynamo=False | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    ratios: dict[str, list[float]] = {"dynamo": [], "classic": []}
    shares = []
    for row in rows:
        cells = []
        for peer in ("dynamo", "classic"):
            seconds = float(row[peer])
            if math.isfinite(seconds):
                ratios[peer].append(float(row["tonnx"]) / seconds)
                cells += [f"{seconds:.2f}", f"{float(row['tonnx']) / seconds:.2f}"]
            else:
                cells += ["fails", "–"]
        shares.append(float(row["own"]) / float(row["tonnx"]))
        lines.append(f"| {row['model']} | {row['tonnx']:.2f} | {shares[-1]:.0%} | " + " | ".join(cells) + " |")
    means = {peer: math.exp(sum(map(math.log, r)) / len(r)) if r else math.nan for peer, r in ratios.items()}
    share = sum(shares) / len(shares)
    lines.append(f"| **geometric mean** | | {share:.0%} | | **{means['dynamo']:.2f}** | | **{means['classic']:.2f}** |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
