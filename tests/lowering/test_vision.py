"""torchvision's operators, against their description in plain PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from tests.lowering import torchvision_eager
from tests.lowering.harness import Case, check, table

torchvision_eager.install()


class ops:
    """The functions of ``torchvision.ops`` around the operators, so that the tests need no torchvision."""

    @staticmethod
    def nms(boxes: torch.Tensor, scores: torch.Tensor, limit: float) -> torch.Tensor:
        return torch.ops.torchvision.nms(boxes, scores, limit)

    @staticmethod
    def batched_nms(boxes: torch.Tensor, scores: torch.Tensor, kind: torch.Tensor, limit: float) -> torch.Tensor:
        apart = kind.to(boxes) * (boxes.max() + 1)
        return ops.nms(boxes + apart[:, None], scores, limit)

    @staticmethod
    def roi_align(
        x: Any, r: Any, size: Any, scale: float = 1.0, samples: int = -1, aligned: bool = False
    ) -> torch.Tensor:
        if isinstance(r, list):
            image = [torch.full_like(part[:, :1], i) for i, part in enumerate(r)]
            r = torch.cat([torch.cat(image), torch.cat(r)], 1)
        return torch.ops.torchvision.roi_align(x, r, scale, *_pair(size), samples, aligned)

    @staticmethod
    def roi_pool(x: Any, r: Any, size: Any, scale: float = 1.0) -> torch.Tensor:
        return torch.ops.torchvision.roi_pool(x, r, scale, *_pair(size))[0]

    @staticmethod
    def ps_roi_align(x: Any, r: Any, size: Any, scale: float = 1.0, samples: int = -1) -> torch.Tensor:
        return torch.ops.torchvision.ps_roi_align(x, r, scale, *_pair(size), samples)[0]

    @staticmethod
    def ps_roi_pool(x: Any, r: Any, size: Any, scale: float = 1.0) -> torch.Tensor:
        return torch.ops.torchvision.ps_roi_pool(x, r, scale, *_pair(size))[0]

    @staticmethod
    def deform_conv2d(
        x: Any, o: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, mask: Any = None
    ) -> torch.Tensor:
        places = w.shape[2] * w.shape[3]
        given = torch.zeros(x.shape[0], 1) if mask is None else mask
        bias = torch.zeros(w.shape[0]) if b is None else b
        sizes = (
            *_pair(stride),
            *_pair(padding),
            *_pair(dilation),
            x.shape[1] // w.shape[1],
            o.shape[1] // (2 * places),
        )
        return torch.ops.torchvision.deform_conv2d(x, w, o, given, bias, *sizes, mask is not None)


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


G = torch.Generator().manual_seed(0)


def boxes(count: int, size: float = 12.0) -> torch.Tensor:
    corners = torch.rand(count, 2, 2, generator=G) * size
    return torch.cat([corners.amin(1), corners.amax(1)], 1)


def regions(count: int, images: int = 2, size: float = 12.0) -> torch.Tensor:
    image = torch.randint(images, (count, 1), generator=G)
    return torch.cat([image.float(), boxes(count, size)], 1)


def t(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=G)


def valid(r: torch.Tensor) -> torch.Tensor:
    """Regions whose corners are in order: the proof draws any numbers there, and images that there are or negative."""
    corners = r[:, 1:].reshape(-1, 2, 2)
    return torch.cat([r[:, :1].abs(), corners.amin(1), corners.amax(1)], 1)


B, S, K = boxes(20), torch.rand(20, generator=G), torch.randint(3, (20,), generator=G)
X, R = t(2, 8, 10, 12), regions(5)
ODD = torch.tensor([[0, 3.0, 2.0, 3.0, 2.0], [1, -4.0, -3.0, 30.0, 25.0], [1, 5.5, 6.5, 7.5, 6.6]])


def deform(
    x: torch.Tensor, w: torch.Tensor, o: torch.Tensor, m: Any = None, b: Any = None, **more: Any
) -> torch.Tensor:
    return ops.deform_conv2d(x, o, w, b, mask=m, **more)


CASES = [
    Case("nms", lambda b, s: ops.nms(b, s, 0.4), (B, S), {0: {0: "n"}, 1: {0: "n"}}, has=["NonMaxSuppression"]),
    Case("nms, ties", lambda b, s: ops.nms(b, s, 0.3), (B, (S * 4).round())),
    Case("nms, gathered", lambda b, s: b[ops.nms(b, s, 0.5)] * 2, (B, S), {0: {0: "n"}, 1: {0: "n"}}),
    Case("nms, double", lambda b, s: ops.nms(b, s, 0.5), (B.double(), S.double())),
    Case("batched nms", lambda b, s, k: ops.batched_nms(b, s, k, 0.4), (B, S, K), {i: {0: "n"} for i in range(3)}),
    Case("roi_align", lambda x, r: ops.roi_align(x, valid(r), (3, 2), 0.7), (X, R), {0: {2: "h", 3: "w"}, 1: {0: "k"}},
         has=["RoiAlign"]),
    Case("roi_align, aligned", lambda x, r: ops.roi_align(x, valid(r), 2, aligned=True), (X, R), {1: {0: "k"}}),
    Case("roi_align, samples", lambda x, r: ops.roi_align(x, r, 2, 0.5, 2, True), (X, R), left_out="there is no image"),
    Case("roi_align, not aligned, samples", lambda x, r: ops.roi_align(x, r, 3, 1.0, 3), (X, R),
         left_out="there is no image"),
    Case("roi_align, odd regions", lambda x, r: ops.roi_align(x, r, 2, 1.0, 2), (X, ODD), left_out="there is no image"),
    Case("roi_align, opset 11", lambda x, r: ops.roi_align(x, r, 2, 1.0, 2), (X, R), opset=11,
         left_out="there is no image"),
    Case("roi_align, aligned, opset 11", lambda x, r: ops.roi_align(x, r, 2, 0.5, 2, True), (X, R), opset=11,
         left_out="there is no image"),
    Case("roi_align, list", lambda x, a, b: ops.roi_align(x, [a, b], 2), (X, boxes(2), boxes(3))),
    Case("roi_pool", lambda x, r: ops.roi_pool(x, valid(r), (3, 2), 0.7), (X, R), {1: {0: "k"}}, has=["MaxRoiPool"]),
    Case("roi_pool, odd regions", lambda x, r: ops.roi_pool(x, r, 2), (X, ODD[:2]), left_out="there is no image"),
    Case("ps_roi_align", lambda x, r: ops.ps_roi_align(x, valid(r), 2, 0.6), (X, R), {1: {0: "k"}}),
    Case("ps_roi_align, samples", lambda x, r: ops.ps_roi_align(x, r, (2, 4), 1.0, 2), (X, R),
         left_out="there is no image"),
    Case("ps_roi_pool", lambda x, r: ops.ps_roi_pool(x, valid(r), 2, 0.6), (X, R), {0: {2: "h", 3: "w"}, 1: {0: "k"}}),
    Case("ps_roi_pool, odd regions", lambda x, r: ops.ps_roi_pool(x, r, (4, 2)), (X, ODD),
         left_out="there is no image"),
    Case("deform_conv2d", deform, (t(1, 2, 5, 5), t(3, 2, 3, 3), t(1, 18, 3, 3))),
    Case("deform_conv2d, mask, opset 19", lambda x, w, o, m: deform(x, w, o, m, padding=1),
         (t(2, 2, 4, 5), t(3, 2, 3, 3), t(2, 18, 4, 5), torch.rand(2, 9, 4, 5)), opset=19, has=["DeformConv"]),
    Case("deform_conv2d, groups",
         lambda x, w, o, m, b: deform(x, w, o, m, b, stride=2, padding=(1, 2), dilation=(2, 1)),
         (t(1, 4, 7, 6), t(4, 2, 3, 2), t(1, 24, 3, 5), torch.rand(1, 12, 3, 5), t(4))),
    Case("deform_conv2d, batch", lambda x, w, o: deform(x, w, o, padding=1),
         (t(2, 2, 4, 4), t(2, 2, 3, 3), t(2, 18, 4, 4)), {0: {0: "n"}, 2: {0: "n"}}),
]  # fmt: skip


@table(CASES)
def test_vision(case: Case) -> None:
    check(case)
