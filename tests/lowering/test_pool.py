"""Pooling with fixed and adaptive windows, and its inverse."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.lowering.harness import Case, check, export_case, table
from tonnx.errors import UnsupportedArgument

LINE = torch.randn(2, 3, 11)
IMAGE = torch.randn(2, 3, 9, 11)
CUBE = torch.randn(1, 2, 5, 6, 7)
SPACE = {0: [0, 2, 3]}
SHUFFLED = torch.randperm(2 * 3 * 8 * 6).reshape(2, 3, 8, 6)

MAXIMA = [
    Case("max1d", nn.MaxPool1d(3, 2), [LINE], dynamic={0: [0]}, has=["MaxPool"]),
    Case("max2d", nn.MaxPool2d(3, 2, 1), [IMAGE], dynamic=SPACE),
    Case("max2d alone", nn.MaxPool2d(2), [IMAGE[0]], dynamic={0: [1, 2]}),
    Case("max2d ceil", nn.MaxPool2d(3, 2, ceil_mode=True), [torch.randn(1, 2, 8, 9)], dynamic=SPACE,
         left_out="Output size is too small"),
    Case("max2d ceil dropped", nn.MaxPool2d(2, 3, 1, ceil_mode=True), [torch.randn(1, 2, 5, 6)]),
    Case("max2d dilated", nn.MaxPool2d((2, 3), (1, 2), dilation=(2, 1)), [IMAGE], dynamic=SPACE),
    Case("max3d", nn.MaxPool3d(2, (1, 2, 2), (1, 0, 1)), [CUBE], dynamic={0: [0, 2, 3, 4]},
         left_out="Output size is too small"),
    Case("max1d indices", nn.MaxPool1d(3, 2, 1, return_indices=True), [LINE], dynamic={0: [0, 2]}),
    Case("max2d indices", nn.MaxPool2d((3, 2), 2, (1, 0), return_indices=True), [IMAGE], dynamic=SPACE),
    Case("max2d indices alone", nn.MaxPool2d(2, return_indices=True), [IMAGE[0]]),
    Case("max2d indices ceil dilated", nn.MaxPool2d(3, 3, 1, 2, True, True), [torch.randn(2, 2, 11, 12)]),
    Case("max3d indices", nn.MaxPool3d(2, return_indices=True), [CUBE], dynamic={0: [0, 2]},
         left_out="Output size is too small"),
    Case("max2d float64", nn.MaxPool2d(2), [IMAGE.double()]),
    Case("max2d float16", nn.MaxPool2d(2), [IMAGE.half()]),
    Case("max2d int64", nn.MaxPool2d(2), [SHUFFLED]),
    Case("max2d uint8", nn.MaxPool2d(2), [SHUFFLED.to(torch.uint8)]),
    Case("max2d not contiguous", nn.MaxPool2d(2), [IMAGE.transpose(2, 3)]),
    Case("max1d of any length", nn.MaxPool1d(3, 2, 1, ceil_mode=True), [torch.randn(2, 3, 9)], dynamic={0: [0, 2]}),
    Case(
        "zeros around negative values",
        nn.Sequential(nn.ConstantPad2d(1, 0.0), nn.MaxPool2d(3, 2)),
        [-1 - torch.rand(1, 2, 8, 8)],
    ),
    Case("unpool1d", lambda x: F.max_unpool1d(*F.max_pool1d(x, 2, return_indices=True), 2), [torch.randn(2, 3, 8)]),
    Case(
        "unpool2d",
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        [torch.randn(2, 3, 6, 8)],
        dynamic={0: [0]},
    ),
    Case(
        "unpool2d size",
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape),
        [torch.randn(2, 3, 7, 8)],
    ),
    Case(
        "unpool3d", lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2), [torch.randn(1, 2, 4, 4, 6)]
    ),
]

AVERAGES = [
    Case("avg1d", nn.AvgPool1d(3, 2, 1), [LINE], dynamic={0: [0, 2]}, has=["AveragePool"]),
    Case("avg2d", nn.AvgPool2d(2), [IMAGE], dynamic=SPACE),
    Case("avg2d padded", nn.AvgPool2d(3, 2, 1), [IMAGE], dynamic=SPACE),
    Case("avg2d pad not counted", nn.AvgPool2d(3, 2, 1, count_include_pad=False), [IMAGE], dynamic=SPACE),
    Case("avg2d ceil", nn.AvgPool2d(3, 2, 1, ceil_mode=True), [torch.randn(1, 2, 8, 9)], dynamic=SPACE),
    Case("avg2d ceil not counted", nn.AvgPool2d(3, 2, 1, True, False), [torch.randn(1, 2, 8, 9)], dynamic=SPACE),
    Case("avg2d ceil dropped", nn.AvgPool2d(2, 3, 1, ceil_mode=True), [torch.randn(1, 2, 5, 6)]),
    Case("avg2d divisor", nn.AvgPool2d((2, 3), 2, (1, 0), divisor_override=5), [IMAGE], dynamic=SPACE),
    Case(
        "avg2d divisor ceil", nn.AvgPool2d(3, 2, 1, True, divisor_override=7), [torch.randn(1, 2, 8, 9)], dynamic=SPACE
    ),
    Case(
        "avg2d divisor ceil dropped",
        nn.AvgPool2d(3, 2, 1, ceil_mode=True, divisor_override=2),
        [torch.randn(1, 2, 4, 6)],
    ),
    Case("avg3d", nn.AvgPool3d((1, 2, 3), 2, (0, 1, 1)), [CUBE], dynamic={0: [0, 2, 3, 4]},
         left_out="smaller than kernel size"),
    Case("avg2d alone", nn.AvgPool2d(2), [IMAGE[0]], dynamic={0: [1, 2]}),
    Case("avg2d float16", nn.AvgPool2d(2), [IMAGE.half()]),
    Case("avg2d float64", nn.AvgPool2d(2), [IMAGE.double()]),
    Case("lp2d", nn.LPPool2d(3, 2), [IMAGE.abs()], dynamic=SPACE),
    Case("lp1d ceil", nn.LPPool1d(2, 3, 2, ceil_mode=True), [torch.randn(2, 3, 8).abs()]),
]

ADAPTIVE = [
    Case("adaptive avg 1", nn.AdaptiveAvgPool2d(1), [IMAGE], dynamic=SPACE, has=["GlobalAveragePool"]),
    Case("adaptive avg 1 alone", nn.AdaptiveAvgPool2d(1), [IMAGE[0]], dynamic={0: [1, 2]}, has=["ReduceMean"]),
    Case("adaptive avg 1 float64", nn.AdaptiveAvgPool2d(1), [IMAGE.double()], dynamic=SPACE),
    Case(
        "adaptive avg divides",
        nn.AdaptiveAvgPool2d((2, 4)),
        [torch.randn(2, 3, 6, 8)],
        dynamic={0: [0]},
        has=["AveragePool"],
    ),
    Case(
        "adaptive avg same",
        nn.AdaptiveAvgPool2d((None, 4)),
        [torch.randn(2, 3, 6, 8)],
        dynamic={0: [0, 2]},
        has=["AveragePool"],
    ),
    Case(
        "adaptive avg nothing",
        nn.AdaptiveAvgPool2d((6, 8)),
        [torch.randn(2, 3, 6, 8)],
        has_not=["AveragePool", "MatMul"],
    ),
    Case("adaptive avg rest", nn.AdaptiveAvgPool2d((5, 7)), [IMAGE], dynamic={0: [0]}),
    Case("adaptive avg larger", nn.AdaptiveAvgPool2d((12, 3)), [IMAGE], dynamic={0: [0]}),
    Case("adaptive avg dynamic", nn.AdaptiveAvgPool2d((6, 4)), [IMAGE], dynamic=SPACE),
    Case("adaptive avg dynamic height", nn.AdaptiveAvgPool2d((3, 1)), [IMAGE], dynamic={0: [2]}),
    Case("adaptive avg1d dynamic", nn.AdaptiveAvgPool1d(4), [LINE], dynamic={0: [0, 2]}),
    Case("adaptive avg1d alone", nn.AdaptiveAvgPool1d(4), [LINE[0]], dynamic={0: [1]}),
    Case("adaptive avg3d", nn.AdaptiveAvgPool3d((2, 3, 4)), [CUBE], dynamic={0: [0]}),
    Case("adaptive avg3d dynamic", nn.AdaptiveAvgPool3d((2, 3, 4)), [CUBE], dynamic={0: [0, 2, 3, 4]}),
    Case(
        "adaptive avg size of another",
        lambda x, y: F.adaptive_avg_pool2d(x, y.shape[2:]),
        [IMAGE, torch.randn(1, 1, 4, 5)],
        dynamic={0: [2, 3], 1: [2, 3]},
    ),
    Case("adaptive avg float16", nn.AdaptiveAvgPool2d((5, 7)), [IMAGE.half()]),
    Case("area", lambda x: F.interpolate(x, size=(4, 5), mode="area"), [IMAGE], dynamic=SPACE),
    Case("adaptive max 1", nn.AdaptiveMaxPool2d(1), [IMAGE], dynamic=SPACE, has=["ReduceMax"]),
    Case("adaptive max 1 indices", nn.AdaptiveMaxPool2d(1, return_indices=True), [IMAGE], dynamic=SPACE),
    Case(
        "adaptive max divides",
        nn.AdaptiveMaxPool2d((2, 4), return_indices=True),
        [torch.randn(2, 3, 6, 8)],
        dynamic={0: [0]},
    ),
    Case("adaptive max rest", nn.AdaptiveMaxPool2d((5, 7), return_indices=True), [IMAGE], dynamic={0: [0]}),
    Case("adaptive max dynamic", nn.AdaptiveMaxPool2d((5, 3), return_indices=True), [IMAGE], dynamic=SPACE),
    Case("adaptive max values", nn.AdaptiveMaxPool2d((5, 3)), [IMAGE], dynamic=SPACE, has_not=["ArgMax"]),
    Case("adaptive max1d", nn.AdaptiveMaxPool1d(4, return_indices=True), [LINE], dynamic={0: [0, 2]}),
    Case("adaptive max3d", nn.AdaptiveMaxPool3d((2, 4, 3), return_indices=True), [CUBE], dynamic={0: [0, 2, 3, 4]}),
    Case("adaptive max alone", nn.AdaptiveMaxPool2d((4, 5), return_indices=True), [IMAGE[0]]),
]


FRACTIONAL = [
    Case(
        "fractional",
        lambda x, u: F.fractional_max_pool2d_with_indices(x, (3, 2), output_size=(4, 3), _random_samples=u.sigmoid()),
        [IMAGE, torch.randn(*IMAGE.shape[:2], 2)],
        dynamic={0: [2, 3]},
    ),
    Case(
        "fractional, alone",
        lambda x, u: F.fractional_max_pool2d(x, 3, output_size=(1, 4), _random_samples=u.sigmoid()),
        [IMAGE[0], torch.randn(1, IMAGE.shape[1], 2)],
        opset=11,
    ),
    Case(
        "fractional 3d",
        lambda x, u: F.fractional_max_pool3d_with_indices(x, 2, output_size=(2, 3, 2), _random_samples=u.sigmoid()),
        [CUBE, torch.randn(*CUBE.shape[:2], 3)],
    ),
]


@table([*MAXIMA, *AVERAGES, *ADAPTIVE, *FRACTIONAL])
def test_pool(case):
    check(case)


def test_integer_average_is_refused():
    with pytest.raises(UnsupportedArgument, match="rounds down"):
        export_case(Case("int", nn.AvgPool2d(2), [SHUFFLED]))
