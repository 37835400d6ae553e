"""Resize and Upsample in all versions, GridSample, RoiAlign."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

from tests.legalise.harness import blocked, check, random, reference

INT64, FLOAT = ir.DataType.INT64, ir.DataType.FLOAT
X = random(1, 2, 6, 5)
OLD = (18, 17, 12, 11, 10, 9, 7)

COORDINATES = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]
MODES = [
    {"mode": "nearest", "nearest_mode": "floor"},
    {"mode": "nearest", "nearest_mode": "ceil"},
    {"mode": "nearest", "nearest_mode": "round_prefer_floor"},
    {"mode": "nearest", "nearest_mode": "round_prefer_ceil"},
    {"mode": "linear"},
    {"mode": "cubic"},
    {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
]


@pytest.mark.parametrize(("coordinates", "style"), list(itertools.product(COORDINATES, MODES)))
def test_scales(coordinates: str, style: dict[str, object]) -> None:
    for scales in ([2.0, 2.0], [1.5, 3.0], [0.5, 0.6]):
        if coordinates == "align_corners" and scales == [1.5, 3.0] and style["mode"] == "nearest":
            continue  # halves that rounding errors push to either side
        check(
            lambda op, x, s=scales: op.Resize(
                x, None, op.constant(s, FLOAT), axes=[2, 3], coordinate_transformation_mode=coordinates, **style
            ),
            [X], targets=OLD, rtol=1e-4, atol=1e-5,
        )  # fmt: skip


@pytest.mark.parametrize(("coordinates", "style"), list(itertools.product(COORDINATES[:3], MODES[2:6])))
def test_sizes(coordinates: str, style: dict[str, object]) -> None:
    def build(op, x):  # type: ignore[no-untyped-def]
        sizes = op.constant([1, 2, 9, 5], INT64)
        return op.Resize(x, None, None, sizes, coordinate_transformation_mode=coordinates, **style)

    check(build, [X], targets=OLD, rtol=1e-4, atol=1e-5)


def test_repeating_pixels_stays_one_node() -> None:
    def build(op, x):  # type: ignore[no-untyped-def]
        return op.Resize(x, None, op.constant([1, 1, 2, 3], FLOAT))

    check(build, [X], targets=(18, 13, 11, 10), has=["Resize"], has_not=["Gather"])
    check(build, [X], targets=(9, 8, 7), has=["Upsample"], has_not=["Gather"])
    check(build, [X], targets=(9, 8, 7), has=["Upsample"], has_not=["Gather"], dynamic=True)


@pytest.mark.parametrize("style", MODES[2:6])
def test_sizes_known_at_run_time(style: dict[str, object]) -> None:
    def build(op, x, sizes):  # type: ignore[no-untyped-def]
        return op.Resize(x, None, None, sizes, axes=[2, 3], **style)

    inputs = [X, np.array([11, 4])]
    check(build, inputs, targets=(18, 17, 11, 10, 9), dynamic={0: [0, 2, 3]}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_aspect_ratio(policy: str, dynamic: bool) -> None:
    def build(op, x):  # type: ignore[no-untyped-def]
        sizes = op.constant([12, 11], INT64)
        return op.Resize(x, None, None, sizes, axes=[2, 3], keep_aspect_ratio_policy=policy, mode="linear")

    check(build, [X], targets=(18, 17, 11, 10, 9), dynamic=dynamic, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("outside", [0, 1])
@pytest.mark.parametrize("dynamic", [False, True])
def test_antialias(mode: str, outside: int, dynamic: bool) -> None:
    def build(op, x):  # type: ignore[no-untyped-def]
        sizes = op.constant([5, 14], INT64)
        return op.Resize(x, None, None, sizes, axes=[2, 3], mode=mode, antialias=1, exclude_outside=1 - outside)

    given = {} if outside else {"oracle": reference}
    axes = {0: [2, 3]} if dynamic else False
    check(build, [random(1, 2, 13, 11)], targets=(17, 11, 9, 7), dynamic=axes, rtol=1e-3, atol=1e-4, **given)


def test_half_pixel_symmetric() -> None:
    def build(op, x, scales):  # type: ignore[no-untyped-def]
        mode = "half_pixel_symmetric"
        return op.Resize(x, None, op.constant(scales, FLOAT), mode="linear", coordinate_transformation_mode=mode)

    check(lambda op, x: build(op, x, [1, 1, 2, 2]), [X], targets=(18, 11), has=["Resize"])
    check(lambda op, x: build(op, x, [1, 1, 0.55, 1.3]), [X], targets=(18, 11, 9), rtol=1e-4, oracle=reference)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample_up(mode: str) -> None:
    check(lambda op, x: op.Upsample(x, scales=[1, 1, 2, 3], mode=mode), [X], source=7, targets=(9, 10, 11, 13, 18, 26))
    for scales in ([1, 1, 2, 3], [1, 1, 0.5, 0.6]):
        build = lambda op, x, s=scales: op.Resize(x, op.constant(s, FLOAT), mode=mode)  # noqa: E731
        check(build, [X], source=10, targets=(9, 7, 11, 13, 19))


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_grid_sample(mode: str, align_corners: int) -> None:
    inputs = [X, random(1, 3, 4, 2)]
    build = lambda op, x, g: op.GridSample(x, g, mode=mode, align_corners=align_corners)  # noqa: E731
    check(build, inputs, targets=(22, 19, 16), rtol=1e-4, atol=1e-5)
    old = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    check(lambda op, x, g: op.GridSample(x, g, mode=old), inputs, source=16, targets=(20, 22))


def test_roi_align() -> None:
    boxes = np.array([[0, 0, 3, 4], [1, 1, 4, 4]], np.float32)

    def build(op, x, rois, mode="output_half_pixel", samples=2):  # type: ignore[no-untyped-def]
        batch = op.constant([0, 0], INT64)
        return op.RoiAlign(
            x, rois, batch, coordinate_transformation_mode=mode, output_height=2, output_width=2, sampling_ratio=samples
        )

    check(build, [X, boxes], source=21, targets=(16, 15, 10))
    check(lambda op, x: build(op, x, op.constant(boxes), "half_pixel"), [X], source=21, targets=(16, 15, 10), rtol=1e-4)
    check(lambda op, x, rois: build(op, x, rois, "half_pixel"), [X, boxes], source=21, targets=(15, 10), rtol=1e-4)
    blocked(lambda op, x, rois: build(op, x, rois, "half_pixel", 0), [X, boxes], 15, "at least one pixel")
    old = lambda op, x, rois: op.RoiAlign(x, rois, op.constant([0, 0], INT64), output_height=2)  # noqa: E731
    check(old, [X, boxes], source=10, targets=(16, 21))
