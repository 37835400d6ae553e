"""A small zoo that was run once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tonnx.cli import main

MANIFEST = """
[defaults]
time = 100
[[model]]
model = "net.onnx"
opset = [9, 13]
[[model]]
model = "bad.py:aborts"
opset = 17
[[model]]
model = "missing.onnx"
opset = 17
"""


def write_net(path: Path, scale: float = 2.0) -> None:
    weight = numpy_helper.from_array(np.full((4, 4), scale, np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8), path)


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a manifest, and one run of it in ``out``."""
    folder = tmp_path_factory.mktemp("zoo")
    write_net(folder / "net.onnx")
    (folder / "bad.py").write_text("import os\nos.abort()\n", encoding="utf-8")
    (folder / "models.toml").write_text(MANIFEST, encoding="utf-8")
    assert main(["zoo", str(folder / "models.toml"), "-o", str(folder / "out"), "--jobs", "2", "-q"]) == 1
    return folder
