"""Small networks of the kinds that people export, for the tests."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SuperResolution(nn.Module):
    """Sub-pixel super-resolution; ``inplace`` as many write it."""

    def __init__(self, factor: int = 3, inplace: bool = False) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=inplace)
        self.conv1 = nn.Conv2d(1, 8, 5, padding=2)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.conv3 = nn.Conv2d(8, factor**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(factor)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        return self.shuffle(self.conv3(x))


def statistics(module: nn.Module) -> nn.Module:
    """Batch statistics that are not 0 and 1, so that folding them wrongly shows."""
    for norm in module.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(norm.running_mean, -1, 1)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.uniform_(norm.weight, 0.5, 2)
            nn.init.uniform_(norm.bias, -1, 1)
    return module


def conv_bn_relu() -> nn.Module:
    return statistics(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()))


def bn_conv_relu() -> nn.Module:
    return statistics(nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.ReLU()))


def bn_relu() -> nn.Module:
    return statistics(nn.Sequential(nn.BatchNorm2d(3), nn.ReLU()))


def silu_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 4, 1), nn.SiLU(inplace=True))


class TwoOutputs(nn.Module):
    """Two inputs, two outputs, one of them in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        first = self.linear(x) + h
        return first, self.relu(first)


class Block(nn.Sequential):
    def __init__(self, inside: int, outside: int) -> None:
        super().__init__(
            nn.Conv2d(inside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """Encoder, decoder with transposed convolutions, skip connections padded to the encoder's size."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = Block(3, 4), Block(4, 8), Block(8, 16)
        self.up2, self.up1 = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.join2, self.join1 = Block(16, 8), Block(8, 4)
        self.head = nn.Conv2d(4, 2, 1)
        statistics(self)

    def forward(self, x: Tensor) -> Tensor:
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        three = self.bottom(F.max_pool2d(two, 2))
        two = self.join2(torch.cat([two, self._fit(self.up2(three), two)], dim=1))
        one = self.join1(torch.cat([one, self._fit(self.up1(two), one)], dim=1))
        return self.head(one)

    @staticmethod
    def _fit(x: Tensor, like: Tensor) -> Tensor:
        high, wide = like.shape[2] - x.shape[2], like.shape[3] - x.shape[3]
        return F.pad(x, [wide // 2, wide - wide // 2, high // 2, high - high // 2])


class Segmentation(nn.Module):
    """Dilated convolutions, pooled context, bilinear upsampling to the size of the input; returns a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.Hardswish())
        self.branches = nn.ModuleList([nn.Conv2d(8, 8, 3, padding=d, dilation=d) for d in (1, 2, 4)])
        self.context = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.ReLU())
        self.head = nn.Conv2d(32, 5, 1)
        statistics(self)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        size = x.shape[-2:]
        x = self.stem(x)
        context = F.interpolate(self.context(x), size=x.shape[-2:], mode="bilinear", align_corners=False)
        x = torch.cat([*(F.relu(branch(x)) for branch in self.branches), context], dim=1)
        logits = F.interpolate(self.head(x), size=size, mode="bilinear", align_corners=False)
        return {"logits": logits, "mask": logits.argmax(1)}


class Seq2Seq(nn.Module):
    """nn.Transformer with a causal target mask."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.transformer(source, target, tgt_mask=mask)
