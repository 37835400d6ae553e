"""Networks to export as Paddle layers: those of paddle.vision, and small ones of the kinds that people deploy.

Imports paddle inside the functions: tests that need none import this module too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VISION = (
    "LeNet alexnet vgg11 resnet18 resnet50 resnext50_32x4d wide_resnet50_2 mobilenet_v1 mobilenet_v2 "
    "mobilenet_v3_small mobilenet_v3_large densenet121 googlenet inception_v3 shufflenet_v2_x1_0 squeezenet1_0"
).split()


def vision(name: str) -> tuple[Any, list[Any]]:
    """A network of paddle.vision in inference mode, and its InputSpec with a dynamic batch."""
    import paddle
    from paddle.static import InputSpec

    paddle.seed(0)
    net = getattr(paddle.vision.models, name)()
    net.eval()
    size = {"LeNet": 28, "inception_v3": 299}.get(name, 224)
    return net, [InputSpec([None, 1 if name == "LeNet" else 3, size, size], "float32", "x")]


def own(name: str) -> tuple[Any, list[Any]]:
    """A small network of ours, and its InputSpecs."""
    import paddle

    paddle.seed(0)
    return OWN[name]()


def segmentation() -> tuple[Any, list[Any]]:
    """An encoder and a decoder with a skip connection; any size of picture; the mask and the scores."""
    import paddle
    from paddle import nn
    from paddle.nn import functional as F
    from paddle.static import InputSpec

    def block(inputs: int, outputs: int, stride: int = 1) -> Any:
        return nn.Sequential(
            nn.Conv2D(inputs, outputs, 3, stride=stride, padding=1), nn.BatchNorm2D(outputs), nn.Hardswish()
        )

    class Segmentation(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.down, self.deep = block(3, 8), block(8, 16, 2), block(16, 16, 2)
            self.up, self.head = block(24, 8), nn.Conv2D(8, 4, 1)

        def forward(self, x: Any) -> Any:
            early = self.first(x)
            deep = self.deep(self.down(early))
            pooled = F.adaptive_avg_pool2d(deep, 1)
            deep = deep * F.sigmoid(pooled)
            grown = F.interpolate(deep, size=paddle.shape(early)[2:], mode="bilinear", align_corners=False)
            scores = self.head(self.up(paddle.concat([grown, early], axis=1)))
            return paddle.argmax(scores, axis=1), scores

    return Segmentation(), [InputSpec([None, 3, None, None], "float32", "image")]


def detection() -> tuple[Any, list[Any]]:
    """A backbone, one YOLO head, and its boxes sorted out by non-maximum suppression."""
    import paddle
    from paddle import _C_ops, nn
    from paddle.static import InputSpec

    anchors, classes = [10, 13, 16, 30], 3

    class Detection(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Sequential(
                nn.Conv2D(3, 8, 3, stride=4, padding=1), nn.BatchNorm2D(8), nn.LeakyReLU(0.1),
                nn.Conv2D(8, 16, 3, stride=4, padding=1), nn.BatchNorm2D(16), nn.LeakyReLU(0.1),
            )  # fmt: skip
            self.head = nn.Conv2D(16, 2 * (5 + classes), 1)

        def forward(self, image: Any, size: Any) -> Any:
            found = self.head(self.backbone(image)) * 3
            boxes, scores = paddle.vision.ops.yolo_box(
                found, size, anchors=anchors, class_num=classes, conf_thresh=0.05, downsample_ratio=16
            )
            scores = paddle.transpose(scores, [0, 2, 1])
            kept, _, count = _C_ops.multiclass_nms3(boxes, scores, None, 0.1, 100, 20, 0.5, True, 1.0, -1)
            return kept, count

    return Detection(), [InputSpec([1, 3, 64, 64], "float32", "image"), InputSpec([1, 2], "int32", "size")]


def recogniser() -> tuple[Any, list[Any]]:
    """A CRNN: a picture of a line of text as a sequence of columns, a recurrent network, a score for every letter."""
    import paddle
    from paddle import nn
    from paddle.nn import functional as F
    from paddle.static import InputSpec

    class Recogniser(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(
                nn.Conv2D(3, 8, 3, stride=2, padding=1), nn.BatchNorm2D(8), nn.ReLU(),
                nn.Conv2D(8, 16, 3, stride=(2, 1), padding=1), nn.BatchNorm2D(16), nn.ReLU(),
                nn.MaxPool2D((2, 1), (2, 1)),
            )  # fmt: skip
            self.lstm = nn.LSTM(16 * 2, 12, direction="bidirect", num_layers=2)
            self.head = nn.Linear(24, 10)

        def forward(self, x: Any) -> Any:
            columns = paddle.transpose(paddle.flatten(self.features(x), 1, 2), [0, 2, 1])
            return F.softmax(self.head(self.lstm(columns)[0]), axis=-1)

    return Recogniser(), [InputSpec([None, 3, 16, None], "float32", "x")]


def transformer() -> tuple[Any, list[Any]]:
    """Two encoder layers, with a mask that the model makes from the ids."""
    import paddle
    from paddle import nn
    from paddle.static import InputSpec

    class Encoder(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(50, 16), nn.Embedding(64, 16)
            layer = nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", dropout=0.1)
            self.encoder = nn.TransformerEncoder(layer, 2)

        def forward(self, ids: Any) -> Any:
            places = paddle.arange(paddle.shape(ids)[1], dtype="int64")
            mask = (ids == 0).astype("float32").unsqueeze([1, 2]) * -1e4
            return self.encoder(self.words(ids) + self.places(places), mask)

    return Encoder(), [InputSpec([None, None], "int64", "ids")]


def decider() -> tuple[Any, list[Any]]:
    """A branch on what the input holds, and a loop as long as another input says."""
    import paddle
    from paddle import nn
    from paddle.static import InputSpec

    class Decider(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Any, times: Any) -> Any:
            x = self.one(x) if paddle.mean(x) > 0 else self.other(x)
            i = paddle.zeros([1], "int64")
            while i < times:
                x = paddle.tanh(self.one(x))
                i = i + 1
            return x

    return Decider(), [InputSpec([2, 4], "float32", "x"), InputSpec([1], "int64", "times")]


OWN: dict[str, Callable[[], tuple[Any, list[Any]]]] = {
    made.__name__: made for made in (segmentation, detection, recogniser, transformer, decider)
}
