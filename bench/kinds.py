"""One network of each kind that people export, small enough to be exported three times: what `latency.py` runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from tests.models import torchvision_schemas
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass
class Kind:
    """A model with its example, ready for any exporter."""

    model: nn.Module
    args: tuple[Tensor, ...] = ()
    kwargs: dict[str, Tensor] = field(default_factory=dict)


def _timm(name: str) -> Kind:
    import timm

    model = timm.create_model(name, pretrained=False).eval()
    return Kind(model, (torch.randn(1, *model.default_cfg["input_size"]),))


def _text(model: nn.Module, **more: Tensor) -> Kind:
    ids = torch.randint(3, 900, (1, 128))
    return Kind(model.eval(), kwargs={"input_ids": ids, "attention_mask": torch.ones_like(ids), **more})


SIZE = {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8}


def bert() -> Kind:
    from transformers import BertConfig, BertModel

    return _text(BertModel(BertConfig(**SIZE, intermediate_size=1024)))


def gpt2() -> Kind:
    from transformers import GPT2Config, GPT2LMHeadModel

    return _text(GPT2LMHeadModel(GPT2Config(vocab_size=1000, n_embd=256, n_layer=4, n_head=8, use_cache=False)))


def llama() -> Kind:
    from transformers import LlamaConfig, LlamaForCausalLM

    return _text(LlamaForCausalLM(LlamaConfig(**SIZE, intermediate_size=688, num_key_value_heads=4, use_cache=False)))


def t5() -> Kind:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=1000, d_model=256, d_kv=32, d_ff=1024, num_layers=4, num_heads=8, decoder_start_token_id=0,
        use_cache=False,
    )  # fmt: skip
    kind = _text(T5ForConditionalGeneration(config), decoder_input_ids=torch.randint(3, 900, (1, 32)))
    kind.kwargs.pop("attention_mask")
    return kind


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 128)
        self.lstm = nn.LSTM(128, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(256, 20)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(ids))[0])


def lstm() -> Kind:
    return Kind(Tagger().eval(), (torch.randint(0, 1000, (1, 64)),))


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.SiLU(inplace=True)
    )


class Detector(nn.Module):
    """Three scales, a pyramid, boxes of every cell with their scores, the best hundred."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(block(3, 16, 2), block(16, 32, 2))
        self.down = nn.ModuleList([block(32, 64, 2), block(64, 96, 2), block(96, 128, 2)])
        self.lateral = nn.ModuleList(nn.Conv2d(width, 64, 1) for width in (64, 96, 128))
        self.head = nn.Sequential(block(64, 64), nn.Conv2d(64, 4 + 20, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, features = self.stem(x), []
        for down, lateral in zip(self.down, self.lateral, strict=True):
            x = down(x)
            features.append(lateral(x))
        for i in (1, 0):
            features[i] = features[i] + F.interpolate(features[i + 1], scale_factor=2.0, mode="nearest")
        found = torch.cat([self._boxes(self.head(f), 8 * 2**i) for i, f in enumerate(features)], 1)
        scores, labels = found[..., 4:].sigmoid().max(-1)
        best, places = scores.topk(100, dim=1)
        boxes = found[..., :4].gather(1, places.unsqueeze(-1).expand(-1, -1, 4))
        return boxes, best, labels.gather(1, places)

    def _boxes(self, raw: Tensor, stride: int) -> Tensor:
        height, width = raw.shape[-2:]
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        centre = (torch.stack([columns, rows]) + 0.5).unsqueeze(0) * stride
        half = raw[:, 2:4].exp() * stride / 2
        middle = centre + raw[:, :2] * stride
        return torch.cat([middle - half, middle + half, raw[:, 4:]], 1).flatten(2).transpose(1, 2)


def detection() -> Kind:
    return Kind(Detector().eval(), (torch.randn(1, 3, 256, 256),))


class Segmenter(nn.Module):
    """A U of convolutions, upsampled bilinearly."""

    def __init__(self) -> None:
        super().__init__()
        widths = (16, 32, 64, 96)
        self.down = nn.ModuleList(
            nn.Sequential(block(i, o), block(o, o)) for i, o in zip((3, *widths), widths, strict=False)
        )
        self.up = nn.ModuleList(block(a + b, b) for a, b in ((96, 64), (64, 32), (32, 16)))
        self.head = nn.Conv2d(16, 21, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for i, down in enumerate(self.down):
            x = down(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for up, skip in zip(self.up, reversed(kept[:-1]), strict=True):
            grown = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)
            x = up(torch.cat([grown, skip], 1))
        return self.head(x).softmax(1)


def segmentation() -> Kind:
    return Kind(Segmenter().eval(), (torch.randn(1, 3, 128, 128),))


def super_resolution() -> Kind:
    layers = [nn.Conv2d(1, 48, 5, 1, 2), nn.PReLU(48), nn.Conv2d(48, 32, 3, 1, 1), nn.PReLU(32)]
    model = nn.Sequential(*layers, nn.Conv2d(32, 9, 3, 1, 1), nn.PixelShuffle(3))
    return Kind(model.eval(), (torch.randn(1, 1, 96, 96),))


class Denoiser(nn.Module):
    """A step of diffusion: group normalisation, a time embedding, self-attention at the bottom."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
        self.first = nn.Conv2d(4, width, 3, 1, 1)
        self.blocks = nn.ModuleList(Residual(width) for _ in range(4))
        self.down = nn.Conv2d(width, width, 3, 2, 1)
        self.norm = nn.GroupNorm(8, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.last = nn.Conv2d(width, 4, 3, 1, 1)

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        angles = step[:, None] * torch.exp(torch.arange(self.width // 2) * -0.3)[None]
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        x = self.blocks[0](self.first(x), time)
        low = self.blocks[1](self.down(x), time)
        batch, width, height, columns = low.shape
        flat = self.norm(low).flatten(2).transpose(1, 2)
        heads = (t.view(batch, -1, 4, width // 4).transpose(1, 2) for t in self.qkv(flat).chunk(3, -1))
        seen = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        low = low + self.out(seen).transpose(1, 2).view(batch, width, height, columns)
        x = x + F.interpolate(self.blocks[2](low, time), scale_factor=2.0, mode="nearest")
        return self.last(self.blocks[3](x, time))


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, 1, 1), nn.Conv2d(width, width, 3, 1, 1)
        self.time = nn.Linear(width, width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(y)))


def diffusion() -> Kind:
    return Kind(Denoiser().eval(), (torch.randn(1, 4, 32, 32), torch.tensor([37.0])))


class Small(nn.Module):
    """A residual network that PyTorch's eager mode quantises."""

    def __init__(self) -> None:
        super().__init__()
        from torch.ao.nn.quantized import FloatFunctional
        from torch.ao.quantization import DeQuantStub, QuantStub

        self.quant, self.dequant, self.add = QuantStub(), DeQuantStub(), FloatFunctional()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.left = nn.Sequential(nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1))
        self.right = nn.Sequential(nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU())
        self.head = nn.Linear(64, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(self.quant(x))
        x = self.right(self.add.add(x, self.left(x)))
        return self.dequant(self.head(x.mean([2, 3])))


def quantised() -> Kind:
    from torch.ao import quantization

    model, x = Small().eval(), torch.randn(1, 3, 112, 112)
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    prepared = quantization.prepare(model)
    prepared(x)
    return Kind(quantization.convert(prepared), (x,))


KINDS: dict[str, Callable[[], Kind]] = {
    "CNN (resnet50)": lambda: _timm("resnet50"),
    "ViT (tiny)": lambda: _timm("vit_tiny_patch16_224"),
    "Swin (tiny)": lambda: _timm("swin_tiny_patch4_window7_224"),
    "ConvNeXt (atto)": lambda: _timm("convnext_atto"),
    "BERT": bert,
    "GPT-2": gpt2,
    "Llama": llama,
    "T5": t5,
    "LSTM": lstm,
    "detection": detection,
    "segmentation": segmentation,
    "super-resolution": super_resolution,
    "quantised ResNet": quantised,
    "diffusion UNet": diffusion,
}


def make(name: str) -> Kind:
    """The network of a kind, the same each time."""
    torchvision_schemas.declare()
    torch.manual_seed(0)
    kind = KINDS[name]()
    with torch.no_grad():
        for parameter in kind.model.parameters():  # layer scales of 1e-6 and zero heads hide what a network computes
            if parameter.numel() > 1 and parameter.min() == parameter.max():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return kind


def paddle_layer(name: str) -> tuple[Any, list[int]]:
    """A Paddle layer and the shape of its input."""
    import paddle

    paddle.seed(0)
    if name == "Paddle MobileNetV3":
        return paddle.vision.models.mobilenet_v3_small(), [1, 3, 224, 224]
    nn_ = paddle.nn

    class Recogniser(nn_.Layer):
        """Text of a line, as PP-OCR reads it: convolutions that halve the height, an LSTM along the width."""

        def __init__(self) -> None:
            super().__init__()
            widths = (3, 32, 64, 96)
            layers: list[Any] = []
            for a, b in pairwise(widths):
                layers += [nn_.Conv2D(a, b, 3, padding=1), nn_.BatchNorm2D(b), nn_.Hardswish(), nn_.MaxPool2D((2, 2))]
            self.features = nn_.Sequential(*layers)
            self.pool = nn_.AdaptiveAvgPool2D((1, None))
            self.lstm = nn_.LSTM(96, 64, direction="bidirectional")
            self.head = nn_.Linear(128, 500)

        def forward(self, x: Any) -> Any:
            steps = self.pool(self.features(x)).squeeze(2).transpose([0, 2, 1])
            return nn_.functional.softmax(self.head(self.lstm(steps)[0]), axis=-1)

    return Recogniser(), [1, 3, 48, 320]


PADDLE = ("Paddle MobileNetV3", "PP-OCR-like")
