"""What ONNX Runtime's optimiser gets wrong or slower is kept from it: files compute the same with and without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from tonnx.ir.target import ORT, ORT_CPU
from tonnx.passes.wrong_fusions import keep_from_fusing

HEAD = '<ir_version: 8, opset_import: ["": 18]> agraph'
COUNTED = """(float[n, 2] x) => (float[m, 2] y) <int64 zero = {0}, int64 one = {1}> {
    shape = Shape <start = 0, end = 1> (x)
    total = Squeeze (shape)
    {sums}
    places = Range (zero, {last}, one)
    y = Gather (x, places)
}"""
DOUBLED = "\n".join(f"s{i + 1} = Add (s{i}, s{i})" for i in range(60))

CASES = {
    "zeros around what is pooled": (
        """(float[1, 1, 4, 4] x) => (float[1, 1, 3, 3] y) <int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}> {
            padded = Pad (x, pads)
            y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (padded)
        }""",
        -np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4),
        1,
    ),
    "zeros as wide as the window of an average": (
        """(float[1, 1, 4, 4] x) => (float[1, 1, 3, 3] y) <int64[8] pads = {0, 0, 0, 0, 0, 0, 1, 1}> {
            padded = Pad (x, pads)
            y = AveragePool <kernel_shape = [1, 1], strides = [2, 2]> (padded)
        }""",
        np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4),
        1,
    ),
    "from the last to the first": (
        """(float[n, 2] x) => (float[n, 2] y) <int64 minus = {-1}> {
            shape = Shape <start = 0, end = 1> (x)
            total = Squeeze (shape)
            last = Add (total, minus)
            places = Range (last, minus, minus)
            y = Gather (x, places)
        }""",
        np.arange(6, dtype=np.float32).reshape(3, 2),
        1,
    ),
    "a softmax of integers": (
        """(float[4, 16] x) => (float[4, 16] y) <float fine = {0.0039}, float coarse = {0.04}, uint8 zero = {3}> {
            steps = QuantizeLinear (x, coarse, zero)
            floats = DequantizeLinear (steps, coarse, zero)
            shares = Softmax (floats)
            rounded = QuantizeLinear (shares, fine, zero)
            y = DequantizeLinear (rounded, fine, zero)
        }""",
        np.random.default_rng(0).uniform(0, 3, (4, 16)).astype(np.float32),
        1,
    ),
    "a product with float16 whose batch moves inwards, which crashed": (
        """(float16[3, 2, 4] x) => (float16[2, 3, 2] y) <float16[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
            a = Transpose <perm = [1, 0, 2]> (x)
            y = MatMul (a, w)
        }""",
        np.arange(24, dtype=np.float16).reshape(3, 2, 4),
        1,
    ),
    "a product with numbers of pixels whose batch becomes the last": (
        """(uint8[3, 2, 4] x) => (float[2, 4, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
            a = Transpose <perm = [1, 2, 0]> (x)
            b = Cast <to = 1> (a)
            y = MatMul (b, w)
        }""",
        np.arange(24, dtype=np.uint8).reshape(3, 2, 4),
        1,
    ),
    "the same with the rows at the end": (
        """(uint8[3, 2, 4] x) => (float[3, 4, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {
            a = Transpose <perm = [0, 2, 1]> (x)
            b = Cast <to = 1> (a)
            y = MatMul (b, w)
        }""",
        np.arange(24, dtype=np.uint8).reshape(3, 2, 4),
        0,
    ),
    "float weights of 8-bit data": (
        """(float[2, 2] x) => (float[2, 2] y) <
            float step = {0.5}, uint8 zero = {128}, float[2, 2] w = {0.004, 1.0, 0.003, -1.0}
        > {
            q = QuantizeLinear (x, step, zero)
            d = DequantizeLinear (q, step, zero)
            y = Gemm (d, w)
        }""",
        np.array([[100, 0], [64, 1]], dtype=np.float32),
        1,
    ),
    "8-bit weights of 8-bit data": (
        """(float[2, 2] x) => (float[2, 2] y) <
            float step = {0.5}, uint8 zero = {128}, uint8[2, 2] w = {100, 200, 30, 4}
        > {
            q = QuantizeLinear (x, step, zero)
            d = DequantizeLinear (q, step, zero)
            v = DequantizeLinear (w, step, zero)
            y = Gemm (d, v)
        }""",
        np.array([[10, 0], [20, 1]], dtype=np.float32),
        0,
    ),
    "forwards, which is fused rightly": (
        COUNTED.replace("{sums}", "").replace("{last}", "total"), np.arange(6, dtype=np.float32).reshape(3, 2), 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("text, x, changed", CASES.values(), ids=CASES)
def test_optimised_as_it_stands(text: str, x: np.ndarray, changed: int) -> None:
    model = ir.from_proto(onnx.parser.parse_model(HEAD + text))
    expected = _run(model, {"x": x}, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    assert keep_from_fusing(model, ORT) == changed
    optimised = _run(model, {"x": x}, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
    np.testing.assert_allclose(optimised, expected, atol=1e-40)


def test_sums_of_sums_are_looked_at_once() -> None:
    text = COUNTED.replace("{sums}", f"s0 = Identity (total)\n{DOUBLED}").replace("{last}", "s60")
    assert keep_from_fusing(ir.from_proto(onnx.parser.parse_model(HEAD + text)), ORT) == 0


NORMALISED = """(float[2, {rows}, 4] x, float[{others}, 4] z) => (float[2, n, 4] y) <float[4] one = {{1, 1, 1, 1}}> {{
    total = Add (x, z)
    y = LayerNormalization (total, one)
}}"""


@pytest.mark.parametrize(
    "rows, others, runtime, changed",
    [
        ("3", "2, 3", ORT_CPU, 1),
        ("n", "2, n", ORT_CPU, 1),
        ("3", "2, 3", ORT, 0),  # other processors gain from it
        ("3", "2, 3", None, 0),
        ("3", "2, 1", ORT_CPU, 0),  # which is not fused
    ],
)
def test_normalised_sums_are_not_fused(rows: str, others: str, runtime: str | None, changed: int) -> None:
    """Its SkipLayerNormalization takes longer than the two."""
    model = ir.from_proto(onnx.parser.parse_model(HEAD + NORMALISED.format(rows=rows, others=others)))
    sums = model.graph.node(0)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) ** 2
    feeds = {"x": x, "z": -x[:, : 1 if others == "2, 1" else 3]}
    expected = _run(model, feeds, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    assert keep_from_fusing(model, runtime) == changed
    assert sums.op_type == ("Sum" if changed else "Add")
    np.testing.assert_allclose(
        _run(model, feeds, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL), expected, atol=1e-5
    )


POOLED = """(float[1, 4, 8, 8] x) => (float[1, 4, 4, 4] y) <float step = {{0.05}}, uint8 zero = {{128}}> {{
    {before}
    pooled = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> ({read})
    steps = QuantizeLinear (pooled, step, zero)
    y = DequantizeLinear (steps, step, zero)
}}"""
ROUNDED = "first = QuantizeLinear (x, step, zero)\nfloats = DequantizeLinear (first, step, zero)"


@pytest.mark.parametrize(
    "before, read, runtime, changed",
    [("", "x", ORT_CPU, 1), ("", "x", ORT, 0), ("", "x", None, 0), (ROUNDED, "floats", ORT_CPU, 0)],
)
def test_floats_are_pooled_before_they_are_rounded(
    before: str, read: str, runtime: str | None, changed: int, tmp_path: Path
) -> None:
    """A pool of integers whose channels come first has a slow kernel."""
    model = ir.from_proto(onnx.parser.parse_model(HEAD + POOLED.format(before=before, read=read)))
    assert keep_from_fusing(model, runtime) == changed
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    nodes = onnx.load(tmp_path / "optimised.onnx").graph.node
    makers = {name: node for node in nodes for name in node.output}
    (pool,) = (node for node in nodes if "MaxPool" in node.op_type)
    assert (pool.input[0] in makers) != bool(changed)  # else what was rounded


def _run(model: ir.Model, feeds: dict[str, np.ndarray], level: onnxruntime.GraphOptimizationLevel) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    return np.asarray(session.run(None, feeds)[0])
