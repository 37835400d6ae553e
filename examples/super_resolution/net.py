"""A small network that enlarges the luma of a picture three times.

Four convolutions at the low resolution, then a pixel shuffle: the sub-pixel network of
Shi et al., "Real-Time Single Image and Video Super-Resolution" (2016), with ReLU.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

SCALE = 3
WEIGHTS = Path(__file__).with_name("weights.safetensors")


class SuperResolutionNet(nn.Module):
    """Luma in 0..1, `[batch, 1, height, width]` to `[batch, 1, scale * height, scale * width]`."""

    def __init__(self, scale: int = SCALE) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 64, kernel_size=5, padding=2)
        self.conv2 = nn.Conv2d(64, 64, kernel_size=3, padding=1)
        self.conv3 = nn.Conv2d(64, 32, kernel_size=3, padding=1)
        self.conv4 = nn.Conv2d(32, scale**2, kernel_size=3, padding=1)
        self.relu = nn.ReLU()
        self.pixel_shuffle = nn.PixelShuffle(scale)
        self._initialise()

    def _initialise(self) -> None:
        """Orthogonal rows; the last layer has no ReLU behind it and so needs no extra gain."""
        relu_gain = nn.init.calculate_gain("relu")
        for conv in (self.conv1, self.conv2, self.conv3):
            nn.init.orthogonal_(conv.weight, relu_gain)
        nn.init.orthogonal_(self.conv4.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        x = self.relu(self.conv3(x))
        return self.pixel_shuffle(self.conv4(x))


def trained_net(weights: Path = WEIGHTS) -> SuperResolutionNet:
    """The network with the weights that `train.py` made."""
    net = SuperResolutionNet()
    net.load_state_dict(load_file(weights))
    return net


def example_input() -> Tensor:
    """A low-resolution luma of arbitrary size: every axis but the channel is dynamic in the export."""
    return torch.rand(1, 1, 64, 48, generator=torch.Generator().manual_seed(0))
