"""Seconds over the size of a model: export, legalise, proof and report of 1,000, 5,000 and 20,000 operators.

    python bench/growth.py [--sizes 1000,5000,20000] [--write docs/bench.md] [--picture docs/growth.svg]

The numbers that the model computes with are few, so the time is that of the graph. Each step should take as long for an
operator of a big model as for one of a small model.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import torch
from document import write_section
from torch import Tensor, nn

import tonnx

STEPS = ("export", "legalise", "proof", "report")
COLOURS = ("#3366cc", "#dc3912", "#109618", "#ff9900")


class Chain(nn.Module):
    """As many operators as asked for: layers of five, of several kinds, each with weights of its own."""

    def __init__(self, operators: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(8) * 0.1 for _ in range(operators // 5))

    def forward(self, x: Tensor) -> Tensor:
        for weight in self.weights:
            x = x + torch.tanh((x * weight).reshape(2, 2, 4).transpose(0, 1).reshape(2, 8))
        return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,5000,20000")
    parser.add_argument("--write", type=Path, help="put the table into this Markdown file")
    parser.add_argument("--picture", type=Path, help="write the picture to this SVG file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = [int(size) for size in options.sizes.split(",")]
    measure(200)  # imports
    seconds = {size: measure(size) for size in sizes}
    table = render(seconds)
    print(table)
    if options.picture:
        options.picture.write_text(picture(seconds), encoding="utf-8")
        table += f"\n\n![seconds over operators]({options.picture.name})"
    if options.write:
        write_section(options.write, "growth", "Growth", table)


def measure(size: int) -> dict[str, float]:
    """Processor seconds of each step."""
    model, x = Chain(size).eval(), torch.randn(2, 8)
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        seconds["export"] = timed(lambda: tonnx.export(model, (x,), path, opset_version=18, verify=False))
        seconds["legalise"] = timed(lambda: tonnx.retarget(path, 11, Path(folder) / "old.onnx", verify=False))
        runs = timed(lambda: onnxruntime.InferenceSession(str(path), one_thread())) + timed(lambda: model(x))
        seconds["proof"] = timed(lambda: tonnx.verify(path, model, (x,), sizes=False, values=False)) - runs
        seconds["report"] = timed(lambda: tonnx.report(path, profile=False))
    print(f"{size}: {seconds}", file=sys.stderr, flush=True)
    return seconds


def one_thread() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return options


def timed(step: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    step()
    return time.process_time() - start


def render(seconds: dict[int, dict[str, float]]) -> str:
    lines = [
        "`bench/growth.py`: processor seconds by the number of operators, and in brackets milliseconds for each. "
        "*legalise*: a file of opset 18 to 11. *proof*: the file and the "
        "model compared on one example, without the time in which ONNX Runtime "
        "loads the file and the model runs.",
        "",
        f"| operators | {' | '.join(STEPS)} |",
        "|---" * (len(STEPS) + 1) + "|",
    ]
    for size, row in seconds.items():
        cells = [f"{row[step]:.2f} ({row[step] / size * 1e3:.2f})" for step in STEPS]
        lines.append(f"| {size:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(seconds: dict[int, dict[str, float]]) -> str:
    """Both axes logarithmic: what grows in proportion is a straight line that rises as the grey ones do."""
    width, height, left, bottom = 560, 360, 60, 40
    sizes = list(seconds)
    every = [value for row in seconds.values() for value in row.values()]
    low, high = math.floor(math.log10(min(every))), math.ceil(math.log10(max(every)))
    first, last = math.log10(sizes[0]), math.log10(sizes[-1])

    def at(size: float, value: float) -> tuple[float, float]:
        across = (math.log10(size) - first) / (last - first)
        up = (math.log10(value) - low) / (high - low)
        return left + across * (width - left - 90), height - bottom - up * (height - bottom - 20)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for exponent in range(low, high + 1):
        x, y = at(sizes[0], 10.0**exponent)
        parts.append(f'<text x="{x - 8:.0f}" y="{y + 4:.0f}" text-anchor="end">{10.0**exponent:g} s</text>')
        slope = [at(size, 10.0**exponent * size / sizes[0]) for size in sizes]
        parts.append(line([p for p in slope if p[1] >= 20], "#dddddd", 1))
    for size in sizes:
        x, _ = at(size, 10.0**low)
        parts.append(f'<text x="{x:.0f}" y="{height - bottom + 20}" text-anchor="middle">{size:,}</text>')
    for step, colour in zip(STEPS, COLOURS, strict=True):
        points = [at(size, seconds[size][step]) for size in sizes]
        parts.append(line(points, colour, 2))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        x, y = points[-1]
        parts.append(f'<text x="{x + 8:.0f}" y="{y + 4:.0f}" fill="{colour}">{step}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def line(points: list[tuple[float, float]], colour: str, width: int) -> str:
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


if __name__ == "__main__":
    main()
