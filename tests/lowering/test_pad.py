"""Padding of every mode."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.lowering.harness import Case, check, limit_unknown, table

IMAGE = torch.randn(2, 3, 6, 7)
SPACE = {0: [0, 2, 3]}


def _pad(*amounts, **options):
    return lambda x: F.pad(x, amounts, **options)


CASES = [
    Case("constant", _pad(1, 2), [IMAGE], dynamic="all", has=["Pad"]),
    Case("constant value", _pad(1, 2, 0, 3, value=-1.5), [IMAGE], dynamic="all"),
    Case("constant all axes", _pad(1, 0, 0, 1, 2, 0, 0, 1), [IMAGE], dynamic="all"),
    Case("constant infinite", _pad(1, 1, value=float("-inf")), [IMAGE]),
    Case("constant nothing", _pad(0, 0, 0, 0), [IMAGE], has_not=["Pad"]),
    Case("constant crop", _pad(-1, -2, 0, -1), [IMAGE], dynamic={0: [0]}, has=["Slice"], has_not=["Pad"]),
    Case("constant crop and pad", _pad(-1, 2, 3, -2, value=4.0), [IMAGE], dynamic={0: [0]}),
    Case("constant crop dynamic", _pad(-1, 1), [torch.randn(2, 9)], dynamic="all"),
    Case("constant int64", _pad(1, 2, value=7), [torch.arange(6).reshape(2, 3)], dynamic="all"),
    Case("constant int16", _pad(1, 2, value=7), [torch.arange(6).reshape(2, 3).short()]),
    Case("constant bool", _pad(1, 2, value=True), [torch.tensor([[True, False]])]),
    Case("constant float16", _pad(1, 2, value=0.5), [IMAGE.half()]),
    Case("constant bfloat16", _pad(1, 2, value=0.5), [IMAGE.bfloat16()]),
    Case("constant empty", _pad(1, 2), [torch.randn(2, 0)]),
    Case("constant vector", _pad(2, 0), [torch.randn(3)], dynamic="all"),
    Case("constant module", nn.ConstantPad2d((1, 0, 2, 1), 3.0), [IMAGE], dynamic=SPACE),
    Case("constant not contiguous", _pad(1, 2), [IMAGE.transpose(1, 3)]),
    Case(
        "constant by a size",
        lambda x, y: F.pad(x, (0, y.shape[0])),
        [torch.randn(2, 3), torch.randn(4)],
        dynamic={1: [0]},
    ),
    Case(
        "constant to a multiple", lambda x: F.pad(x, (0, (4 - x.shape[-1] % 4) % 4)), [torch.randn(2, 6)], dynamic="all"
    ),
    Case(
        "reflect 1d", nn.ReflectionPad1d((1, 2)), [torch.randn(2, 3, 6)], dynamic={0: [0, 2]},
        left_out=limit_unknown("Padding"),
    ),
    Case("reflect 2d", nn.ReflectionPad2d((1, 2, 3, 0)), [IMAGE], dynamic={0: [0]}),
    Case("reflect 2d alone", nn.ReflectionPad2d(2), [IMAGE[0]]),
    Case("reflect 3d", nn.ReflectionPad3d(1), [torch.randn(1, 2, 3, 4, 5)]),
    Case("reflect crop", _pad(-1, 2, mode="reflect"), [torch.randn(2, 3, 6)]),
    Case("reflect functional", _pad(1, 1, 2, 2, mode="reflect"), [IMAGE], dynamic={0: [0]}),
    Case("replicate 1d", nn.ReplicationPad1d((4, 1)), [torch.randn(2, 3, 6)], dynamic={0: [0, 2]}),
    Case("replicate 2d", nn.ReplicationPad2d((1, 2, 9, 0)), [IMAGE], dynamic=SPACE),
    Case("replicate 3d", nn.ReplicationPad3d(2), [torch.randn(1, 2, 3, 4, 5)], dynamic={0: [0, 2, 3, 4]}),
    Case("replicate crop", _pad(-4, 5, 0, 0, mode="replicate"), [IMAGE]),
    Case("replicate float64", nn.ReplicationPad2d(1), [IMAGE.double()]),
    Case("circular 1d", nn.CircularPad1d((1, 6)), [torch.randn(2, 3, 6)], dynamic={0: [0]}),
    Case("circular 2d", nn.CircularPad2d((1, 2, 3, 0)), [IMAGE], dynamic={0: [0]}),
    Case("circular 3d", nn.CircularPad3d(1), [torch.randn(1, 2, 3, 4, 5)]),
    Case("circular crop", _pad(-1, 2, mode="circular"), [torch.randn(2, 3, 6)]),
]


@table(CASES)
def test_pad(case):
    check(case)
