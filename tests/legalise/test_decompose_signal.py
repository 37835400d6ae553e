"""Windows and Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.legalise.harness import blocked, check, random, reference


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("name", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_window(name: str, periodic: int) -> None:
    known = lambda op, x: x * getattr(op, name)(op.constant(np.int64(8)), periodic=periodic)  # noqa: E731
    check(known, [random(8)], targets=(16, 9, 7), oracle=reference)
    given = lambda op, n: getattr(op, name)(n, periodic=periodic)  # noqa: E731
    check(given, [np.array(9, np.int64)], targets=(16, 9, 7), oracle=reference)


def test_mel_weights() -> None:
    def build(op: Any, x: Any) -> Any:
        sizes = [op.constant(np.int64(n)) for n in (6, 32, 8000)]
        return op.MatMul(x, op.MelWeightMatrix(*sizes, op.constant(np.float32(0)), op.constant(np.float32(4000))))

    check(build, [random(2, 17)], targets=(16, 9))


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("length", [None, 5, 9])
def test_fourier_transform(parts: int, axis: int, length: int | None) -> None:
    def build(op: Any, x: Any) -> Any:
        n = None if length is None else op.constant(np.int64(length))
        both = [op.DFT(x, n, op.constant(np.int64(axis)), inverse=i) for i in (0, 1)]
        if parts == 1:
            both.append(op.DFT(x, n, op.constant(np.int64(axis)), onesided=1))
        return both

    check(build, [random(2, 7, 6, parts)], targets=(16, 11, 7), oracle=reference, atol=1e-5)


@pytest.mark.parametrize("length", [None, 9])
def test_inverse_of_half_a_spectrum(length: int | None) -> None:
    def build(op: Any, x: Any) -> Any:
        n = None if length is None else op.constant(np.int64(length))
        return op.DFT(x, n, op.constant(np.int64(1)), inverse=1, onesided=1)

    check(build, [random(2, 5, 2)], targets=(16, 9), oracle=reference, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, {0: (0, 1)}])
@pytest.mark.parametrize("onesided", [0, 1])
def test_short_time_transform(onesided: int, dynamic: Any) -> None:
    def build(op: Any, x: Any, window: Any) -> Any:
        step, length = op.constant(np.int64(3)), op.constant(np.int64(8))
        return [
            op.STFT(x, step, window, onesided=onesided),
            op.STFT(x, step, None, length, onesided=onesided),
        ]

    check(build, [random(2, 30, 1), random(8)], targets=(16, 11, 7), dynamic=dynamic, oracle=reference, atol=1e-5)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("length", [None, 5, 9])
def test_length_that_the_run_knows(parts: int, length: int | None) -> None:
    def build(op: Any, x: Any) -> Any:
        n, axis = None if length is None else op.constant(np.int64(length)), op.constant(np.int64(1))
        both = [op.DFT(x, n, axis, inverse=i) for i in (0, 1)]
        return [*both, op.DFT(x, n, axis, onesided=1)] if parts == 1 else both

    check(build, [random(2, 7, 6, parts)], targets=(16, 11, 10), dynamic={0: (0, 1)}, oracle=reference, atol=1e-5)


@pytest.mark.parametrize("length", [8, 9, 7])
def test_half_a_spectrum_of_a_length_that_the_run_knows(length: int) -> None:
    def build(op: Any, x: Any, n: Any) -> Any:
        return op.DFT(x, n, op.constant(np.int64(1)), inverse=1, onesided=1)

    inputs = [random(2, 5, 2), np.array(length, np.int64)]
    check(build, inputs, targets=(16, 11, 10), dynamic={0: (0, 1)}, oracle=reference, atol=1e-5)


def test_unknown_parts_are_refused() -> None:
    build = lambda op, x: op.DFT(x, None, op.constant(np.int64(1)))  # noqa: E731
    blocked(build, [random(2, 7, 1)], 16, "whether its input is complex", dynamic=True)
