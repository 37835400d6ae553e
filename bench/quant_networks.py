"""Small networks with trained weights: digits of scikit-learn, synthetic sounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

import tonnx


@dataclass(frozen=True)
class Task:
    """Samples to calibrate with, others to measure on, and what is right for those."""

    calibration: np.ndarray
    test: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Network:
    """A file, and the samples that it was trained for."""

    name: str
    path: Path
    task: Task


def conv(
    inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1, act: nn.Module | None = None
) -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([act] if act is not None else []))


def plain() -> nn.Module:
    return nn.Sequential(
        conv(1, 16, act=nn.ReLU()), conv(16, 32, act=nn.ReLU()), nn.MaxPool2d(2), conv(32, 64, act=nn.ReLU()),
        nn.Flatten(), nn.Linear(64 * 16, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


class Residual(nn.Module):
    def __init__(self, width: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(width, width, act=nn.ReLU()), conv(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


def residual() -> nn.Module:
    return nn.Sequential(
        conv(1, 32, act=nn.ReLU()), Residual(32), Residual(32), conv(32, 64, stride=2, act=nn.ReLU()), Residual(64),
        Residual(64), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


class Inverted(nn.Module):
    def __init__(self, width: int, act: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(width, 4 * width, 1, act=act()), conv(4 * width, 4 * width, groups=4 * width, act=act()),
            conv(4 * width, width, 1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


def depthwise() -> nn.Module:
    return nn.Sequential(
        conv(1, 24, act=nn.Hardswish()), Inverted(24, nn.ReLU6), Inverted(24, nn.ReLU6),
        conv(24, 48, stride=2, act=nn.Hardswish()), Inverted(48, nn.Hardswish), Inverted(48, nn.Hardswish),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10),
    )  # fmt: skip


class Patches(nn.Module):
    """A transformer on patches of 2×2 pixels."""

    def __init__(self, width: int = 64, depth: int = 3, heads: int = 4) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, width, 2, 2)
        self.place = nn.Parameter(torch.randn(1, 16, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.norm(self.layers(x)).mean(1))


def sounds() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(1, 32, 25, 4, 12), nn.BatchNorm1d(32), nn.LeakyReLU(0.1), nn.Conv1d(32, 64, 9, 4, 4),
        nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 64, 9, 2, 4), nn.BatchNorm1d(64), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 6),
    )  # fmt: skip


class Denoiser(nn.Module):
    """Gives the digit without the noise: a picture for a picture, so that the last layer is a convolution."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.down = nn.Sequential(conv(1, width, act=nn.ReLU()), conv(width, 2 * width, stride=2, act=nn.ReLU()))
        self.middle = conv(2 * width, 2 * width, act=nn.SiLU())
        self.up = nn.Upsample(scale_factor=2)
        self.last = nn.Sequential(conv(3 * width, width, act=nn.ReLU()), nn.Conv2d(width, 1, 3, padding=1))
        self.first = conv(1, width, act=nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.last(torch.cat([self.up(self.middle(self.down(x))), self.first(x)], 1))


def digits() -> tuple[Task, np.ndarray]:
    from sklearn.datasets import load_digits

    data = load_digits()
    pictures = ((data.images / 16 - 0.3) / 0.4).astype(np.float32)[:, None]
    order = np.random.default_rng(0).permutation(len(pictures))
    pictures, labels = pictures[order], data.target[order]
    return Task(pictures[:1297], pictures[1297:], labels[1297:]), labels[:1297]


def tones() -> tuple[Task, np.ndarray]:
    """Six kinds of sounds in noise: a tone, a rising and a falling one, clicks, a tremolo, a chord."""
    rng, time = np.random.default_rng(1), np.arange(2048) / 4000
    sounds, labels = [], []
    for number in range(1800):
        kind, pitch, phase = number % 6, rng.uniform(150, 900), rng.uniform(0, 6)
        wave = {
            0: np.sin(2 * np.pi * pitch * time + phase),
            1: np.sin(2 * np.pi * pitch * time * (1 + time) + phase),
            2: np.sin(2 * np.pi * pitch * time * (2 - time) + phase),
            3: (np.sin(2 * np.pi * rng.uniform(5, 20) * time + phase) > 0.97).astype(float) * 2,
            4: np.sin(2 * np.pi * pitch * time) * (1 + np.sin(2 * np.pi * 15 * time + phase)) / 2,
            5: sum(np.sin(2 * np.pi * pitch * ratio * time) for ratio in (1, 1.25, 1.5)) / 3,
        }[kind]
        loud = math.exp(rng.normal(0, 0.5))
        sounds.append(loud * (wave + rng.normal(0, 0.15, time.size)))
        labels.append(kind)
    array, kinds = np.asarray(sounds, np.float32)[:, None], np.asarray(labels)
    return Task(array[:1300], array[1300:], kinds[1300:]), kinds[:1300]


def trained(model: nn.Module, task: Task, labels: np.ndarray, epochs: int, clean: bool = False) -> nn.Module:
    """The model after some rounds of Adam; with ``clean`` it learns to give its input without noise."""
    x, y = torch.from_numpy(task.calibration), torch.from_numpy(labels)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * (len(x) // 64 + 1))
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            if clean:
                loss = nn.functional.mse_loss(model(x[rows] + 0.5 * torch.randn_like(x[rows])), x[rows])
            else:
                loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Task, np.ndarray]], int, bool]] = {
    "plain convolutions": (plain, digits, 6, False),
    "residual": (residual, digits, 6, False),
    "depthwise": (depthwise, digits, 8, False),
    "transformer": (Patches, digits, 15, False),
    "sounds": (sounds, tones, 6, False),
    "denoiser": (Denoiser, digits, 8, True),
}


def networks(folder: Path) -> list[Network]:
    """Train what is not in the folder yet, and export it."""
    result = []
    for name, (build, data, epochs, clean) in MODELS.items():
        path = folder / f"{name.replace(' ', '-')}.onnx"
        task, labels = data()
        if not path.exists():
            torch.manual_seed(0)
            model = trained(build(), task, labels, epochs, clean)
            x = torch.from_numpy(task.test[:4])
            tonnx.export(model, x, path, input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "batch"}})
        result.append(Network(name, path, task))
    return result


if __name__ == "__main__":
    import sys

    for network in networks(Path(sys.argv[1])):
        print(network.name, network.path)
