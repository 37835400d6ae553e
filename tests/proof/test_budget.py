"""How much a proof tries, what it never leaves out, and values around the constants that decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import tonnx
from tonnx.proof.subject import Subject
from tonnx.proof.trials import prove as proving
from tonnx.proof.trials.budget import Budget, budget_of
from tonnx.proof.trials.judging import PLAIN
from tonnx.proof.trials.prove import prove
from tonnx.proof.trials.thresholds import around, thresholds
from tonnx.proof.trials.values import wide_values

X = np.linspace(-2, 2, 24, dtype=np.float32)[np.random.default_rng(0).permutation(24)].reshape(4, 6)


def above(threshold: float) -> bytes:
    """Where x is above a number, as the model says: 0.2."""
    nodes = [helper.make_node("Greater", ["x", "t"], ["c"]), helper.make_node("Cast", ["c"], ["y"], to=1)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", "columns"]) for name in "xy")
    constants = [numpy_helper.from_array(np.float32(threshold), "t")]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


def subject() -> Subject:
    return Subject(
        reference=lambda arrays: [(arrays["x"] > 0.2).astype(np.float32)],
        example={"x": X}, outputs=["y"], dynamic={"x": {0: "rows", 1: "columns"}},
    )  # fmt: skip


@pytest.mark.parametrize(("threshold", "is_right"), [(0.2, True), (0.21, False), (0.19, False)])
def test_a_threshold_that_moved_a_little(threshold: float, is_right: bool) -> None:
    proof = prove(above(threshold), subject(), values=2, thresholds=[threshold], budget=Budget(math.inf))
    assert proof.ok is is_right
    assert sum(trial.label.startswith("around constants") for trial in proof.trials) == 4


@pytest.mark.parametrize("seconds", [0.0, math.inf])
def test_what_is_never_left_out(seconds: float) -> None:
    proof = prove(above(0.2), subject(), values=2, thresholds=[0.2], budget=Budget(seconds))
    assert proof.trials[0].label == "example"
    for symbol, size in (("rows", 4), ("columns", 6)):
        assert any(trial.sizes[symbol] != size for trial in proof.trials)
    assert any(trial.label == "seed 1" for trial in proof.trials)
    told = [remark for remark in proof.remarks if "lack of time" in remark]
    assert len(told) == (0 if seconds else 1)
    assert len(proof.trials) == 3 or seconds


def test_where_a_joint_size_does_not_do() -> None:
    """The model takes one of its dimensions at another size only alone: both are needed then."""

    def picky(arrays: Any) -> list[np.ndarray]:
        if arrays["x"].shape[0] != 4 and arrays["x"].shape[1] != 6:
            raise ValueError("not both")
        return [(arrays["x"] > 0.2).astype(np.float32)]

    proof = prove(above(0.2), Subject(picky, {"x": X}, ["y"], {"x": {0: "rows", 1: "columns"}}), budget=Budget(0.0))
    compared = [dict(trial.sizes) for trial in proof.trials if trial.skipped is None]
    assert any(sizes["rows"] != 4 for sizes in compared) and any(sizes["columns"] != 6 for sizes in compared)


def test_time_is_in_proportion() -> None:
    short, long = Budget(), Budget()
    short.begin(0.001)
    long.begin(10.0)
    assert long._end - short._end == pytest.approx(29.5, abs=0.4)


class Decides(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0.75, x, x.clamp(-1.5, 0.5)).round(decimals=0)


def test_thresholds_of_a_file() -> None:
    result = tonnx.export(Decides(), (torch.from_numpy(X),), verify="quick")
    assert {0.75, -1.5, 0.5} <= {round(number, 6) for number in thresholds(result.model)}


def test_around() -> None:
    moved = around({"x": X, "ids": np.arange(4)}, [0.2, 5.0], (0, 1))
    assert moved is not None and moved["ids"].tolist() == [0, 1, 2, 3]
    distances = np.minimum(abs(moved["x"] - 0.2), abs(moved["x"] - 5.0))
    assert distances.max() < 1.6 and (distances < 0.2).any() and moved["x"].dtype == np.float32
    assert around({"ids": np.arange(4)}, [0.2], (0,)) is None


def unary(operator: str) -> bytes:
    """Of x + 5, which is nowhere negative in the example."""
    nodes = [helper.make_node("Add", ["x", "b"], ["s"]), helper.make_node(operator, ["s"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 6]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(np.float32(5), "b")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


@pytest.mark.parametrize(("operator", "is_right"), [("Relu", True), ("Abs", False), ("Identity", False)])
def test_what_a_bias_hides(operator: str, is_right: bool) -> None:
    model = Subject(lambda arrays: [np.maximum(arrays["x"] + 5, 0)], {"x": X}, ["y"], {"x": {0: "rows"}})
    assert prove(unary(operator), model, values=2, budget=Budget(math.inf)).ok is is_right
    assert prove(unary(operator), model, values=2, budget=Budget(math.inf, draws=0)).ok


def test_wide_values() -> None:
    ids, lengths = np.array([[3, 9], [7, 4], [9, 0]]), np.array([2, 5])
    example = {"x": X, "ids": ids, "letters": ids + 1, "positions": np.arange(4), "lengths": lengths}
    (label, first), (_, second) = (next(wide_values(example, 0, number)) for number in (3, 4))
    assert label == "seed 3, wide"
    assert (first["positions"] == example["positions"]).all() and first["lengths"].min() >= 2
    assert {first["x"].std() > 2 * X.std(), second["x"].std() > 2 * X.std()} == {True, False}
    assert not first["ids"][0].any() and first["ids"].max() <= 9
    assert first["letters"].min() >= 1  # 0 is none of them


@pytest.mark.parametrize(
    ("verify", "expected"),
    [
        (True, Budget()),
        (False, None),
        ("quick", Budget(0.0, 0)),
        ("thorough", Budget(math.inf, 64)),
        (2, Budget(2.0, 1024)),
    ],
)
def test_asked_for(verify: Any, expected: Budget | None) -> None:
    assert budget_of(verify) == expected


@pytest.mark.parametrize("verify", ["fast", -1, None, [1]])
def test_refused(verify: Any) -> None:
    with pytest.raises(tonnx.InvalidArgument, match="verify must be True, False, 'quick', 'thorough' or a number"):
        tonnx.export(Decides(), (torch.from_numpy(X),), verify=verify)


NORM = """<ir_version: 8, opset_import: ["" : 17]> m (float[4, 4] x) => (float[4, 4] y)
<float two = {2.0}, float[4] g = {1.0, 2.0, 3.0, 4.0}, float[4] b = {0.0, 1.0, 0.0, 1.0}, float small = {0.00001}> {
    mean = ReduceMean<axes = [-1], keepdims = KEEP>(x)
    centred = Sub(x, mean)
    square = Pow(centred, two)
    variance = ReduceMean<axes = [-1], keepdims = 1>(square)
    shifted = Add(variance, small)
    deviation = Sqrt(shifted)
    normal = Div(centred, deviation)
    scaled = Mul(normal, g)
    y = Add(scaled, b)
}"""


@pytest.mark.parametrize("keep", [1, 0])
def test_what_a_fusion_hides(keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime makes a LayerNormalization of both files; as it stands, the one without keepdims is another."""
    file = onnx.parser.parse_model(NORM.replace("KEEP", str(keep))).SerializeToString()
    x, b = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32), np.float32([0, 1, 0, 1])

    def reference(arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        centred = arrays["x"] - arrays["x"].mean(-1, keepdims=True)
        return [centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * np.float32([1, 2, 3, 4]) + b]

    norm = Subject(reference=reference, example={"x": x}, outputs=["y"], dynamic={})
    proof = prove(file, norm, values=2, budget=Budget(math.inf))
    assert [trial.label for trial in proof.trials if not trial.ok] == ([] if keep else [PLAIN])
    monkeypatch.setattr(proving, "_TWICE", 100)
    assert PLAIN not in [trial.label for trial in prove(file, norm, values=2, budget=Budget(math.inf)).trials]
