"""Casts, masks, ranges, expansion, choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.legalise.harness import check, either, random

LOW = (13, 11, 10, 9, 8, 7)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -1, 2])
@pytest.mark.parametrize("dynamic", [False, True])
def test_triangle(upper: int, k: int | None, dynamic: bool) -> None:
    def build(op: Any, x: Any) -> Any:
        return op.Trilu(x, None if k is None else op.constant(np.int64(k)), upper=upper)

    check(build, [random(2, 4, 5)], targets=LOW, dynamic=dynamic)


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.int32])
def test_triangle_of_other_types(dtype: Any) -> None:
    check(lambda op, x: op.Trilu(x, upper=0), [random(4, 4, dtype=dtype)], targets=LOW)


def test_triangle_with_a_diagonal_chosen_at_run_time() -> None:
    check(lambda op, x, k: op.Trilu(x, k), [random(4, 5), np.array(1, np.int64)], targets=LOW)


def test_cast_like() -> None:
    check(lambda op, x, y: op.CastLike(x, y), [random(5), random(2, dtype=np.int32)], targets=(14, 9, 7))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float64])
def test_comparisons(dtype: Any) -> None:
    a, b = random(40, dtype=dtype), random(40, dtype=dtype)
    b[:10] = a[:10]
    if dtype != np.int64:
        a[5:7] = b[6:8] = np.nan
        a[20], b[21] = np.inf, -np.inf
    check(lambda op, a, b: [op.GreaterOrEqual(a, b), op.LessOrEqual(a, b)], [a, b], targets=LOW[1:])


RANGES = [(0, 7, 1), (3, 20, 4), (9, -2, -3), (5, 5, 1), (6, 2, 1), (2, 9, -1)]


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32])
@pytest.mark.parametrize("bounds", RANGES)
def test_range(bounds: tuple[int, int, int], dtype: Any) -> None:
    arrays = [np.array(b, dtype) for b in bounds]
    check(lambda op, a, b, c: op.Range(a, b, c), arrays, targets=(10, 9, 8, 7))
    check(lambda op, a, b: op.Range(a, b, arrays[2]), arrays[:2], targets=(10, 8))


def test_range_of_a_size() -> None:
    made = check(lambda op, x: op.Range(0, op.scalar(op.size(x, 0)), 1), [random(6)], targets=(10, 7), dynamic=True)
    assert "Relu" not in {n.op_type for n in made[10].graph.node}


@pytest.mark.parametrize("dynamic", [False, True])
def test_eye(dynamic: bool) -> None:
    check(lambda op, x: op.EyeLike(x, k=1), [random(3, 4)], targets=(9, 8, 7), dynamic=dynamic)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_expand(dtype: Any) -> None:
    x = random(3, 1, dtype=dtype)
    check(lambda op, x: op.Expand(x, [2, 3, 4]), [x], targets=(8, 7))
    check(lambda op, x: op.Expand(x, [1, 5]), [x], targets=(8, 7))
    shape = np.array([2, 1, 4], np.int64)
    check(lambda op, x, s: op.Expand(x, s), [x, shape], targets=(8, 7), dynamic={0: (0, 1)})


def test_constant_of_shape() -> None:
    def build(op: Any, shape: Any) -> Any:
        return op.Add(op.ConstantOfShape(shape), 2.0)

    check(build, [np.array([2, 3], np.int64)], targets=(9, 8, 7))


A, B = random(3, 4), random(4)
A[0], B[1] = np.inf, -np.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, np.bool_])
def test_where(dtype: Any) -> None:
    with np.errstate(invalid="ignore"):
        a, b = A.astype(dtype), B.astype(dtype)
    condition = random(2, 1, 4, dtype=np.bool_)
    check(lambda op, c, a, b: op.Where(c, a, b), [condition, a, b], targets=(9, 8, 7), judge=either)


NUMBERS = [0.0, 2.5, -1e9, -np.inf, np.inf, np.nan]


@pytest.mark.parametrize("first", NUMBERS)
def test_where_with_numbers(first: float) -> None:
    condition = random(3, 4, dtype=np.bool_)

    def build(op: Any, c: Any, x: Any) -> Any:
        number = op.constant(np.float32(first))
        both = [op.Where(c, number, op.constant(np.float32(n))) for n in NUMBERS]
        return [op.Where(c, number, x), op.Where(c, x, number), *both]

    check(build, [condition, A], targets=(8, 7))


def test_where_that_puts_0_in_the_place_of_nan() -> None:
    """Before opset 9 there is no Where, and a product with 0 would keep the NaN."""
    x = np.array([[1.0, -2.0, np.nan], [np.inf, -np.inf, 0.5]], np.float32)
    masked = np.array([[False, False, True], [True, True, False]])
    check(lambda op, c, x: op.Where(c, 0.0, x), [masked, x])
    check(lambda op, c, x: op.Where(op.Not(c), x, 0.0), [masked, x])
    check(lambda op, x: op.Where(op.IsNaN(x), 7.0, x), [x])
