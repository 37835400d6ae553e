"""Half precision: what overflows or loses too much stays in float32, all else does not, and files are valid."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, numpy_helper

import tonnx
from tonnx.proof.trials.values import LOUD

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 8)).astype(np.float32)


def model_of(body: str, rows: str = "n, 8", opset: int = 18, **weights: Any) -> onnx.ModelProto:
    """A network of ``float x`` to ``float y``; a node called ``bad`` gives ``bad``."""
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]> g (float[{rows}] x) => (float[] y) {{ {body} }}"""
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
    for node in model.graph.node:
        node.name = node.output[0]
    return model


WIDE = RNG.standard_normal((2, 2048)).astype(np.float32)
PICTURE = RNG.standard_normal((2, 4, 6, 6)).astype(np.float32)

PLANTED: dict[str, tuple[onnx.ModelProto, np.ndarray]] = {
    "exponential": (model_of("a = Mul(x, c) bad = Exp(a) y = Log(bad)", c=15), X),
    "product with a constant": (model_of("bad = Mul(x, c) y = Mul(bad, d)", c=1e5, d=1e-5), X),
    "square": (model_of("a = Mul(x, c) bad = Mul(a, a) y = Mul(bad, d)", c=300, d=1e-4), X),
    "power": (model_of("a = Mul(x, c) bad = Pow(a, p) y = Mul(bad, d)", c=90, p=3, d=1e-5), X),
    "sum": (model_of("a = Mul(x, c) bad = Add(a, a) y = Mul(bad, d)", c=25000, d=1e-4), X),
    "quotient": (model_of("a = Sigmoid(x) bad = Div(c, a) y = Mul(bad, d)", c=60000, d=1e-5), X),
    "matrix": (model_of("bad = MatMul(x, w) a = Relu(bad) y = Mul(a, d)", w=np.full((8, 8), 3e4), d=1e-4), X),
    "reduced sum": (
        model_of("a = Mul(x, x) b = Mul(a, c) bad = ReduceSum(b) y = Mul(bad, d)", "n, 2048", c=60, d=1e-4), WIDE,
    ),
    "mean of many": (model_of("a = Mul(x, x) b = Mul(a, c) bad = ReduceMean(b) y = Relu(bad)", "n, 2048", c=100), WIDE),
    "norm of many": (model_of("a = Mul(x, c) bad = ReduceL2(a) y = Relu(bad)", "n, 2048", c=20), WIDE),
    "convolution": (
        model_of("bad = Conv(x, w) a = Relu(bad) y = Mul(a, d)", "n, 4, 6, 6",
                 w=RNG.normal(0, 3e4, (2, 4, 3, 3)), d=1e-4),
        PICTURE,
    ),
    "cancellation": (model_of("a = Add(x, c) bad = Sub(a, c) y = Relu(bad)", c=3000), X),
    "underflow": (model_of("bad = Mul(x, c) y = Mul(bad, d)", c=1e-9, d=1e9), X),
    "pooled": (
        model_of("a = Mul(x, x) b = Mul(a, c) bad = GlobalAveragePool(b) y = Relu(bad)", "n, 4, 6, 6", c=9000), PICTURE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted_overflows_are_found(name: str) -> None:
    model, data = PLANTED[name]
    result = tonnx.quantize(model, to="fp16", data=data, inputs={"x": data}, keep_io=True)
    assert result.halved is not None and "bad" in result.halved.floats
    assert result.verification is not None and result.verification.ok
    assert result.losses[0].signal_to_noise > 30


def test_what_feeds_a_cancellation_stays_too() -> None:
    """Else numbers are subtracted that were rounded already; ONNX Runtime's CPU hides that, where all is float32."""
    model, data = PLANTED["cancellation"]
    result = tonnx.quantize(model, to="fp16", data=data, inputs={"x": data}, keep_io=True)
    assert result.halved is not None and list(result.halved.floats) == ["bad", "a"]


def test_faint_results_are_not_made_loud() -> None:
    """Much larger numbers overflow where those at hand do not, and prove nothing."""
    model = model_of("a = Mul(x, c) y = Mul(a, c)", c=1e-4)
    result = tonnx.quantize(model, to="fp16", data=X, inputs={"x": X}, keep_io=True)
    assert result.verification is not None and result.verification.ok
    labels = {trial.label for trial in result.verification.trials}
    assert "negative values" in labels and labels.isdisjoint(LOUD)


def test_another_whole_number_is_none_that_is_near() -> None:
    """It chooses a row of a table."""
    model = model_of("a = Add(x, one) i = Cast <to = 7> (a) y = Gather(table, i)", one=1, table=np.sin(np.arange(999)))
    places = np.random.default_rng(1).integers(256, 900, (4, 8)).astype(np.float32)
    result = tonnx.quantize(model, to="bf16", data=places, inputs={"x": places}, keep_io=True)
    assert result.halved is not None and {"a", "i"} <= set(result.halved.floats)
    assert result.losses[0].signal_to_noise > 40


def test_rounding_that_adds_up_is_no_fault() -> None:
    """Every node is close, and what comes of fifty of them is beyond the tolerance, of small numbers most of all."""
    depth, weights = 48, {}
    for number in range(depth):
        weights[f"w{number}"] = np.linalg.qr(RNG.standard_normal((8, 8)))[0]
    layers = " ".join(f"a{n + 1} = MatMul(a{n}, w{n})" for n in range(depth))
    model = model_of(f"a0 = Mul(x, one) {layers} b = Mul(a{depth}, c) y = Exp(b)", one=1, c=6, **weights)
    result = tonnx.quantize(model, to="bf16", inputs={"x": X}, keep_io=True, opset_version=22)
    assert result.halved is not None and not result.halved.floats
    assert result.verification is not None and result.verification.ok
    assert any(output.rounded for output in result.verification.per_output())


@pytest.mark.parametrize("to", ["fp16", "bf16"])
@pytest.mark.parametrize("keep_io", [True, False])
def test_what_is_harmless_is_converted(to: str, keep_io: bool, tmp_path: Path) -> None:
    weights = {"w": RNG.normal(0, 1, (8, 64)), "v": np.ones(64)}
    model = model_of("a = MatMul(x, w) b = Sigmoid(a) c = Softmax(b) y = Add(c, v)", **weights)
    result = tonnx.quantize(model, tmp_path / "h.onnx", to=to, keep_io=keep_io)
    assert result.halved is not None and not result.halved.floats and result.halved.nodes == 4
    written = onnx.load(tmp_path / "h.onnx")
    half = TensorProto.FLOAT16 if to == "fp16" else TensorProto.BFLOAT16
    assert {i.data_type for i in written.graph.initializer} == {half}
    ends = {value.type.tensor_type.elem_type for value in (*written.graph.input, *written.graph.output)}
    assert ends == {TensorProto.FLOAT if keep_io else half}
    assert Counter(node.op_type for node in written.graph.node)["Cast"] == (2 if keep_io else 0)


def test_masks_do_not_overflow() -> None:
    """What attention is filled with where nothing is seen is only very small, whatever it is."""
    model = model_of("m = Greater(x, z) a = Where(m, x, low) y = Softmax(a)", z=0, low=-3.4e38)
    result = tonnx.quantize(model, to="fp16", data=X)
    assert result.halved is not None and not result.halved.floats


@pytest.mark.parametrize(
    ("to", "opset", "inside"),
    [("fp16", 18, TensorProto.FLOAT16), ("bf16", 18, TensorProto.BFLOAT16), ("bf16", 13, TensorProto.FLOAT)],
)
def test_bodies_are_converted_where_the_opset_allows(to: str, opset: int, inside: int, tmp_path: Path) -> None:
    body = """
        s = ReduceSum <keepdims = 0> (x)
        b = Greater(s, z)
        y = If (b) <
            then_branch = t () => (float[n, 8] p) { q = Sigmoid(x) p = Mul(q, c) },
            else_branch = e () => (float[n, 8] r) { r = Mul(x, d) }>
    """
    model = model_of(body, opset=opset, z=0, c=2, d=3)
    result = tonnx.quantize(model, tmp_path / "h.onnx", to=to, data=X)
    branch = next(node for node in onnx.load(tmp_path / "h.onnx").graph.node if node.op_type == "If")
    assert result.verification is not None and result.verification.ok
    for attribute in branch.attribute:
        assert not any(node.op_type == "Cast" for node in attribute.g.node)
        assert attribute.g.output[0].type.tensor_type.elem_type == inside


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "fp8"}, "to must be"),
        ({"to": "bf16", "opset_version": 11}, "bf16 needs opset 13"),
        ({"to": "fp16", "skip": ["head*"]}, "no weight or node has a name like"),
        ({"to": "fp16", "data": []}, "no samples"),
        ({"to": "fp16", "max_loss": 0.1}, "max_loss is of integers"),
        ({"to": "fp16", "method": "mse"}, "method is of integers"),
        ({"to": "bf16", "block": 64}, "block is of integers"),
        ({"to": "fp16", "data": np.full((2, 8), np.nan, np.float32)}, "NaN for x"),
    ],
)
def test_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(tonnx.InvalidArgument, match=message):
        tonnx.quantize(model_of("y = Relu(x)"), tmp_path / "h.onnx", **options)
    assert not list(tmp_path.iterdir())
