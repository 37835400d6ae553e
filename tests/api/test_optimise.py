"""`tonnx.optimise`: fewer nodes or the original, at the file's own opset, proven."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

import tonnx
from tonnx.api import optimise as module
from tonnx.cli import main
from tonnx.proof.session import Session

WASTEFUL = """<ir_version: 8, opset_import: ["" : 13]> net (float[2, n] x) => (float[2, m] y)
    <int64[1] zero = {0}, int64[1] one = {1}, float two = {2.0}, int64[1] minus = {-1}> {
        shape = Shape(x)
        rows = Gather(shape, zero)
        target = Concat<axis = 0>(rows, minus)
        same = Identity(x)
        a = Mul(same, two)
        b = Mul(x, two)
        sum = Add(a, b)
        unused = Exp(sum)
        there = Transpose<perm = [1, 0]>(sum)
        back = Transpose<perm = [1, 0]>(there)
        y = Reshape(back, target)
    }"""


def operators(model: tonnx.OptimiseResult) -> Counter[str]:
    return Counter(node.op_type for node in model.model.graph)


def test_what_is_not_needed_goes(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(WASTEFUL), tmp_path / "net.onnx")
    result = tonnx.optimise(tmp_path / "net.onnx", tmp_path / "small.onnx", sizes={"n": 4})
    assert result.verification is not None and result.verification.ok and result.opset == 13
    assert sum(operators(result).values()) <= 3 and not {"Shape", "Transpose", "Exp"} & set(operators(result))
    assert onnx.load(tmp_path / "small.onnx").opset_import[0].version == 13


def test_what_torch_leaves_is_folded(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    tonnx.export(network, (torch.randn(1, 3, 8, 8),), tmp_path / "net.onnx", fuse_conv_bn=False, verify=False)
    result = tonnx.optimise(tmp_path / "net.onnx")
    assert operators(result) == {"Conv": 1, "Relu": 1}


def test_a_shape_that_only_folding_shows_is_used() -> None:
    """No Shape is read here: the target is computed of constants, which onnx's inference does not follow."""
    text = """<ir_version: 8, opset_import: ["" : 17]> net (float[1, 4] x) => (float[1, 2, 2] y)
        <int64[2] sizes = {-1, 4}, int64[2] ones = {1, 1}, int64 minus = {-1}, float[1, 4] row = {1, 2, 3, 4},
         int64[3] split = {1, -1, 2}> {
            free = Mul(ones, minus)
            unknown = Equal(sizes, free)
            target = Where(unknown, ones, sizes)
            rows = Expand(row, target)
            sum = Add(x, rows)
            one = Reshape(sum, split)
            act = Relu(one)
            y = Reshape(act, split)
        }"""
    assert operators(tonnx.optimise(onnx.parser.parse_model(text))) == {"Add": 1, "Reshape": 1, "Relu": 1}


NUMBERS = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] rest = {-1}, int64[1] three = {3}"
WEIGHTS = f"float[1, 8, 4] w = {{{', '.join(['0.1'] * 32)}}}, float[1, 8, 2] r = {{{', '.join(['-0.2'] * 16)}}}"
DYNAMIC = {
    "one size of several": (
        f"""(float[batch, 6, 4] x) => (float[batch, 3, 8] y) <{NUMBERS}> {{
            shape = Shape(x) first = Gather<axis = 0>(shape, zero) six = Gather<axis = 0>(shape, one)
            half = Div(six, two) target = Concat<axis = 0>(first, half, rest)
            act = Relu(x) y = Reshape<allowzero = 0>(act, target) }}""",
        {"Relu": 1, "Reshape": 1},
    ),
    "a number of one size": (
        f"""(float[batch, 6, 4] x) => (float[batch, 6, 4] y) <{NUMBERS}> {{
            shape = Shape(x) last = Slice(shape, two, three) number = Cast<to = 1>(last) root = Sqrt(number)
            y = Div(x, root) }}""",
        {"Div": 1},
    ),
    "sizes that stay": (
        f"""(float[a, b] x) => (float[c, d] y) <{NUMBERS}> {{
            shape = Shape(x) first = Gather<axis = 0>(shape, zero) second = Gather<axis = 0>(shape, one)
            target = Concat<axis = 0>(second, first) act = Relu(x) y = Reshape(act, target) }}""",
        {"Shape": 1, "Gather": 2, "Concat": 1, "Relu": 1, "Reshape": 1},
    ),
    "zeros to start from": (
        f"""(float[3, batch, 4] x) => (float[3, 1, batch, 2] y) <{NUMBERS}, {WEIGHTS}> {{
            shape = Shape(x) rows = Gather<axis = 0>(shape, one) sizes = Concat<axis = 0>(two, rows, two)
            zeros = ConstantOfShape(sizes) h = Slice(zeros, zero, one) c = Slice(zeros, one, two)
            y = LSTM<hidden_size = 2>(x, w, r, , , h, c) }}""",
        {"LSTM": 1},
    ),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_what_is_known_of_a_dynamic_shape(name: str) -> None:
    text, expected = DYNAMIC[name]
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> net {text}')
    result = tonnx.optimise(proto)
    assert operators(result) == expected and result.verification is not None and result.verification.ok


def test_the_original_is_kept_where_nothing_is_to_be_done() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> net (float[2] x) => (float[2] y) { y = Relu(x) }'
    result = tonnx.optimise(onnx.parser.parse_model(text))
    assert result.kept and result.after == result.before


def test_never_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ratio", lambda sessions, feeds: 1.5)
    result = tonnx.optimise(onnx.parser.parse_model(WASTEFUL), inputs=None)
    assert "1.50 times as long" in result.kept and result.after == result.before


@pytest.mark.parametrize("computed", ["Add (x, w)", "Add (twice, w)\n twice = Identity (x)"], ids=["kept", "smaller"])
def test_files_whose_initializers_are_inputs(computed: str, tmp_path: Path) -> None:
    """As all are before IR version 4."""
    lines = reversed(f"y = {computed}".split("\n"))
    text = f"agraph (float[2] x, float[2] w) => (float[2] y) <float[2] w = {{1, 2}}> {{ {' '.join(lines)} }}"
    model = onnx.parser.parse_model(f'<ir_version: 3, opset_import: ["": 8]> {text}')
    if not any(value.name == "w" for value in model.graph.input):
        model.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [2]))
    result = tonnx.optimise(model, tmp_path / "o.onnx")
    assert result.verification is not None and result.verification.ok
    assert [value.name for value in onnx.load(tmp_path / "o.onnx").graph.input] == ["x", "w"]


def test_operators_of_others_stay() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> net (float[2] x) => (float[2] y)'
        "{ a = Identity(x) y = com.microsoft.Gelu(a) }"
    )
    result = tonnx.optimise(proto)
    assert operators(result) == {"Gelu": 1} and result.verification is not None and result.verification.ok


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(onnx.parser.parse_model(WASTEFUL), tmp_path / "net.onnx")
    assert main(["optimise", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "small.onnx")]) == 0
    assert "nodes" in capsys.readouterr().out
    Session(tmp_path / "small.onnx")
    assert main(["optimise", __file__, "-o", str(tmp_path / "x.onnx")]) == 1
    assert "is not an ONNX model" in capsys.readouterr().err and not (tmp_path / "x.onnx").exists()
