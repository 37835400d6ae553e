"""Fixtures: each is said how it was made, and what is stored as text is what it was."""

from __future__ import annotations

import fnmatch
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.frontends.paddle import stored

HERE = Path(__file__).parent
FIXTURES = HERE / "fixtures"


def test_every_file_is_in_the_list() -> None:
    rows = [line for line in (FIXTURES / "README.md").read_text().splitlines() if line.startswith("| `")]
    patterns = [pattern for row in rows for pattern in re.findall(r"`([^`]+)`", row.split("|")[1])]
    scripts = {script for row in rows for script in re.findall(r"`([^`]+)`", row.split("|")[2])}
    assert {path.name for path in HERE.glob("make_*.py")} == scripts
    files = {path.relative_to(FIXTURES).as_posix() for path in FIXTURES.rglob("*") if path.is_file()} - {"README.md"}
    told = {file for file in files for pattern in patterns if _fits(file, pattern)}
    assert not files - told
    assert all(any(_fits(file, pattern) for file in files) for pattern in patterns)


def _fits(file: str, pattern: str) -> bool:
    return fnmatch.fnmatch(file, pattern) and file.count("/") == pattern.count("/")


ARRAYS = {
    "floats": np.array([[0.1, -1e-30, 3.4e38], [0, 1 / 3, 7]], np.float32),
    "doubles": np.array([0.1, 1 / 3, 1e300]),
    "halves": np.array([0.1, 65504], np.float16),
    "integers": np.array([-(2**62), 5]),
    "flags": np.array([True, False]),
    "number": np.array(0.3, np.float32),
    "nothing": np.empty((0, 3), np.float32),
}


def test_arrays_as_text() -> None:
    again = stored.arrays_of_text(stored.arrays_as_text(ARRAYS))
    assert again.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (again[name].dtype, again[name].shape) == (array.dtype, array.shape)
        assert again[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("large", [False, True])
def test_packed_and_unpacked(large: bool, tmp_path: Path) -> None:
    weights = np.random.default_rng(0).bytes(20_000 if large else 20)
    files = {"one.json": json.dumps({"program": [1, "é"]}).encode(), "one.pdiparams": weights}
    path = stored.pack(files, {"one": {"inputs": []}}, ARRAYS, tmp_path / "small_pir")
    assert path.suffix == (".xz" if large else ".json")
    again = stored.unpacked(tmp_path / "small_pir")
    assert again.keys() == {*files, stored.CASES, stored.ARRAYS}
    assert json.loads(again["one.json"]) == {"program": [1, "é"]} and again["one.pdiparams"] == weights
    with np.load(io.BytesIO(again[stored.ARRAYS])) as arrays:
        assert all(arrays[name].tobytes() == array.tobytes() for name, array in ARRAYS.items())
