"""Reductions, ArgMax, TopK, and the softmax family."""

from __future__ import annotations

import numpy as np
import pytest

from tests.legalise.harness import blocked, check, random
from tonnx.legalise.rules.reduce import REDUCTIONS

X = random(2, 3, 4, low=0.1)
TIES = np.array([[1, 3, 3, 2], [5, 5, 0, 5]], np.float32)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_axes_are_an_attribute(name: str) -> None:
    build = lambda op, x: (  # noqa: E731
        getattr(op, name)(x, [-1, 1], keepdims=0),
        getattr(op, name)(x, [2]),
        getattr(op, name)(x),
        getattr(op, name)(x, noop_with_empty_axes=1),
    )
    check(build, [X], targets=(17, 12, 10, 7), rtol=1e-4)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_axes_are_an_input(name: str) -> None:
    build = lambda op, x: (getattr(op, name)(x, axes=[1], keepdims=0), getattr(op, name)(x))  # noqa: E731
    check(build, [X], source=7, targets=(11, 13, 18, 26), rtol=1e-4)


def test_axes_computed_at_run_time_are_refused() -> None:
    error = blocked(lambda op, x, a: op.ReduceMean(x, a), [X, np.array([1])], 17, "axes is computed at run time")
    assert error.blockers[0].lowest_opset == 18


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin"])
def test_booleans(name: str) -> None:
    build = lambda op, x: getattr(op, name)(x, [1])  # noqa: E731
    check(build, [random(3, 4, dtype=np.bool_)], targets=(20, 19, 12, 9, 7))
    nothing = np.zeros((2, 0), np.bool_)
    wanted = np.full((2, 1), name == "ReduceMin")
    check(build, [nothing], targets=(19, 11, 7), expected=[wanted])


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_last_of_equals(name: str, keepdims: int) -> None:
    build = lambda op, x: getattr(op, name)(x, axis=-1, select_last_index=1, keepdims=keepdims)  # noqa: E731
    check(build, [TIES], targets=(13, 11, 10, 7))
    check(build, [TIES], targets=(13, 11, 10, 9), dynamic=True)


def test_top_k() -> None:
    check(lambda op, x: op.TopK(x, [2], axis=1, _outputs=2), [X], targets=(11, 10, 9, 7))
    check(lambda op, x: op.TopK(x, [2], largest=0, axis=1, _outputs=2), [X], targets=(11, 10, 9, 7))
    check(lambda op, x: op.TopK(x, [3], _outputs=2), [random(4, 5, dtype=np.int32, high=99)], targets=(10, 7))
    check(lambda op, x, k: op.TopK(x, k, axis=1, _outputs=2), [X, np.array([2])], targets=(10, 9))
    check(lambda op, x: op.TopK(x, k=2, axis=1, _outputs=2), [X], source=7, targets=(10, 11, 24))
    blocked(lambda op, x: op.TopK(x, [2], _outputs=2), [np.arange(4)], 10, "int64")


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_softmax_over_one_axis(name: str, axis: int | None) -> None:
    check(lambda op, x: getattr(op, name)(x, axis=axis), [X], targets=(13, 12, 10, 7))


@pytest.mark.parametrize("axis", [0, 1, 2, None])
def test_softmax_over_all_from_an_axis_on(axis: int | None) -> None:
    for name in ("Softmax", "LogSoftmax", "Hardmax"):
        check(lambda op, x, name=name: getattr(op, name)(x, axis=axis), [X], source=7, targets=(11, 13, 26))
        check(lambda op, x, name=name: getattr(op, name)(x, axis=axis), [X], source=11, targets=(9, 13), dynamic=True)
