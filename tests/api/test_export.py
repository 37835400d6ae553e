"""What `tonnx.export` promises around the operators: calls, names, dynamic dimensions, files, state."""

from __future__ import annotations

import io
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.export import Dim

import tonnx
from tonnx.errors import InvalidArgument


class Net(nn.Module):
    """The smallest model with weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x))


def Call(function: Callable[..., Any]) -> nn.Module:
    """A function as a model, with the names of its parameters."""
    return type("Call", (nn.Module,), {"forward": staticmethod(function)})()


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclass
class Box:
    inner: torch.Tensor
    other: torch.Tensor


torch.export.register_dataclass(Box)


def t(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def export(model: Any, args: Any = (), f: Any = None, **options: Any) -> tonnx.ExportResult:
    result = tonnx.export(model, args, f, **options)
    if options.get("verify", True):
        assert result.verification is not None and result.verification.ok
        assert not result.verification.only_example
    return result


def inputs_of(result: tonnx.ExportResult) -> dict[str, list[Any]]:
    return _shapes(result.model.graph.inputs)


def outputs_of(result: tonnx.ExportResult) -> dict[str, list[Any]]:
    return _shapes(result.model.graph.outputs)


def _shapes(values: Any) -> dict[str, list[Any]]:
    return {value.name: [d if isinstance(d, int) else d.value for d in value.shape] for value in values}


# How a model is called

CALLS: list[tuple[str, Callable[..., Any], Any, dict[str, Any] | None, list[str]]] = [
    ("a lone tensor", lambda x: x + 1, t(2, 3), None, ["x"]),
    ("a tuple", lambda x, y: x + y, (t(2, 3), t(2, 3)), None, ["x", "y"]),
    ("a list is the arguments", lambda x, y: x + y, [t(2, 3), t(2, 3)], None, ["x", "y"]),
    ("keyword", lambda x, y: x + y, (t(2, 3),), {"y": t(2, 3)}, ["x", "y"]),
    ("only keywords, in the signature's order", lambda x, y: x + y, (), {"y": t(2, 3), "x": t(2, 3)}, ["x", "y"]),
    ("keyword-only", lambda x, *, scale: x * scale, (t(2, 3),), {"scale": t(3)}, ["x", "scale"]),
    ("trailing dict", lambda x, y, z: x + y * z, (t(2, 3), {"z": t(2, 3), "y": t(3)}), None, ["x", "y", "z"]),
    ("trailing empty dict", lambda x, y=None: x + 1, (t(2, 3), {}), None, ["x"]),
    ("a real dict at the end", lambda x, d: x + d["k"], (t(2, 3), {"k": t(3)}, {}), None, ["x", "d_k"]),
    ("a dict with other keys", lambda x, d: x + d["k"], (t(2, 3), {"k": t(3)}), None, ["x", "d_k"]),
    ("*args", lambda *xs: xs[0] + xs[1], (t(2, 3), t(3)), None, ["xs_0", "xs_1"]),
    ("**kwargs", lambda x, **rest: x + rest["b"] * rest["a"], (t(2, 3),), {"b": t(3), "a": t(3)}, ["x", "b", "a"]),
    ("nested", lambda x: x["a"][0] + x["a"][1] * x["b"], ({"a": [t(2, 3), t(3)], "b": t(3)}, {}), None,
     ["x_a_0", "x_a_1", "x_b"]),
    ("named tuple", lambda p: p.left + p.right, (Pair(t(2, 3), t(3)),), None, ["p_left", "p_right"]),
    ("dataclass", lambda b: b.inner + b.other, (Box(t(2, 3), t(3)),), None, ["b_inner", "b_other"]),
    ("numbers and flags", lambda x, k, on, none: x * k if on else x, (t(2, 3), 3, True, None), None, ["x"]),
    ("default left out", lambda x, y=2.0: x * y, (t(2, 3),), None, ["x"]),
    ("the same tensor twice", lambda x, y: x + y, (X := t(2, 3), X), None, ["x", "y"]),
    ("two paths to one name", lambda a, a_b: a["b"] + a_b, ({"b": t(2, 3)}, t(3)), None, ["a_b", "a_b_1"]),
    ("unused inputs stay", lambda x, y, z: x + z, (t(2, 3), t(5), t(3)), None, ["x", "y", "z"]),
    ("no inputs", lambda: torch.ones(3) + 1, (), None, []),
]  # fmt: skip


@pytest.mark.parametrize("case", CALLS, ids=[case[0] for case in CALLS])
def test_calls(case: Any) -> None:
    _, function, args, kwargs, names = case
    assert list(inputs_of(export(Call(function), args, kwargs=kwargs))) == names


def test_a_plain_function_and_a_builtin() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x + x

    assert list(inputs_of(export(double, t(2)))) == ["x"]
    assert list(inputs_of(export(torch.relu, t(2)))) == ["inputs_0"]


def test_a_compiled_model_is_exported_as_the_model_inside() -> None:
    assert list(inputs_of(export(torch.compile(Net()), t(1, 3, 4, 4)))) == ["x"]


# Outputs

OUTPUTS: list[tuple[str, Callable[..., Any], list[str]]] = [
    ("one", lambda x: x + 1, ["output"]),
    ("tuple", lambda x: (x + 1, x * 2), ["output_0", "output_1"]),
    ("tuple of one", lambda x: (x + 1,), ["output"]),
    ("dict", lambda x: {"a": x + 1, "b": [x * 2, x * 3]}, ["a", "b_0", "b_1"]),
    ("named tuple", lambda x: Pair(x + 1, x * 2), ["left", "right"]),
    ("dataclass", lambda x: Box(x + 1, x * 2), ["inner", "other"]),
    ("ordered dict", lambda x: OrderedDict(out=x + 1), ["out"]),
    ("None among them", lambda x: (None, x + 1, None, x * 2), ["output_1", "output_3"]),
    ("pass-through", lambda x: (x, x + 1), ["output_0", "output_1"]),
    ("only pass-through", lambda x: x, ["output"]),
    ("twice the same", lambda x: (y := x + 1, y), ["output_0", "output_1"]),
    ("constant", lambda x: (x + 1, torch.ones(2, 2)), ["output_0", "output_1"]),
    ("number", lambda x: (x + 1, 3, 2.5, True), ["output_0", "output_1", "output_2", "output_3"]),
    ("size", lambda x: (x + 1, x.shape[0]), ["output_0", "output_1"]),
    ("computed size", lambda x: (x + 1, x.shape[0] * 2 + 1), ["output_0", "output_1"]),
    ("key that is an input's name", lambda x: {"x": x + 1}, ["x_1"]),
    ("view of an input written to", lambda x: (x.add_(1), x), ["output_0", "output_1"]),
]


@pytest.mark.parametrize("case", OUTPUTS, ids=[case[0] for case in OUTPUTS])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_outputs(case: Any, dynamic: bool) -> None:
    _, function, names = case
    result = export(Call(function), t(2, 3), dynamic_axes={"x": {0: "batch"}} if dynamic else None)
    assert list(outputs_of(result)) == names


def test_a_parameter_or_buffer_as_output() -> None:
    class Gives(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(t(3))
            self.register_buffer("table", t(3))

        def forward(self, x: torch.Tensor) -> Any:
            return x + 1, self.weight, self.table

    assert list(outputs_of(export(Gives(), t(2, 3)))) == ["output_0", "output_1", "output_2"]


def test_names_are_what_was_asked_for_and_collide_with_nothing_inside() -> None:
    result = export(
        Net(), t(1, 3, 4, 4), input_names=["conv.weight"], output_names=["conv.bias"], dynamic_axes={"conv.weight": [0]}
    )
    assert list(inputs_of(result)) == ["conv.weight"]
    assert list(outputs_of(result)) == ["conv.bias"]


def test_some_names_given() -> None:
    result = export(Call(lambda x, y: (x + y, x * y)), (t(2), t(2)), input_names="first", output_names=["sum"])
    assert list(inputs_of(result)) == ["first", "y"]
    assert list(outputs_of(result)) == ["sum", "output_1"]


# Dynamic dimensions

DYNAMIC: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("axes as a list", {"dynamic_axes": {"x": [0, 2]}}, ["x_dim_0", 3, "x_dim_2", 5]),
    ("axes as a dict", {"dynamic_axes": {"x": {0: "batch", 2: "h"}}}, ["batch", 3, "h", 5]),
    ("axes with a name left out", {"dynamic_axes": {"x": {0: "batch", 3: None}}}, ["batch", 3, 4, "x_dim_3"]),
    ("negative axis", {"dynamic_axes": {"x": {-1: "w"}}}, [1, 3, 4, "w"]),
    ("output of another form", {"dynamic_axes": {"x": {0: "batch"}, "output": [0]}}, ["batch", 3, 4, 5]),
    ("shapes by name", {"dynamic_shapes": {"x": {0: "batch"}}}, ["batch", 3, 4, 5]),
    ("shapes in order", {"dynamic_shapes": ({0: Dim("batch"), 2: Dim("h", min=2, max=64)},)}, ["batch", 3, "h", 5]),
    ("shapes of the only input", {"dynamic_shapes": {0: "batch"}}, ["batch", 3, 4, 5]),
    ("a spec for every axis", {"dynamic_shapes": {"x": ["batch", None, 4, Dim.STATIC]}}, ["batch", 3, 4, 5]),
    ("DYNAMIC", {"dynamic_shapes": {"x": {0: Dim.DYNAMIC}}}, ["x_dim_0", 3, 4, 5]),
    ("AUTO, which the model may refuse", {"dynamic_shapes": {"x": {0: Dim.AUTO, 1: Dim.AUTO}}}, ["x_dim_0", 3, 4, 5]),
    ("both", {"dynamic_shapes": {"x": {2: Dim("h", max=9)}}, "dynamic_axes": {"x": {2: "high"}}}, [1, 3, "high", 5]),
]  # fmt: skip


@pytest.mark.parametrize("case", DYNAMIC, ids=[case[0] for case in DYNAMIC])
def test_dynamic_dimensions(case: Any) -> None:
    _, options, shape = case
    result = export(Net(), t(1, 3, 4, 5), **options)  # the batch has size 1 in the example
    assert inputs_of(result)["x"] == shape
    names = [dim for dim in shape if isinstance(dim, str)]
    tried = [trial.sizes for trial in result.verification.trials]  # type: ignore[union-attr]
    for name in names:
        assert len({sizes[name] for sizes in tried}) >= 2


def test_auto_dimensions_follow_the_model() -> None:
    auto = {0: Dim.AUTO, 1: Dim.AUTO}
    result = export(Call(lambda x, y: x + y), (t(4, 3), t(4, 3)), dynamic_shapes=(auto, auto))
    first, second = inputs_of(result).values()
    assert first == second and all(isinstance(dim, str) for dim in first)  # the model wants them equal
    result = export(Call(lambda x, y: x.expand_as(y)), (t(4, 1), t(4, 3)), dynamic_shapes=(auto, auto))
    first, second = inputs_of(result).values()
    assert first == [second[0], 1]  # broadcast: of no other size


def test_dynamic_shapes_of_nested_inputs() -> None:
    def model(a: Any, *rest: Any, **more: Any) -> Any:
        return a["x"].inner + rest[0] * more["k"]

    box = Box(t(2, 3), t(7))
    shapes = {"a": {"x": [{0: "n"}, None]}, "rest": ({0: "n"},), "more": {"k": {0: "n"}}}
    result = export(Call(model), ({"x": box}, t(2, 3)), kwargs={"k": t(2, 3)}, dynamic_shapes=shapes)
    assert inputs_of(result) == {"a_x_inner": ["n", 3], "a_x_other": [7], "rest_0": ["n", 3], "k": ["n", 3]}


def test_dimensions_that_share_a_name_have_one_size() -> None:
    axes = {"x": {0: "batch"}, "y": {0: "batch", 1: "n"}}
    model = Call(lambda x, y: (x + 1, y + 1, x + y.reshape(x.shape[0], -1, 1)[:, 0]))
    result = export(model, (t(1, 3), t(1, 4)), dynamic_axes=axes)
    assert inputs_of(result) == {"x": ["batch", 3], "y": ["batch", "n"]}
    for trial in result.verification.trials:  # type: ignore[union-attr]
        assert trial.shapes["x"][0] == trial.shapes["y"][0]
        assert trial.skipped is None


def test_the_limits_of_a_dim_hold_in_the_proof() -> None:
    result = export(Call(lambda x: x + 1), t(4, 3), dynamic_shapes={"x": {0: Dim("batch", min=3, max=5)}})
    sizes = {trial.sizes["batch"] for trial in result.verification.trials}  # type: ignore[union-attr]
    assert sizes <= {3, 4, 5} and len(sizes) > 1
    assert any("batch" in note and "3" in note and "5" in note for note in result.notes)


def test_an_operator_that_chooses_a_kernel_by_sizes_limits_nothing() -> None:
    result = export(Call(lambda x: torch.cdist(x, x + 1)), t(2, 3), dynamic_axes={"x": {0: "n"}})
    assert not [note for note in result.notes if "limits" in note]


def test_an_output_axis_that_is_another_size_keeps_its_own_name() -> None:
    axes = {"x": {0: "n"}, "output": {0: "n"}}
    result = export(Call(lambda x: torch.cat([x, x])), t(2, 3), dynamic_axes=axes)
    assert outputs_of(result)["output"] == ["2*n", 3]
    assert any("2*n" in note for note in result.notes)


# Programs of torch.export


def program(dynamic: bool) -> torch.export.ExportedProgram:
    batch = Dim("batch", min=1, max=8)
    return torch.export.export(
        Call(lambda x, y, *, k: x + y["a"] * k),
        (t(2, 3), {"a": t(2, 3)}),
        {"k": t(3)},
        dynamic_shapes={"x": {0: batch}, "y": {"a": {0: batch}}, "k": None} if dynamic else None,
    )


def test_exported_program() -> None:
    assert inputs_of(export(program(False))) == {"x": [2, 3], "y_a": [2, 3], "k": [3]}


def test_exported_program_with_dynamic_dimensions() -> None:
    result = export(program(True))
    shapes = inputs_of(result)
    assert isinstance(shapes["x"][0], str) and shapes["x"][0] == shapes["y_a"][0]
    sizes = {trial.sizes[shapes["x"][0]] for trial in result.verification.trials}  # type: ignore[union-attr]
    assert len(sizes) > 1 and max(sizes) <= 8


def test_exported_program_with_names_and_other_arguments() -> None:
    options = {"input_names": ["first"], "dynamic_axes": {"first": {0: "batch"}}}
    result = export(program(True), (t(5, 3), {"a": t(5, 3)}), kwargs={"k": t(3)}, **options)
    assert inputs_of(result) == {"first": ["batch", 3], "y_a": ["batch", 3], "k": [3]}
    assert outputs_of(result) == {"output": ["batch", 3]}


# Files


def test_a_path_an_object_and_nothing(tmp_path: Path) -> None:
    model, x = Net(), t(1, 3, 4, 4)
    path = tmp_path / "net.onnx"
    result = export(model, x, path)
    assert result.path == path and result.size == path.stat().st_size and os.listdir(tmp_path) == ["net.onnx"]
    buffer = io.BytesIO()
    export(model, x, buffer)
    assert buffer.getvalue() == path.read_bytes()
    result = export(model, x, None)
    assert result.path is None and result.proto == onnx.load(path)
    assert result.save(tmp_path / "again.onnx").read_bytes() == path.read_bytes()
    assert export(model, x, str(path), verify=False).verification is None


def test_external_data(tmp_path: Path) -> None:
    export(Net(), t(1, 3, 4, 4), tmp_path / "net.onnx", external_data=True)
    export(Call(nn.Conv2d(64, 64, 3).forward), t(1, 64, 4, 4), tmp_path / "big.onnx", external_data=True)
    assert sorted(os.listdir(tmp_path)) == ["big.onnx", "big.onnx.data", "net.onnx"]


def test_tied_weights_are_stored_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.Conv2d(3, 3, 3, padding=1, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(torch.relu(self.a(x)))

    assert len(export(Tied(), t(1, 3, 4, 4)).model.graph.initializers) == 1


def test_weights_as_inputs() -> None:
    net, x = Net(), t(1, 3, 4, 4)
    result = export(net, x, keep_initializers_as_inputs=True)
    assert set(inputs_of(result)) == {"x", "conv.weight", "conv.bias"}
    assert set(result.model.graph.initializers) == {"conv.weight", "conv.bias"}
    result = export(net, x, export_params=False)
    assert set(inputs_of(result)) == {"x", "conv.weight", "conv.bias"}
    assert not result.model.graph.initializers and result.size < 1000


@pytest.mark.parametrize("opset", [7, 8, 9, 13, 18, 21, 26])
def test_the_opset_asked_for_is_the_opset_of_the_file(opset: int) -> None:
    proto = export(Net(), t(1, 3, 4, 4), opset_version=opset, dynamic_axes={"x": [0]}).proto
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", opset)]


def test_the_result_reads_well(capsys: pytest.CaptureFixture[str]) -> None:
    stages: list[str] = []
    result = export(Net(), t(1, 3, 4, 4), dynamic_axes={"x": {0: "batch"}}, progress=stages.append)
    assert stages == ["capture", "lower", "optimise", "legalise", "write", "verify"] == list(result.timings)
    text = str(result)
    for part in ("opset 18", "IR 8", "2 nodes", "input x: float[batch, 3, 4, 4]", "[✓] output", "batch=1,2,3"):
        assert part in text
    assert capsys.readouterr().out == ""
    export(Net(), t(1, 3, 4, 4), verbose=True)
    assert "capture" in capsys.readouterr().out


# State


class Stateful(nn.Module):
    """Counts its calls, has mixed modes, and fails on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.drop = nn.Dropout(0.5).eval()
        self.norm = nn.BatchNorm2d(3)
        self.conv.weight.requires_grad_(False)
        self.register_buffer("calls", torch.zeros(()))
        self.fail = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        if self.fail:
            raise RuntimeError("on demand")
        return torch.relu(self.conv(x)) + self.calls


def state_of(model: nn.Module) -> Any:
    return (
        [module.training for module in model.modules()],
        [parameter.requires_grad for parameter in model.parameters()],
        {name: value.clone() for name, value in model.state_dict().items()},
        [id(value) for value in [*model.parameters(), *model.buffers()]],
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.backends.mha.get_fastpath_enabled(),
        torch.get_rng_state(),
        np.random.get_state()[1].copy(),  # type: ignore[union-attr, index]
        list(warnings.filters),
        list(torch.export._trace.log.filters),
        torch.fx.experimental.symbolic_shapes.ShapeEnv._set_replacement,
    )


@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_nothing_is_changed_outside(fail: bool, grad: bool, tmp_path: Path) -> None:
    model = Stateful()
    model.fail = fail
    x = t(2, 3, 4, 4).requires_grad_(grad)
    before_x = x.detach().clone()
    with torch.set_grad_enabled(grad):
        before = state_of(model)
        if fail:
            with pytest.raises(tonnx.CaptureError, match="on demand"):
                tonnx.export(model, x, tmp_path / "net.onnx", dynamic_axes={"x": [0]})
            assert os.listdir(tmp_path) == []
        else:
            export(model, x, tmp_path / "net.onnx", dynamic_axes={"x": [0]})
        after = state_of(model)
    assert torch.equal(before_x, x)
    for old, new in zip(before, after, strict=True):
        if isinstance(old, dict):
            assert all(torch.equal(old[key], new[key]) for key in old)
        elif isinstance(old, (torch.Tensor, np.ndarray)):
            assert (old == new).all()
        else:
            assert old == new


def test_a_failed_export_keeps_the_older_file(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"older")
    with pytest.raises(InvalidArgument):
        tonnx.export(Net(), t(1, 3, 4, 4), path, dynamic_axes={"nothing": [0]})
    assert path.read_bytes() == b"older" and os.listdir(tmp_path) == ["net.onnx"]


class _Stateful(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls, self.history = 0, []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.history.append(x.sum())
        return x + 1


def test_python_attributes_are_as_before() -> None:
    model = _Stateful()
    tonnx.export(model, torch.randn(2, 3), dynamic_axes={"x": {0: "batch"}})
    assert model.calls == 0
    assert model.history == []


def test_a_model_that_fails_on_its_example_is_named_as_the_cause() -> None:
    with pytest.raises(tonnx.CaptureError):
        tonnx.export(torch.nn.Linear(4, 4).half(), torch.randn(2, 4))
