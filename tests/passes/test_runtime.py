"""The runtime profile: what ONNX Runtime's CPU has no kernels for is computed in another dtype, if it is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import tonnx
from tonnx.io import read as reading
from tonnx.io import write
from tonnx.ir.target import ORT_CPU
from tonnx.passes.runtime import fit_runtime
from tonnx.proof.session import Session
from tonnx.proof.subject import Subject
from tonnx.proof.trials.precision import lowered_outputs
from tonnx.proof.trials.prove import prove

FLOAT, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64


def picture(dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)).to(dtype)


def counted(result: tonnx.ExportResult) -> dict[str, int]:
    return dict(Counter(node.op_type for node in result.model.graph))


# model, dtype, nodes with the profile, nodes without, what the result says
CASES: dict[str, tuple[Callable[..., Any], torch.dtype, dict[str, int], dict[str, int], str]] = {
    "nothing to do": (lambda x: x @ x + 1, torch.float64, {"MatMul": 1, "Add": 1}, {"MatMul": 1, "Add": 1}, ""),
    "float64": (
        nn.Sequential(nn.Conv2d(3, 2, 3), nn.LeakyReLU(), nn.Softplus()), torch.float64,
        {"Cast": 2, "Conv": 1, "LeakyRelu": 1, "Softplus": 1}, {"Conv": 1, "LeakyRelu": 1, "Softplus": 1},
        "Conv, LeakyRelu, Softplus in float32 instead of float64, which lowers the precision"),
    "bfloat16": (
        lambda x: torch.tanh(torch.tanh(x)), torch.bfloat16, {"Cast": 4, "Tanh": 2}, {"Tanh": 2},
        "Tanh ×2 in float32 instead of bfloat16 ("),
    "int16": (
        lambda x: torch.clamp(x, -1, 1), torch.int16, {"Cast": 2, "Clip": 1}, {"Clip": 1},
        "Clip in int32 instead of int16 ("),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_with_and_without(name: str) -> None:
    model, dtype, with_profile, without, said = CASES[name]
    model = model.to(dtype).eval() if isinstance(model, nn.Module) else model
    x = picture(torch.float32) * 3
    fitted = tonnx.export(model, x.to(dtype))
    plain = tonnx.export(model, x.to(dtype), runtime=None)
    assert (counted(fitted), counted(plain)) == (with_profile, without)
    for result, judged_as in ((fitted, False), (plain, bool(said))):
        verification = result.verification
        assert verification is not None and verification.ok and bool(verification.judged_as) is judged_as
    lines = [note for note in fitted.notes if "ONNX Runtime's CPU" in note]
    assert len(lines) == bool(said) and all(said in line for line in lines)
    assert not any("ONNX Runtime's CPU" in note for note in plain.notes)
    if said:
        assert "[!] judged in the form of runtime='ort-cpu': Could not find an implementation" in str(plain)


@pytest.mark.parametrize(
    "text",
    [
        "(bfloat16[1,4,8] x, bfloat16[4] s) => (bfloat16[1,4,8] y) {y = GroupNormalization <num_groups = 2> (x, s, s)}",
        "(bfloat16[1,2,4,4] x) => (bfloat16[1,2,4,4] y) {y = MeanVarianceNormalization (x)}",
        "(double[1,2,4,4] x) => (double[1,2,4,4] y) {y = MeanVarianceNormalization (x)}",
        "(bfloat16[1,2,3] x, int64[4] s) => (bfloat16[a,b,c,d] y) {y = AffineGrid (x, s)}",
        "(bfloat16[4] x, int64[1] s) => (bfloat16[n] y) {y = CenterCropPad (x, s)}",
    ],
)
def test_operators_that_are_functions_have_no_more_kernels_than_their_nodes(text: str) -> None:
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 22]> agraph {text}')
    model = ir.from_proto(proto)
    assert fit_runtime(model, ORT_CPU)
    Session(write.to_bytes(model))


def test_a_file_that_is_wrong_is_wrong_in_any_form() -> None:
    wrong = {torch.ops.aten.erf.default: lambda op, x: op.Erf(x * 0.5)}
    with pytest.raises(tonnx.VerificationFailed):
        tonnx.export(torch.erf, picture(torch.float64), runtime=None, custom_translation_table=wrong)


def inner_model(kind: str) -> onnx.ModelProto:
    """Erf of float64, as it is, in the body of a branch or of a loop."""
    erf = helper.make_node("Erf", ["x"], ["e"])
    value = helper.make_tensor_value_info
    nodes = []
    if kind == "branch":
        body = helper.make_graph([erf], "body", [], [value("e", DOUBLE, [3])])
        other = helper.make_graph([helper.make_node("Neg", ["x"], ["n"])], "other", [], [value("n", DOUBLE, [3])])
        nodes = [helper.make_node("If", ["yes"], ["y"], then_branch=body, else_branch=other)]
    elif kind == "loop":
        inputs = [value("i", INT64, []), value("go", TensorProto.BOOL, []), value("h", DOUBLE, [3])]
        steps = [helper.make_node("Erf", ["h"], ["e"]), helper.make_node("Identity", ["go"], ["still"])]
        body = helper.make_graph(steps, "body", inputs, [value("still", TensorProto.BOOL, []), value("e", DOUBLE, [3])])
        nodes = [helper.make_node("Loop", ["three", "yes", "x"], ["y"], body=body)]
    else:
        nodes = [erf, helper.make_node("Identity", ["e"], ["y"])]
    constants = [numpy_helper.from_array(np.array(True), "yes"), numpy_helper.from_array(np.int64(3), "three")]
    graph = helper.make_graph(nodes, "g", [value("x", DOUBLE, [3])], [value("y", DOUBLE, [3])], constants)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("kind", ["plain", "branch", "loop"])
def test_bodies(kind: str) -> None:
    from onnx.reference import ReferenceEvaluator

    proto = inner_model(kind)
    model = reading.reader(proto)()
    reading.infer(model)
    (note,) = fit_runtime(model, ORT_CPU)
    assert "Erf in float32 instead of float64" in note
    x = {"x": np.array([-1.0, 0.25, 2.0])}
    got = Session(write.to_bytes(model)).run(x)["y"]
    np.testing.assert_allclose(got, ReferenceEvaluator(proto).run(None, x)[0], rtol=1e-6)
    assert fit_runtime(model, ORT_CPU) == [] and fit_runtime(reading.reader(proto)(), None) == []


def test_retarget_on_request() -> None:
    proto = inner_model("plain")
    assert "not compared" in "".join(tonnx.retarget(proto, 13).notes)
    fitted = tonnx.retarget(proto, 13, runtime=ORT_CPU)
    assert any("Erf in float32" in note for note in fitted.notes)
    Session(write.to_bytes(fitted.model))


# What float64 may be asked for


def graph_of(*nodes: onnx.NodeProto, x: int = DOUBLE) -> ir.Model:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes), "g", [value("x", x, [3])], [value("y", DOUBLE, [3]), value("z", DOUBLE, [3])]
    )
    model = reading.reader(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))()
    reading.infer(model)
    return model


def node(op: str, read: str, made: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, [read], [made], **attributes)


LOWERED: dict[str, tuple[ir.Model, set[str]]] = {
    "all float64": (graph_of(node("Exp", "x", "y"), node("Neg", "y", "z")), set()),
    "one by way of float32": (
        graph_of(node("Neg", "x", "y"), node("Cast", "y", "f", to=FLOAT), node("Exp", "f", "e"),
                 node("Cast", "e", "z", to=DOUBLE)), {"z"}),
    "an input of float32": (graph_of(node("Cast", "x", "y", to=DOUBLE), node("Exp", "y", "z"), x=FLOAT), set()),
    "by way of integers": (
        graph_of(node("Neg", "x", "y"), node("Cast", "x", "i", to=INT64), node("Cast", "i", "z", to=DOUBLE)), set()),
}  # fmt: skip


@pytest.mark.parametrize("name", LOWERED)
def test_which_outputs_are_lowered(name: str) -> None:
    model, lowered = LOWERED[name]
    assert lowered_outputs(model) == dict.fromkeys(lowered, "float32")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_what_is_computed_in_halves_is_held_to_them(dtype: torch.dtype) -> None:
    """Frameworks round a layer once, where a file rounds each of its nodes."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            with torch.autocast("cpu", dtype=dtype):
                y = self.head(torch.relu(self.layer(x)))
            return y.float(), x.exp()

    result = tonnx.export(Mixed(), torch.randn(3, 5, 16), dynamic_axes={"x": {0: "b"}})
    assert result.verification is not None and result.verification.ok
    half, whole = (output.tolerance for output in result.verification.trials[0].comparisons)
    assert half.rtol > 5e-3 and whole.rtol == 1e-3


def test_float64_is_held_to_its_own_tolerance() -> None:
    """A difference that float32 would not show; where the file computes in float32, nobody can ask for more."""
    x = {"x": np.linspace(0.5, 2, 3)}
    model = write.to_bytes(graph_of(node("Exp", "x", "y"), node("Neg", "y", "z")))

    def off(inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [np.exp(inputs["x"]) * (1 + 1e-6), -np.exp(inputs["x"])]

    subject = Subject(off, x, ["y", "z"])
    assert not prove(model, subject).ok and prove(model, subject, lowered={"y": "float32"}).ok
    linear, layer = nn.Linear(4, 3).double(), nn.Conv1d(4, 3, 1).double()
    for module, shape, rtol in ((linear, (2, 4), 1e-7), (layer, (2, 4, 5), 1e-3)):
        result = tonnx.export(module, torch.randn(*shape).double())
        assert result.verification is not None
        assert result.verification.trials[0].comparisons[0].tolerance.rtol == rtol
