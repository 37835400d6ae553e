"""Interpolation, grids and bags of embeddings."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.lowering.harness import Case, check, export_case, table
from tonnx.errors import UnsupportedArgument
from tonnx.lowering.ops import resize

LINE = torch.randn(2, 3, 9)
IMAGE = torch.randn(2, 3, 8, 6)
CUBE = torch.randn(1, 2, 3, 4, 5)
SPACE = {0: [0, 2, 3]}


def _to(**options):
    return lambda x: F.interpolate(x, **options)


def _like(mode, **options):
    return lambda x, y: F.interpolate(x, size=y.shape[2:], mode=mode, **options)


NEAREST = [
    Case("nearest ×2", _to(scale_factor=2), [IMAGE], dynamic=SPACE, has=["Resize"], has_not=["Gather"]),
    Case("nearest 1d ×3", _to(scale_factor=3), [LINE], dynamic={0: [0, 2]}, has=["Resize"]),
    Case("nearest 3d", _to(scale_factor=(2, 1, 3)), [CUBE], dynamic={0: [0, 2, 3, 4]}),
    Case("nearest ×0.5", _to(scale_factor=0.5), [IMAGE], dynamic={0: [0]}),
    Case("nearest ×1.5", _to(scale_factor=1.5), [IMAGE], dynamic=SPACE),
    Case("nearest ×0.3", _to(scale_factor=0.3), [torch.randn(1, 1, 34, 37)], dynamic=SPACE),
    Case("nearest ×1.3 keeps a size", _to(scale_factor=1.3), [torch.randn(1, 1, 3, 7)]),
    Case("nearest 1d ×1.3 keeps the size", _to(scale_factor=1.3), [torch.randn(1, 1, 3)]),
    Case("nearest 3d ×1.3 keeps a size", _to(scale_factor=1.3), [torch.randn(1, 1, 3, 7, 2)]),
    Case("nearest recomputed", _to(scale_factor=1.7, recompute_scale_factor=True), [IMAGE], dynamic=SPACE),
    Case("nearest size", _to(size=(5, 13)), [IMAGE], dynamic={0: [0]}, has=["Resize"]),
    Case("nearest size where runtimes round", _to(size=(2, 16)), [torch.randn(1, 2, 14, 14)], has=["Gather"]),
    Case("nearest fixed size of dynamic", _to(size=(7, 5)), [torch.randn(1, 2, 14, 21)], dynamic=SPACE),
    Case(
        "nearest size of another", _like("nearest"), [IMAGE, torch.randn(1, 1, 16, 12)], dynamic={0: [2, 3], 1: [2, 3]}
    ),
    Case("nearest same size", _to(size=(8, 6)), [IMAGE], dynamic={0: [0]}),
    Case("nearest uint8", _to(scale_factor=2), [torch.randint(0, 255, (1, 3, 4, 5)).to(torch.uint8)]),
    Case("nearest float16", _to(scale_factor=2), [IMAGE.half()]),
    Case("nearest float64", _to(scale_factor=2), [IMAGE.double()]),
    Case("nearest-exact ×1.5", _to(scale_factor=1.5, mode="nearest-exact"), [IMAGE], dynamic=SPACE),
    Case("nearest-exact 1d", _to(scale_factor=2.5, mode="nearest-exact"), [LINE], dynamic={0: [0, 2]}),
    Case("nearest-exact size", _to(size=(23, 11), mode="nearest-exact"), [torch.randn(1, 2, 14, 26)]),
    Case("nearest-exact 3d", _to(size=(2, 6, 5), mode="nearest-exact"), [CUBE]),
    Case("upsample", nn.Upsample(scale_factor=2), [IMAGE], dynamic=SPACE),
]

SMOOTH = [
    Case("linear 1d", _to(scale_factor=2.5, mode="linear"), [LINE], dynamic={0: [0, 2]}, has=["Resize"]),
    Case("linear 1d aligned", _to(size=14, mode="linear", align_corners=True), [LINE], dynamic={0: [0]}),
    Case("bilinear ×2", _to(scale_factor=2, mode="bilinear"), [IMAGE], dynamic=SPACE),
    Case("bilinear ×1.3", _to(scale_factor=(1.3, 0.7), mode="bilinear"), [torch.randn(1, 2, 10, 12)], dynamic=SPACE),
    Case("bilinear ×1.3 aligned", _to(scale_factor=1.3, mode="bilinear", align_corners=True), [IMAGE], dynamic=SPACE),
    Case("bilinear ×0.9 of 20", _to(scale_factor=0.9, mode="bilinear"), [torch.randn(1, 1, 20, 10)], dynamic=SPACE),
    Case(
        "bilinear recomputed",
        _to(scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
        [IMAGE],
        dynamic=SPACE,
    ),
    Case("bilinear size", _to(size=(13, 5), mode="bilinear"), [IMAGE], dynamic=SPACE),
    Case("bilinear size aligned", _to(size=(13, 5), mode="bilinear", align_corners=True), [IMAGE], dynamic=SPACE),
    Case("bilinear to 1×1", _to(size=1, mode="bilinear"), [IMAGE], dynamic=SPACE),
    Case("bilinear to 1×1 aligned", _to(size=1, mode="bilinear", align_corners=True), [IMAGE], dynamic=SPACE),
    Case(
        "bilinear of another",
        _like("bilinear", align_corners=False),
        [IMAGE, torch.randn(1, 1, 16, 11)],
        dynamic={0: [0, 2, 3], 1: [2, 3]},
    ),
    Case("bilinear float16", _to(scale_factor=2, mode="bilinear"), [IMAGE.half()]),
    Case("bilinear not contiguous", _to(scale_factor=2, mode="bilinear"), [IMAGE.permute(0, 1, 3, 2)]),
    Case("trilinear", _to(scale_factor=(2, 1.5, 1), mode="trilinear"), [CUBE], dynamic={0: [0, 2, 3, 4]}),
    Case("trilinear aligned", _to(size=(4, 3, 7), mode="trilinear", align_corners=True), [CUBE]),
    Case("bicubic ×2", _to(scale_factor=2, mode="bicubic"), [IMAGE], dynamic=SPACE),
    Case("bicubic size", _to(size=(5, 13), mode="bicubic"), [IMAGE], dynamic=SPACE),
    Case("bicubic aligned", _to(size=(5, 13), mode="bicubic", align_corners=True), [IMAGE], dynamic=SPACE),
    Case(
        "bicubic of one channel behind a transpose",
        lambda x: F.interpolate(x.transpose(1, 3), size=(8, 6), mode="bicubic", align_corners=True),
        [torch.randn(2, 4, 5, 1)],
        dynamic={0: [0]},
    ),
    Case(
        "bicubic of one picture with one channel behind a transpose",
        lambda x: F.interpolate(x.transpose(2, 3), scale_factor=2, mode="bicubic"),
        [torch.randn(1, 1, 5, 4)],
    ),
    Case("bicubic ×1.3 keeps the size", _to(scale_factor=1.3, mode="bicubic"), [torch.randn(1, 1, 2, 3)]),
    Case("bilinear antialiased", _to(size=(3, 9), mode="bilinear", antialias=True), [IMAGE], dynamic={0: [0]}),
    Case(
        "bilinear antialiased dynamic",
        _to(scale_factor=0.5, mode="bilinear", antialias=True),
        [torch.randn(1, 2, 12, 16)],
        dynamic={0: [0]},
    ),
    Case("bicubic antialiased", _to(size=(3, 9), mode="bicubic", antialias=True), [IMAGE], dynamic={0: [0]}),
    Case("bicubic antialiased to 1", _to(size=(1, 3), mode="bicubic", antialias=True), [IMAGE]),
    Case("bilinear ×1.3 keeps a size", _to(scale_factor=1.3, mode="bilinear"), [torch.randn(1, 1, 3, 7)]),
    Case("antialiased aligned", _to(size=(3, 4), mode="bilinear", antialias=True, align_corners=True), [IMAGE]),
    Case(
        "default overload", lambda x: torch.ops.aten.upsample_bilinear2d.default(x, [12, 9], False, 1.5, 1.5), [IMAGE]
    ),
    Case(
        "contradicting overload",
        lambda x: torch.ops.aten.upsample_bilinear2d.default(x, [5, 7], False, 1.7, 0.9),
        [IMAGE],
    ),
    Case("contradicting nearest", lambda x: torch.ops.aten.upsample_nearest2d.default(x, [5, 7], 1.7, 0.9), [IMAGE]),
]

GRID, GRID3 = torch.rand(2, 5, 4, 2) * 2.6 - 1.3, torch.rand(1, 2, 3, 4, 3) * 2.6 - 1.3


def _sample(**options):
    return lambda x, grid: F.grid_sample(x, grid, **options)


SAMPLES = [
    *(
        Case(
            f"grid_sample {mode} {padding} {align}",
            _sample(mode=mode, padding_mode=padding, align_corners=align),
            [IMAGE, GRID],
            dynamic={0: {0: "n", 2: "h", 3: "w"}, 1: {0: "n", 1: "a", 2: "b"}},
        )
        for mode, padding, align in [
            ("bilinear", "zeros", False),
            ("bilinear", "border", True),
            ("bilinear", "reflection", False),
            ("nearest", "zeros", True),
            ("nearest", "border", False),
            ("bicubic", "zeros", False),
            ("bicubic", "reflection", True),
        ]
    ),
    Case("grid_sample 3d", _sample(align_corners=False), [CUBE, GRID3], opset=22),
    Case(
        "grid_sample 3d nearest",
        _sample(mode="nearest", padding_mode="border", align_corners=True),
        [CUBE, GRID3],
        opset=22,
    ),
    Case("affine_grid", lambda t: F.affine_grid(t, [2, 3, 4, 5], align_corners=False), [torch.randn(2, 2, 3)]),
    Case("affine_grid aligned", lambda t: F.affine_grid(t, [2, 3, 4, 5], align_corners=True), [torch.randn(2, 2, 3)]),
    Case("affine_grid float64", lambda t: F.affine_grid(t, [2, 3, 4, 5], False), [torch.randn(2, 2, 3).double()]),
    Case("affine_grid 3d", lambda t: F.affine_grid(t, [1, 2, 3, 4, 5], align_corners=False), [torch.randn(1, 3, 4)]),
    Case(
        "bag sum",
        nn.EmbeddingBag(10, 4, mode="sum"),
        [torch.tensor([1, 9, 3, 4, 3]), torch.tensor([0, 2, 2])],
        dynamic="all",
        left_out="can not be greater than input's length",
    ),
    Case("bag mean", nn.EmbeddingBag(10, 4), [torch.tensor([1, 9, 3, 4, 3]), torch.tensor([0, 2, 2, 4])]),
    Case("bag max", nn.EmbeddingBag(10, 4, mode="max"), [torch.tensor([1, 9, 3, 4, 3]), torch.tensor([0, 2, 2])]),
    Case("bag rows", nn.EmbeddingBag(10, 4), [torch.randint(0, 10, (3, 5))], dynamic="all"),
    Case(
        "bag padding", nn.EmbeddingBag(10, 4, padding_idx=3), [torch.tensor([1, 3, 3, 3, 4]), torch.tensor([0, 2, 4])]
    ),
    Case(
        "bag max padding",
        nn.EmbeddingBag(10, 4, mode="max", padding_idx=3),
        [torch.tensor([1, 3, 3, 3, 4]), torch.tensor([0, 2, 4])],
    ),
    Case(
        "bag last offset",
        nn.EmbeddingBag(10, 4, mode="sum", include_last_offset=True),
        [torch.tensor([1, 3, 4]), torch.tensor([0, 1, 3])],
    ),
    Case(
        "bag weighted",
        lambda i, w, o: F.embedding_bag(i, torch.ones(10, 4), o, mode="sum", per_sample_weights=w),
        [torch.tensor([1, 9, 3]), torch.rand(3), torch.tensor([0, 2])],
        left_out="has to start from position 0",
    ),
    Case("bag float16", nn.EmbeddingBag(10, 4).half(), [torch.tensor([1, 9, 3]), torch.tensor([0, 2])],
         left_out="has to start from position 0"),
]


@table([*NEAREST, *SMOOTH, *SAMPLES])
def test_resize(case):
    check(case)


def test_what_resize_cannot_say_is_refused():
    aligned = _to(scale_factor=0.5, mode="bilinear", antialias=True, align_corners=True)
    with pytest.raises(UnsupportedArgument, match="dynamic sizes"):
        export_case(Case("aligned", aligned, [torch.randn(1, 2, 12, 16)], dynamic=SPACE))
    with pytest.raises(UnsupportedArgument, match="UINT8"):
        export_case(Case("uint8", _to(scale_factor=2, mode="bilinear"), [torch.ones(1, 1, 4, 4, dtype=torch.uint8)]))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("name", "bilinear2d bicubic2d bilinear2d_aa bicubic2d_aa lanczos2d_aa".split())
def test_weights_are_those_of_torch(name: str, align_corners: bool) -> None:
    """Row by row: what torch makes of every unit vector."""
    mode = {"bili": "linear", "bicu": "cubic", "lanc": "lanczos"}[name[:4]]
    antialias = name.endswith("_aa")
    if not hasattr(torch.ops.aten, f"{'_' * antialias}upsample_{name}"):
        pytest.skip("PyTorch has it from 2.11 on")
    function = getattr(torch.ops.aten, f"{'_' * antialias}upsample_{name}").default
    for size in (1, 2, 5, 13):
        units = torch.eye(size, dtype=torch.float64).reshape(1, size, size, 1).expand(-1, -1, -1, 3)
        for result, scale in ((1, None), (3, None), (8, None), (20, None), (7, 1.7), (3, 0.4)):
            expected = function(units, [result, 3], align_corners, scale, None)[0, :, :, 1].T.numpy()
            actual = resize._weights(resize._Axis(size, result, scale), mode, align_corners, antialias)
            np.testing.assert_allclose(actual, expected, atol=1e-12)
