"""Arithmetic below the opset it came with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.legalise.harness import blocked, check, random

EDGES = np.array([-np.inf, -3e38, -2.5, -1.5, -0.5, -1e-8, 0, 1e-8, 0.5, 1.5, 2.5, 3e38, np.inf, np.nan], np.float32)
UNARY: dict[str, tuple[Any, Any]] = {
    "Erf": (random(200, low=-5, high=5), 2e-6),
    "Sign": (random(50), 0),
    "Sinh": (random(50, low=-9, high=9), 2e-6),
    "Cosh": (random(50, low=-9, high=9), 2e-6),
    "Asinh": (random(50, low=-9, high=9), 2e-6),
    "Acosh": (random(50, low=1, high=9), 2e-6),
    "Atanh": (random(50, low=-0.99, high=0.99), 2e-6),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    x, rtol = UNARY[name]
    check(lambda op, x: getattr(op, name)(x), [x], targets=(9, 8, 7), rtol=rtol, atol=1e-6)


def test_round_halves_to_even() -> None:
    x = np.concatenate([EDGES, np.arange(-5, 5, 0.25, dtype=np.float32), np.float32([0.49999997, 8388609.0])])
    check(lambda op, x: op.Round(x), [x], targets=(10, 9, 7))


def test_nan_and_infinity() -> None:
    check(lambda op, x: [op.IsNaN(x), op.IsInf(x)], [EDGES], targets=(9, 8, 7))
    check(lambda op, x: op.IsInf(x, detect_negative=0), [EDGES], targets=(9, 7))
    check(lambda op, x: op.IsInf(x, detect_positive=0), [EDGES], targets=(9, 7))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.int8])
@pytest.mark.parametrize("fmod", [0, 1])
def test_integer_mod(dtype: Any, fmod: int) -> None:
    low = 0 if dtype == np.uint8 else -20
    a, b = random(60, dtype=dtype, low=low, high=20), random(60, dtype=dtype, low=low, high=20)
    b[b == 0] = 3
    check(lambda op, a, b: op.Mod(a, b, fmod=fmod), [a, b], targets=(9, 8, 7))


def test_float_mod() -> None:
    a, b = random(60, low=-20, high=20), random(60, low=0.5, high=5) * np.where(np.arange(60) % 2, 1, -1)
    check(lambda op, a, b: op.Mod(a, b, fmod=1), [a, b.astype(np.float32)], targets=(9, 8, 7), atol=1e-5)


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumulative(exclusive: int, reverse: int) -> None:
    x = random(3, 4, 5)

    def build(op: Any, x: Any) -> Any:
        how = {"exclusive": exclusive, "reverse": reverse}
        axes = [op.constant(np.int64(axis)) for axis in range(3)]
        return [op.CumSum(x, axis, **how) for axis in axes] + [op.CumProd(x, axis, **how) for axis in axes]

    check(build, [x], targets=(25, 13, 10, 9))
    check(build, [x], targets=(25, 10, 9), dynamic=True)


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_cumulative_along_an_axis_of_the_run(axis: int) -> None:
    build = lambda op, x, axis: (op.CumProd(x, axis), op.CumSum(x, axis))  # noqa: E731
    check(build, [random(3, 4, 5), np.array(axis)], targets=(25, 11, 10, 9))


def test_cumulative_sum_of_integers_in_steps() -> None:
    build = lambda op, x: op.CumSum(x, op.constant(np.int64(1)))  # noqa: E731
    check(build, [random(2, 6, dtype=np.int64, high=9)], targets=(10, 9, 8, 7))
    made = check(build, [random(2, 6, dtype=np.int64, high=9)], targets=(10, 8, 7), dynamic={0: (1,)})
    assert "Scan" in {n.op_type for n in made[10].graph.node}
    assert "Loop" in {n.op_type for n in made[7].graph.node}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_determinant(size: int) -> None:
    check(lambda op, x: op.Det(x), [random(2, 3, size, size)], targets=(10, 7), rtol=1e-4, atol=1e-5)


def test_large_determinant_is_refused() -> None:
    blocked(lambda op, x: op.Det(x), [random(6, 6)], 10, "5 × 5")


def test_double_erf_is_refused() -> None:
    blocked(lambda op, x: op.Erf(x), [random(3, dtype=np.float64)], 8, "precision of float32")


def test_float_bits_are_refused() -> None:
    error = blocked(lambda op, x: op.BitCast(x, to=6), [random(3)], 25, "reads the bits")
    assert error.blockers[0].lowest_opset == 26
