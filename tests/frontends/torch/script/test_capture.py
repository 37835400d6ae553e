"""How a model becomes a graph: given as TorchScript, scripted, traced; what a trace may not drop."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import tonnx
from tests.frontends.torch.script.programs_modules import Recursive, Stateful
from tonnx.cli import main

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")


class TestModel(nn.Module):
    """A tutorial's: a scripted function as a method of a module that is not scripted."""

    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
        self.relu = torch.nn.ReLU()

    @torch.jit.script
    def _abs(x):
        if x.sum() > 0:
            return x
        return -x

    def forward(self, x, h):
        x = self._abs(x)
        x = self.linear(x)
        x1 = x + h
        x2 = self.relu(x1)
        return x1, x2


@torch.jit.script
def pick(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * 2
    return x - 1


class Plain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x
        if y.max() > 3:  # branch
            y = y + 1
        return y


class Calls(nn.Module):
    """Cannot be scripted (any number of inputs), so that it is traced; the function keeps its branch."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return pick(inputs[0]) + 1


class CallsAndBranches(nn.Module):
    def forward(self, *inputs: Tensor) -> Tensor:
        y = pick(inputs[0])
        if y.max() > 3:  # dropped
            y = y + 1
        return y


class Child(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child = torch.jit.script(Recursive())
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.child(x))


def run(path: Path, **feeds: Tensor) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(path)
    return list(session.run(None, {name: value.numpy() for name, value in feeds.items()}))


def line(text: str) -> str:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"test_capture.py:{next(i for i, code in enumerate(lines, 1) if code.endswith(text))}"


def test_the_tutorials_model(tmp_path: Path) -> None:
    model = TestModel()
    model.eval()
    path = tmp_path / "model.onnx"
    names = {"in_x": {0: "batch"}, "in_h": {0: "batch"}, "out0": {0: "batch"}, "out1": {0: "batch"}}
    result = tonnx.export(
        model,
        (torch.randn([1, 4]), torch.randn([1, 2])),
        path,
        input_names=["in_x", "in_h"],
        output_names=["out0", "out1"],
        dynamic_axes=names,
    )
    assert [value.name for value in result.model.graph.inputs] == ["in_x", "in_h"]
    assert [value.name for value in result.model.graph.outputs] == ["out0", "out1"]
    assert any(node.op_type == "If" for node in result.model.graph)
    assert result.capture == "torch.jit.trace" and "_abs" in str(result)
    for sign in (1, -1):
        x, h = torch.rand(3, 4) * sign, torch.randn(3, 2)
        for got, want in zip(run(path, in_x=x, in_h=h), model(x, h), strict=True):
            np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "model, way, how",
    [
        (nn.Linear(4, 4), "auto", "recorder"),
        (nn.Linear(4, 4), "script", "torch.jit.script"),
        (nn.Linear(4, 4), "trace", "torch.jit.trace"),
        (torch.jit.script(nn.Linear(4, 4)), "auto", "TorchScript"),
        (torch.jit.trace(nn.Linear(4, 4), torch.ones(2, 4)), "auto", "TorchScript"),
        (torch.jit.freeze(torch.jit.script(Recursive().eval())), "auto", "TorchScript"),
        (pick, "auto", "TorchScript"),
        (Plain(), "script", "torch.jit.script"),
        (Calls(), "auto", "torch.jit.trace"),
        (Child(), "auto", "torch.jit.script"),
    ],
)
def test_ways(model: Any, way: str, how: str) -> None:
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
    result = tonnx.export(model, (x,), input_names=["x"], dynamic_axes={"x": {0: "n"}}, capture=way)
    assert result.capture == how
    assert result.verification is not None and result.verification.ok
    if how.startswith("torch.jit") and way == "auto":
        assert any(note.startswith(f"captured by {how}: ") for note in result.notes)


def test_a_branch_that_a_trace_drops_is_not_accepted() -> None:
    with pytest.raises(tonnx.VerificationFailed) as caught:
        tonnx.export(Plain(), (torch.zeros(2, 4),), capture="trace")
    assert "[!] only the path of the example is in the file" in str(caught.value)
    assert line("# branch") in str(caught.value)
    forced = tonnx.export(Plain(), (torch.zeros(2, 4),), capture="trace", verify=False)
    assert any(note.startswith("[!]") and line("# branch") in note for note in forced.notes)


def test_scripted_parts_beside_a_branch() -> None:
    """torch.export's own way follows both, the trace is not taken."""
    from tonnx.frontends.torch.call.signature import bind_call
    from tonnx.frontends.torch.capture.torchscript import trace
    from tonnx.frontends.torch.convert import as_module

    module = as_module(CallsAndBranches())
    call = bind_call(module, (torch.randn(2, 4),), None, None)
    with pytest.raises(tonnx.CaptureError) as caught:
        trace(module, call, forced=False)
    assert "tracing would keep only the path that the example takes" in caught.value.what
    assert line("# dropped") in (caught.value.where or "")
    assert "capture='trace'" in (caught.value.hint or "")


def test_a_trace_that_depends_on_sizes_is_not_accepted() -> None:
    class Rows(nn.Module):
        def forward(self, *inputs: Tensor) -> Tensor:
            y = pick(inputs[0])
            return sum((row for row in y), torch.zeros(4))  # unrolled

    from tonnx.frontends.torch.call.dynamic import apply_dynamic_axes
    from tonnx.frontends.torch.call.signature import bind_call
    from tonnx.frontends.torch.capture.torchscript import trace

    call = bind_call(Rows(), (torch.randn(3, 4),), None, ["x"])
    apply_dynamic_axes(call, {"x": [0]}, [])
    with pytest.raises(tonnx.CaptureError, match="tracing would keep only the path"):
        trace(Rows(), call, forced=False)


@pytest.mark.parametrize("way", ["", "fx", None])
def test_unknown_way(way: Any) -> None:
    with pytest.raises(tonnx.InvalidArgument, match="capture must be one of auto, record, export, script, trace"):
        tonnx.export(nn.Linear(4, 4), (torch.ones(2, 4),), capture=way)


def test_export_of_torchscript_is_refused() -> None:
    with pytest.raises(tonnx.InvalidArgument, match=r"torch.export takes no TorchScript"):
        tonnx.export(pick, (torch.ones(2, 4),), capture="export")


def test_what_cannot_be_compiled() -> None:
    with pytest.raises(tonnx.CaptureError) as caught:
        tonnx.export(Calls(), (torch.ones(2, 4),), capture="script")
    assert "torch.jit.script cannot compile Calls" in caught.value.what
    assert "variable number of arguments" in (caught.value.why or "")


# Archives


def test_a_forward_with_overloads_is_refused() -> None:
    with pytest.raises(tonnx.CaptureError, match="gives LSTM no forward of its own"):
        tonnx.export(nn.LSTM(3, 4), (torch.ones(2, 1, 3),), capture="script")


@pytest.mark.parametrize("name", ["model.pt", "model.ts", "model.archive"])
def test_archives(name: str, tmp_path: Path) -> None:
    archive, path = tmp_path / name, tmp_path / "model.onnx"
    torch.jit.save(torch.jit.script(Recursive().eval()), archive)
    result = tonnx.export(str(archive), (torch.randn(2, 4),), path, dynamic_axes={"x": {0: "n"}})
    assert result.capture == "TorchScript" and result.verification is not None and result.verification.ok
    assert "gates.0.up.weight" in result.model.graph.initializers
    assert main(["export", str(archive), "-o", str(path), "--input", "x:float32[n,4]", "--opset", "13"]) == 0


def test_weights_are_no_archive(tmp_path: Path) -> None:
    torch.save(nn.Linear(4, 4).state_dict(), tmp_path / "weights.pt")
    with pytest.raises(tonnx.InvalidArgument, match="holds weights, not a model"):
        tonnx.export(str(tmp_path / "weights.pt"), (torch.ones(2, 4),))
    with pytest.raises(tonnx.InvalidArgument, match="there is no file"):
        tonnx.export(str(tmp_path / "none.pt"), (torch.ones(2, 4),))
    with torch.package.PackageExporter(tmp_path / "package.pt") as exporter:
        exporter.save_pickle("models", "numbers.pkl", [1, 2])
    with pytest.raises(tonnx.InvalidArgument, match=r"an archive of torch\.package"):
        tonnx.export(str(tmp_path / "package.pt"), (torch.ones(2, 4),))


# The user's module


def test_the_module_is_left_as_it_was() -> None:
    module = torch.jit.script(Stateful())
    module.train()
    before = copy.deepcopy(module.state_dict())
    result = tonnx.export(module, (torch.ones(2, 4),), output_names=["y", "mean", "steps"])
    assert result.verification is not None and result.verification.ok
    assert module.training and module.steps == 1
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_training_is_off_without_touching_the_module() -> None:
    module = torch.jit.script(nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5)))
    assert module.training
    result = tonnx.export(module, (torch.randn(3, 4),))
    assert {node.op_type for node in result.model.graph} <= {"BatchNormalization", "Mul", "Add"}
    assert module.training


def test_shared_weights_are_stored_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(40, 40, bias=False)
            self.two = nn.Linear(40, 40, bias=False)
            self.two.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.two(self.one(x).relu())

    result = tonnx.export(torch.jit.script(Tied()), (torch.randn(3, 40),), do_constant_folding=False)
    weights = [name for name, value in result.model.graph.initializers.items() if value.const_value.size == 1600]
    assert weights == ["one.weight"]


def test_source_and_module_of_nodes() -> None:
    result = tonnx.export(torch.jit.script(Recursive().eval()), (torch.randn(2, 4),), opset_version=21)
    found = [node for graph in (result.model.graph, *result.model.graph.subgraphs()) for node in graph]
    relu = next(node for node in found if node.op_type == "Relu")
    assert relu.metadata_props["tonnx.module"] == "gates.0"
    assert relu.metadata_props["tonnx.source"].startswith("tests/frontends/torch/script/programs_modules.py:")
    norm = next(node for node in found if node.metadata_props.get("tonnx.module") == "norm")
    assert norm.metadata_props["tonnx.source"].startswith("tests/frontends/torch/script/programs_modules.py:")


# Arguments


def test_names_defaults_and_keywords() -> None:
    @torch.jit.script
    def program(x: Tensor, scale: float = 2.0, y: Tensor | None = None) -> dict[str, Tensor]:
        z = x * scale
        if y is not None:
            z = z + y
        return {"z": z, "size": torch.tensor(z.size(0))}

    x = torch.randn(3, 2)
    result = tonnx.export(program, (x,), kwargs={"y": x}, dynamic_axes={"x": {0: "n"}, "y": {0: "n"}, "z": {0: "n"}})
    assert [value.name for value in result.model.graph.inputs] == ["x", "y"]
    assert [value.name for value in result.model.graph.outputs] == ["z", "size"]
    plain = tonnx.export(program, (x, 3.0), output_names=["a", "b"], dynamic_shapes={"x": {0: "n"}})
    assert [value.name for value in plain.model.graph.outputs] == ["a", "b"]
    assert str(plain.model.graph.inputs[0].shape[0]) == "n"  # type: ignore[index]
    with pytest.raises(tonnx.InvalidArgument, match="missing a required argument: 'x'"):
        tonnx.export(program, ())
