"""The archives of small programs that `make_operators.py` writes, and the check of one of them."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tonnx
from tests.frontends.paddle import stored
from tonnx.proof.session import Session

FIXTURES = Path(__file__).parent / "fixtures"
SUFFIX = {"pir": ".json", "old": ".pdmodel"}
ARCHIVES = ("operators", "detection", "further", "quantized")


@cache
def archive(kind: str) -> dict[str, bytes]:
    """All files of all archives of a format, but for what `cases` and `arrays` give."""
    found: dict[str, bytes] = {}
    for name in ARCHIVES:
        found.update(_read(name, kind))
    return found


@cache
def _read(name: str, kind: str) -> dict[str, bytes]:
    return stored.unpacked(FIXTURES / f"{name}_{kind}")


@cache
def arrays(kind: str) -> dict[str, np.ndarray]:
    """Inputs and outputs by their hash."""
    found: dict[str, np.ndarray] = {}
    for name in ARCHIVES:
        with np.load(io.BytesIO(_read(name, kind)["arrays.npz"])) as stored:
            found.update(stored)
    return found


@cache
def cases(kind: str, archives: tuple[str, ...] = ARCHIVES) -> dict[str, dict[str, Any]]:
    """By case: the hashes of its inputs and outputs, and ``like`` where numbers are not compared."""
    found: dict[str, dict[str, Any]] = {}
    for name in archives:
        more = json.loads(_read(name, kind)["cases.json"])
        assert not found.keys() & more.keys()
        found.update(more)
    return found


def unpacked(kind: str, name: str, folder: Path) -> Path:
    """The files of a case in a folder; returns the program."""
    for suffix in (SUFFIX[kind], ".pdiparams"):
        if (data := archive(kind).get(name + suffix)) is not None:
            (folder / (name + suffix)).write_bytes(data)
    return folder / (name + SUFFIX[kind])


def check(kind: str, name: str, opset: int, folder: Path) -> None:
    """Convert a case at an opset and compare what the file computes with what Paddle computed."""
    case = cases(kind)[name]
    path = unpacked(kind, name, folder)
    feeds = {f"in{i}": arrays(kind)[key] for i, key in enumerate(case["inputs"])}
    out = folder / "out.onnx"
    result = tonnx.export(path, feeds, out, opset_version=opset, verify=False)
    onnx.checker.check_model(out, full_check=True)
    used = {value.name for value in result.model.graph.inputs}
    got = Session(out, threads=1).run({name: array for name, array in feeds.items() if name in used})
    for value, key in zip(got.values(), case["outputs"], strict=True):
        want = arrays(kind)[key]
        assert (value.shape, value.dtype) == (want.shape, want.dtype)
        if "like" in case:
            alike(value, **case["like"])
        else:
            np.testing.assert_allclose(value.astype("f8"), want.astype("f8"), rtol=1e-4, atol=1e-5)


def alike(value: np.ndarray, low: float, high: float, mean: float, within: float, permutation: bool = False) -> None:
    """Numbers that were drawn: their bounds, their mean, and whether each of 0, 1, … comes once."""
    assert value.min() >= low and value.max() <= high, (value.min(), value.max())
    assert abs(value.mean() - mean) <= within, value.mean()
    assert len(np.unique(value)) > 1 or value.size == 1
    if permutation:
        assert sorted(value.reshape(-1).tolist()) == list(range(value.size))
