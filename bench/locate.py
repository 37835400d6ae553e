"""Time and memory of naming a planted fault, beside a plain verification of the same file.

    python bench/locate.py [--nodes 500] [--kinds conv,linear] [--foreign] [--write docs/locate.md]

A model of so many nodes is exported, one node of the file is changed, and the file is verified twice, each time in a
process of its own: once without looking for the node, once with it. Bounds: twice the time and 30 s, 1.5 times the
memory. The process fails if a bound is broken or another node is named.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

PLACES = (0.05, 0.5, 0.95)
"""Where in the file the fault is planted."""


class Conv(nn.Module):
    """Large activations, small weights: three nodes a block."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(nodes // 3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


class Linear(nn.Module):
    """Large weights, small activations: three nodes a block."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(nodes // 3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


KINDS = {"conv": (Conv, (2, 16, 64, 64)), "linear": (Linear, (4, 512))}


def model_and_input(kind: str, nodes: int) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    build, shape = KINDS[kind]
    return build(nodes).eval(), torch.randn(shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--foreign", action="store_true", help="also with all that tonnx wrote about origins removed")
    parser.add_argument("--write", type=Path, help="write the table to this Markdown file")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        kind, path, looks = options.worker
        print(json.dumps(verified(kind, options.nodes, Path(path), looks == "yes")))
        return
    rows, failures = [], []
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds.split(","):
            good = Path(folder) / f"{kind}.onnx"
            exported(kind, options.nodes, good)
            for foreign in (False, True) if options.foreign else (False,):
                for place in PLACES:
                    row, broken = measured(kind, options.nodes, good, place, foreign)
                    print(row, flush=True)
                    rows.append(row)
                    failures += broken
    table = "\n".join([*HEAD, *rows]) + "\n"
    if options.write:
        options.write.write_text(table, encoding="utf-8")
    if failures:
        sys.exit("\n".join(failures))


HEAD = (
    "# Naming a planted fault",
    "",
    "`bench/locate.py`: one node of the file is changed; CPU seconds and peak memory of the process, beside a plain",
    "verification of the same file, which tries the same inputs. The model's own capture is part of it.",
    "",
    "| model | nodes | fault at | plain | with locate | memory, plain | with locate | ratio | named |",
    "|---|---|---|---|---|---|---|---|---|",
)


def exported(kind: str, nodes: int, path: Path) -> None:
    import tonnx

    model, x = model_and_input(kind, nodes)
    tonnx.export(model, (x,), path, dynamic_axes={"x": {0: "batch"}}, verify=False)


def measured(kind: str, nodes: int, good: Path, place: float, foreign: bool) -> tuple[str, list[str]]:
    """One row of the table, and the bounds that are broken."""
    path = good.with_name("bad.onnx")
    planted, total = plant(good, path, place, foreign)
    plain = worker(kind, nodes, path, "no")
    located = worker(kind, nodes, path, "yes")
    ratio = located["memory"] / plain["memory"]
    named = located["nodes"] == [planted]
    label = f"{kind}{', nothing said of origins' if foreign else ''}"
    said = "yes" if named else located["nodes"]
    row = (
        f"| {label} | {total} | {planted} | {plain['seconds']:.1f} s | {located['seconds']:.1f} s "
        f"| {plain['memory']:.0f} MB | {located['memory']:.0f} MB | {ratio:.2f} | {said} |"
    )
    broken = []
    if not named:
        broken.append(f"{label}: planted at {planted}, named {located['nodes']}")
    if located["seconds"] > 2 * plain["seconds"] + 30:
        broken.append(f"{label}: {located['seconds']:.1f} s against {plain['seconds']:.1f} s")
    if ratio >= 1.5:
        broken.append(f"{label}: {ratio:.2f} times the memory")
    return row, broken


def plant(good: Path, bad: Path, place: float, foreign: bool) -> tuple[int, int]:
    """Change the activation nearest to a place of the file; returns its index, and how many nodes there are."""
    model = onnx.load(good)
    nodes = model.graph.node
    wanted = int(place * len(nodes))
    index = min((i for i, node in enumerate(nodes) if node.op_type == "Tanh"), key=lambda i: abs(i - wanted))
    nodes[index].op_type = "Sin"
    if foreign:
        del model.graph.value_info[:]
        for node in nodes:
            node.ClearField("doc_string")
            node.ClearField("metadata_props")
    onnx.save(model, bad)
    return index, len(nodes)


def worker(kind: str, nodes: int, path: Path, looks: str) -> dict[str, object]:
    command = [sys.executable, __file__, "--nodes", str(nodes), "--worker", kind, str(path), looks]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def verified(kind: str, nodes: int, path: Path, looks: bool) -> dict[str, object]:
    import tonnx

    model, x = model_and_input(kind, nodes)
    start = time.process_time()  # of this process, all threads: what others do on the machine does not count
    result = tonnx.verify(path, model, (x,), locate=None if looks else False)
    seconds = time.process_time() - start
    assert not result.ok
    found = None if result.located is None else [node.index for node in result.located.nodes]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "memory": peak, "nodes": found, "notes": result.notes}


if __name__ == "__main__":
    main()
