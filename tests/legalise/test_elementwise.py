"""Clip, Dropout, Gemm, Constant, Equal, Pow, broadcasting of Max and its like, Cast, and the dtype rule."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import pytest

from tests.legalise.harness import blocked, check, random, reference

T = ir.DataType
X = random(2, 3, 4)


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, None), (None, 1.0), (None, None)])
def test_clip(bounds: tuple[float | None, float | None]) -> None:
    check(lambda op, x: op.Clip(x, *bounds), [X], targets=(13, 12, 11, 10, 7))
    check(lambda op, x: op.Clip(x, *bounds), [X.astype(np.float64) * 1e200], targets=(11, 10), judge=reference)


def test_clip_bounds_computed_at_run_time() -> None:
    low, high = np.array(-0.5, np.float32), np.array(0.5, np.float32)
    check(lambda op, x, a, b: op.Clip(x, a, b), [X, low, high], targets=(12, 11, 10, 8, 7))


def test_clip_up() -> None:
    check(lambda op, x: op.Clip(x, min=-1.0, max=0.5), [X], source=7, targets=(11, 13, 26))
    check(lambda op, x: op.Clip(x), [X], source=7, targets=(11, 26))


INTEGERS = np.array([[-(2**62) - 1, 5, 2**62 + 1], [0, -7, 2**53 + 1]])


def test_64_bit_integers_stay_whole() -> None:
    limit = np.iinfo(np.int64).max
    check(lambda op, x: op.Clip(x, -3, limit), [INTEGERS], targets=(12, 11, 10, 9))
    check(lambda op, x: (op.Max(x, 3), op.Min(x, 2**53)), [INTEGERS], targets=(12, 11, 10, 9))
    check(lambda op, x: op.Relu(x), [INTEGERS.astype(np.int32)], targets=(14, 13, 11, 9))
    check(lambda op, x: op.Flatten(x, axis=1), [INTEGERS.reshape(1, 2, 3)], targets=(9, 8, 7))
    check(lambda op, x: op.Pow(x, 2), [random(4, dtype=np.int64)], targets=(12, 11, 9, 7))
    blocked(lambda op, x: op.Pow(x, x), [np.arange(4)], 11, "64-bit")


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int32, np.int64, np.float16, np.float64])
def test_types_that_older_versions_do_not_take(dtype: type) -> None:
    a, b = random(3, 4, dtype=dtype, low=0, high=9), random(4, dtype=dtype, low=0, high=9)
    check(lambda op, a, b: op.Equal(a, b), [a, b], targets=(19, 13, 11, 10, 9, 7))
    if dtype is np.bool_:
        return
    check(lambda op, a, b: op.Where(op.Equal(a, b), a, b), [a, b], targets=(19, 13, 11, 10, 9), rtol=1e-2)
    check(lambda op, a, b: (op.Less(a, b), op.Greater(a, b)), [a, b], targets=(13, 9, 8, 7))
    if dtype not in (np.int8, np.uint8):  # ONNX Runtime adds no 8-bit integers even at the newest opset
        check(lambda op, a, b: op.Max(a, b), [a, b], targets=(13, 11, 9))
        check(lambda op, a, b: a + b, [a, b], targets=(14, 13, 7), rtol=1e-2)


def test_casts_are_named_like_the_output() -> None:
    models = check(lambda op, a: op.Max(a, a), [random(3, dtype=np.float16)], targets=(11, 7), rtol=1e-3)
    assert models[7].graph.output[0].type.tensor_type.elem_type == 10


def test_a_type_that_does_not_exist_is_refused() -> None:
    error = blocked(lambda op, a: op.Add(op.Cast(a, to=16), op.Cast(a, to=16)), [X], 12, "bfloat16")
    assert {blocker.lowest_opset for blocker in error.blockers} == {13}
    blocked(lambda op, a: op.Cast(a, to=int(T.FLOAT8E4M3FN)), [X], 18, "float8e4m3fn")


def test_equal_of_numbers_and_nan() -> None:
    values = np.array([1, math.nan, math.inf, -0.0, 2], np.float32)
    others = np.array([1, math.nan, math.inf, 0.0, 3], np.float32)
    check(lambda op, a, b: (op.Equal(a, b), op.Equal(a, 1.0)), [values, others], targets=(11, 10, 7))


def test_pow_of_two_types() -> None:
    check(lambda op, x: op.Pow(x, op.constant([2], T.INT64)), [X], targets=(13, 12, 11, 7), rtol=1e-4)
    check(lambda op, x: op.Pow(x, 0.5), [random(3, dtype=np.int32, low=0)], targets=(12, 11, 7))


@pytest.mark.parametrize("name", ["Max", "Min", "Sum", "Mean"])
def test_broadcasting(name: str) -> None:
    inputs = [random(2, 1, 4), random(3, 1), np.array(math.inf, np.float32)]
    check(lambda op, *xs: getattr(op, name)(*xs), inputs, targets=(13, 8, 7))
    check(lambda op, *xs: getattr(op, name)(*xs, 0.5), inputs, targets=(13, 8, 7), dynamic=True)
    check(lambda op, x: getattr(op, name)(x, x), [X], targets=(8, 7), has=[name])


def test_dropout() -> None:
    check(lambda op, x: op.Dropout(x, 0.5), [X], targets=(13, 12, 11, 9, 7))
    check(lambda op, x: op.Dropout(x, 0.5, _outputs=2), [X], targets=(13, 12, 11, 9))
    blocked(lambda op, x: op.Dropout(x, 0.5, True), [X], 11, "inference only")
    check(lambda op, x: op.Dropout(x, ratio=0.3), [X], source=7, targets=(10, 12, 22))


def test_gemm_without_c() -> None:
    inputs = [random(3, 4), random(5, 4)]
    check(lambda op, a, b: op.Gemm(a, b, transB=1, alpha=0.5), inputs, targets=(13, 11, 10, 7))
    check(lambda op, a, b: op.Gemm(a, b, [0.5], transB=1), inputs, source=7, targets=(11, 13, 26))


@pytest.mark.parametrize(
    "attribute", [{"value_int": 3}, {"value_ints": [1, 2]}, {"value_float": 0.5}, {"value_floats": [0.5, 1.5]}]
)
def test_constants(attribute: dict[str, object]) -> None:
    models = check(lambda op, x: (x, op.Constant(**attribute)), [X], targets=(24, 12, 11, 9, 8, 7))
    assert all(a.name == "value" for n in models[7].graph.node if n.op_type == "Constant" for a in n.attribute)


def test_cast() -> None:
    check(lambda op, x: op.Cast(x, to=10, saturate=1, round_mode="up"), [X], targets=(23, 19, 18, 13, 9, 7))
    like = lambda op, x: op.CastLike(x, op.constant(1, T.INT32), saturate=1)  # noqa: E731
    check(like, [X], targets=(23, 19, 18, 15))


def test_bfloat16_from_13_on() -> None:
    build = lambda op, x: op.Cast(op.Erf(op.Cast(x, to=16)), to=1)  # noqa: E731
    check(build, [X], targets=(21, 13), oracle=reference, judge=reference, rtol=1e-2)
