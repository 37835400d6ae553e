"""Where a file departs from its model: faults planted in models of every size, and the node that is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

import tonnx
from tests.proof.locate.harness import (
    FAULTS,
    MODULES,
    X,
    another_attribute,
    another_operator,
    deep,
    exported,
    other_weights,
)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("blocks", "places"), [(1, (0.0,)), (12, (0.0, 0.5, 1.0))])
def test_exactly_the_planted_node_is_named(fault: str, blocks: int, places: tuple[float, ...], tmp_path: Path) -> None:
    model, path = deep(blocks), tmp_path / "net.onnx"
    good = exported(model, (X,), path)
    operator, plant = FAULTS[fault]
    candidates = [i for i, node in enumerate(good.graph.node) if node.op_type == operator]
    for place in places:
        index = candidates[round(place * (len(candidates) - 1))]
        bad = onnx.ModelProto()
        bad.CopyFrom(good)
        plant(bad, index)
        onnx.save(bad, path)
        result = tonnx.verify(path, model, (X,), values=False)
        assert not result.ok
        located = result.located
        assert [node.index for node in located.nodes] == [index] and located.confirmed
        block = candidates.index(index)
        assert located.module == f"blocks.{block}.{MODULES[operator]}".rstrip(".")
        assert located.source.startswith("tests/proof/locate/harness.py:") and located.comparison is not None
        assert all(comparison.ok for comparison in located.inputs)


def test_in_500_nodes(tmp_path: Path) -> None:
    model, path = deep(125), tmp_path / "net.onnx"
    bad = exported(model, (X,), path)
    assert len(bad.graph.node) >= 500
    index = [i for i, node in enumerate(bad.graph.node) if node.op_type == "Tanh"][80]
    another_operator(bad, index)
    onnx.save(bad, path)
    located = tonnx.verify(path, model, (X,), values=False, sizes=False).located
    assert [node.index for node in located.nodes] == [index] and located.module == "blocks.80.act"
    assert located.compared >= 500


@pytest.mark.parametrize("opset", [7, 11, 26])
def test_at_old_and_new_opsets(opset: int, tmp_path: Path) -> None:
    """Below 17 a normalisation is nine nodes: they are named together, and the one that was changed is among them."""
    model, path = deep(3), tmp_path / "net.onnx"
    bad = exported(model, (X,), path, opset)
    sqrt = [i for i, node in enumerate(bad.graph.node) if node.op_type in ("Sqrt", "LayerNormalization")][1]
    if opset < 17:
        bad.graph.node[sqrt].op_type = "Exp"
    else:
        another_attribute(bad, sqrt)
    onnx.save(bad, path)
    located = tonnx.verify(path, model, (X,), values=False).located
    assert sqrt in [node.index for node in located.nodes] and len(located.nodes) <= 10
    assert (located.operator, located.module) == ("aten.layer_norm.default", "blocks.1.norm")


def test_two_faults_the_first_is_named(tmp_path: Path) -> None:
    model, path = deep(6), tmp_path / "net.onnx"
    bad = exported(model, (X,), path)
    tanhs = [i for i, node in enumerate(bad.graph.node) if node.op_type == "Tanh"]
    for place in (tanhs[2], tanhs[4]):
        another_operator(bad, place)
    onnx.save(bad, path)
    located = tonnx.verify(path, model, (X,), values=False).located
    assert [node.index for node in located.nodes] == [tanhs[2]]


class Turned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


def test_a_file_that_does_not_run(tmp_path: Path) -> None:
    """Nothing is compared before the only node that fails: it is named all the same."""
    model, path, x = Turned().eval(), tmp_path / "net.onnx", torch.randn(3, 2, 4)
    bad = exported(model, (x,), path)
    index = [node.op_type for node in bad.graph.node].index("LSTM")
    names = bad.graph.node[index].input
    names[1], names[2] = names[2], names[1]
    del bad.graph.value_info[:]
    onnx.save(bad, path)
    located = tonnx.verify(path, model, (x,), values=False).located
    assert index in [node.index for node in located.nodes]


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.last = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.bn(self.conv(x))))


def test_a_fused_layer_is_named_with_all_that_it_stands_for(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, path, x = Normed().eval(), tmp_path / "net.onnx", torch.randn(1, 2, 6, 6)
    nn.init.uniform_(model.bn.running_mean)
    bad = exported(model, (x,), path)
    assert bad.graph.node[0].op_type == "Conv"
    other_weights(bad, 0)
    onnx.save(bad, path)
    located = tonnx.verify(path, model, (x,), values=False).located
    assert [node.index for node in located.nodes] == [0]
    assert located.operator == "aten.conv2d.default + aten.batch_norm.default"


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > -1e9, lambda z: torch.exp(z), lambda z: z - 1, (x * 2,))
        return torch.tanh(y)


def test_the_node_in_a_branch_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    bad = exported(Branches(), (X,), path)
    index = next(i for i, node in enumerate(bad.graph.node) if node.op_type == "If")
    (branch,) = (a.g for a in bad.graph.node[index].attribute if any(n.op_type == "Exp" for n in a.g.node))
    next(node for node in branch.node if node.op_type == "Exp").op_type = "Sin"
    onnx.save(bad, path)
    located = tonnx.verify(path, Branches(), (X,), values=False).located
    assert [(node.index, node.op_type) for node in located.nodes] == [(index, "Sin")]
    assert located.operator == "aten.exp.default" and "then_branch of If" in str(located)


class Steps(nn.Module):
    """A loop over a dynamic size, which becomes a Loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = x[:, 0]
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return torch.tanh(h * 2)


def test_the_node_in_a_loop_is_named(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path, x, model = tmp_path / "net.onnx", torch.randn(2, 4, 3), Steps().eval()
    bad = exported(model, (x,), path, dynamic_axes={"x": {1: "time"}})
    index = next(i for i, node in enumerate(bad.graph.node) if node.op_type == "Loop")
    body = bad.graph.node[index].attribute[0].g
    next(node for node in body.node if node.op_type == "Tanh").op_type = "Sin"
    onnx.save(bad, path)
    located = tonnx.verify(path, model, (x,), values=False).located
    assert "Sin" in [node.op_type for node in located.nodes] and located.operator == "aten.gru_cell.default"
    assert all(node.index == index and "pass 1 of Loop" in node.inside for node in located.nodes)


class Nested(nn.Module):
    """A branch in every pass of a loop."""

    def forward(self, x: Tensor) -> Tensor:
        h = x[:, 0]
        for t in range(x.shape[1]):
            if h.sum() > 0:
                h = torch.tanh(h)
                h = h - torch.cos(x[:, t])
            else:
                h = torch.exp(h) * 0.3 + x[:, t]
        return h * 2


def test_the_node_in_a_branch_in_a_loop_is_named(tmp_path: Path) -> None:
    path, x = tmp_path / "net.onnx", torch.linspace(0.1, 1, 24).reshape(2, 4, 3)
    bad = exported(Nested(), (x,), path, dynamic_axes={"x": {1: "time"}})
    loop = next(i for i, node in enumerate(bad.graph.node) if node.op_type == "Loop")
    inner = next(node for node in bad.graph.node[loop].attribute[0].g.node if node.op_type == "If")
    sides = {a.name: a.g for a in inner.attribute}
    next(node for node in sides["else_branch"].node if node.op_type == "Exp").op_type = "Sin"
    onnx.save(bad, path)
    located = tonnx.verify(path, Nested(), (x,), values=False, reproducer=tmp_path / "part.onnx").located
    assert [(node.index, node.op_type) for node in located.nodes] == [(loop, "Sin")]
    assert "else_branch of If" in located.nodes[0].inside and "of Loop" in located.nodes[0].inside
    held = dict(np.load(located.reproducer[1]))
    expected = held.pop("expected")
    (actual,) = onnxruntime.InferenceSession(str(located.reproducer[0])).run(None, held)
    np.testing.assert_allclose(np.exp(next(iter(held.values()))), expected, rtol=1e-5)
    assert np.abs(actual - expected).max() > 1e-3


def test_the_node_in_a_function_is_named(tmp_path: Path) -> None:
    """Functions in functions, called twice: the fault shows in the first call."""
    outer = [helper.make_node("Sin", ["X"], ["a"]), helper.make_node("Inner", ["a"], ["Y"], domain="my")]
    inner = [helper.make_node("Exp", ["X"], ["t"]), helper.make_node("Neg", ["t"], ["Y"])]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
    functions = [
        helper.make_function("my", "Outer", ["X"], ["Y"], outer, opsets),
        helper.make_function("my", "Inner", ["X"], ["Y"], inner, opsets[:1]),
    ]
    nodes = [helper.make_node("Outer", [f"v{i}"], [f"v{i + 1}"], domain="my", name=f"call{i}") for i in range(2)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in ("v0", "v2")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9), path)

    def once(x: Tensor) -> Tensor:
        return -torch.tanh(torch.sin(x))

    located = tonnx.verify(path, lambda x: once(once(x)), (torch.rand(2, 4) + 0.5,), values=False, sizes=False).located
    assert "the function Outer 'call0'" in str(located) and "Exp" in [node.op_type for node in located.nodes]
