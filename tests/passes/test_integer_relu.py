"""Relu between two quantised layers: on the integers, so that ONNX Runtime multiplies integers in both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tonnx
from tonnx.io import write
from tonnx.proof.session import Session
from tonnx.proof.trials.rounding import without_rounding

RNG = np.random.default_rng(0)
WEIGHT = RNG.integers(-60, 61, (4, 4, 3, 3)).astype(np.int8)


def file(zero: Any, opset: int = 18, between: str = "") -> onnx.ModelProto:
    """Two convolutions with a Relu, and maybe a pool, between them, whose zero point is this one."""
    constants = {
        "w": WEIGHT, "ws": np.float32(0.01), "wz": np.int8(0), "s": np.float32(0.03), "z": np.asarray(zero),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["d"]),
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("Conv", ["xd", "d"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "s", "z"], ["cd"]),
        helper.make_node("Relu", ["cd"], ["r"]),
        *([helper.make_node(between, ["r"], ["p"], kernel_shape=[2, 2])] if between else []),
        helper.make_node("Conv", ["p" if between else "r", "d"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "s", "z"], ["eq"]),
        helper.make_node("DequantizeLinear", ["eq", "s", "z"], ["ed"]),
        helper.make_node("Relu", ["ed"], ["y"]),
    ]
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items() if name in used],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


# zero point, opset, what stands between; then Relu and Clip that are left, and layers in integers
CASES: dict[str, tuple[Any, int, str, int, int, int]] = {
    "in the middle": (np.uint8(100), 18, "", 0, 2, 2),
    "of signed integers": (np.int8(-20), 18, "", 0, 2, 2),
    "a pool in between": (np.uint8(100), 18, "MaxPool", 0, 2, 2),
    "nothing is less than zero": (np.uint8(0), 18, "", 0, 0, 2),
    "nothing is less than zero, signed": (np.int8(-128), 18, "", 0, 0, 2),
    "Clip has no such integers": (np.uint8(100), 11, "", 2, 0, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_numbers_in_integers(name: str, tmp_path: Path) -> None:
    zero, opset, between, relus, clips, layers = CASES[name]
    before = file(zero, opset, between)
    after = write.to_bytes(tonnx.retarget(before, opset, runtime="ort-cpu").model)
    counted = [node.op_type for node in onnx.load_model_from_string(after).graph.node]
    assert (counted.count("Relu"), counted.count("Clip")) == (relus, clips)
    x = {"x": RNG.normal(size=(1, 4, 9, 9)).astype(np.float32)}
    own, other = (Session(m, optimised=False).run(x)["y"] for m in (before.SerializeToString(), after))
    np.testing.assert_array_equal(own, other)
    smooth = [without_rounding(m) for m in (before.SerializeToString(), after)]  # Relu is there in either form
    own, other = (Session(m.SerializeToString()).run(x)["y"] for m in smooth if m is not None)
    np.testing.assert_allclose(own, other, atol=1e-6)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "optimised.onnx"), 4
    onnxruntime.InferenceSession(after, options, providers=["CPUExecutionProvider"])
    optimised = [node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node]
    assert optimised.count("QLinearConv") == layers
