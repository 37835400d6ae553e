"""`tonnx bench`: files side by side."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
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
    assert ratios["light.onnx", 1] == 1 and ratios["heavy.onnx", 1] > 1
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
        (["fixed.onnx", "--batch", "3"], "there is nothing to measure"),
        (["light.onnx", "--size", "height=16"], "the model has no dynamic dimension 'height'"),
        (["light.onnx", "--size", "side=16", "--plot", "no/such/folder/p.svg"], "cannot write"),
        (["fixed.onnx", "--against", "json:dumps"], "dumps does not run on the file's inputs"),
    ],
)
def test_errors(arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["bench", str(folder / arguments[0]), *arguments[1:]]) == 1
    assert message in capsys.readouterr().err


def test_a_fixed_batch_is_the_one_that_is_measured(folder: Path) -> None:
    net = f"{folder / 'net.py'}:net"
    result = tonnx.bench(folder / "fixed.onnx", against=net, seconds=0.02, memory=False)
    assert [(timing.contender, timing.batch) for timing in result.timings] == [("fixed.onnx", 2), ("Conv2d", 2)]


def _identity(path: Path, names: str, shape: list | None) -> Path:
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n in (*names, *names.upper())]
    nodes = [onnx.helper.make_node("Relu", [name], [name.upper()]) for name in names]
    graph = onnx.helper.make_graph(nodes, "g", ends[: len(names)], ends[len(names) :])
    imports = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def test_dimensions_without_names(tmp_path: Path) -> None:
    path = _identity(tmp_path / "a.onnx", "x", [None, None])
    with pytest.raises(tonnx.InvalidArgument, match="how large is axis 1 of x") as raised:
        tonnx.bench(path, seconds=0.01, memory=False)
    assert "--size x.1=224" in str(raised.value)
    assert tonnx.bench(path, sizes={"x.1": 3}, seconds=0.01, memory=False).timings


@pytest.mark.parametrize(
    ("names", "shape", "options", "message"),
    [
        ("x", None, {}, "how many dimensions has x: float32"),
        ("x", [1], {"inputs": {"x": np.array([np.nan], np.float32)}}, "the array for x has NaN"),
        ("xy", [1], {}, "one.onnx and other.onnx do not take the same inputs"),
    ],
)
def test_inputs_that_cannot_be(names: str, shape: list | None, options: dict, message: str, tmp_path: Path) -> None:
    files = [_identity(tmp_path / "one.onnx", names[0], shape), _identity(tmp_path / "other.onnx", names, shape)]
    with pytest.raises(tonnx.InvalidArgument, match=message):
        tonnx.bench(*files, seconds=0.01, memory=False, **options)


def test_against_what_is_saved(folder: Path, tmp_path: Path) -> None:
    """Another file, an exported program, a script; a Paddle layer and what Paddle saved."""
    x = torch.rand(2, 3, 16, 16)
    net = torch.nn.Conv2d(3, 2, 1).eval()
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    torch.jit.save(torch.jit.trace(net, x), tmp_path / "net.pt")
    found = []
    for against in (folder / "light.onnx", tmp_path / "net.pt2", tmp_path / "net.pt"):
        result = tonnx.bench(folder / "fixed.onnx", against=str(against), seconds=0.02, memory=False)
        found.append(result.timings[1].contender)
    assert found == ["light.onnx", "ExportedProgram", "RecursiveScriptModule"]


def test_against_paddle(folder: Path, tmp_path: Path) -> None:
    paddle = pytest.importorskip("paddle")
    (tmp_path / "layer.py").write_text("import paddle\n\n\ndef make_layer():\n    return paddle.nn.Conv2D(3, 2, 1)\n")
    spec = paddle.static.InputSpec([None, 3, 16, 16], "float32", "img")
    paddle.jit.save(paddle.nn.Conv2D(3, 2, 1), str(tmp_path / "saved" / "inference"), input_spec=[spec])
    for against, name in ((f"{tmp_path / 'layer.py'}:make_layer", "Conv2D"), (str(tmp_path / "saved"), "saved")):
        result = tonnx.bench(folder / "fixed.onnx", against=against, seconds=0.02, memory=False)
        assert [timing.contender for timing in result.timings] == ["fixed.onnx", name]
