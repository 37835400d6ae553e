"""Shapes and views: Squeeze, Unsqueeze, Split, Slice, Shape, Reshape, Pad, Gather, GatherND, DepthToSpace."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

from tests.legalise.harness import Build, blocked, check, random

INT64 = ir.DataType.INT64
END = 2**63 - 1
X = random(2, 4, 6, 5)

CASES: dict[str, tuple[Build, tuple[int, ...]]] = {
    "squeeze": (lambda op, x: op.Squeeze(op.Unsqueeze(x, [-1, 0]), [0, -1]), (13, 12, 10, 7)),
    "unsqueeze several": (lambda op, x: op.Unsqueeze(x, [2, 0, -1]), (12, 10, 7)),
    "split by count": (lambda op, x: op.Split(x, axis=3, num_outputs=3, _outputs=3), (17, 12, 10, 7)),
    "split by sizes": (lambda op, x: op.Split(x, [1, 3], axis=1, _outputs=2), (17, 12, 7)),
    "slice": (lambda op, x: op.Slice(x, [1, 0], [END, -1], [-1, 2]), (12, 10, 9, 7)),
    "slice with steps": (lambda op, x: op.Slice(x, [0, 4], [END, 1], [1, 2], [3, -2]), (11, 9, 7)),
    "slice backwards": (lambda op, x: op.Slice(x, [-1], [-END], [2], [-1]), (11, 9, 7)),
    "slice half backwards": (lambda op, x: op.Slice(x, [3], [0], [2], [-1]), (11, 9)),
    "part of the shape": (lambda op, x: op.Shape(x, start=1, end=-1), (14, 9, 7)),
    "end of the shape": (lambda op, x: op.Shape(x, start=-2), (14, 9, 7)),
    "one size": (lambda op, x: op.Shape(x, start=1, end=2), (14, 9, 7)),
    "pad": (lambda op, x: op.Pad(x, [0, 1, 2, 0], 1.5, [1, -1]), (17, 12, 10, 7)),
    "pad by reflection": (lambda op, x: op.Pad(x, [1, 2], None, [2], mode="reflect"), (17, 10, 7)),
    "pad by wrapping": (lambda op, x: op.Pad(x, [1, 2], None, [2], mode="wrap"), (18, 11, 9, 7)),
    "pad by wrapping twice": (lambda op, x: op.Pad(x, [0, 9], None, [2], mode="wrap"), (18, 11)),
    "flatten": (lambda op, x: op.Flatten(x, axis=-2), (10, 7)),
    "concat": (lambda op, x: op.Concat(x, x, axis=-1), (10, 7)),
    "gather from the back": (lambda op, x: op.Gather(x, [-1, 0], axis=-2), (10, 7)),
    "depth to space": (lambda op, x: op.DepthToSpace(x, blocksize=2, mode="CRD"), (12, 10, 7)),
    "depth to space, old order": (lambda op, x: op.DepthToSpace(x, blocksize=2), (10, 7)),
}


@pytest.mark.parametrize("name", CASES)
def test_fixed_sizes(name: str) -> None:
    build, targets = CASES[name]
    check(build, [X], targets=targets)


@pytest.mark.parametrize("name", [name for name in CASES if name != "split by count"])
def test_sizes_known_at_run_time(name: str) -> None:
    build, targets = CASES[name]
    lowest = 9 if name.startswith(("slice", "pad by wrapping", "gather")) else 7  # counting up to a size takes NonZero
    check(build, [X], targets=[t for t in targets if t >= lowest], dynamic=True)


def test_split_by_count_of_a_size_known_at_run_time() -> None:
    check(lambda op, x: op.Split(x, axis=3, num_outputs=3, _outputs=3), [X], targets=(17, 13, 12, 10, 9), dynamic=True)


def test_slice_bounds_computed_at_run_time() -> None:
    def build(op, x, start, end):  # type: ignore[no-untyped-def]
        return op.Slice(x, start, end, [2]), op.Slice(x, start, end, [1], [2])

    for start, end in ((1, 4), (-3, END), (0, -1), (5, 2)):
        check(build, [X, np.array([start]), np.array([end])], targets=(11, 9))


def test_split_sizes_computed_at_run_time() -> None:
    build = lambda op, x, sizes: op.Split(x, sizes, axis=1, _outputs=2)  # noqa: E731
    check(build, [X, np.array([1, 3])], targets=(17, 12, 10, 9))


def test_pads_computed_at_run_time() -> None:
    build = lambda op, x, pads: op.Pad(x, pads, 2.0, [2, -1])  # noqa: E731
    check(build, [X, np.array([1, 0, 2, 3])], targets=(17, 11, 9))


def test_pad_axes_computed_at_run_time() -> None:
    check(lambda op, x, axes: op.Pad(x, [1, 0, 2, 3], 2.0, axes), [X, np.array([2, -1])], targets=(17, 13))


PAD_TYPES = [*itertools.product((np.int64, np.int32), ("constant", "reflect", "edge")), (np.bool_, "constant")]


@pytest.mark.parametrize(("dtype", "mode"), PAD_TYPES)
def test_pad_other_types(dtype: type, mode: str) -> None:
    check(lambda op, x: op.Pad(x, [1, 0, 2, 1], mode=mode), [random(4, 3, dtype=dtype)], targets=(18, 13, 10, 9, 7))


def test_reshape_to_nothing() -> None:
    empty = np.zeros((0, 3, 4), np.float32)
    check(lambda op, x: op.Reshape(x, [3, 0, 4], allowzero=1), [empty], targets=(18, 13, 9))
    check(lambda op, x, s: op.Reshape(x, s, allowzero=1), [empty, np.array([3, 4, 0])], targets=(13, 9))
    check(lambda op, x: op.Reshape(x, [0, 12], allowzero=1), [empty], targets=(13, 7), has=["Reshape"])


def test_gather_indices_computed_at_run_time() -> None:
    indices = np.array([[0, -1], [2, -4]])
    check(lambda op, x, i: op.Gather(x, i, axis=1), [X, indices], targets=(11, 10, 9), dynamic=True)


def test_what_is_a_position_cannot_be_negative() -> None:
    build = lambda op, x: op.Gather(x, op.ArgMax(x, axis=1, keepdims=0), axis=1)  # noqa: E731
    check(build, [random(2, 3)], targets=(10, 7), has_not=["Where"])


def test_gather_nd_batches() -> None:
    indices = np.array([[[0, 1]], [[3, 2]]])
    build = lambda op, x, i: op.GatherND(x, i, batch_dims=1)  # noqa: E731
    check(build, [X, indices], targets=(13, 11), dynamic={0: range(4), 1: [0, 1]})
    check(build, [X, indices], targets=(13, 11))


def test_axes_computed_at_run_time_are_refused() -> None:
    error = blocked(lambda op, x, a: op.Unsqueeze(x, a), [X, np.array([0])], 12, "axes is computed at run time")
    assert error.blockers[0].lowest_opset == 13


UP: dict[str, tuple[Build, int]] = {
    "squeeze": (lambda op, x: op.Squeeze(op.Unsqueeze(x, axes=[0]), axes=[0]), 7),
    "split": (lambda op, x: op.Split(x, axis=1, split=[1, 3], _outputs=2), 7),
    "equal split": (lambda op, x: op.Split(x, axis=1, _outputs=2), 7),
    "equal split 13": (lambda op, x: op.Split(x, axis=1, _outputs=2), 13),
    "slice": (lambda op, x: op.Slice(x, axes=[1], starts=[1], ends=[3]), 7),
    "pad": (lambda op, x: op.Pad(x, pads=[0, 0, 1, 0, 0, 0, 2, 0], value=1.5), 7),
    "pad edge": (lambda op, x: op.Pad(x, pads=[0, 0, 1, 0, 0, 0, 2, 0], mode="edge"), 7),
    "shape": (lambda op, x: op.Shape(x), 7),
    "depth to space": (lambda op, x: op.DepthToSpace(x, blocksize=2), 7),
}


@pytest.mark.parametrize("name", UP)
def test_up(name: str) -> None:
    build, source = UP[name]
    check(build, [X], source=source, targets=(13, 18, 26))


def test_scatter_was_renamed() -> None:
    inputs = [random(3, 4), np.array([[0, 2, 1, 0]]), random(1, 4)]
    check(lambda op, x, i, u: op.Scatter(x, i, u), inputs, source=9, targets=(10, 11, 16, 18, 26))
