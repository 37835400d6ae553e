"""Convolutions, linear layers, products of matrices, einsum, unfold and fold."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.lowering.harness import Case, check, export_case, limit_unknown, table
from tonnx.errors import UnsupportedArgument

IMAGE = torch.randn(2, 4, 9, 11)
SPACE = {0: [0, 2, 3]}


def _odd(*shape):
    """A tensor that is not contiguous."""
    return torch.randn(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)


def _each_by_its_own(x, weight, bias):
    """Every picture by kernels of its own, as StyleGAN does."""
    batch, _, *size = x.shape
    together, kernels = x.reshape(1, -1, *size), weight.flatten(0, 1)
    y = F.conv2d(together, kernels, bias.repeat(batch), padding=1, stride=2, groups=batch)
    up = F.conv_transpose2d(together, weight.transpose(1, 2).flatten(0, 1), stride=2, padding=1, groups=batch)
    return y.reshape(batch, -1, *y.shape[2:]), up.reshape(batch, -1, *up.shape[2:])


CONVOLUTIONS = [
    Case(
        "groups of the batch",
        _each_by_its_own,
        [IMAGE, torch.randn(2, 5, 4, 3, 3), torch.randn(5)],
        dynamic={0: {0: "b", 2: "h", 3: "w"}, 1: {0: "b"}},
        has=["Loop"],
    ),
    Case("conv1d", nn.Conv1d(4, 6, 3, padding=1), [torch.randn(2, 4, 8)], dynamic={0: [0, 2]}, has=["Conv"]),
    Case("conv2d", nn.Conv2d(4, 6, 3, stride=2, padding=1), [IMAGE], dynamic=SPACE),
    Case(
        "conv2d pairs", nn.Conv2d(4, 6, (3, 5), stride=(1, 2), padding=(0, 2), dilation=(2, 1)), [IMAGE], dynamic=SPACE
    ),
    Case("conv2d depthwise", nn.Conv2d(4, 8, 3, groups=4, bias=False), [IMAGE], dynamic=SPACE),
    Case(
        "conv3d", nn.Conv3d(2, 3, (1, 3, 2), padding=(0, 1, 1)), [torch.randn(1, 2, 4, 5, 6)], dynamic={0: [0, 2, 3, 4]}
    ),
    Case(
        "conv1d alone", nn.Conv1d(4, 6, 3), [torch.randn(4, 8)], dynamic={0: [1]}, left_out=limit_unknown("Kernel size")
    ),
    Case("conv2d alone", nn.Conv2d(4, 6, 3), [torch.randn(4, 8, 8)], dynamic={0: [1, 2]}),
    Case("same odd", nn.Conv2d(4, 6, 3, padding="same"), [IMAGE], dynamic=SPACE),
    Case("same even", nn.Conv1d(4, 6, 4, padding="same", dilation=3), [torch.randn(2, 4, 16)], dynamic={0: [0, 2]}),
    Case("valid", nn.Conv2d(4, 6, 3, padding="valid"), [IMAGE], dynamic=SPACE),
    Case("circular", nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), [IMAGE], dynamic=SPACE),
    Case("reflect", nn.Conv2d(4, 6, 3, padding=2, padding_mode="reflect"), [IMAGE], dynamic=SPACE),
    Case(
        "conv2d weight input", lambda x, w: F.conv2d(x, w), [IMAGE, torch.randn(6, 4, 2, 3)], dynamic={0: [0], 1: [0]}
    ),
    Case("conv2d not contiguous", nn.Conv2d(4, 6, 3), [_odd(2, 4, 9, 11)]),
    Case("conv2d empty batch", nn.Conv2d(4, 6, 3), [torch.randn(0, 4, 5, 5)]),
    Case("conv2d float16", nn.Conv2d(4, 6, 3).half(), [IMAGE.half()]),
    Case("conv2d float64", nn.Conv2d(4, 6, 3).double(), [IMAGE.double()]),
    Case("transpose1d", nn.ConvTranspose1d(4, 6, 3, stride=2), [torch.randn(2, 4, 8)], dynamic={0: [0, 2]}),
    Case(
        "transpose2d",
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, dilation=2),
        [IMAGE],
        dynamic=SPACE,
        has=["ConvTranspose"],
    ),
    Case(
        "transpose2d alone", nn.ConvTranspose2d(4, 6, (2, 3), bias=False), [torch.randn(4, 5, 6)], dynamic={0: [1, 2]}
    ),
    Case(
        "transpose2d padded beyond its stride",
        nn.ConvTranspose2d(4, 6, (4, 3), stride=(3, 2), padding=(1, 2), output_padding=(2, 3), dilation=4),
        [IMAGE],
        dynamic=SPACE,
    ),
    Case("transpose3d", nn.ConvTranspose3d(2, 3, 2, stride=2), [torch.randn(1, 2, 3, 4, 5)], dynamic={0: [0, 3]}),
    Case("unfold", nn.Unfold((2, 3), dilation=(1, 2), padding=1, stride=(2, 1)), [IMAGE], dynamic=SPACE),
    Case("unfold patches", nn.Unfold(2, stride=2), [torch.randn(2, 3, 8, 6)], dynamic={0: [0]}),
    Case(
        "unfold alone", nn.Unfold(3), [torch.randn(3, 6, 7)], dynamic={0: [1, 2]},
        left_out=limit_unknown("sliding blocks"),
    ),
    Case("fold", nn.Fold((7, 8), (2, 3), dilation=(1, 2), padding=1, stride=(2, 1)), [torch.randn(2, 12, 24)]),
    Case("fold float64", nn.Fold((4, 5), 2), [torch.randn(1, 8, 12).double()]),
    Case("fold alone", nn.Fold((4, 5), 2, stride=1), [torch.randn(8, 12)]),
    Case(
        "fold dynamic",
        lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1),
        [torch.randn(1, 2, 6, 5)],
        dynamic=SPACE,
    ),
]

WEIGHT = torch.randn(5, 3)
A, B = torch.randn(2, 4, 3), torch.randn(2, 3, 5)
BATCHES = {0: {0: "batch"}, 1: {0: "batch"}}

PRODUCTS = [
    Case("linear 1d", nn.Linear(3, 5), [torch.randn(3)]),
    Case("linear 2d", nn.Linear(3, 5), [torch.randn(4, 3)], dynamic={0: [0]}, has=["Gemm"], has_not=["MatMul"]),
    Case("linear 3d", nn.Linear(3, 5), [A], dynamic={0: [0, 1]}, has=["MatMul"], has_not=["Gemm"]),
    Case("linear 4d no bias", nn.Linear(3, 5, bias=False), [torch.randn(2, 1, 4, 3)], dynamic={0: [0, 2]}),
    Case("linear vector weight", lambda x, w: F.linear(x, w), [A, torch.randn(3)], dynamic={0: [0]}),
    Case("linear empty", nn.Linear(3, 5), [torch.randn(0, 3)]),
    Case("linear float16", nn.Linear(3, 5).half(), [A.half()]),
    Case("linear bfloat16", nn.Linear(3, 5).bfloat16(), [A.bfloat16()]),
    Case("linear int64", lambda x, w: F.linear(x, w), [torch.arange(6).reshape(2, 3), torch.arange(12).reshape(4, 3)]),
    Case("bilinear", nn.Bilinear(3, 4, 5), [torch.randn(6, 3), torch.randn(6, 4)], dynamic={0: {0: "n"}, 1: {0: "n"}}),
    Case("bilinear 3d", nn.Bilinear(3, 4, 5, bias=False), [torch.randn(2, 6, 3), torch.randn(2, 6, 4)]),
    Case("mm", torch.mm, [WEIGHT, torch.randn(3, 4)], dynamic={0: [0], 1: [1]}),
    Case("mm int32", torch.mm, [torch.randint(-9, 9, (3, 3)).int(), torch.randint(-9, 9, (3, 3)).int()]),
    Case("mm int16", torch.mm, [torch.randint(-9, 9, (3, 3)).short(), torch.randint(-9, 9, (3, 3)).short()]),
    Case("mm nothing between", torch.mm, [torch.randn(3, 0), torch.randn(0, 2)]),
    Case("bmm", torch.bmm, [A, B], dynamic=BATCHES),
    Case("matmul 1 1", torch.matmul, [torch.randn(3), torch.randn(3)]),
    Case("matmul 1 3", torch.matmul, [torch.randn(3), B], dynamic={1: [0, 2]}),
    Case("matmul 4 1", torch.matmul, [torch.randn(2, 1, 4, 3), torch.randn(3)], dynamic={0: [0]}),
    Case("matmul broadcast", torch.matmul, [torch.randn(2, 1, 4, 3), torch.randn(5, 3, 2)], dynamic={0: [0, 2]}),
    Case("dot", torch.dot, [torch.randn(4), torch.randn(4)]),
    Case("vdot", torch.vdot, [torch.randn(4), torch.randn(4)]),
    Case("mv", torch.mv, [WEIGHT, torch.randn(3)], dynamic={0: [0]}),
    Case("outer", torch.outer, [torch.randn(3), torch.arange(4)], dynamic="all"),
    Case("addmm", torch.addmm, [torch.randn(4), WEIGHT, torch.randn(3, 4)], dynamic={1: [0]}, has=["Gemm"]),
    Case(
        "addmm scaled",
        lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2),
        [torch.randn(5, 4), WEIGHT, torch.randn(3, 4)],
    ),
    Case(
        "addmm no beta",
        lambda c, a, b: torch.addmm(c, a, b, beta=0),
        [torch.full((5, 4), torch.nan), WEIGHT, torch.randn(3, 4)],
    ),
    Case("addmm int", lambda c, a: torch.addmm(c, a, a, alpha=2), [torch.arange(3), torch.arange(9).reshape(3, 3)]),
    Case("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2), [torch.randn(1, 4, 5), A, B]),
    Case("addbmm", lambda c, a, b: torch.addbmm(c, a, b, alpha=2), [torch.randn(4, 5), A, B]),
    Case("addmv", lambda c, a, b: torch.addmv(c, a, b, beta=2), [torch.randn(5), WEIGHT, torch.randn(3)]),
    Case(
        "addr",
        lambda c, a, b: torch.addr(c, a, b, beta=2, alpha=0.5),
        [torch.randn(3, 4), torch.randn(3), torch.randn(4)],
    ),
    Case(
        "multi_dot",
        lambda a, b, c: torch.linalg.multi_dot([a, b, c]),
        [torch.randn(3), torch.randn(3, 4), torch.randn(4, 2)],
    ),
    Case("tensordot", lambda a, b: torch.tensordot(a, b, dims=1), [A, torch.randn(3, 6)], dynamic={0: [0, 1]}),
    Case("tensordot lists", lambda a, b: torch.tensordot(a, b, dims=([0, 2], [-2, 0])), [A, torch.randn(3, 2, 6)]),
    Case("inner", torch.inner, [A, torch.randn(5, 3)], dynamic={0: [0]}),
]

EINSUMS = [
    Case(
        "einsum attention",
        lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k),
        [torch.randn(2, 5, 3, 4), torch.randn(2, 6, 3, 4)],
        dynamic={0: {0: "b", 1: "q"}, 1: {0: "b", 1: "k"}},
        has=["Einsum"],
    ),
    Case(
        "einsum ellipsis",
        lambda a, b: torch.einsum("...ij,...jk->...ik", a, b),
        [A, torch.randn(3, 5)],
        dynamic={0: [0, 1]},
    ),
    Case(
        "einsum ellipsis ranks",
        lambda a, b: torch.einsum("...i,i...->...", a, b),
        [torch.randn(2, 4, 3), torch.randn(3, 4)],
    ),
    Case("einsum implicit", lambda a, b: torch.einsum("bi, ja", a, b), [torch.randn(2, 3), torch.randn(4, 5)]),
    Case("einsum implicit sum", lambda a, b: torch.einsum("ij,jk", a, b), [torch.randn(2, 3), torch.randn(3, 5)]),
    Case("einsum capitals", lambda a, b: torch.einsum("aB,Ba->B", a, b), [torch.randn(2, 3), torch.randn(3, 2)]),
    Case("einsum implicit capitals", lambda a: torch.einsum("aB", a), [torch.randn(2, 3)]),
    Case(
        "einsum permutation",
        lambda a: torch.einsum("bhwc->bchw", a),
        [IMAGE],
        dynamic=SPACE,
        has=["Transpose"],
        has_not=["Einsum"],
    ),
    Case("einsum sum", lambda a: torch.einsum("bij->jb", a), [A], dynamic={0: [0]}, has_not=["Einsum"]),
    Case("einsum diagonal", lambda a: torch.einsum("ii->i", a), [torch.randn(4, 4)]),
    Case("einsum trace", lambda a: torch.einsum("ii", a), [torch.randn(4, 4)]),
    Case("einsum outer", lambda a, b: torch.einsum("i,j->ij", a, b), [torch.randn(3), torch.randn(4)], dynamic="all"),
    Case("einsum dtypes", lambda a: torch.einsum("i,j->ij", torch.arange(3), a), [torch.randn(4)], dynamic="all"),
    Case(
        "einsum three",
        lambda a, b, c: torch.einsum("bn,anm,bm->ba", a, b, c),
        [torch.randn(2, 3), torch.randn(5, 3, 4), torch.randn(2, 4)],
    ),
    Case("einsum broadcast one", lambda a, b: torch.einsum("bi,bi->bi", a, b), [torch.randn(4, 3), torch.randn(1, 3)]),
    Case(
        "einsum int",
        lambda a, b: torch.einsum("ij,jk->ik", a, b),
        [torch.arange(6).reshape(2, 3), torch.arange(6).reshape(3, 2)],
    ),
    Case("einsum int8", lambda a: torch.einsum("ij,jk->ik", a, a), [torch.randint(-5, 5, (3, 3)).to(torch.int8)]),
    Case("einsum sublists", lambda a, b: torch.einsum(a, [0, 1, 2], b, [0, 2, 3], [0, 1, 3]), [A, B]),
    Case("einsum float16", lambda a, b: torch.einsum("bij,bjk->bik", a, b), [A.half(), B.half()]),
]


@table([*CONVOLUTIONS, *PRODUCTS, *EINSUMS])
def test_conv(case):
    check(case)


def test_integer_convolution_is_refused():
    weight = torch.ones(1, 4, 2, 2, dtype=torch.int64)
    with pytest.raises(UnsupportedArgument, match="no exact equivalent"):
        export_case(Case("int", lambda x: F.conv2d(x, weight), [torch.ones(1, 4, 5, 5, dtype=torch.int64)]))
