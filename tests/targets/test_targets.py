"""Targets by name: the data, what is done for them, and what is refused by node and line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn

import tonnx
from tonnx.cli import main
from tonnx.io import read as reading
from tonnx.ir.schema import operators as onnx_operators
from tonnx.ir.target import _IR_VERSIONS, CANON, RUNTIMES, Target
from tonnx.legalise import legalise
from tonnx.legalise.conformity import misfits
from tonnx.targets import names, read_profile
from tonnx.targets.profile import INT64, QUANTISATION

ASKED = (
    "tensorrt-8.6 tensorrt-10 openvino-2024 rknn-2.3 coreml-via-onnx ort-web ort-mobile triton-24.05 horizon-xj3 ncnn "
    "mnn directml qnn hailo onnx2tf"
).split()


def test_the_targets_are_there() -> None:
    assert set(ASKED) <= set(names())


@pytest.mark.parametrize("name", names())
def test_a_profile_is_sound(name: str) -> None:
    profile = read_profile(name)
    assert 1 <= profile.lowest_opset <= profile.preferred_opset <= profile.highest_opset <= CANON
    assert profile.highest_ir >= _IR_VERSIONS[profile.highest_opset]
    assert profile.int64 in INT64 and profile.quantisation in QUANTISATION
    assert profile.runtime is None or profile.runtime in RUNTIMES
    operators = (profile.operators or frozenset()) | profile.missing | set(profile.narrower)
    assert not operators - set(onnx_operators()), "no such operators"
    dtypes = profile.dtypes | {dtype for listed in profile.narrower.values() for dtype in listed}
    assert not dtypes - {dtype.name.lower() for dtype in ir.DataType}
    assert profile.sources


class Words(nn.Module):
    """Ids, an operator of opset 17 and one of 20."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.linear = nn.Embedding(20, 8), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = nn.functional.gelu(self.linear(self.norm(self.embedding(ids))))
        return x, x.argmax(-1)


IDS = torch.randint(0, 20, (2, 5))


@pytest.mark.parametrize(
    ("target", "opset", "inputs", "gone"),
    [
        ("tensorrt-8.6", 17, ["int64[batch, 5]"], {"Gelu"}),
        ("tensorrt-10", 18, ["int64[batch, 5]"], {"Gelu"}),
        ("rknn-2.3", 12, ["int64[2, 5]"], {"LayerNormalization"}),
        ("hailo", 15, ["int32[2, 5]"], {"LayerNormalization"}),
        ("qnn", 20, ["int64[2, 5]"], {"Erf"}),
    ],
)
def test_export_for(target: str, opset: int, inputs: list[str], gone: set[str], tmp_path: Path) -> None:
    path = tmp_path / "words.onnx"
    result = tonnx.export(Words(), (IDS,), path, target=target, input_names=["ids"], dynamic_axes={"ids": {0: "batch"}})
    assert result.opset == opset and result.verification is not None and result.verification.ok
    data = result.data()
    shape = [f"{v['dtype']}[{', '.join(map(str, v['shape']))}]" for v in data["inputs"]]
    assert shape == inputs and not gone & set(data["operators"])
    assert tonnx.check(path, target).ok


def test_refused_by_node_and_line(tmp_path: Path) -> None:
    with pytest.raises(tonnx.RetargetError) as caught:
        tonnx.export(Words(), (IDS,), tmp_path / "words.onnx", target="ncnn")
    reasons = {blocker.operator: blocker for blocker in caught.value.blockers}
    assert set(reasons) == {"ArgMax", "output"}
    assert "test_targets.py" in reasons["ArgMax"].source and "ncnn has no operator ArgMax" in str(caught.value)
    assert not list(tmp_path.iterdir())


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> net {text}')


CASES: dict[str, tuple[str, str, str | None]] = {
    "fits": ("tensorrt-8.6", "(float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }", None),
    "operator": ("tensorrt-8.6", "(float[2, 2] x) => (float y) { y = Det(x) }", "no operator Det"),
    "element type": ("tensorrt-8.6", "(int32[2, 3] x) => (int32[2, 3] y) { y = Relu(x) }", "no Relu of int32"),
    "double": ("tensorrt-8.6", "(double[2] x) => (double[2] y) { y = Relu(x) }", "no double"),
    "static": ("rknn-2.3", "(float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }", "n is not fixed"),
    "opset": ("horizon-xj3", "(float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }", "horizon-xj3 takes 10 to 11"),
    "int64": ("hailo", "(int64[2] x) => (int64[2] y) { y = Identity(x) }", "has no int64"),
    "zero point": (
        "tensorrt-8.6",
        "(float[2] x) => (uint8[2] y) <float s = {0.5}, uint8 z = {3}> { y = QuantizeLinear(x, s, z) }",
        "zero point 0 only",
    ),
    "form": (
        "ncnn",
        "(float[2] x) => (uint8[2] y) <float s = {0.5}, uint8 z = {0}> { y = QuantizeLinear(x, s, z) }",
        "no operator QuantizeLinear",
    ),
    "domain": ("tensorrt-10", "(float[2] x) => (float[2] y) { y = my.domain.Thing(x) }", "domain my.domain"),
}


@pytest.mark.parametrize("name", CASES)
def test_check(name: str) -> None:
    target, text, reason = CASES[name]
    proto = model_of(text)
    if name == "domain":
        proto.opset_import.append(onnx.helper.make_opsetid("my.domain", 1))
    result = tonnx.check(proto, target)
    if reason is None:
        assert result.ok and "fits" in str(result)
    else:
        assert not result.ok and any(reason in misfit.reason for misfit in result.misfits)


def test_what_is_decomposed_comes_up_again() -> None:
    """Trilu is written at opset 13, and what it is written with is of opset 17 in the end."""
    model = reading.reader(model_of("(float[3, 3] x) => (float[3, 3] y) { y = Trilu(x) }"))()
    reading.infer(model)
    profile = read_profile("tensorrt-8.6")
    without = replace(profile, operators=(profile.operators or frozenset()) - {"Trilu"})
    legalise(model, Target(17, None, without))
    assert not misfits(model, without) and model.opset_imports[""] == 17
    result = tonnx.retarget(model, 17)
    assert result.verification is not None and result.verification.ok


def test_an_operator_that_comes_back_is_refused() -> None:
    """Resize is Upsample before opset 10, and Upsample is Resize after it."""
    text = "(float[1, 1, 2, 2] x) => (float[1, 1, 4, 4] y) <float[4] s = {1, 1, 2, 2}> { y = Resize(x, , s) }"
    model = reading.reader(model_of(text))()
    reading.infer(model)
    profile = replace(read_profile("openvino-2024"), missing=frozenset(["Resize"]))
    legalise(model, Target(17, None, profile))
    assert [misfit.reason for misfit in misfits(model, profile)] == ["openvino-2024 has no operator Resize"]


def test_integers_that_need_64_bits_stay() -> None:
    """INT64_MAX says "to the end"; narrowed, it would be -1."""
    text = """(float[2, n] x) => (int64[m] y)
        <int64[1] zero = {0}, int64[1] end = {9223372036854775807}, int64 two = {2}>
        { shape = Shape(x) part = Slice(shape, zero, end) y = Mul(part, two) }"""
    result = tonnx.retarget(model_of(text), target="mnn", inputs={"x": np.ones((2, 5), np.float32)})
    assert result.verification is not None and result.verification.ok
    assert any("int32 instead of int64" in note for note in result.notes)


def test_arithmetic_on_known_sizes_goes() -> None:
    """QNN has no Shape, and what torch.onnx writes of a fixed size needs none."""
    text = """(float[2, 6] x) => (float[2, 3, 2] y) <int64[1] first = {0}, int64[1] two = {2}, int64[1] rest = {-1}>
        { shape = Shape(x) rows = Gather(shape, first) target = Concat<axis = 0>(rows, rest, two)
          act = Relu(x) y = Reshape(act, target) }"""
    result = tonnx.retarget(model_of(text), target="qnn")
    assert result.verification is not None and result.verification.ok
    assert [node.op_type for node in result.model.graph] == ["Relu", "Reshape"]
    assert tonnx.check(model_of(text), "qnn").remaining == []


def test_sizes_are_fixed_and_folded(tmp_path: Path) -> None:
    text = """(float[n, 3] x) => (float[m, 3] y) <int64[1] first = {0}, int64[1] three = {3}>
        {
            shape = Shape(x) batch = Gather(shape, first)
            target = Concat<axis = 0>(batch, three) y = Reshape(x, target)
        }"""
    onnx.save(model_of(text), tmp_path / "net.onnx")
    result = tonnx.retarget(tmp_path / "net.onnx", target="rknn-2.3", sizes={"n": 4})
    assert result.verification is not None and result.verification.ok
    assert [node.op_type for node in result.model.graph] in (["Reshape"], ["Identity"])
    with pytest.raises(tonnx.InvalidArgument, match="no input has a dynamic dimension k"):
        tonnx.retarget(tmp_path / "net.onnx", target="rknn-2.3", sizes={"k": 4})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "tensort-8.6"}, "there is no target 'tensort-8.6'"),
        ({"target": "horizon-xj3", "opset": 18}, "horizon-xj3 does not take opset 18"),
        ({}, "neither an opset nor a target"),
        ({"target": "ncnn", "external_data": True, "f": "net.onnx"}, "ncnn reads one file"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(tonnx.InvalidArgument, match=message):
        tonnx.retarget(model_of(CASES["fits"][1]), **arguments)


def test_near_names() -> None:
    with pytest.raises(tonnx.InvalidArgument) as caught:
        read_profile("tensort-8.6")
    assert caught.value.hint is not None and "tensorrt-8.6" in caught.value.hint


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(model_of(CASES["operator"][1]), path)
    assert main(["check", str(path), "--target", "tensorrt-8.6", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["misfits"][0]["operator"] == "Det" and not data["fits"]
    assert main(["check", str(path), "--target", "openvino"]) == 2
    assert "openvino-2024" in capsys.readouterr().err
    assert main(["check", __file__, "--target", "qnn"]) == 1
    assert "is not an ONNX model" in capsys.readouterr().err
    assert main(["check", "--list"]) == 0 and "tensorrt-8.6" in capsys.readouterr().out


def test_the_page_has_the_table_of_today() -> None:
    from tools import targets_table

    text = targets_table.PAGE.read_text("utf-8")
    assert targets_table.written(text) == text, "run: python tools/targets_table.py"


class Steps(nn.Module):
    """A recurrent layer, with its last states."""

    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = getattr(nn, kind)(5, 4, **options)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, states = self.layer(x)
        return y, *(states if isinstance(states, tuple) else (states,))


TWICE = {"bidirectional": True, "num_layers": 2, "batch_first": True}


@pytest.mark.parametrize("options", [{}, TWICE, {"bias": False}], ids=["one", "twice", "without bias"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_step_by_step(kind: str, options: dict[str, Any]) -> None:
    model, example = Steps(kind, **options), torch.randn(3, 3, 5)
    axis = 0 if options.get("batch_first") else 1
    result = tonnx.export(model, (example,), target="ort-mobile", dynamic_axes={"x": {axis: "batch"}})
    assert result.verification is not None and result.verification.ok and kind not in result.data()["operators"]


FROM_STATES = """(float[3, 2, 4] x, float[1, 2, 4] h) => (float[3, 1, 2, 4] y, float[1, 2, 4] z)
    <float[1, 12, 4] w, float[1, 12, 4] r, float[1, 24] b>
    { y, z = GRU <hidden_size = 4, direction = "reverse", linear_before_reset = %d> (x, w, r, b, , h) }"""


@pytest.mark.parametrize("before", [0, 1])
def test_gru_from_a_state(before: int) -> None:
    proto, draw = model_of(FROM_STATES % before), np.random.default_rng(0)
    for name, shape in (("w", (1, 12, 4)), ("r", (1, 12, 4)), ("b", (1, 24))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(draw.normal(size=shape).astype("f4"), name))
    result = tonnx.retarget(proto, target="qnn")
    assert result.verification is not None and result.verification.ok
    assert all(node.op_type != "GRU" for node in result.model.graph)


@pytest.mark.parametrize(("shape", "rest"), [((2, 9), (3,)), ((2, 6, 3), (2, 1, False))])
def test_the_largest_by_rank(shape: tuple[int, ...], rest: tuple[Any, ...]) -> None:
    class Best(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return tuple(torch.topk(x, *rest))

    result = tonnx.export(Best(), (torch.randn(shape),), target="rknn-2.3")
    assert result.verification is not None and result.verification.ok and "TopK" not in result.data()["operators"]


def test_steps_that_nobody_knows() -> None:
    with pytest.raises(tonnx.RetargetError, match="ort-mobile has no operator GRU, and its length is known only at"):
        tonnx.export(Steps("GRU"), (torch.randn(3, 2, 5),), target="ort-mobile", dynamic_axes={"x": {0: "time"}})
