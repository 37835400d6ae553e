"""Peak memory of a contender, in a process of its own: ``python -m tonnx.benching.memory inputs.npz onnx FILE``."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

_RUNS = 3


def peak(what: Sequence[str], feeds: dict[str, np.ndarray]) -> int | None:
    """Peak bytes of a process that loads ``what`` and runs it a few times; None where that failed."""
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, **feeds)  # type: ignore[arg-type]
        command = [sys.executable, "-m", __name__, str(inputs), *what]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    last = done.stdout.strip().splitlines()[-1:]
    return int(last[0]) if done.returncode == 0 and last and last[0].isdigit() else None


def _own_peak() -> int:
    try:  # getrusage's figure is inherited from the process that started this one
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except FileNotFoundError:
        import resource  # where there is none either, on Windows, the process fails and the peak is not said

        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else used * 1024


def main(arguments: Sequence[str]) -> None:
    with np.load(arguments[0]) as archive:
        feeds = dict(archive.items())
    if arguments[1] == "onnx":
        from tonnx.run.model import load

        model = load(arguments[2])
        for _ in range(_RUNS):
            model.run(dict(zip(model.inputs, feeds.values(), strict=True)))
    elif arguments[1] == "model":
        from tonnx.benching.models import framework

        _, make, _ = framework(arguments[2], list(feeds))
        run = make(None)
        for _ in range(_RUNS):
            run(feeds)
    else:
        import onnxruntime  # noqa: F401  so that what is left is the model's own share
    print(_own_peak())


if __name__ == "__main__":
    main(sys.argv[1:])
