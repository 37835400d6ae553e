"""Detectors as a whole, with the choice of boxes inside where the library has it there."""

from __future__ import annotations

from typing import Any

import torch

from tests.libraries.case import Case
from tests.libraries.pictures import _new

_BATCH = (2, 3, 1)
_ANY = {"b": _BATCH, "h": (64, 96, 128), "w": (96, 64, 160)}


def _yolo(name: str, nms: bool = False) -> Case:
    def make() -> Any:
        from ultralytics import RTDETR, YOLO

        net = (RTDETR if name.startswith("rtdetr") else YOLO)(f"{name}.yaml").model
        return _WithNms(net) if nms else net

    return Case(
        f"ultralytics/{name}{' with NMS' if nms else ''}",
        make,
        lambda b, h, w: (torch.rand(b, 3, h, w),),
        _ANY,
        rows=nms or name.startswith("rtdetr"),  # of candidates that its encoder scores nearly alike
    )


class _WithNms(torch.nn.Module):
    """Boxes and scores, of one picture, through torchvision's choice of them."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> Any:
        import torchvision

        found = self.net(x)
        found = (found[0] if isinstance(found, (tuple, list)) else found)[0].T
        boxes, scores = found[:, :4], found[:, 4:].amax(1)
        x, y, w, h = boxes.unbind(1)
        corners = torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], 1)
        kept = torchvision.ops.nms(corners, scores, 0.5)[:50]
        return corners[kept], scores[kept]


class _Detector(torch.nn.Module):
    """torchvision's detectors take a list of pictures; here one input each."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, *pictures: torch.Tensor) -> Any:
        return self.net(list(pictures))


def _torchvision(name: str, pictures: int = 1, grow: bool = False, **config: Any) -> Case:
    def make() -> Any:
        net = _new(f"torchvision.models.detection.{name}", weights=None, weights_backbone=None, num_classes=5, **config)
        return _Detector(net)

    def example(h: int, w: int) -> Any:
        return tuple(torch.rand(3, h + 8 * i, w) for i in range(pictures))

    label = f"torchvision/{name}" + (f" {pictures} pictures" if pictures > 1 else "")
    return Case(label, make, example, {"h": (96, 120, 80), "w": (128, 96, 144)}, rows=True, grow=grow)


_SMALL = {"min_size": 96, "max_size": 160}
_RCNN = {
    **_SMALL,
    "box_score_thresh": 0.05,
    "rpn_pre_nms_top_n_test": 50,
    "rpn_post_nms_top_n_test": 20,
    "box_detections_per_img": 10,
}
_ONE_STAGE = {**_SMALL, "score_thresh": 0.005, "topk_candidates": 30, "detections_per_img": 10}

CASES = [
    *(
        _yolo(name)
        for name in (
            "yolov8n",
            "yolo11n",
            "yolo12n",
            "yolo26n",
            "yolov8n-seg",
            "yolo11n-pose",
            "yolo26n-seg",
            "yolov5n",
            "yolov9t",
            "yolov10n",
            "yolo11n-obb",
            "yolov8n-cls",
            "rtdetr-l",
        )
    ),
    _yolo("yolov8n", nms=True),
    _torchvision("fasterrcnn_mobilenet_v3_large_320_fpn", **_RCNN),
    _torchvision("fasterrcnn_resnet50_fpn", **_RCNN),
    _torchvision("maskrcnn_resnet50_fpn", **_RCNN),
    _torchvision("retinanet_resnet50_fpn", **_ONE_STAGE),
    _torchvision("fcos_resnet50_fpn", **_ONE_STAGE),
    # As it is made, its features vanish: all scores are equal, and which of them top-k takes is nobody's to say.
    _torchvision("ssdlite320_mobilenet_v3_large", grow=True),
    _torchvision("keypointrcnn_resnet50_fpn", **_RCNN),
    _torchvision("fasterrcnn_mobilenet_v3_large_320_fpn", 2, **_RCNN),
    Case("transformers/DetrForObjectDetection", lambda: _detr(), lambda b, h, w: (torch.randn(b, 3, h, w),), _ANY),
    Case("transformers/RTDetrForObjectDetection", lambda: _rtdetr(), lambda b, h, w: (torch.randn(b, 3, h, w),), _ANY),
]


def _detr() -> Any:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 32, 64], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    config = DetrConfig(
        use_timm_backbone=False,
        backbone=None,
        use_pretrained_backbone=False,
        backbone_config=backbone,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_queries=7,
    )
    return DetrForObjectDetection(config)


def _rtdetr() -> Any:
    from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrResNetConfig

    backbone = RTDetrResNetConfig(
        embedding_size=16,
        hidden_sizes=[16, 32, 32, 64],
        depths=[1, 1, 1, 1],
        out_features=["stage2", "stage3", "stage4"],
    )
    config = RTDetrConfig(
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[32, 32, 64],
        encoder_ffn_dim=32,
        d_model=32,
        decoder_ffn_dim=32,
        num_queries=10,
        decoder_layers=1,
        decoder_in_channels=[32, 32, 32],
        decoder_attention_heads=2,
        encoder_attention_heads=2,
        num_labels=5,
    )
    return RTDetrForObjectDetection(config)
