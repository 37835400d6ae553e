"""Gathering and scattering by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.legalise.harness import blocked, check, random

X = random(3, 4, 5)


def _indices(*shape: int, below: int, negative: bool = True) -> np.ndarray:
    return random(*shape, dtype=np.int64, low=-below if negative else 0, high=below - 1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_elements(axis: int, dynamic: bool) -> None:
    shape = [2, 3, 4]
    shape[axis] = 6
    indices = _indices(*shape, below=X.shape[axis])
    build = lambda op, x, i: op.GatherElements(x, i, axis=axis)  # noqa: E731
    check(build, [X, indices], targets=(10, 9, 8, 7), dynamic=dynamic)


def test_gather_elements_with_known_indices() -> None:
    indices = _indices(3, 2, 5, below=4)
    made = check(lambda op, x: op.GatherElements(x, indices, axis=1), [X], targets=(10, 7))
    assert [n.op_type for n in made[10].graph.node] == ["Reshape", "Gather"]


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("dynamic", [False, {0: (0, 1, 2), 1: (0, 1)}])
def test_gather_nd(depth: int, dynamic: Any) -> None:
    indices = np.stack([_indices(2, 6, below=X.shape[i]) for i in range(depth)], -1)
    build = lambda op, x, i: op.GatherND(x, i)  # noqa: E731
    check(build, [X, indices], targets=(11, 10, 9, 8, 7), dynamic=dynamic)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements(axis: int) -> None:
    shape = [2, 3, 4]
    shape[axis] = X.shape[axis]
    indices = np.argsort(random(*shape), axis=axis) - X.shape[axis]  # all different, all negative
    build = lambda op, x, i, u: op.ScatterElements(x, i, u, axis=axis)  # noqa: E731
    check(build, [X, indices, random(*shape)], targets=(17, 13, 11, 10, 9))
    check(build, [X, indices, random(*shape)], targets=(10, 9), dynamic=True)
    blocked(build, [X, indices, random(*shape)], 8, "writes to places")


@pytest.mark.parametrize("dynamic", [False, {0: (0, 1, 2), 1: (0,), 2: (0, 1)}])
def test_scatter_nd(dynamic: Any) -> None:
    one = np.array([[2], [-3]], np.int64)
    two = np.array([[2, 1], [-3, 3]], np.int64)
    three = np.array([[2, 1, 0], [0, 3, -1]], np.int64)
    build = lambda op, x, i, u: op.ScatterND(x, i, u)  # noqa: E731
    for indices, shape in ((one, (2, 4, 5)), (two, (2, 5)), (three, (2,))):
        check(build, [X, indices, random(*shape)], targets=(17, 11, 10, 9), dynamic=dynamic)


def test_reverse_sequence() -> None:
    lengths = np.array([4, 1, 3], np.int64)
    by_batch = lambda op, x, n: op.ReverseSequence(x, n, time_axis=1, batch_axis=0)  # noqa: E731
    check(by_batch, [random(3, 4, 2), lengths], targets=(9, 8, 7))
    by_time = lambda op, x, n: op.ReverseSequence(x, n)  # noqa: E731
    check(by_time, [random(4, 3, 2), lengths], targets=(9, 8, 7), dynamic=True)


def test_compress() -> None:
    keep = np.array([True, False, True, True])
    check(lambda op, x: op.Compress(x, keep, axis=1), [X], targets=(8, 7))
    check(lambda op, x: op.Compress(x, keep), [X], targets=(8, 7))
    blocked(lambda op, x, c: op.Compress(x, c, axis=1), [X, keep], 8, "condition")


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis: int) -> None:
    indices = random(3, 4, dtype=np.int64, low=0, high=5)
    plain = np.array([0, 1], np.float32)
    other = np.array([-2, 7], np.int64)
    check(lambda op, i: op.OneHot(i, np.int64(6), plain, axis=axis), [indices], targets=(10, 8, 7))
    check(lambda op, i: op.OneHot(i, np.int64(6), other, axis=axis), [indices], targets=(10, 8, 7))
    check(lambda op, i, v: op.OneHot(i, np.int64(6), v, axis=axis), [indices, plain], targets=(8, 7))


def test_values_decide_the_size() -> None:
    blocked(lambda op, x: op.NonZero(x), [X], 8, "size depends on the values")
    blocked(lambda op, x: op.Unique(x), [X], 10, "size depends on the values")
