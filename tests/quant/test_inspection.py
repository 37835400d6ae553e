"""What quantisation costs, layer by layer, and what of a difference it is not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tonnx
from tonnx.cli import main
from tonnx.io import read as reading
from tonnx.proof.quantisation import float_weights, inspected

RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(16, 3, 8, 8)).astype(np.float32)


def write(path: Path) -> Path:
    """Convolutions with a batch normalisation, a sum, and a product."""
    weights = {
        "a": RNG.normal(size=(6, 3, 3, 3)) / 5, "b": RNG.normal(size=(6, 6, 3, 3)) / 7, "w": RNG.normal(size=(6, 200)),
        "c": RNG.normal(size=200), "scale": RNG.uniform(0.5, 2, 6), "shift": RNG.normal(size=6), "mean": np.zeros(6),
        "var": np.ones(6), "wide": np.array([1, 1, 1, 1, 1, 60.0]).reshape(1, 6, 1, 1),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"], "first", pads=[1] * 4),
        helper.make_node("BatchNormalization", ["h", "scale", "shift", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Conv", ["r", "b"], ["s"], "second", pads=[1] * 4),
        helper.make_node("Add", ["s", "r"], ["t"]),
        helper.make_node("Mul", ["t", "wide"], ["u"]),
        helper.make_node("GlobalAveragePool", ["u"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "c"], ["y"], "head"),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 200])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspected")
    write(folder / "net.onnx")
    tonnx.quantize(folder / "net.onnx", folder / "int8.onnx", data=DATA, verify=False)
    tonnx.quantize(folder / "net.onnx", folder / "int4.onnx", to="int4", block=16, verify=False)
    return folder


def test_layers_by_harm(folder: Path) -> None:
    floats = float_weights(reading.reader(folder / "net.onnx")())
    found = inspected(reading.reader(folder / "int8.onnx")(), floats, [{"x": DATA}])
    assert not found.unknown
    assert [row.loss for row in found.rows] == sorted((row.loss for row in found.rows), reverse=True)  # type: ignore[type-var]
    head = next(row for row in found.rows if row.operator == "Gemm")
    assert (head.bits, head.weight_bits, head.clipped) == (8, 8, 0)
    assert head.signal_to_noise is not None and 20 < head.signal_to_noise < 60
    assert head.histogram is not None and sum(head.histogram["float"]) == sum(head.histogram["quantised"]) == 16 * 6


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_a_difference_is_quantisation(folder: Path, kind: str) -> None:
    result = tonnx.verify(folder / f"{kind}.onnx", str(folder / "net.onnx"), {"x": DATA}, values=False)
    assert not result.ok and result.located is None
    assert result.quantisation is not None and result.quantisation.only
    assert result.quantisation.rounding[0].signal_to_noise < 60 < result.quantisation.rest[0].signal_to_noise
    assert "by its quantisation alone" in str(result)


def test_a_difference_is_something_else(folder: Path) -> None:
    proto = onnx.load(folder / "int8.onnx")
    for node in proto.graph.node:
        if node.op_type == "GlobalAveragePool":
            node.op_type = "GlobalMaxPool"
    onnx.save(proto, folder / "wrong.onnx")
    result = tonnx.verify(folder / "wrong.onnx", str(folder / "net.onnx"), {"x": DATA}, values=False)
    assert not result.ok and result.quantisation is not None and not result.quantisation.only
    assert result.quantisation.rest[0].signal_to_noise < 20
    assert "something else: y: max abs" in str(result) and "by its quantisation alone" not in str(result)


def test_a_weight_that_is_shifted_is_not_rounded(folder: Path) -> None:
    """By ten steps, all of one channel: a wrong zero point."""
    proto = onnx.load(folder / "int8.onnx")
    store = next(i for i in proto.graph.initializer if i.name == "w_zero_point")
    zeros = numpy_helper.to_array(store).copy()
    zeros[5] += 10
    store.CopyFrom(numpy_helper.from_array(zeros, store.name))
    onnx.save(proto, folder / "shifted.onnx")
    result = tonnx.verify(folder / "shifted.onnx", str(folder / "net.onnx"), {"x": DATA}, values=False)
    assert result.quantisation is not None and not result.quantisation.only
    assert "not the original's, rounded: w_quantized" in str(result)


def test_a_bias_that_makes_up_for_nothing_is_not_rounded(folder: Path) -> None:
    """What rounding the weight changes on average is far less; a bias within that is quantisation (see above)."""
    proto = onnx.load(folder / "int8.onnx")
    store = next(i for i in proto.graph.initializer if i.name == "c_quantized")
    store.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(store) * np.int32(-20), store.name))
    onnx.save(proto, folder / "biased.onnx")
    result = tonnx.verify(folder / "biased.onnx", str(folder / "net.onnx"), {"x": DATA}, values=False)
    assert result.quantisation is not None and not result.quantisation.only
    assert result.quantisation.rest[0].signal_to_noise < 20 < result.quantisation.rounding[0].signal_to_noise
    assert "one weight or bias is not the original's, rounded: c_quantized" in str(result)


def page_data(page: Path) -> dict[str, Any]:
    text = re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    assert text is not None
    return json.loads(text[1])["quantisation"]


def test_the_page_of_a_file(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "q.html"
    result = tonnx.quantize(
        folder / "net.onnx", tmp_path / "q.onnx", data=DATA, method="minmax", max_loss=0.005, verify=False, report=page
    )
    told = page_data(page)
    assert f"report: {page}" in result.notes and told["original"] and not told["invented"]
    assert next(len(point["floats"]) for point in told["curve"]) == 0 and len(told["curve"]) > 1
    assert {"it costs too much"} <= set(told["floats"].values())
    assert all(row["loss"] is not None and row["histogram"] for row in told["rows"])
    assert page_data(tonnx.report(folder / "net.onnx", tmp_path / "f.html")) is None


def test_the_page_of_a_file_from_elsewhere(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", DATA)
    page = tmp_path / "q.html"
    options = ["--against", str(folder / "net.onnx"), "--inputs", f"x={tmp_path / 'x.npy'}"]
    assert main(["report", str(folder / "int8.onnx"), "-o", str(page), *options]) == 1  # it is not what the original is
    told = page_data(page)
    assert told["original"] and not told["invented"] and {row["operator"] for row in told["rows"]} >= {"Conv", "Gemm"}


def test_a_report_needs_a_file(folder: Path) -> None:
    with pytest.raises(tonnx.InvalidArgument, match="a report is about a file"):
        tonnx.quantize(folder / "net.onnx", None, data=DATA, report=True)
