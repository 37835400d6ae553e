"""What stands in for torchvision's own Python code during a capture.

Its detection models ask how many boxes are left, to save work where there are none or many; a capture cannot know. The
functions here compute the same without asking.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from typing import Any

import torch


def _batched_nms(boxes: torch.Tensor, scores: torch.Tensor, idxs: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Boxes of different classes are moved apart, so far that they cannot overlap."""
    furthest = torch.cat([boxes.reshape(-1), boxes.new_zeros(1)]).max()  # also where there is no box
    apart = idxs.to(boxes) * (furthest + 1)
    return torch.ops.torchvision.nms(boxes + apart[:, None], scores, iou_threshold)


def _decode(coder: Any, rel_codes: torch.Tensor, boxes: list[torch.Tensor]) -> torch.Tensor:
    return coder.decode_single(rel_codes, torch.cat(boxes, dim=0)).unflatten(1, (-1, 4))


def _infer_scale(feature: torch.Tensor, original_size: list[int]) -> float:
    """The power of two by which a feature map is smaller."""
    return 2.0 ** round(math.log2(float(feature.shape[-2]) / float(original_size[0])))


def _topk_min(input: torch.Tensor, orig_kval: int, axis: int) -> Any:
    return torch.sym_min(orig_kval, input.shape[axis])


@contextlib.contextmanager
def vision_stand_ins() -> Iterator[None]:
    """Replace those functions, if torchvision is in use."""
    changes = []
    for module, path, function in (
        ("torchvision.ops.boxes", "batched_nms", _batched_nms),
        ("torchvision.models.detection._utils", "BoxCoder.decode", _decode),
        ("torchvision.models.detection._utils", "_topk_min", _topk_min),
        ("torchvision.ops.poolers", "_infer_scale", _infer_scale),
    ):
        owner: Any = sys.modules.get(module)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part, None)
        if hasattr(owner, name):
            changes.append((owner, name, getattr(owner, name), function))
    try:
        for owner, name, _, function in changes:
            setattr(owner, name, function)
        yield
    finally:
        for owner, name, before, _ in changes:
            setattr(owner, name, before)
