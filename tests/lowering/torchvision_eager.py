"""torchvision's operators written out in plain PyTorch, for a machine whose torchvision has no compiled ones.

Slow, and close to their description: what the exported operators are compared with.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from typing import Any

import torch

from tests.models import torchvision_schemas

_kept: list[torch.library.Library] = []


def install() -> None:
    """Give the operators a CPU and a fake implementation, once; nothing if torchvision has its own."""
    if _kept or (hasattr(torch.ops.torchvision, "roi_align") and not torchvision_schemas._kept):
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    _kept.append(library)
    fakes = set(_OPERATORS)
    if importlib.util.find_spec("torchvision") is not None:
        torchvision_schemas.declare()
        import torchvision

        fakes.remove("nms")  # which its import registers
        torchvision.extension._has_ops = lambda: True  # what its functions ask before they call an operator
        sys.modules["torchvision.ops.roi_align"]._has_ops = lambda: True  # type: ignore[attr-defined]
    else:
        for schema in torchvision_schemas.SCHEMAS.strip().splitlines():
            library.define(schema)
    for name, (eager, fake) in _OPERATORS.items():
        library.impl(name, eager, "CPU")
        if name in fakes:
            torch.library.register_fake(f"torchvision::{name}", fake, lib=library)


def nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    order = scores.sort(descending=True, stable=True).indices
    boxes = dets.double()
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    while len(order):
        best, rest = order[0], order[1:]
        kept.append(int(best))
        sides = torch.minimum(boxes[best, 2:], boxes[rest, 2:]) - torch.maximum(boxes[best, :2], boxes[rest, :2])
        both = sides.clamp(min=0).prod(1)
        order = rest[~(both / (areas[best] + areas[rest] - both) > iou_threshold)]
    return torch.tensor(kept, dtype=torch.int64)


def _fake_nms(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _sampled(planes: torch.Tensor, ys: torch.Tensor, xs: torch.Tensor) -> torch.Tensor:
    """[C, H, W] at every pair of rows and columns: between the pixels; 0 more than a pixel outside."""
    height, width = planes.shape[-2:]
    inside = ((ys >= -1) & (ys <= height))[:, None] & ((xs >= -1) & (xs <= width))
    ys, xs = ys.clamp(0, height - 1), xs.clamp(0, width - 1)
    top, left = ys.long(), xs.long()
    bottom, right = (top + 1).clamp(max=height - 1), (left + 1).clamp(max=width - 1)
    dy, dx = (ys - top)[:, None].to(planes), (xs - left).to(planes)
    upper = planes[:, top][:, :, left] * (1 - dx) + planes[:, top][:, :, right] * dx
    lower = planes[:, bottom][:, :, left] * (1 - dx) + planes[:, bottom][:, :, right] * dx
    return (upper * (1 - dy) + lower * dy) * inside


def _points(start: float, length: float, bins: int, samples: int) -> torch.Tensor:
    """The middles of equal parts of each bin."""
    return start + (torch.arange(bins * samples, dtype=torch.float64) + 0.5) * length / (bins * samples)


def _image(x: torch.Tensor, roi: list[float]) -> torch.Tensor:
    if not 0 <= roi[0] < len(x):
        raise IndexError(f"there is no image {roi[0]}")
    return x[int(roi[0])]


def roi_align(
    x: torch.Tensor, rois: torch.Tensor, scale: float, ph: int, pw: int, ratio: int, aligned: bool
) -> torch.Tensor:
    out = x.new_zeros(len(rois), x.shape[1], ph, pw)
    for k, roi in enumerate(rois.tolist()):
        left, top, right, bottom = (corner * scale - (0.5 if aligned else 0.0) for corner in roi[1:])
        width, height = right - left, bottom - top
        if not aligned:
            width, height = max(width, 1.0), max(height, 1.0)
        rows = ratio if ratio > 0 else math.ceil(height / ph)
        columns = ratio if ratio > 0 else math.ceil(width / pw)
        planes = _image(x, roi)
        if rows > 0 and columns > 0:
            values = _sampled(planes, _points(top, height, ph, rows), _points(left, width, pw, columns))
            out[k] = values.reshape(-1, ph, rows, pw, columns).mean((2, 4))
    return out


def ps_roi_align(
    x: torch.Tensor, rois: torch.Tensor, scale: float, ph: int, pw: int, ratio: int
) -> tuple[torch.Tensor, torch.Tensor]:
    everything = roi_align(x, rois, scale, ph, pw, ratio, True)
    channels = x.shape[1] // (ph * pw)
    mapping = torch.arange(channels * ph * pw).reshape(channels, ph, pw)
    out = x.new_zeros(len(rois), channels, ph, pw)
    for i in range(ph):
        for j in range(pw):
            out[:, :, i, j] = everything[:, mapping[:, i, j], i, j]
    return out, mapping.int().expand(len(rois), -1, -1, -1).clone()


def _round(number: float) -> int:
    return math.floor(abs(number) + 0.5) * (1 if number >= 0 else -1)


def _bounds(place: int, step: float, start: int, size: int) -> list[int]:
    """From which pixel to which a bin goes."""
    edges = (math.floor(place * step), math.ceil((place + 1) * step))
    return [min(max(edge + start, 0), size) for edge in edges]


def roi_pool(x: torch.Tensor, rois: torch.Tensor, scale: float, ph: int, pw: int) -> tuple[torch.Tensor, torch.Tensor]:
    height, width = x.shape[-2:]
    out = x.new_zeros(len(rois), x.shape[1], ph, pw)
    for k, roi in enumerate(rois.tolist()):
        _image(x, roi)
        left, top, right, bottom = (_round(corner * scale) for corner in roi[1:])
        step_y, step_x = max(bottom - top + 1, 1) / ph, max(right - left + 1, 1) / pw
        for i in range(ph):
            for j in range(pw):
                y0, y1 = _bounds(i, step_y, top, height)
                x0, x1 = _bounds(j, step_x, left, width)
                if y1 > y0 and x1 > x0:
                    out[k, :, i, j] = _image(x, roi)[:, y0:y1, x0:x1].amax((-1, -2))
    return out, torch.zeros(out.shape, dtype=torch.int32)


def ps_roi_pool(
    x: torch.Tensor, rois: torch.Tensor, scale: float, ph: int, pw: int
) -> tuple[torch.Tensor, torch.Tensor]:
    height, width = x.shape[-2:]
    channels = x.shape[1] // (ph * pw)
    out = x.new_zeros(len(rois), channels, ph, pw)
    for k, roi in enumerate(rois.tolist()):
        _image(x, roi)
        left, top, right, bottom = (_round(corner * scale) for corner in roi[1:])
        step_y, step_x = max(bottom - top, 1) / ph, max(right - left, 1) / pw
        for i in range(ph):
            for j in range(pw):
                y0, y1 = _bounds(i, step_y, top, height)
                x0, x1 = _bounds(j, step_x, left, width)
                if y1 > y0 and x1 > x0:
                    own = _image(x, roi).reshape(channels, ph, pw, height, width)[:, i, j, y0:y1, x0:x1]
                    out[k, :, i, j] = own.mean((-1, -2))
    return out, torch.zeros(out.shape, dtype=torch.int32)


def deform_conv2d(
    x: torch.Tensor, weight: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor, bias: torch.Tensor,
    sh: int, sw: int, padh: int, padw: int, dh: int, dw: int, groups: int, offset_groups: int, use_mask: bool,
) -> torch.Tensor:  # fmt: skip
    batch, channels = x.shape[:2]
    out_channels, per_group, kh, kw = weight.shape
    oh, ow = offset.shape[-2:]
    columns = x.new_zeros(batch, channels, kh * kw, oh, ow)
    each = channels // offset_groups
    for n in range(batch):
        for group in range(offset_groups):
            own = slice(group * each, (group + 1) * each)
            for place in range(kh * kw):
                at = group * kh * kw + place
                for i in range(oh):
                    for j in range(ow):
                        y = i * sh - padh + (place // kw) * dh + float(offset[n, 2 * at, i, j])
                        z = j * sw - padw + (place % kw) * dw + float(offset[n, 2 * at + 1, i, j])
                        value = _zero_padded(x[n, own], y, z)
                        columns[n, own, place, i, j] = value * float(mask[n, at, i, j]) if use_mask else value
    columns = columns.reshape(batch, groups, channels // groups * kh * kw, oh * ow)
    kernel = weight.reshape(groups, out_channels // groups, per_group * kh * kw)
    return torch.einsum("gok,ngkp->ngop", kernel, columns).reshape(batch, out_channels, oh, ow) + bias[:, None, None]


def _zero_padded(plane: torch.Tensor, y: float, x: float) -> torch.Tensor:
    """Interpolated between the four pixels around a place, of which those outside are 0."""
    height, width = plane.shape[-2:]
    top, left = math.floor(y), math.floor(x)
    result = plane.new_zeros(plane.shape[0])
    for i, wy in ((top, 1 - (y - top)), (top + 1, y - top)):
        for j, wx in ((left, 1 - (x - left)), (left + 1, x - left)):
            if 0 <= i < height and 0 <= j < width:
                result = result + plane[:, i, j] * (wy * wx)
    return result


def _fake_pool(x: torch.Tensor, rois: torch.Tensor, scale: float, ph: Any, pw: Any, *_: Any) -> Any:
    out = x.new_empty(rois.shape[0], x.shape[1], ph, pw)
    return out, out.new_empty(out.shape, dtype=torch.int32)


def _fake_own(x: torch.Tensor, rois: torch.Tensor, scale: float, ph: Any, pw: Any, *_: Any) -> Any:
    out = x.new_empty(rois.shape[0], x.shape[1] // (ph * pw), ph, pw)
    return out, out.new_empty(out.shape, dtype=torch.int32)


def _fake_align(x: torch.Tensor, rois: torch.Tensor, scale: float, ph: Any, pw: Any, *_: Any) -> torch.Tensor:
    return x.new_empty(rois.shape[0], x.shape[1], ph, pw)


def _fake_deform(x: torch.Tensor, weight: torch.Tensor, offset: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty(x.shape[0], weight.shape[0], offset.shape[2], offset.shape[3])


_OPERATORS: dict[str, tuple[Any, Any]] = {
    "nms": (nms, _fake_nms),
    "roi_align": (roi_align, _fake_align),
    "roi_pool": (roi_pool, _fake_pool),
    "ps_roi_align": (ps_roi_align, _fake_own),
    "ps_roi_pool": (ps_roi_pool, _fake_own),
    "deform_conv2d": (deform_conv2d, _fake_deform),
}
