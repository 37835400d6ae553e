"""Pooling: dilations, ceil_mode and padding."""

from __future__ import annotations

import itertools

import pytest

from tests.legalise.harness import blocked, check, random

X = random(2, 3, 7, 8)
CEIL = [
    {"kernel_shape": [3, 3], "strides": [2, 2]},
    {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]},
    {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 0, 0]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [2, 3], "strides": [3, 3], "pads": [1, 1, 1, 1]},  # one window starts in the padding
    {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
]
KINDS = ["MaxPool", "AveragePool", "LpPool"]


@pytest.mark.parametrize(("kind", "window"), list(itertools.product(KINDS, CEIL)))
def test_ceil_mode(kind: str, window: dict[str, object]) -> None:
    targets = (18, 17, 9, 7) if kind != "LpPool" else (17, 7)
    check(lambda op, x: getattr(op, kind)(x, ceil_mode=1, **window), [X], targets=targets)


@pytest.mark.parametrize("window", CEIL)
def test_ceil_mode_with_counted_padding(window: dict[str, object]) -> None:
    check(lambda op, x: op.AveragePool(x, ceil_mode=1, count_include_pad=1, **window), [X], targets=(21, 18, 9, 7))


@pytest.mark.parametrize("kind", KINDS)
def test_ceil_mode_of_sizes_known_at_run_time(kind: str) -> None:
    build = lambda op, x: getattr(op, kind)(x, ceil_mode=1, kernel_shape=[3, 3], strides=[2, 2])  # noqa: E731
    for size in ((7, 8), (8, 9), (6, 5)):
        check(build, [random(1, 2, *size)], targets=(17, 9, 7), dynamic=True)
    blocked(
        lambda op, x: op.MaxPool(x, ceil_mode=1, kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1]),
        [X], 9, "ceil_mode of a size known only at run time", dynamic=True,
    )  # fmt: skip


DILATED = [
    {"kernel_shape": [2, 2], "dilations": [2, 1]},
    {"kernel_shape": [2, 3], "dilations": [2, 2], "strides": [2, 1], "pads": [1, 1, 0, 2]},
    {"kernel_shape": [2, 2], "dilations": [2, 2], "ceil_mode": 1, "strides": [2, 2]},
]


@pytest.mark.parametrize("window", DILATED)
def test_dilations(window: dict[str, object]) -> None:
    check(lambda op, x: op.MaxPool(x, **window), [X], targets=(10, 9, 8, 7))
    check(lambda op, x: op.AveragePool(x, **window), [X], targets=(18, 13, 9, 7))
    check(lambda op, x: op.AveragePool(x, count_include_pad=1, **window), [X], targets=(18, 13, 9, 7))
    check(lambda op, x: op.LpPool(x, p=3, **window), [X], targets=(17, 13, 10), rtol=1e-4)


def test_dilations_of_sizes_known_at_run_time() -> None:
    window = {"kernel_shape": [2, 2], "dilations": [2, 3], "pads": [1, 0, 1, 0]}
    check(lambda op, x: op.MaxPool(x, **window), [X], targets=(10, 9, 7), dynamic=True)
    check(lambda op, x: op.AveragePool(x, **window), [X], targets=(18, 13, 9), dynamic=True)
    check(lambda op, x: op.LpPool(x, **window), [X], targets=(17, 10), dynamic=True, rtol=1e-4)


def test_indices() -> None:
    build = lambda op, x: op.MaxPool(x, kernel_shape=[2, 2], _outputs=2)  # noqa: E731
    check(build, [X], targets=(21, 11, 9, 8))
    error = blocked(build, [X], 7, "no second output")
    assert error.blockers[0].lowest_opset == 8


@pytest.mark.parametrize("kind", KINDS)
def test_up(kind: str) -> None:
    build = lambda op, x: getattr(op, kind)(x, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0])  # noqa: E731
    check(build, [X], source=7, targets=(8, 10, 11, 18, 19, 22, 26))


def test_auto_pad() -> None:
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        window = {"kernel_shape": [3, 3], "auto_pad": pad}
        check(lambda op, x, window=window: op.MaxPool(x, strides=[2, 2], **window), [X], targets=(11, 9, 7))
    # Beside dilations, ONNX Runtime forgets them when it works out the padding: nothing to compare with.
