"""Where a file departs from its model: faults planted in models of every size, and the node that is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
from tests.frontends.paddle.archive import unpacked
from tests.test_networks import NETS
from tonnx.frontends.torch.settings import Settings
from tonnx.legalise import engine
from tonnx.legalise.table import DOWN, Step
from tonnx.proof.locate import cut, sweep


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, width)
        self.act = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        return x - self.act(self.fc(self.norm(x)))


class Deep(nn.Module):
    """Four nodes a block, and one at the end."""

    def __init__(self, blocks: int, width: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return torch.sigmoid(x)


def deep(blocks: int) -> Deep:
    torch.manual_seed(0)
    model = Deep(blocks).eval()
    for block in model.blocks:
        nn.init.uniform_(block.norm.bias, -0.5, 0.5)
    return model


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


def exported(model: nn.Module, args: Any, path: Path, opset: int = 18, **options: Any) -> onnx.ModelProto:
    tonnx.export(model, args, path, opset_version=opset, verify=False, **options)
    return onnx.load(path)


# Faults


def other_weights(model: onnx.ModelProto, index: int) -> None:
    name = next(n for n in model.graph.node[index].input if any(n == t.name for t in model.graph.initializer))
    tensor = next(t for t in model.graph.initializer if t.name == name)
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[::-1].copy(), name))


def another_attribute(model: onnx.ModelProto, index: int) -> None:
    node = model.graph.node[index]
    name, value = {"Gemm": ("alpha", 1.25), "LayerNormalization": ("epsilon", 0.5)}[node.op_type]
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def swapped(model: onnx.ModelProto, index: int) -> None:
    node = model.graph.node[index]
    node.input[0], node.input[1] = node.input[1], node.input[0]


def another_operator(model: onnx.ModelProto, index: int) -> None:
    model.graph.node[index].op_type = "Sin"


FAULTS: dict[str, tuple[str, Callable[[onnx.ModelProto, int], None]]] = {
    "other weights": ("Gemm", other_weights),
    "another attribute": ("Gemm", another_attribute),
    "operands swapped": ("Sub", swapped),
    "another operator": ("Tanh", another_operator),
    "another epsilon": ("LayerNormalization", another_attribute),
}
MODULES = {"Gemm": "fc", "Tanh": "act", "LayerNormalization": "norm", "Sub": ""}


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
        assert located.source.startswith("tests/proof/test_locate.py:") and located.comparison is not None
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


def wrong_rule(monkeypatch: pytest.MonkeyPatch, operator: str, function: Any) -> None:
    right = Settings.rule

    def rule(self: Settings, schema: Any, **how: Any) -> Any:
        found = right(self, schema, **how)
        return replace(found, function=function) if schema.name == operator else found

    monkeypatch.setattr(Settings, "rule", rule)


def test_a_failed_export_names_operator_node_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_rule(monkeypatch, "aten::tanh", lambda op, x: op.Sin(x))
    with pytest.raises(tonnx.VerificationFailed) as caught:
        tonnx.export(deep(3), (X,), tmp_path / "net.onnx", dynamic_axes={"x": {0: "batch"}})
    located = caught.value.located
    assert (located.operator, located.module) == ("aten.tanh.default", "blocks.0.act")
    assert [node.op_type for node in located.nodes] == ["Sin"]
    text = str(caught.value)
    assert "the first node that differs: aten.tanh.default in blocks.0.act (tests/proof/test_locate.py:" in text
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


# Files that say nothing


def strip(model: onnx.ModelProto) -> None:
    """All names and origins go."""
    renamed: dict[str, str] = {}
    kept = {value.name for value in (*model.graph.input, *model.graph.output)}
    for node in model.graph.node:
        node.ClearField("name")
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
        for place, name in enumerate(node.output):
            if name not in kept:
                renamed[name] = node.output[place] = f"v{len(renamed)}"
    del model.graph.value_info[:]


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
