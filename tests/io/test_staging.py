"""Files are there as a whole, as they were before, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.io.harness import big, make_model, matmul_model, names, run
from tests.like_windows import move_like_windows, on_linux
from tonnx.errors import TonnxError
from tonnx.io import staging, write


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def failing_at(call: int, after: bool, error: type[BaseException]) -> Callable[..., Any]:
    """`os.replace` that raises at one of its calls, once the file is moved or before."""
    calls = iter(range(100))
    replace = os.replace

    def move(*paths: Any) -> None:
        number = next(calls)
        if number == call and not after:
            raise error
        replace(*paths)
        if number == call:
            raise error

    return move


@pytest.mark.parametrize("error", [KeyboardInterrupt, PermissionError])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [0, 1, 2])
@pytest.mark.parametrize("before", ["nothing", "a file", "a file with data"])
def test_a_commit_that_stops(
    before: str, call: int, after: bool, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old file with its old data, or the new one with the new data; never one with the other's."""
    path, weight = tmp_path / "m.onnx", big()
    if before != "nothing":
        write.write(matmul_model(big()), path, external_data=before == "a file with data")
    old = contents(tmp_path)
    with write.Staged(path) as staged:
        staged.write(matmul_model(weight), external_data=True)
        monkeypatch.setattr(os, "replace", failing_at(call, after, error))
        try:
            staged.commit()
        except (KeyboardInterrupt, TonnxError) as stopped:
            assert isinstance(stopped, error) or "cannot write" in str(stopped)
    monkeypatch.undo()
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
    if contents(tmp_path) != old:
        assert names(tmp_path) == ["m.onnx", "m.onnx.data"]
        run(path, weight)


def test_replacing(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with staging.replacing(path) as file:
        file.write_text("old", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt), staging.replacing(path) as file:
        file.write_text("ne", encoding="utf-8")
        raise KeyboardInterrupt
    assert contents(tmp_path) == {"page.html": b"old"}
    with pytest.raises(TonnxError, match=r"cannot write .*page\.html"), staging.replacing(path) as file:
        raise OSError(28, "No space left on device")


@on_linux
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("external_data", [False, True])
def test_over_its_own_data_like_windows(
    external_data: bool, mapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights of a model come from the file that is to be replaced."""
    path, arrays = tmp_path / "m.onnx", [big(), big(512, 600)]
    ir.save(make_model(*map(ir.Tensor, arrays)), path, external_data="m.onnx.data", size_threshold_bytes=0)
    model = ir.load(path)
    if mapped:
        for value in model.graph.initializers.values():
            assert value.const_value is not None
            value.const_value.numpy()
    moves = move_like_windows(monkeypatch)
    write.write(model, path, external_data=external_data)
    assert "m.onnx" in moves and ("m.onnx.data" in moves) == external_data
    for tensor, array in zip(onnx.load(path).graph.initializer, arrays, strict=True):
        assert np.array_equal(onnx.numpy_helper.to_array(tensor), array)
