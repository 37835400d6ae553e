"""Faults in files that say nothing of the model that they were made from, and in those of Paddle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

import tonnx
from tests.frontends.paddle.archive import unpacked
from tests.proof.locate.harness import FAULTS, MODULES, X, another_operator, deep, exported, other_weights, strip

# Files that say nothing


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_in_a_file_that_says_nothing(fault: str, place: int, tmp_path: Path) -> None:
    model, path = deep(5), tmp_path / "net.onnx"
    bad = exported(model, (X,), path)
    operator, plant = FAULTS[fault]
    index = [i for i, node in enumerate(bad.graph.node) if node.op_type == operator][place]
    plant(bad, index)
    strip(bad)
    onnx.save(bad, path)
    located = tonnx.verify(path, model, (X,), values=False, sizes=False).located
    assert [node.index for node in located.nodes] == [index]
    assert located.module == f"blocks.{place}.{MODULES[operator]}".rstrip(".")


def test_what_is_normalised_already_does_not_mislead(tmp_path: Path) -> None:
    """The norm's own output in the place of what it divides makes all right, too; but the fault is behind that."""
    torch.manual_seed(0)
    model, path = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 3), nn.Tanh()), tmp_path / "net.onnx"
    x = torch.randn(4, 8) * 3
    bad = exported(model, (x,), path, opset=13)
    index = next(i for i, node in enumerate(bad.graph.node) if node.op_type == "Sqrt")
    bad.graph.node[index].op_type = "Abs"
    strip(bad)
    onnx.save(bad, path)
    located = tonnx.verify(path, model, (x,), values=False, sizes=False).located
    assert index in [node.index for node in located.nodes]
    assert located.operator == "aten.layer_norm.default" and located.module == "1"


def test_copies_behind_the_fault_are_not_named(tmp_path: Path) -> None:
    """What other exporters put behind the last layer: a product with 1, an Identity."""
    torch.manual_seed(0)
    model, path = nn.Sequential(nn.Linear(8, 5), nn.Softmax(-1)), tmp_path / "net.onnx"
    x = torch.randn(4, 8)
    bad = exported(model, (x,), path, output_names=["y"])
    index = next(i for i, node in enumerate(bad.graph.node) if node.op_type == "Softmax")
    bad.graph.node[index].attribute[0].i = 0
    bad.graph.node[index].output[0] = "before"
    bad.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "one"))
    bad.graph.node.append(helper.make_node("Mul", ["before", "one"], ["between"]))
    bad.graph.node.append(helper.make_node("Identity", ["between"], ["y"]))
    strip(bad)
    onnx.save(bad, path)
    located = tonnx.verify(path, model, (x,), values=False, sizes=False).located
    assert [node.index for node in located.nodes] == [index] and located.operator == "aten.softmax.int"


def test_a_file_of_folded_norms_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its nodes says that it was a convolution, and that its value is a norm's: still the same model."""
    torch.manual_seed(0)
    layers = [part for _ in range(6) for part in (nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, eps=0.01))]
    model, path, x = nn.Sequential(*layers).eval(), tmp_path / "net.onnx", torch.randn(2, 3, 4, 4)
    assert [node.op_type for node in exported(model, (x,), path).graph.node] == ["Conv"] * 6

    def guessed(*_: Any) -> None:
        raise AssertionError("the file says which values are which")

    monkeypatch.setattr("tonnx.proof.locate.search.by_contents", guessed)
    result = tonnx.verify(path, model, (x,), values=False, sizes=False, locate=True)
    assert len(result.differences) == 6 and all(difference.comparison.ok for difference in result.differences)


def test_two_faults_in_a_file_that_says_nothing(tmp_path: Path) -> None:
    """Then nothing behind the first one is ever right again: the nodes after it are named, and what was not found."""
    model, path = deep(4), tmp_path / "net.onnx"
    bad = exported(model, (X,), path)
    tanhs = [i for i, node in enumerate(bad.graph.node) if node.op_type == "Tanh"]
    for place in (tanhs[1], tanhs[3]):
        another_operator(bad, place)
    strip(bad)
    onnx.save(bad, path)
    located = tonnx.verify(path, model, (X,), values=False, sizes=False).located
    assert min(node.index for node in located.nodes) == tanhs[1]
    assert "aten.tanh.default blocks.1.act" in located.note


class Padded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.max_pool2d(nn.functional.pad(x, (1, 1, 1, 1)), 3, 1)


def test_a_fault_of_the_runtime_alone(tmp_path: Path) -> None:
    """ONNX Runtime fuses a padding with zeros into the pooling behind it, which pads with minus infinity."""
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["padded"]),
        helper.make_node("MaxPool", ["padded"], ["y"], kernel_shape=[3, 3], strides=[1, 1]),
    ]
    info = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 1, 4, 4]) for n in "xy"}
    pads = numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads")
    graph = helper.make_graph(nodes, "g", [info["x"]], [info["y"]], [pads])
    path = tmp_path / "pool.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    result = tonnx.verify(path, Padded(), (-torch.rand(1, 1, 4, 4) - 1,), values=False)
    if result.ok:
        pytest.skip("this ONNX Runtime does not have the fault")
    assert not result.located.nodes
    assert "without ONNX Runtime's graph optimisations the whole is right too" in str(result.located)


# Paddle, which starts slowly: few cases, each with several faults


@pytest.mark.parametrize("kind", ["pir", "old"])
def test_saved_paddle_model(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("paddle")
    program, path = unpacked(kind, "lenet", tmp_path), tmp_path / "net.onnx"
    tonnx.export(program, f=path, opset_version=13, verify=False)
    good = onnx.load(path)
    layer = [i for i, node in enumerate(good.graph.node) if node.op_type == "Conv"][1]
    other_weights(good, layer)
    onnx.save(good, path)
    result = tonnx.verify(path, program, values=False, sizes=False, reproducer=tmp_path / "part.onnx")
    assert not result.ok and result.framework == "Paddle"
    assert "The difference of results between ONNXRuntime and Paddle looks bad!" in str(result)
    assert [node.index for node in result.located.nodes] == [layer] and "conv2d" in result.located.operator
    assert all(comparison.ok for comparison in result.located.inputs) and result.located.reproducer[1].is_file()


def test_paddle_layer(tmp_path: Path) -> None:
    paddle = pytest.importorskip("paddle")
    paddle.seed(0)
    layer = paddle.nn.Sequential(paddle.nn.Linear(4, 6), paddle.nn.Sigmoid(), paddle.nn.Linear(6, 2))
    layer.eval()
    x = paddle.rand([3, 4])
    path = tmp_path / "net.onnx"
    tonnx.export(layer, (x,), path, verify=False)
    bad = onnx.load(path)
    index = next(i for i, node in enumerate(bad.graph.node) if node.op_type == "Sigmoid")
    another_operator(bad, index)
    onnx.save(bad, path)
    result = tonnx.verify(path, layer, (x,), values=False, sizes=False)
    assert not result.ok and [node.index for node in result.located.nodes] == [index]
    assert result.located.operator == "pd_op.sigmoid" and result.located.module.startswith("Sigmoid")
