"""The fixture `onnx_export`: snapshots are written, hold, and say what changed and where."""

from __future__ import annotations

import importlib.util
import json
import linecache
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tonnx.errors import InvalidArgument
from tonnx.pytest_plugin import OnnxExport

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = self.conv(x).relu()
        return self.head(x.mean((2, 3)))
"""
CHANGES = {
    "nothing but the line": (("import torch\n", "import torch\n\n\n"), []),
    "an operator": (("relu()", "sigmoid()"), ["Sigmoid", "Relu", "net.py:13", "the output output of the example"]),
    "an attribute": (("3, 4, 3)", "3, 4, 3, padding=1)"), ["Conv in conv, net.py:13", "pads"]),
    "a weight": (("manual_seed(0)", "manual_seed(1)"), ["the weight", "of Conv in conv, net.py:13"]),
    "a shape": (("Linear(4, 5)", "Linear(4, 6)"), ["outputs: output float[2, 5] → output float[2, 6]", "Gemm in head"]),
}


def export(folder: Path, text: str, update: bool = False) -> None:
    """What a test with the fixture does, with another version of the same file."""
    file = folder / "net.py"
    file.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("net", file)
    assert spec is not None and spec.loader is not None
    linecache.checkcache()
    module = importlib.util.module_from_spec(spec)
    sys.modules["net"] = module
    try:
        spec.loader.exec_module(module)
        torch.manual_seed(0)
        fixture = OnnxExport(folder / "__onnx__/test_net", "test_export", folder, update)
        results = fixture(module.Net(), torch.rand(2, 3, 8, 8), opset=[11, 17], snapshot=True, verify="quick")
        assert list(results) == [11, 17]
    finally:
        del sys.modules["net"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the snapshots of the network as it is above."""
    folder = tmp_path_factory.mktemp("plugin")
    with pytest.raises(pytest.fail.Exception, match="pytest --tonnx-update"):
        export(folder, NET)
    export(folder, NET, update=True)
    return folder


def test_snapshots_are_small_and_readable(folder: Path) -> None:
    snapshots = sorted((folder / "__onnx__/test_net").iterdir())
    assert [file.name for file in snapshots] == ["test_export-opset11.json", "test_export-opset17.json"]
    snapshot = json.loads(snapshots[0].read_text(encoding="utf-8"))
    assert snapshot["opset"] == 11 and [node[0] for node in snapshot["nodes"]][:2] == ["Conv", "Relu"]
    assert snapshots[0].stat().st_size < 5000


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_named_with_its_place(change: str, folder: Path) -> None:
    (old, new), parts = CHANGES[change]
    assert old in NET
    if not parts:
        export(folder, NET.replace(old, new))
        return
    with pytest.raises(pytest.fail.Exception) as caught:
        export(folder, NET.replace(old, new))
    assert not [part for part in parts if part not in str(caught.value)], str(caught.value)


def test_a_broken_snapshot_is_said_to_be_one(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "__onnx__/test_net/test_export-opset11.json"
    file.parent.mkdir(parents=True)
    file.write_text("{", encoding="utf-8")
    with pytest.raises(InvalidArgument, match="is not a snapshot"):
        export(tmp_path, NET)


def test_the_fixture_and_the_option(tmp_path: Path) -> None:
    """In a pytest of its own, which imports nothing heavy for it."""
    test = """
import sys
def test_export(onnx_export, request):
    assert onnx_export._update and onnx_export._name == "test_export"
    assert onnx_export._folder.parts[-2:] == ("__onnx__", "test_it")
    assert not {"torch", "numpy", "onnx", "tonnx.errors"} & set(sys.modules)
"""
    (tmp_path / "test_it.py").write_text(test, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    plugins = ["-p", "no:tonnx", "-p", "tonnx.pytest_plugin", "-p", "no:hypothesispytest", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "--tonnx-update"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, encoding="utf-8", env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
