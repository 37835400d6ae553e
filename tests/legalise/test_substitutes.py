"""Operators that a named target has not, written with others at the same opset."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import tonnx
from tonnx.io import read as reading
from tonnx.io import write
from tonnx.ir.target import Target
from tonnx.legalise import legalise
from tonnx.legalise.conformity import misfits
from tonnx.legalise.rules import load
from tonnx.legalise.table import SUBSTITUTES
from tonnx.proof.session import Session
from tonnx.targets import read_profile

load()
FLOATS = "(float[2, 3, 4] x) => (float[a, b, c] y)"
TRUTHS = "(bool[2, 3] p, bool[3] q) => (bool[2, 3] y)"
CASES: dict[str, str] = {
    "And": f"{TRUTHS} {{ y = And(p, q) }}",
    "Or": f"{TRUTHS} {{ y = Or(p, q) }}",
    "Xor": f"{TRUTHS} {{ y = Xor(p, q) }}",
    "Not": "(bool[2, 3] p) => (bool[2, 3] y) { y = Not(p) }",
    "HardSigmoid": f"{FLOATS} {{ y = HardSigmoid<alpha = 0.3>(x) }}",
    "Softsign": f"{FLOATS} {{ y = Softsign(x) }}",
    "Softplus": "(float[2, 3] x) => (float[2, 3] y) <float k = {100.0}> { big = Mul(x, k) y = Softplus(big) }",
    "Selu": f"{FLOATS} {{ y = Selu(x) }}",
    "PRelu": f"{FLOATS} <float[4] s = {{0.1, 0.2, -0.3, 2.0}}> {{ y = PRelu(x, s) }}",
    "Reciprocal": f"{FLOATS} {{ y = Reciprocal(x) }}",
    "Neg": f"{FLOATS} {{ y = Neg(x) }}",
    "Abs": f"{FLOATS} {{ y = Abs(x) }}",
    "Ceil": f"{FLOATS} {{ y = Ceil(x) }}",
    "Sum": "(float[2, 3] x, float[3] z) => (float[2, 3] y) { y = Sum(x, z, x) }",
    "Mean": "(float[2, 3] x, float[3] z) => (float[2, 3] y) { y = Mean(x, z, x) }",
    "ReduceL1": f"{FLOATS} {{ y = ReduceL1<axes = [-1]>(x) }}",
    "ReduceL2": f"{FLOATS} {{ y = ReduceL2<axes = [0, 2]>(x) }}",
    "ReduceSumSquare": "(float[2, 3] x) => (float y) { y = ReduceSumSquare<keepdims = 0>(x) }",
    "ReduceLogSum": "(float[2, 3] x) => (float[2] y) { z = Abs(x) y = ReduceLogSum<axes = [1], keepdims = 0>(z) }",
    "ReduceLogSumExp": "(float[2, 3] x) => (float[2] y) { y = ReduceLogSumExp<axes = [1], keepdims = 0>(x) }",
    "GlobalMaxPool": f"{FLOATS} {{ y = GlobalMaxPool(x) }}",
    "GlobalAveragePool": f"{FLOATS} {{ y = GlobalAveragePool(x) }}",
    "LogSoftmax": f"{FLOATS} {{ y = LogSoftmax<axis = 1>(x) }}",
    "BatchNormalization": (
        f"{FLOATS} <float[3] s = {{1, 2, 3}}, float[3] b = {{0, 1, 2}}, float[3] m = {{1, -1, 0}}, "
        "float[3] v = {1, 2, 4}> { y = BatchNormalization(x, s, b, m, v) }"
    ),
    "ArgMin": "(float[2, 3] x) => (int64[2] y) { y = ArgMin<axis = 1, keepdims = 0>(x) }",
    "Gather": "(float[2, 3] x) => (float[2] y) <int64 i = {-1}> { y = Gather<axis = 1>(x, i) }",
    **{
        name: f"(float[3, 2, 4] x, float[1, {gates * 3}, 4] w, float[1, {gates * 3}, 3] r) => (float[3, 1, 2, 3] y) "
        f"{{ y = {name}<hidden_size = 3>(x, w, r) }}"
        for name, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
    },
    "TopK": "(float[2, 5] x) => (float[2, 3] y, int64[2, 3] i) <int64[1] k = {3}> { y, i = TopK(x, k) }",
    "SpaceToDepth": "(float[1, 2, 4, 6] x) => (float[1, 8, 2, 3] y) { y = SpaceToDepth<blocksize = 2>(x) }",
}
COUNTS = "(float[2, 3] x) => (int64[a, b] y) <float z = {0.0}, int64 one = {1}>"
DTYPES: dict[str, str] = {  # of an operator that the target has for other element types
    "Clip": "(int64[5] x) => (int64[5] y) <int64 low = {1}, int64 high = {4}> { y = Clip(x, low, high) }",
    "ReduceMax": f"{COUNTS} {{ p = Greater(x, z) n = Cast<to = 7>(p) y = ReduceMax<axes = [1]>(n) }}",
    "CumSum": f"{COUNTS} {{ p = Greater(x, z) n = Cast<to = 7>(p) y = CumSum(n, one) }}",
}


def read(text: str) -> ir.Model:
    return reading.reader(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> net {text}'))()


def outcomes(model: ir.Model) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    kinds = {ir.DataType.BOOL: lambda s: rng.random(s) > 0.5, ir.DataType.INT64: lambda s: rng.integers(-9, 9, s)}
    feeds = {
        value.name: kinds.get(value.dtype, lambda s: rng.standard_normal(s).astype(np.float32))(tuple(value.shape))
        for value in model.graph.inputs
    }
    return list(Session(write.to_bytes(model)).run(feeds).values())


def test_every_substitute_has_a_case() -> None:
    assert set(SUBSTITUTES) - {"ReduceMin", "ReduceSum"} == set(CASES) | set(DTYPES)


@pytest.mark.parametrize("name", CASES)
def test_without_the_operator(name: str) -> None:
    profile = replace(read_profile("openvino-2024"), missing=frozenset([name]))
    expected = outcomes(read(CASES[name]))
    model = read(CASES[name])
    reading.infer(model)
    legalise(model, Target(17, None, profile))
    assert not misfits(model, profile)
    for one, other in zip(expected, outcomes(model), strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", DTYPES)
def test_without_the_element_type(name: str) -> None:
    result = tonnx.retarget(read(DTYPES[name]), target="tensorrt-8.6")
    assert result.verification is not None and result.verification.ok
    assert tonnx.check(result.model, "tensorrt-8.6").ok


def test_integers_that_a_float_may_not_hold_are_refused() -> None:
    text = "(int64[2, 3] x) => (int64[2, 1] y) { y = ReduceMax<axes = [1]>(x) }"
    with pytest.raises(tonnx.RetargetError, match="no ReduceMax of int"):
        tonnx.retarget(read(text), target="tensorrt-8.6")


def test_constants_need_no_operator() -> None:
    text = "(float[2] x) => (float[2] y) { c = Constant<value = float[1] {2.0}>() y = Mul(x, c) }"
    for name in ("ort-web", "directml", "triton-24.05", "qnn"):
        assert tonnx.check(read(text), name).ok
