"""Whole detection models of torchvision, with its operators in plain PyTorch where the compiled ones are absent."""

from __future__ import annotations

import importlib.util
from typing import Any

import onnxruntime
import pytest
import torch

import tonnx
from tests.lowering import torchvision_eager

pytestmark = pytest.mark.models

SMALL = {"min_size": 96, "max_size": 96, "weights": None, "weights_backbone": None}
RCNN = {"box_score_thresh": 0.05, "rpn_pre_nms_top_n_test": 50, "rpn_post_nms_top_n_test": 20,
        "box_detections_per_img": 10}  # fmt: skip
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("retinanet_resnet50_fpn", {"num_classes": 4, "score_thresh": 0.005, "topk_candidates": 30,
                                "detections_per_img": 10}),
    ("fasterrcnn_mobilenet_v3_large_320_fpn", {"num_classes": 5, **RCNN}),
    ("fcos_resnet50_fpn", {"num_classes": 4, "score_thresh": 0.05, "topk_candidates": 20, "detections_per_img": 10}),
    ("maskrcnn_resnet50_fpn", {"num_classes": 4, **RCNN}),
    ("keypointrcnn_resnet50_fpn", {"num_classes": 2, **RCNN, "box_score_thresh": 0.0}),
]  # fmt: skip


@pytest.mark.parametrize("case", MODELS, ids=[case[0] for case in MODELS])
def test_detection(case: Any) -> None:
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    torchvision_eager.install()
    from torchvision.models import detection

    torch.manual_seed(0)
    name, options = case
    model = getattr(detection, name)(**SMALL, **options).eval()
    image = torch.rand(3, 96, 96)
    # Only the example: untrained scores are nearly equal, and their order hangs on the last bit at other values.
    result = tonnx.export(model, ([image],), capture="export", verify=False)
    session = onnxruntime.InferenceSession(result.proto.SerializeToString())
    names = [value.name for value in session.get_outputs()]
    got = dict(zip(names, session.run(names, {"images_0": image.numpy()}), strict=True))
    want = model([image])[0]
    for key, tensor in want.items():
        array = got[f"output_0_{key}"]
        assert array.shape == tuple(tensor.shape) and len(array) == 10
        torch.testing.assert_close(torch.from_numpy(array), tensor.detach(), rtol=1e-3, atol=1e-3)


class _Kept(torch.nn.Module):
    """The boxes that NMS keeps, one by one: their number is never known to be more than 0."""

    def forward(self, boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        import torchvision

        likely = torch.where(scores > 0.5)[0]
        boxes = boxes[likely]
        kept = [2 * box for box in boxes[torchvision.ops.nms(boxes, scores[likely], 0.5)]]
        return torch.stack(kept) if len(kept) > 0 else boxes.new_zeros(0, 7)


def test_nothing_is_found() -> None:
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    torchvision_eager.install()
    boxes, scores = torch.rand(6, 4).cumsum(1), torch.linspace(0, 1, 6)
    result = tonnx.export(_Kept(), (boxes, scores))
    session = onnxruntime.InferenceSession(result.proto.SerializeToString())
    for some in (scores, 0 * scores):
        (got,) = session.run(None, {"boxes": boxes.numpy(), "scores": some.numpy()})
        torch.testing.assert_close(torch.from_numpy(got), _Kept()(boxes, some))
