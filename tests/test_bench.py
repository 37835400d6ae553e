"""`tonnx bench`: files side by side."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import tonnx
from tonnx.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A light and a heavy file with the same inputs, one with a fixed batch, and the code of a model."""
    made = tmp_path_factory.mktemp("bench")
    light = torch.nn.Conv2d(3, 2, 1)
    heavy = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.Conv2d(64, 64, 3), torch.nn.Conv2d(64, 2, 3))
    axes = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch", 2: "side"}}}
    for name, model, options in (("light", light, axes), ("heavy", heavy, axes), ("fixed", light, {})):
        tonnx.export(model, (torch.rand(2, 3, 16, 16),), made / f"{name}.onnx", **options)
    (made / "net.py").write_text("import torch\n\n\ndef net():\n    return torch.nn.Conv2d(3, 2, 1)\n")
    return made


def test_files_and_the_model_side_by_side(folder: Path) -> None:
    files = (folder / "light.onnx", folder / "heavy.onnx", folder / "fixed.onnx")
    net = f"{folder / 'net.py'}:net"
    result = tonnx.bench(*files, against=net, batches=[1, 2], threads=[1], sizes={"side": 16}, seconds=0.05)
    found = {(timing.contender, timing.batch) for timing in result.timings}
    both = {(name, batch) for name in ("light.onnx", "heavy.onnx", "Conv2d") for batch in (1, 2)}
    assert found == both | {("fixed.onnx", 2)}
    assert "fixed.onnx takes batches of 2 only" in result.notes
    ratios = {(timing.contender, timing.batch): timing.ratio for timing in result.timings}
    assert ratios["light.onnx", 1] == 1 and ratios["heavy.onnx", 1] > 2
    assert all(timing.p50 <= timing.p90 <= timing.p99 for timing in result.timings)
    assert all(peak is not None and peak > 0 for peak in result.memory.values())
    assert all(name in result.svg() and name in str(result) for name in ("heavy.onnx", "Conv2d"))


def test_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 3, 8, 16), np.float32))
    options = ["--inputs", str(tmp_path / "x.npy"), "--seconds", "0.02", "--no-memory", "--json"]
    same = str(folder / "light.onnx")
    assert main(["bench", same, same, "--batch", "3", *options, "--plot", str(tmp_path / "p.svg")]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [timing["batch"] for timing in data["timings"]] == [3, 3]
    assert len({timing["contender"] for timing in data["timings"]}) == 2
    assert (tmp_path / "p.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["light.onnx"], "how large is side of x: float32[batch, 3, side, 16]?"),
        (["nowhere.onnx"], "there is no file"),
        (["light.onnx", "--size", "side=16", "--batch", "0"], "must be above 0"),
        (["net.py"], "ONNX Runtime does not load the model"),
    ],
)
def test_errors(arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["bench", str(folder / arguments[0]), *arguments[1:]]) == 1
    assert message in capsys.readouterr().err
