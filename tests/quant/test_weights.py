"""Weights as integers: what is stored, what the file computes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import tonnx
from tonnx.cli import main
from tonnx.proof.session import Session
from tonnx.quant.integers import Form, by_channel, in_blocks

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("shape", "axis"), [((64, 5), 0), ((5, 70), 1), ((2, 100, 3), 1), ((16, 3), 0)])
def test_half_a_step_at_most(bits: int, symmetric: bool, shape: tuple[int, ...], axis: int) -> None:
    """But for what is clipped, which the least square error pays for."""
    array = RNG.uniform(-1, 3, shape).astype(np.float32)
    stored = in_blocks(array, axis, Form(bits, 32, symmetric))
    error = np.abs(stored.floats() - array)
    assert stored.scale.shape[axis] == -(-shape[axis] // 32)
    assert np.median(error) <= stored.scale.max() / 2
    naive = np.abs(array).max() / (2 ** (bits - 1) - 1) if symmetric else 4 / (2**bits - 1)
    assert np.sqrt(np.mean(error**2)) <= naive / np.sqrt(12) * 1.1


@pytest.mark.parametrize("array", [np.zeros((64, 4)), np.full((64, 4), 1e-30), np.full((64, 4), -3.0)])
@pytest.mark.parametrize("symmetric", [True, False])
def test_blocks_of_one_number(array: np.ndarray, symmetric: bool) -> None:
    stored = in_blocks(array.astype(np.float32), 0, Form(4, 32, symmetric))
    np.testing.assert_allclose(stored.floats(), array, rtol=1e-6, atol=1e-35)


def test_a_zero_point_helps_where_weights_lean() -> None:
    array = RNG.uniform(0, 1, (64, 8)).astype(np.float32)
    stored = (in_blocks(array, 0, Form(4, 32, symmetric)).floats() for symmetric in (True, False))
    without, with_one = (np.square(floats - array).sum() for floats in stored)
    assert with_one < without / 3


def test_one_scale_for_each_channel() -> None:
    array = RNG.standard_normal((6, 3, 3, 3)).astype(np.float32) * np.logspace(-3, 3, 6).reshape(6, 1, 1, 1)
    array = array.astype(np.float32)
    stored = by_channel(array, 0, Form(8))
    assert stored.scale.shape == (6,)
    assert (np.abs(stored.floats() - array).reshape(6, -1).max(1) < np.abs(array).reshape(6, -1).max(1) / 60).all()


class Words(nn.Module):
    """A table, products of both kinds, one of which is no multiple of a block long, and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 64)
        self.first = nn.Linear(64, 200)
        self.second = nn.Linear(200, 48, bias=False)
        self.mix = nn.Conv1d(48, 32, 3, padding=1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.second(torch.tanh(self.first(self.table(ids))))
        return self.mix(x.transpose(1, 2))


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quant") / "words.onnx"
    torch.manual_seed(0)
    ids = torch.randint(0, 50, (2, 7))
    tonnx.export(Words().eval(), ids, path, input_names=["ids"], dynamic_axes={"ids": {0: "batch", 1: "length"}})
    return path


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    ("to", "opset", "block", "ratio", "decibels"),
    [("int8", 11, 32, 0.33, 36), ("int8", 21, 0, 0.27, 36), ("int4", 13, 64, 0.45, 14), ("int4", 21, 32, 0.38, 15)],
)
def test_a_file(
    words: Path, tmp_path: Path, to: str, opset: int, block: int, ratio: float, decibels: float, symmetric: bool
) -> None:
    options: dict[str, Any] = {"to": to, "opset_version": opset, "block": block, "symmetric": symmetric}
    result = tonnx.quantize(words, tmp_path / "q.onnx", **options)
    assert result.verification is not None and result.verification.ok
    assert result.losses[0].signal_to_noise > decibels
    assert result.after / result.before < ratio
    model = onnx.load(tmp_path / "q.onnx")
    assert model.opset_import[0].version == opset
    large = {i.name: i.data_type for i in model.graph.initializer if np.prod(i.dims) > 2000}
    floats = {"mix.weight"} if to == "int4" else set()  # a convolution
    assert {name for name, dtype in large.items() if dtype == TensorProto.FLOAT} == floats
    assert [layer.name for layer in result.layers if layer.stored is None] == sorted(floats)
    four = {TensorProto.INT4, TensorProto.UINT4} & set(large.values())
    assert bool(four) == (to == "int4" and opset >= 21)


@pytest.mark.parametrize(("to", "opset"), [("int4", 18), ("int4", 21), ("int8", 21)])
def test_products_of_onnx_runtime(words: Path, tmp_path: Path, to: str, opset: int) -> None:
    result = tonnx.quantize(words, tmp_path / "q.onnx", to=to, opset_version=opset, runtime="ort")
    assert result.verification is not None and result.verification.ok
    kinds = [node.op_type for node in onnx.load(tmp_path / "q.onnx").graph.node]
    assert "MatMulNBits" in kinds and not {"MatMul", "Gemm"} & set(kinds)
    assert any("MatMulNBits" in note for note in result.notes)
    plain = tonnx.quantize(words, None, to=to, opset_version=21, runtime="ort-cpu", verify=False)
    assert "MatMulNBits" not in {node.op_type for node in plain.model.graph}


def test_names_that_stay_floats(words: Path) -> None:
    result = tonnx.quantize(words, skip=["table*", "mix.weight"])
    assert {layer.name: layer.why for layer in result.layers if layer.stored is None} == {
        "table.weight": "left out by table*",
        "mix.weight": "left out by mix.weight",
    }


def model_of(weight: np.ndarray, *nodes: onnx.NodeProto) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])
    outputs = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None) for node in nodes]
    graph = helper.make_graph(list(nodes), "g", [x], outputs, [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


W = RNG.standard_normal((64, 64)).astype(np.float32)
PRODUCT = helper.make_node("MatMul", ["x", "w"], ["y"])


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ([PRODUCT, helper.make_node("Exp", ["w"], ["z"])], "read in another way, too"),
        ([PRODUCT, helper.make_node("MatMul", ["w", "w"], ["z"])], "along different axes"),
        ([PRODUCT, helper.make_node("Gemm", ["x", "w"], ["z"], transB=1)], "along different axes"),
    ],
)
def test_a_weight_that_stays(nodes: list[onnx.NodeProto], why: str) -> None:
    other = helper.make_node("MatMul", ["x", "v"], ["u"])
    model = model_of(W, *nodes, other)
    model.graph.initializer.append(numpy_helper.from_array(W, "v"))
    layers = {layer.name: layer for layer in tonnx.quantize(model).layers}
    assert layers["v"].stored is not None and layers["w"].stored is None and why in layers["w"].why


def test_a_weight_that_two_products_share() -> None:
    result = tonnx.quantize(model_of(W, PRODUCT, helper.make_node("MatMul", ["y", "w"], ["z"])), opset_version=21)
    assert [node.op_type for node in result.proto.graph.node] == ["DequantizeLinear", "MatMul", "MatMul"]


MIX = RNG.standard_normal((6, 64)).astype(np.float32)


def correlated(count: int) -> np.ndarray:
    """Rows whose numbers say much of each other, as those between the layers of a network do."""
    rows = RNG.standard_normal((count, 6)).astype(np.float32) @ MIX
    return rows + 0.05 * RNG.standard_normal((count, 64)).astype(np.float32)


@pytest.mark.parametrize(("to", "block", "symmetric"), [("int4", 32, True), ("int4", 0, False), ("int8", 16, True)])
def test_data_lower_the_loss(to: str, block: int, symmetric: bool) -> None:
    """On rows that were not calibrated with, to a quarter or less; for a Gemm of either form, and what follows it."""
    second = RNG.standard_normal((48, 64)).astype(np.float32)
    layers = [helper.make_node("Gemm", ["x", "w"], ["h"]), helper.make_node("Gemm", ["h", "v"], ["y"], transB=1)]
    model = model_of(W, *layers)
    model.graph.initializer.append(numpy_helper.from_array(second, "v"))
    del model.graph.output[0]
    options: dict[str, Any] = {"to": to, "block": block, "symmetric": symmetric, "opset_version": 21, "verify": False}
    calibration, test = correlated(300), correlated(100)
    wanted = test @ W @ second.T
    errors = []
    for data in ({}, {"data": calibration, "rounding": "gptq"}):
        proto = tonnx.quantize(model, **options, **data).proto
        errors.append(np.square(Session(proto.SerializeToString()).run({"x": test})["y"] - wanted).sum())
    assert errors[1] < errors[0] / 4


def test_data_are_run_again_where_moments_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(W, helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"]))
    options: dict[str, Any] = {"to": "int4", "data": correlated(100)}
    whole = tonnx.quantize(model, **options)
    assert whole.verification is not None and whole.verification.ok
    monkeypatch.setattr("tonnx.quant.moments._HELD", 64 * 64 * 4)
    parts = tonnx.quantize(model, **options, verify=False)
    np.testing.assert_array_equal(*(r.layers[0].stored.integers for r in (whole, parts)))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (model_of(W, PRODUCT), {"to": "int3"}, "to must be int8, int4, fp16 or bf16"),
        (model_of(W, PRODUCT), {"block": 24}, "block must be a power of two"),
        (model_of(W, PRODUCT), {"skip": ["head*"]}, r"no weight or node has a name like 'head\*'"),
        (model_of(W, PRODUCT), {"skip": ["w"]}, "no weight that could be stored so"),
        (model_of(W[:, :4], PRODUCT), {}, "all of them are small"),
        (model_of(np.full_like(W, np.inf), PRODUCT), {}, "not finite"),
        (model_of(W, PRODUCT), {"inputs": {"y": W}}, "y"),
        ("nowhere.onnx", {}, "there is no file"),
    ],
)
def test_refused(model: Any, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(tonnx.InvalidArgument, match=message):
        tonnx.quantize(model, tmp_path / "q.onnx", **options)
    assert not list(tmp_path.iterdir())


def test_quantised_already(tmp_path: Path) -> None:
    once = tonnx.quantize(model_of(W, PRODUCT), opset_version=21).proto
    with pytest.raises(tonnx.InvalidArgument, match="quantised already: it has DequantizeLinear"):
        tonnx.quantize(once, tmp_path / "q.onnx")
    assert not list(tmp_path.iterdir())


def test_command(words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "q.onnx"
    command = ["quantize", str(words), "--to", "int4", "--opset", "21", "--asymmetric", "--skip", "table*", "--json"]
    assert main([*command, "-o", str(output)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["to"] == "int4" and output.stat().st_size == data["size"]
    assert [layer["stored"] for layer in data["layers"]].count("uint4") == 2
    assert data["verification"]["ok"]
