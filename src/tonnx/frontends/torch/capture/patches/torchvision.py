"""What stands in for torchvision's own Python code during a capture.

Its detection models ask how many boxes are left, to save work where there are none or many; a capture cannot know. The
functions here compute the same without asking.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from tonnx.frontends.torch.versions import example_of


def batched_nms(
    original: Any, boxes: torch.Tensor, scores: torch.Tensor, idxs: torch.Tensor, iou_threshold: float
) -> torch.Tensor:
    """Boxes of different classes are moved apart, so far that they cannot overlap."""
    furthest = torch.cat([boxes.reshape(-1), boxes.new_zeros(1)]).max()  # also where there is no box
    apart = idxs.to(boxes) * (furthest + 1)
    return torch.ops.torchvision.nms(boxes + apart[:, None], scores, iou_threshold)


def decode(original: Any, coder: Any, rel_codes: torch.Tensor, boxes: list[torch.Tensor]) -> torch.Tensor:
    return coder.decode_single(rel_codes, torch.cat(boxes, dim=0)).unflatten(1, (-1, 4))


def infer_scale(original: Any, feature: torch.Tensor, original_size: list[int]) -> float:
    """The power of two by which a feature map is smaller: that of the network's strides, at the example's sizes."""
    return 2.0 ** round(math.log2(_in_example(feature.shape[-2]) / _in_example(original_size[0])))


def _in_example(size: Any) -> float:
    number = example_of(size.node.shape_env, size.node.expr) if isinstance(size, torch.SymInt) else size
    return float(size if number is None else number)


def topk_min(original: Any, input: torch.Tensor, orig_kval: int, axis: int) -> Any:
    return torch.sym_min(orig_kval, input.shape[axis])
