"""Peak memory of an export beside that of the model alone, each in a process of its own.

    python bench/peak_memory.py [--gigabytes 1.6] [--write docs/bench.md]

A stack of linear layers of so many gigabytes is made, run once, and exported: by tonnx with and without its proof, and
by torch.onnx.export. Then the same with weights that are mapped from a file of safetensors, which the export copies or
only points at. A peer that fails is a result, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from document import write_section

if TYPE_CHECKING:
    import torch

WIDTH = 4096
KINDS = {
    "the model alone": "run once",
    "tonnx": "`tonnx.export(verify=False)`",
    "proven": "`tonnx.export`",
    "dynamo": "`torch.onnx.export(dynamo=True)`",
    "mapped alone": "weights mapped by `safetensors`, run once",
    "mapped": "the same, `tonnx.export(verify=False)`",
    "mapped reference": "the same, `tonnx.export(weights=\"reference\", verify=False)`",
    "mapped dynamo": "the same, `torch.onnx.export(dynamo=True)`",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--write", type=Path, help="write the table into this Markdown file")
    parser.add_argument("--worker", choices=list(KINDS))
    options = parser.parse_args()
    if options.worker:
        export(options.worker, options.gigabytes)
        return
    table = render(options.gigabytes)
    print(table)
    if options.write:
        write_section(options.write, "memory", "Peak memory", table)


def render(gigabytes: float) -> str:
    lines = [
        f"`bench/peak_memory.py`: a model of {gigabytes:g} GB of weights, each row a process of its own.",
        "",
        "| | peak memory | above the model | written |",
        "|---|---|---|---|",
    ]
    alone: int | None = None
    for kind, text in KINDS.items():
        peak, written = measured(kind, gigabytes) or (None, 0)
        if kind.endswith("alone"):
            alone = peak
        if peak is None or alone is None:
            lines.append(f"| {text} | fails | – | – |")
        else:
            size = f"{written / 1e6:.2f} MB" if written else "–"
            lines.append(f"| {text} | {peak / 1e9:.2f} GB | {(peak - alone) / 1e6:.0f} MB | {size} |")
    small = [measured(kind, 0.0) for kind in ("mapped alone", "mapped reference")]
    if small[0] is not None and small[1] is not None:
        code = (small[1][0] - small[0][0]) / 1e6
        lines += ["", f"Of tonnx's figures, {code:.0f} MB are code: an export of a single layer takes them, too."]
    return "\n".join(lines)


def measured(kind: str, gigabytes: float) -> tuple[int, int] | None:
    """Peak bytes of one way, in a process of its own, and bytes that it wrote; None if it fails."""
    command = [sys.executable, __file__, "--gigabytes", str(gigabytes), "--worker", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"  {kind}: {done.stderr.strip().splitlines()[-1][:160]}", file=sys.stderr)
        return None
    peak, written = done.stdout.split()[-2:]
    return int(peak), int(written)


def export(kind: str, gigabytes: float) -> None:
    import torch

    torch.manual_seed(0)
    count = max(1, round(gigabytes * 1e9 / (4 * WIDTH * WIDTH)))
    x = torch.randn(2, WIDTH)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        mapped = Path(folder) / "net.safetensors" if kind.startswith("mapped") else None
        model = stack(count, mapped)
        with torch.no_grad():
            model(x)
        before = set(Path(folder).iterdir())
        if kind.endswith("dynamo"):
            torch.onnx.export(model, (x,), path, dynamo=True, verbose=False, external_data=True)
        elif not kind.endswith("alone"):
            import tonnx

            where = {"weights": "reference"} if kind.endswith("reference") else {"external_data": True}
            tonnx.export(model, (x,), path, verify=kind == "proven", **where)
        written = sum(file.stat().st_size for file in set(Path(folder).iterdir()) - before)
    with open("/proc/self/status", encoding="ascii") as status:
        print(next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")), written)


def stack(count: int, mapped: Path | None) -> torch.nn.Module:
    """Linear layers; with ``mapped`` their weights are in files beside it, mapped from there."""
    import torch

    if mapped is None:
        return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(count))).eval()
    import safetensors.torch

    files = [mapped.with_stem(f"net-{i}") for i in range(count)]
    state = {}
    for i, file in enumerate(files):
        layer = torch.nn.Linear(WIDTH, WIDTH).state_dict()
        safetensors.torch.save_file({f"{i}.{name}": tensor for name, tensor in layer.items()}, file)
        state |= safetensors.torch.load_file(file)
    with torch.device("meta"):
        model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(count)))
    model.load_state_dict(state, assign=True)
    return model.eval()


if __name__ == "__main__":
    main()
