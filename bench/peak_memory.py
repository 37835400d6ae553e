"""Peak memory of an export beside that of the model alone, each in a process of its own.

    python bench/peak_memory.py [--gigabytes 1.6] [--write docs/bench.md]

A stack of linear layers of so many gigabytes is made, run once, and exported: by tonnx with and without its proof, and
by torch.onnx.export. A peer that fails is a result, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from document import write_section

WIDTH = 4096
KINDS = {
    "the model alone": "run once",
    "tonnx": "`tonnx.export(verify=False)`",
    "proven": "`tonnx.export`",
    "dynamo": "`torch.onnx.export(dynamo=True)`",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=1.6)
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
        "| | peak memory | above the model |",
        "|---|---|---|",
    ]
    alone = measured("the model alone", gigabytes)
    for kind, text in KINDS.items():
        peak = alone if kind == "the model alone" else measured(kind, gigabytes)
        cells = "fails | –" if peak is None or alone is None else f"{peak / 1e9:.2f} GB | {(peak - alone) / 1e6:.0f} MB"
        lines.append(f"| {text} | {cells} |")
    return "\n".join(lines)


def measured(kind: str, gigabytes: float) -> int | None:
    """Peak bytes of one way, in a process of its own; None if it fails."""
    command = [sys.executable, __file__, "--gigabytes", str(gigabytes), "--worker", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"  {kind}: {done.stderr.strip().splitlines()[-1][:160]}", file=sys.stderr)
        return None
    return int(done.stdout.split()[-1])


def export(kind: str, gigabytes: float) -> None:
    import torch

    torch.manual_seed(0)
    count = round(gigabytes * 1e9 / (4 * WIDTH * WIDTH))
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(count))).eval()
    x = torch.randn(2, WIDTH)
    with torch.no_grad():
        model(x)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        if kind == "dynamo":
            torch.onnx.export(model, (x,), path, dynamo=True, verbose=False, external_data=True)
        elif kind != "the model alone":
            import tonnx

            tonnx.export(model, (x,), path, external_data=True, verify=kind == "proven")
    with open("/proc/self/status", encoding="ascii") as status:
        print(next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")))


if __name__ == "__main__":
    main()
