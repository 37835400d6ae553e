"""Reductions, ArgMax, TopK, and the softmax family."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
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


def reduced(op: Any, name: str, x: Any, axes: Any, rank: int, **how: int) -> Any:
    """A reduction whose result has a rank, which is all that is known of it."""
    result = getattr(op, name)(x, axes, **how)
    result.shape = ir.Shape([f"{name}_{len(how)}_{i}" for i in range(rank)])
    return result


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axes", [[1], [-1, 0], [2, 1, 0]])
def test_axes_computed_at_run_time(name: str, axes: list[int]) -> None:
    def build(op: Any, x: Any, a: Any) -> Any:
        return reduced(op, name, x, a, 3), reduced(op, name, x, a, 3 - len(axes), keepdims=0)

    check(build, [X, np.array(axes)], targets=(17, 12, 10), rtol=1e-4, dynamic={0: [1, 2]})


@pytest.mark.parametrize("noop", [0, 1])
def test_no_axes_at_run_time(noop: int) -> None:
    build = lambda op, x, a: reduced(op, "ReduceMax", x, a, 3, noop_with_empty_axes=noop)  # noqa: E731
    check(build, [X, np.zeros(0, np.int64)], targets=(17, 12), dynamic={1: [0]})


def test_axes_computed_of_known_sizes() -> None:
    def build(op: Any, x: Any) -> Any:
        rank = op.Size(op.Shape(x))
        return op.ReduceMean(x, op.Range(op.Sub(rank, 2), rank, 1), keepdims=0)

    check(build, [X], targets=(17, 11, 7))


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
