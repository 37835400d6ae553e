"""Which versions of the packages around it tonnx is tested with. Others run, too, with one line that says so.

What depends on a version of PyTorch stands in ``frontends/torch/versions.py``; what
an older ONNX Runtime cannot load in ``proof/judge.py``.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata

TESTED = {
    "torch": ((2, 8), (2, 15)),
    "paddle": ((3, 0), (3, 3)),
    "onnx": ((1, 18), (1, 23)),
    "onnx_ir": ((1, 0), (1, 1)),
    "onnxruntime": ((1, 22), (1, 31)),
}
"""The oldest and the newest version of each module; ``docs/versions.md`` says what came of it."""


def release(version: str) -> tuple[int, int]:
    """The first two numbers of a version: what tells one release from another."""
    numbers = re.findall(r"\d+", version)[:2]
    return int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else 0


def tested(name: str = "torch") -> str:
    """What is said of a module that may be too old or too new."""
    first, last = (".".join(map(str, bound)) for bound in TESTED[name])
    return f"tested with {name} {first} to {last}"


def untested() -> list[str]:
    """One line about the modules in use that lie outside; empty if none does."""
    parts = []
    for name, (oldest, newest) in TESTED.items():
        version = installed(name)
        if version is not None and not oldest <= release(version) <= newest:
            first, last = (".".join(map(str, bound)) for bound in (oldest, newest))
            parts.append(f"{name} {version} (tested: {first} to {last})")
    return [f"[!] not tested with {', '.join(parts)}"] if parts else []


def installed(name: str) -> str | None:
    """Of a module that is loaded; of ONNX Runtime also before that, since it is needed only for the proof."""
    if name in sys.modules or name != "onnxruntime":
        return getattr(sys.modules.get(name), "__version__", None)
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:  # other builds have other names
        return None
