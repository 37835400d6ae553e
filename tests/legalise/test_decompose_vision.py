"""Sampling grids, patches, regions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.legalise.harness import blocked, check, random, reference


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_grid_sample(mode: str, padding: str, aligned: int) -> None:
    grid = random(2, 6, 4, 2, low=-1.6, high=1.6)

    def build(op: Any, x: Any, g: Any) -> Any:
        return op.GridSample(x, g, mode=mode, padding_mode=padding, align_corners=aligned)

    inputs = [random(2, 3, 5, 7), grid]
    check(build, inputs, targets=(15, 11, 9), atol=1e-5)
    check(build, inputs, targets=(15, 9), atol=1e-5, dynamic=True)


def test_grid_sample_of_a_volume() -> None:
    inputs = [random(2, 3, 4, 5, 6), random(2, 2, 3, 4, 3, low=-1.2, high=1.2)]
    check(lambda op, x, g: op.GridSample(x, g), inputs, targets=(19, 13, 9), atol=1e-5)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4, 5, 6)])
def test_affine_grid(size: tuple[int, ...], aligned: int) -> None:
    n = len(size) - 2
    theta = random(2, n, n + 1)
    shape = np.array(size, np.int64)
    known = lambda op, t: op.AffineGrid(t, shape, align_corners=aligned)  # noqa: E731
    check(known, [theta], targets=(19, 13, 9, 7))
    given = lambda op, t, s: op.AffineGrid(t, s, align_corners=aligned)  # noqa: E731
    check(given, [theta, shape], targets=(19, 13, 9, 7))


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"strides": [2, 3], "pads": [1, 2, 0, 1]},
        {"dilations": [2, 1], "strides": [1, 2]},
    ],
)
def test_col2im(how: dict[str, Any]) -> None:
    image, block = np.array([9, 10], np.int64), np.array([3, 2], np.int64)
    strides, dilations = how.get("strides", [1, 1]), how.get("dilations", [1, 1])
    pads = how.get("pads", [0] * 4)
    counts = [
        (image[i] + pads[i] + pads[i + 2] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(2)
    ]
    x = random(2, 4 * 6, int(np.prod(counts)))
    check(lambda op, x: op.Col2Im(x, image, block, **how), [x], targets=(17, 11, 7))
    given = lambda op, x, image: op.Col2Im(x, image, block, **how)  # noqa: E731
    check(given, [x, image], targets=(17, 13, 11, 10), dynamic={0: (0, 2)})


@pytest.mark.parametrize("dynamic", [False, True])
def test_center_crop_pad(dynamic: bool) -> None:
    x = random(5, 8, 6)
    wanted = np.array([8, 3, 6], np.int64)
    check(lambda op, x: op.CenterCropPad(x, wanted), [x], targets=(17, 13, 11), dynamic=dynamic, oracle=reference)
    some = np.array([3, 9], np.int64)
    build = lambda op, x, s: op.CenterCropPad(x, s, axes=[-2, 0])  # noqa: E731
    check(build, [x, some], targets=(17, 13, 11), dynamic={0: (0, 1, 2)} if dynamic else False, oracle=reference)


@pytest.mark.parametrize("groups", [(1, 1), (2, 2), (2, 1)])
def test_deformable_convolution(groups: tuple[int, int]) -> None:
    group, offset_group = groups
    x, w = random(2, 4, 6, 7), random(6, 4 // group, 3, 2)
    offset, mask = random(2, offset_group * 12, 3, 7), random(2, offset_group * 6, 3, 7)

    def build(op: Any, x: Any, w: Any, offset: Any, mask: Any) -> Any:
        bias = np.arange(6, dtype=np.float32)
        how = {"strides": [2, 1], "pads": [1, 1, 0, 0], "group": group, "offset_group": offset_group}
        return op.DeformConv(x, w, offset, bias, mask, **how)

    check(build, [x, w, offset, mask], source=22, targets=(18, 11, 9), oracle=reference, atol=1e-5)


@pytest.mark.parametrize("how", ["output_half_pixel", "half_pixel"])
def test_roi_align(how: str) -> None:
    rois = np.array([[1, 1, 7, 6], [-3, 2, 4, 12], [0, 0, 3.5, 3]], np.float32)
    batches = np.array([1, 0, 1], np.int64)

    def build(op: Any, x: Any, rois: Any, batches: Any) -> Any:
        return op.RoiAlign(
            x, rois, batches, output_height=3, output_width=2, sampling_ratio=2, spatial_scale=0.8,
            coordinate_transformation_mode=how,
        )  # fmt: skip

    targets = (15, 10, 9) if how == "output_half_pixel" else (16,)
    check(build, [random(2, 3, 8, 9), rois, batches], targets=targets, atol=1e-5)


def test_adaptive_roi_align_is_refused() -> None:
    inputs = [random(1, 3, 8, 9), np.array([[1, 1, 7, 6]], np.float32), np.array([0], np.int64)]
    build = lambda op, *xs: op.RoiAlign(*xs, coordinate_transformation_mode="output_half_pixel")  # noqa: E731
    error = blocked(build, inputs, 9, "sampling_ratio")
    assert error.blockers[0].lowest_opset == 10
