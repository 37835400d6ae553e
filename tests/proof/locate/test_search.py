"""What the search for a fault does with rounding, memory and parts, and what a failed export says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

import tonnx
from tests.proof.locate.harness import X, another_operator, deep, exported, wrong_rule
from tests.test_networks import NETS
from tonnx.legalise import engine
from tonnx.legalise.table import DOWN, Step
from tonnx.proof.locate import cut, sweep

# Rounding


class Factors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.ParameterList(torch.rand(8) + 0.5 for _ in range(30))

    def forward(self, x: Tensor) -> Tensor:
        for factor in self.factors:
            x = x * factor
        return x


def test_rounding_is_not_a_fault(tmp_path: Path) -> None:
    """Every factor a little off: no node is wrong by itself, though the output is."""
    torch.manual_seed(0)
    model, path = Factors().eval(), tmp_path / "net.onnx"
    bad = exported(model, (X,), path)
    for tensor in bad.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(1 + 5e-4), tensor.name))
    onnx.save(bad, path)
    result = tonnx.verify(path, model, (X,), values=False, sizes=False)
    assert not result.ok
    located = result.located
    assert not located.confirmed and "differences add up" in located.note
    assert str(located).startswith("no node is wrong by itself")


def test_a_small_fault_that_grows_is_found_where_it_arises(tmp_path: Path) -> None:
    """Its own value is within tolerance; only later ones are not, and those are right by themselves."""

    class Growing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cos(torch.sin(torch.tanh(x) * 100) * 2)

    path = tmp_path / "net.onnx"
    bad = exported(Growing(), (X,), path)
    tanh = next(i for i, node in enumerate(bad.graph.node) if node.op_type == "Tanh")
    bad.graph.initializer.append(numpy_helper.from_array(np.float32(2e-5), "little"))
    name, bad.graph.node[tanh].output[0] = bad.graph.node[tanh].output[0], "before"
    doc = bad.graph.node[tanh].doc_string
    bad.graph.node[tanh].ClearField("doc_string")
    planted = helper.make_node("Add", ["before", "little"], [name], name="planted", doc_string=doc)
    bad.graph.node.insert(tanh + 1, planted)
    onnx.save(bad, path)
    result = tonnx.verify(path, Growing(), (X,), values=False, sizes=False, rtol=0, atol=1e-4)
    assert not result.ok and not result.located.confirmed
    assert "planted" in [node.name for node in result.located.nodes]
    assert result.located.operator == "aten.tanh.default"


def test_every_value_of_a_good_file_agrees(tmp_path: Path) -> None:
    """Else something says of a value that it is another one's."""
    for name in ("lstm", "attention", "super resolution in place"):
        net, path = NETS[name], tmp_path / "net.onnx"
        torch.manual_seed(0)
        model = net.build().eval()
        exported(model, net.inputs, path, input_names=net.names, dynamic_axes=net.dynamic)
        result = tonnx.verify(path, model, net.inputs, locate=True, sizes=False, values=False)
        assert result.ok and result.located is None
        assert len(result.differences) >= 3 and all(one.comparison.ok for one in result.differences), name
        assert [one.node.index for one in result.differences] == sorted(one.node.index for one in result.differences)


# What is kept in memory


def test_few_values_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, path = deep(40), tmp_path / "net.onnx"
    bad = exported(model, (X,), path)
    another_operator(bad, [i for i, node in enumerate(bad.graph.node) if node.op_type == "Tanh"][20])
    onnx.save(bad, path)
    whole, counts = cut.Cutter.run, []

    def counted(self: cut.Cutter, nodes: Any, given: Any, wanted: Any) -> Any:
        results = whole(self, nodes, given, wanted)
        counts.append(sum(array.nbytes for array in results.values()))
        return results

    monkeypatch.setattr(sweep, "BUDGET", 1000)
    monkeypatch.setattr(cut.Cutter, "run", counted)
    located = tonnx.verify(path, model, (X,), values=False, sizes=False).located
    assert located.module == "blocks.20.act"
    assert len(counts) > 15 and max(counts) < 2500  # 160 values of 96 bytes are 15360


# The part that shows it


def test_the_reproducer_shows_the_difference(tmp_path: Path) -> None:
    model, path = deep(5), tmp_path / "net.onnx"
    bad = exported(model, (X,), path)
    another_operator(bad, [i for i, node in enumerate(bad.graph.node) if node.op_type == "Tanh"][3])
    onnx.save(bad, path)
    located = tonnx.verify(path, model, (X,), values=False, reproducer=tmp_path / "part.onnx").located
    part, arrays = located.reproducer
    assert (part, arrays) == (tmp_path / "part.onnx", tmp_path / "part.npz")
    onnx.checker.check_model(str(part))
    assert [node.op_type for node in onnx.load(part).graph.node] == ["Sin"]
    held = dict(np.load(arrays))
    expected = held.pop("expected")
    (actual,) = onnxruntime.InferenceSession(str(part)).run(None, held)
    assert actual.shape == expected.shape and np.abs(actual - expected).max() > 1e-3
    (given,) = held.values()
    np.testing.assert_allclose(np.tanh(given), expected, rtol=1e-5)


def test_a_folder_that_cannot_be_written_to_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, path = deep(1), tmp_path / "net.onnx"
    bad = exported(model, (X,), path)
    another_operator(bad, next(i for i, node in enumerate(bad.graph.node) if node.op_type == "Tanh"))
    onnx.save(bad, path)

    def refuse(*_: Any, **__: Any) -> None:
        raise tonnx.TonnxError("cannot write part.onnx", why="Read-only file system")

    monkeypatch.setattr("tonnx.io.write.Staged.commit", refuse)
    located = tonnx.verify(path, model, (X,), values=False, reproducer=tmp_path / "part.onnx").located
    assert [node.op_type for node in located.nodes] == ["Sin"] and "Read-only file system" in located.note
    assert located.reproducer is None and not list(tmp_path.glob("*.npz"))


# A wrong lowering, at export


def test_a_failed_export_names_operator_node_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_rule(monkeypatch, "aten::tanh", lambda op, x: op.Sin(x))
    with pytest.raises(tonnx.VerificationFailed) as caught:
        tonnx.export(deep(3), (X,), tmp_path / "net.onnx", dynamic_axes={"x": {0: "batch"}})
    located = caught.value.located
    assert (located.operator, located.module) == ("aten.tanh.default", "blocks.0.act")
    assert [node.op_type for node in located.nodes] == ["Sin"]
    text = str(caught.value)
    assert "the first node that differs: aten.tanh.default in blocks.0.act (tests/proof/locate/harness.py:" in text
    assert "net.failed.part.onnx and net.failed.part.npz reproduce it" in text
    left = sorted(path.name.removeprefix("net.failed") for path in tmp_path.iterdir())
    assert left == [".onnx", ".part.npz", ".part.onnx"]


def test_a_fault_at_other_sizes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example passes: located on the inputs of the trial that does not."""
    wrong_rule(monkeypatch, "aten::tanh", lambda op, x: op.Tanh(x) + op.cast(op.Shape(x, start=0, end=1) - 3, x.dtype))
    with pytest.raises(tonnx.VerificationFailed, match="output 'output'") as caught:
        tonnx.export(deep(2), (X,), dynamic_axes={"x": {0: "batch"}})
    assert caught.value.verification.trials[0].ok
    assert caught.value.located.operator == "aten.tanh.default" and caught.value.located.module == "blocks.0.act"


def test_a_wrong_step_down_names_the_node_of_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = [("Tanh", "x", "a"), ("Gelu", "a", "b"), ("Sin", "b", "c"), ("Neg", "c", "d"), ("Cos", "d", "y")]
    nodes = [helper.make_node(kind, [read], [made], name=f"node_{made}") for kind, read, made in chain]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    engine.load()
    monkeypatch.setitem(DOWN._entries, "Gelu-20", Step("rule", "", lambda op, node: op.Relu(node.need("X"))))
    engine._next_down.cache_clear()
    try:
        with pytest.raises(tonnx.VerificationFailed) as caught:
            tonnx.retarget(model, 11, tmp_path / "out.onnx")
    finally:
        engine._next_down.cache_clear()
    located = caught.value.located
    assert located.framework == "ONNX" and located.operator == "Gelu 'node_b'"
    assert [node.op_type for node in located.nodes] == ["Relu"]
    assert (tmp_path / "out.failed.part.onnx").is_file()
