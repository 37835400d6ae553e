"""How fixtures are stored: small ones as text that can be read, arrays as numbers, many programs as one archive.

Needs numpy only, since the scripts that write fixtures run in environments that have little else.
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

CASES, ARRAYS = "cases.json", "arrays.npz"
_SMALL = 8192
"""Bytes up to which an archive whose programs are text is stored as text."""


def arrays_as_text(arrays: dict[str, np.ndarray]) -> str:
    """One line for each array, in the order of their names."""
    entries = [f"{json.dumps(name)}: {json.dumps(_as_json(arrays[name]))}" for name in sorted(arrays)]
    return "{\n" + ",\n".join(entries) + "\n}\n"


def arrays_of_text(text: str) -> dict[str, np.ndarray]:
    return {name: np.array(entry["values"], entry["dtype"]).reshape(entry["shape"])
            for name, entry in json.loads(text).items()}  # fmt: skip


def _as_json(array: np.ndarray) -> dict[str, Any]:
    assert array.dtype.kind in "biuf" and np.isfinite(array).all(), array.dtype
    values = array.reshape(-1)
    # As few digits as tell a number of its dtype from all others.
    numbers = [float(str(value)) for value in values] if array.dtype.kind == "f" else values.tolist()
    return {"dtype": array.dtype.name, "shape": list(array.shape), "values": numbers}


def pack(files: dict[str, bytes], cases: Any, arrays: dict[str, np.ndarray], target: Path) -> Path:
    """Programs and weights by their names, with their cases and arrays; gives the file, whose suffix is chosen here."""
    npz = io.BytesIO()
    np.savez(npz, **arrays)
    packed = {**files, CASES: json.dumps(cases, indent=0, sort_keys=True).encode(), ARRAYS: npz.getvalue()}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in sorted(packed):
            entry = tarfile.TarInfo(name)
            entry.size = len(packed[name])
            archive.addfile(entry, io.BytesIO(packed[name]))
    binary = lzma.compress(data.getvalue(), preset=9)
    if len(binary) > _SMALL or any(name.endswith(".pdmodel") for name in files):
        path = target.with_name(f"{target.name}.tar.xz")
        path.write_bytes(binary)
        return path
    programs = {name: json.loads(content) for name, content in files.items() if name.endswith(".json")}
    weights = {name: content.hex() for name, content in files.items() if name not in programs}
    parts = {"cases": cases, "programs": programs, "weights": weights, "arrays": json.loads(arrays_as_text(arrays))}
    path = target.with_name(f"{target.name}.json")
    path.write_text(json.dumps(parts, sort_keys=True, separators=(",", ":")).replace('},"', '},\n"') + "\n")
    return path


def unpacked(target: Path) -> dict[str, bytes]:
    """The files of an archive by their names, however it is stored."""
    text = target.with_name(f"{target.name}.json")
    if not text.exists():
        with tarfile.open(target.with_name(f"{target.name}.tar.xz")) as archive:
            return {m.name: archive.extractfile(m).read() for m in archive.getmembers()}  # type: ignore[union-attr]
    parts = json.loads(text.read_text())
    npz = io.BytesIO()
    np.savez(npz, **arrays_of_text(json.dumps(parts["arrays"])))
    return {
        **{name: json.dumps(program).encode() for name, program in parts["programs"].items()},
        **{name: bytes.fromhex(content) for name, content in parts["weights"].items()},
        CASES: json.dumps(parts["cases"]).encode(),
        ARRAYS: npz.getvalue(),
    }
