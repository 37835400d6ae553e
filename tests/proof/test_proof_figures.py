"""What the proof measures and what it measures on: differences of arrays, and inputs of other sizes."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import tonnx
from tonnx.errors import InvalidArgument
from tonnx.proof.compare import Tolerance, compare, default_tolerance
from tonnx.proof.compare import compare as compare_function
from tonnx.proof.trials.inputs import other_sizes, redraw, resize

NAN, INF = float("nan"), float("inf")


def array(values: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, dtype)


# --- compare ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "expected", "close", "far"),
    [
        (np.float64, 1.0, 1 + 1.8e-7, 1 + 2.4e-7),
        (np.float32, 1.0, 1.0009, 1.0012),
        (np.float32, 0.0, 9e-6, 1.2e-5),
        (np.float16, 1.0, 1.01, 1.03),
        (ml_dtypes.bfloat16, 1.0, 1.1, 1.2),
        (ml_dtypes.float8_e4m3fn, 1.0, 1.125, 1.25),
        (ml_dtypes.float8_e5m2, 1.0, 1.25, 1.5),
        (ml_dtypes.float8_e4m3fnuz, 1.0, 1.125, 1.25),
        (ml_dtypes.float8_e5m2fnuz, 1.0, 1.25, 1.5),
        (np.complex64, 1 + 1j, 1.0005 + 1j, 1.01 + 1j),
        (np.complex128, 1j, 1j + 1e-7j, -1j),
        (np.int64, 2**60, 2**60, 2**60 + 1),  # equal as float64
        (np.uint64, 2**64 - 1, 2**64 - 1, 2**64 - 2),
        (np.int8, -128, -128, 127),
        (np.bool_, True, True, False),
        (ml_dtypes.int4, -8, -8, 7),
        (object, "ab", "ab", "ac"),
    ],
)
def test_tolerance_of_each_dtype(dtype: Any, expected: Any, close: Any, far: Any) -> None:
    reference = array([expected, expected, expected], dtype)
    good = compare("y", reference, array([expected, close, expected], dtype))
    bad = compare("y", reference, array([expected, far, expected], dtype))
    assert good.ok
    assert good.mismatched == 0
    assert good.reason is None
    assert good.excess <= 1
    assert not bad.ok
    assert bad.mismatched == 1
    assert bad.total == 3
    assert bad.max_abs > 0
    assert bad.excess > 1
    assert bad.reason is not None
    assert "1 of 3 elements" in bad.reason
    assert "worst at [1]" in bad.reason


@pytest.mark.parametrize(
    ("expected", "actual", "ok"),
    [
        ([NAN, 1], [NAN, 1], True),
        ([NAN, 1], [1, NAN], False),
        ([NAN], [0], False),
        ([0], [NAN], False),
        ([INF, -INF], [INF, -INF], True),
        ([INF], [-INF], False),
        ([INF], [3.4e38], False),
        ([3.4e38], [INF], False),
        ([-3.4e38], [3.4e38], False),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_nan_and_infinity(expected: list[float], actual: list[float], ok: bool, dtype: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = compare("y", array(expected, dtype), array(actual, dtype))
    assert result.ok is ok
    assert (result.max_abs == 0) is ok
    if not np.isfinite([*expected, *actual]).all():
        assert result.max_rel == result.excess == (0 if ok else INF)


def test_float64_differences_do_not_overflow_with_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compare("y", array([1e308], np.float64), array([-1e308], np.float64)).max_abs == INF


@pytest.mark.parametrize(
    ("expected", "actual", "words"),
    [
        (np.zeros((2, 3)), np.zeros((3, 2)), ["shape: (2, 3) in the model, (3, 2) in the file"]),
        (np.zeros(()), np.zeros((1,)), ["shape: () in the model"]),
        (np.zeros(2, np.int64), np.zeros(2, np.int32), ["dtype: int64 in the model, int32 in the file"]),
        (np.zeros(2, np.float16), np.zeros(2, ml_dtypes.bfloat16), ["dtype: float16", "bfloat16"]),
        (np.zeros(2, bool), np.zeros(3, np.uint8), ["dtype: bool", "shape: (2,)"]),
        (np.zeros((0, 3)), np.zeros((0, 4)), ["shape: (0, 3)"]),
    ],
)
def test_dtype_and_shape_agree_exactly(expected: np.ndarray, actual: np.ndarray, words: list[str]) -> None:
    result = compare("y", expected, actual, rtol=INF, atol=INF)
    assert not result.ok
    assert result.reason is not None
    assert all(word in result.reason for word in words)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool, object, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
def test_empty_outputs_are_equal(dtype: Any, shape: tuple[int, ...]) -> None:
    result = compare("y", np.zeros(shape, dtype), np.zeros(shape, dtype))
    assert result.ok
    assert result.total == 0
    assert result.max_abs == 0


def test_figures_over_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[compare_function.__module__], "BLOCK", 4)
    expected = np.full((3, 5), 2.0, np.float32)
    actual = expected.copy()
    actual[0, 1], actual[2, 3] = 2.5, 3.0
    for dtype in (np.float32, np.int16):
        result = compare("y", (expected * 2).astype(dtype), (actual * 2).astype(dtype))
        assert (result.max_abs, result.max_rel, result.mismatched, result.total) == (2.0, 0.5, 2, 15)
        assert result.reason is not None
        assert "worst at [2, 3]: 4 in the model, 6 in the file" in result.reason


def test_given_tolerances_replace_the_default_but_never_for_integers() -> None:
    one, off = array([1.0]), array([1.01])
    assert compare("y", one, off, rtol=0.02).ok
    assert not compare("y", one, off, rtol=0.001).ok
    assert compare("y", one, off, atol=0.02).ok
    assert not compare("y", one, array([np.nextafter(np.float32(1), 2)]), rtol=0, atol=0).ok
    assert not compare("y", array([1], int), array([2], int), rtol=10, atol=10).ok
    assert default_tolerance(np.int32) == Tolerance(0, 0)
    for wrong in (-1.0, NAN):
        with pytest.raises(InvalidArgument):
            compare("y", one, one, rtol=wrong)


def test_text_is_one_dtype_however_numpy_holds_it() -> None:
    assert compare("y", np.array(["a", "bc"]), array(["a", "bc"], object)).ok
    assert not compare("y", np.array(["a", "bc"]), array(["a", "b"], object)).ok


# --- inputs -------------------------------------------------------------------------------------------


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_floats_keep_mean_deviation_and_range(dtype: Any, rng: np.random.Generator) -> None:
    example = rng.normal(20, 3, (4, 100)).astype(dtype)
    drawn = resize(example, (70, 150), rng)
    assert drawn.dtype == example.dtype
    assert drawn.shape == (70, 150)
    wide, before = drawn.astype(np.float64), example.astype(np.float64)
    assert abs(wide.mean() - before.mean()) < 0.5
    assert 0.8 < wide.std() / before.std() < 1.2
    assert before.min() <= wide.min()
    assert wide.max() <= before.max()
    assert len(np.unique(wide[:, 100:])) > 4


@pytest.mark.parametrize(
    "example",
    [
        np.array([[0, 0, -INF], [0, -INF, -INF]], np.float32),
        np.array([[0.0, 1.0, 1.0, 0.0]], np.float32),
        np.array([[True, False]]),
        np.array([[1, 1, 1, 0, 0]]),
        np.array([["a", "b"]], object),
        np.array([[7]], np.int32),
        np.array([[1.5]], np.float32),
        np.array([[3, NAN, 4, 5, 6, 7, 8]], np.float32),
    ],
)
def test_masks_and_constants_are_tiled(example: np.ndarray, rng: np.random.Generator) -> None:
    rows, columns = example.shape
    drawn = resize(example, (rows + 1, columns + 2), rng)
    expected = np.take(np.take(example, np.arange(rows + 1) % rows, 0), np.arange(columns + 2) % columns, 1)
    np.testing.assert_array_equal(drawn, expected)
    assert drawn.dtype == example.dtype


@pytest.mark.parametrize("size", [2, 3, 7, 20])
def test_the_bounds_of_intervals_stay_in_order(size: int, rng: np.random.Generator) -> None:
    bounds = np.array([[-1, 0, 0, 2, 9], [3, 4, 5, 6, 7]], np.float32)
    for drawn in (resize(bounds, (3, size), rng), redraw(bounds, rng)):
        assert (np.diff(drawn, axis=1) >= 0).all()
        assert drawn.min() >= -1 and drawn.max() <= 9 and drawn.dtype == np.float32


def test_whole_numbers_stay_whole(rng: np.random.Generator) -> None:
    pixels = rng.integers(0, 256, (8, 8)).astype(np.float32)
    drawn = resize(pixels, (9, 9), rng)
    np.testing.assert_array_equal(drawn, np.rint(drawn))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.uint64, ml_dtypes.int4])
def test_token_ids_stay_in_range(dtype: Any, rng: np.random.Generator) -> None:
    example = np.array([[5, 2, 7, 3, 6, 2, 7]], np.int64).astype(dtype)
    drawn = resize(example, (50, 9), rng)
    assert drawn.dtype == example.dtype
    assert set(np.unique(drawn.astype(np.int64))) == {2, 3, 4, 5, 6, 7}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((1, 6), [[0, 1, 2, 3, 3, 3]]), ((1, 2), [[0, 1]]), ((2, 4), [[0, 1, 2, 3], [0, 1, 2, 3]])],
)
def test_positions_stay_positions(shape: tuple[int, ...], expected: Any, rng: np.random.Generator) -> None:
    np.testing.assert_array_equal(resize(np.arange(4)[None], shape, rng), expected)


def test_offsets_stay_in_order(rng: np.random.Generator) -> None:
    np.testing.assert_array_equal(resize(np.array([0, 2, 2]), (5,), rng), [0, 2, 2, 2, 2])


def test_empty_examples_and_empty_targets(rng: np.random.Generator) -> None:
    cache = resize(np.zeros((1, 2, 0, 4), np.float32), (1, 2, 3, 4), rng)
    assert cache.shape == (1, 2, 3, 4)
    assert cache.dtype == np.float32
    assert cache.std() > 0
    assert resize(np.zeros((0, 2), np.int64), (3, 2), rng).tolist() == [[0, 0]] * 3
    assert resize(np.zeros((0,), bool), (2,), rng).tolist() == [True, True]
    assert resize(np.ones((3, 2), np.float32), (0, 2), rng).shape == (0, 2)
    complex_values = resize(rng.standard_normal(6) + 1j * rng.standard_normal(6), (8,), rng)
    assert complex_values.dtype == np.complex128
    assert complex_values.imag.std() > 0
    with pytest.raises(ValueError, match="rank"):
        resize(np.ones((3, 2)), (3,), rng)


def sizes_of(assignments: list[dict[str, int]], symbol: str) -> set[int]:
    return {sizes[symbol] for sizes in assignments}


@pytest.mark.parametrize(
    ("dims", "batch", "expected"),
    [
        ({"n": 1}, [], {"n": {2, 3}}),
        ({"n": 2}, [], {"n": {1, 3}}),
        ({"n": 5}, [], {"n": {1, 2, 3, 6}}),
        ({"n": 64}, ["n"], {"n": {1, 2, 3, 65}}),
        ({"n": 64}, [], {"n": {65, 128}}),
        ({"n": 4000}, [], {"n": {4001, 2000}}),
        ({"n": 0}, [], {"n": {1, 2, 3}}),
        ({"n": 1, "h": 64, "w": 64}, ["n"], {"n": {1, 2, 3}, "h": {32, 64, 65, 128}, "w": {32, 64, 65, 128}}),
        ({}, [], {}),
    ],
)
def test_other_sizes(dims: dict[str, int], batch: list[str], expected: dict[str, set[int]]) -> None:
    assignments = other_sizes(dims, batch=batch)
    assert {symbol: sizes_of(assignments, symbol) for symbol in dims} == expected
    assert dims not in assignments
    assert len({tuple(sizes.items()) for sizes in assignments}) == len(assignments)


def test_symbols_vary_alone_and_together_and_equal_sizes_stay_equal() -> None:
    dims = {"n": 1, "h": 64, "w": 64}
    assignments = other_sizes(dims, batch=["n"])
    changed = [tuple(s for s in dims if sizes[s] != dims[s]) for sizes in assignments]
    assert {changed.count((symbol,)) for symbol in dims} == {2}
    assert changed[-2:] == [("n", "h", "w")] * 2
    assert all(sizes["h"] == sizes["w"] for sizes in assignments[-2:])
    assert all(sizes["n"] * sizes["h"] * sizes["w"] <= 4 * 64 * 64 for sizes in assignments)


@pytest.mark.parametrize(
    ("size", "bounds", "expected"),
    [
        (1, (1, 2), {2}),
        (2, (2, None), {3, 4}),
        (8, (8, 16), {9, 16}),
        (64, (1, 64), {32, 63}),
        (64, (60, 65), {65, 63}),
        (5, (5, 5), set()),
        (1, (1, None), {2, 3}),
    ],
)
def test_ranges_are_respected(size: int, bounds: tuple[int, int | None], expected: set[int]) -> None:
    assert sizes_of(other_sizes({"n": size}, {"n": bounds}), "n") == expected
    low, high = bounds
    for sizes in other_sizes({"n": size, "m": 32}, {"n": bounds}):
        assert low <= sizes["n"]
        assert high is None or sizes["n"] <= high


def test_joint_sizes_do_not_explode() -> None:
    for sizes in other_sizes(dict.fromkeys("abcd", 1)):
        assert np.prod(list(sizes.values())) <= 4


def test_the_limit_leaves_every_symbol_one_size() -> None:
    dims = dict.fromkeys("abcdef", 16)
    assignments = other_sizes(dims, limit=8)
    assert len(assignments) == 8
    assert all(any(s[symbol] != 16 and sum(s.values()) - s[symbol] == 80 for s in assignments) for symbol in dims)


def test_what_to_do_about_a_size_that_never_comes() -> None:
    """Where there is one row, the axis is gone."""

    def model(x: torch.Tensor) -> torch.Tensor:
        return x.mean(2).squeeze(1)

    with pytest.raises(tonnx.VerificationFailed) as caught:
        tonnx.export(model, torch.randn(2, 8, 4), dynamic_axes={"x": {0: "b", 1: "n"}})
    assert "if n is never 1, say so: torch.export.Dim('n', min=2) in dynamic_shapes" in str(caught.value)
    limited = {"x": {0: torch.export.Dim("b"), 1: torch.export.Dim("n", min=2)}}
    result = tonnx.export(model, torch.randn(2, 8, 4), dynamic_shapes=limited)
    assert result.verification is not None and result.verification.ok
