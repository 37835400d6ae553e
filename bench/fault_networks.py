"""Small networks of many kinds, in whose files faults are planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

SCALES = (1.0, 0.1, 3.0, 1.0, 10.0, 0.5)


@dataclass
class Network:
    """A model, and what it takes."""

    model: Any
    shapes: dict[str, tuple[Any, ...]]
    """Sizes of each input by name; a text is a dynamic one."""
    whole: dict[str, int] = field(default_factory=dict)
    """Inputs of whole numbers from 0 on: below which."""
    opset: int = 20

    def __post_init__(self) -> None:
        self.dynamic = {
            name: {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}
            for name, shape in self.shapes.items()
        }

    def example(self) -> tuple[Tensor, ...]:
        drawn = self._drawn(np.random.default_rng(3), dict.fromkeys(self._symbols(), 3), 1.0)
        return tuple(torch.from_numpy(array) for array in drawn.values())

    def drawn(self, rng: np.random.Generator, index: int) -> dict[str, np.ndarray]:
        """The inputs of one step of a sweep."""
        sizes = {symbol: 3 if index % 2 else int(rng.integers(1, 8)) for symbol in self._symbols()}
        return self._drawn(rng, sizes, SCALES[index % len(SCALES)])

    def _symbols(self) -> list[str]:
        return sorted({size for shape in self.shapes.values() for size in shape if isinstance(size, str)})

    def _drawn(self, rng: np.random.Generator, sizes: dict[str, int], scale: float) -> dict[str, np.ndarray]:
        drawn = {}
        for name, shape in self.shapes.items():
            numbers = [sizes[size] if isinstance(size, str) else size for size in shape]
            if name in self.whole:
                drawn[name] = rng.integers(0, self.whole[name], numbers)
            else:
                drawn[name] = (rng.standard_normal(numbers) * scale).astype(np.float32)
        return drawn


NETWORKS: dict[str, Callable[[], Network]] = {}


def network(shapes: dict[str, tuple[Any, ...]], **options: Any) -> Callable[[Any], Any]:
    """Enter a class of modules, or a function on tensors."""

    def enter(model: Any) -> Any:
        def build() -> Network:
            torch.manual_seed(5)
            built = model().eval() if isinstance(model, type) else model
            for parameter in built.parameters() if isinstance(built, nn.Module) else ():
                if parameter.dim() == 1:  # so that no bias and no scale is without effect
                    nn.init.uniform_(parameter, 0.4, 1.2)
            return Network(built, shapes, **options)

        NETWORKS[model.__name__] = build
        return model

    return enter


@network({"x": ("n", 8)})
class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(8, 12), nn.LayerNorm(12), nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        return functional.softmax(self.b(functional.gelu(self.norm(self.a(x)))), -1)


@network({"x": ("n", 3, 12, 12)})
class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.bn, self.b = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Conv2d(6, 8, 3, stride=2)
        self.head = nn.Linear(8, 5)
        nn.init.uniform_(self.bn.running_mean, -0.5, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.bn(self.a(x))), 2)
        return self.head(functional.silu(self.b(x)).mean((2, 3)))


@network({"x": ("n", "t", 8)})
class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        weights = (q @ k.transpose(-2, -1) * 0.5).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(n, t, 8))


@network({"x": ("n", 6)})
def thresholds(x: Tensor) -> Tensor:
    return torch.where(x > 0.2, x * 2, x - 1) + (x.abs() < 1.5).float() * 0.7


@network({"x": ("n", 6)})
def clipped(x: Tensor) -> Tensor:
    return functional.hardtanh(x, -0.7, 1.3) * functional.relu6(x + 2) + x.clamp(min=-0.1).sqrt().nan_to_num(0.3)


@network({"x": ("n", 6)})
def rounded(x: Tensor) -> Tensor:
    return torch.floor(x * 4) / 4 + torch.round(x / 2) - torch.ceil(x - 0.25)


@network({"ids": ("n", "t")}, whole={"ids": 20})
class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        mask = (ids != 0).float()[..., None]
        place = torch.arange(ids.shape[1], dtype=torch.float32)[:, None] / 10
        x = (self.words(ids) + torch.sin(place)) * mask
        return self.out(x.sum(1) / mask.sum(1).clamp(min=1))


@network({"x": ("n", 2, 5, 5)})
class Upsampled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.last = nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.leaky_relu(self.up(x), 0.2)
        return self.last(functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False))


@network({"x": ("n", 9)})
def chosen(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    values, places = x.topk(3, -1)
    return values, places, x.argmin(-1)


@network({"x": ("n", 6, 8)})
class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.group, self.instance = nn.GroupNorm(3, 6), nn.InstanceNorm1d(6, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        return functional.elu(self.group(x)) + torch.tanh(self.instance(x)) / 3


@network({"x": ("n", "t", 4)})
class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(4, 6, batch_first=True), nn.GRU(6, 5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(self.lstm(x)[0])[0]


@network({"x": ("n", 4, 6), "y": ("n", 6, 3)})
def products(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    both = torch.bmm(x, y)
    return torch.einsum("nij,nik->njk", both, x), both.logsumexp(1)


@network({"x": ("n", 10)})
def cut(x: Tensor) -> Tensor:
    head, tail = x[:, :4], x[:, 6::2]
    joined = torch.cat([tail, head * 2, x[:, 4:6]], 1)
    return functional.pad(joined, (1, 2), value=0.5).flip(1).cumsum(1)


@network({"x": ("n", 4, 5)})
def reduced(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (x.var(1, keepdim=True) + 0.1).sqrt() + x.amax((1, 2), keepdim=True) - x.norm(dim=1, keepdim=True)


@network({"x": ("n", 6, 6), "index": ("n", 3)}, whole={"index": 6})
def gathered(x: Tensor, index: Tensor) -> Tensor:
    rows = x.gather(1, index[..., None].expand(-1, -1, 6))
    return torch.zeros_like(x).scatter_add(1, index[..., None].expand(-1, -1, 6), rows) + x.tril(1)


@network({"x": ("n", 4, 8, 8)})
class Excited(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.down, self.up = nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.hardswish(self.wide(x))
        return x + y * torch.sigmoid(self.up(functional.relu(self.down(y.mean((2, 3), keepdim=True)))))


@network({"n_steps": ("n", 5)}, whole={"n_steps": 50})
def counted(n_steps: Tensor) -> tuple[Tensor, Tensor]:
    odd = (n_steps % 2 == 1) & (n_steps > 7)
    return torch.where(odd, n_steps // 3, n_steps * 2 - 5), odd.sum(1)


@network({"x": ("n", "t", 6)})
class Rotary(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[1], dtype=torch.float32)
        angles = place[:, None] * torch.tensor([1.0, 0.1, 0.01])
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
        return x * cos + torch.cat([-x[..., 3:], x[..., :3]], -1) * sin


@network({"x": ("n", 4, 12)})
class Series(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv1d(4, 8, 3, padding=2, dilation=2), nn.Conv1d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.a(x).chunk(2, 1)
        y = self.b(torch.sigmoid(gate) * torch.tanh(value))
        return functional.avg_pool1d(y + x, 2, ceil_mode=True)


@network({"x": ("n", "t", 8)})
class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(8, 12, bias=False) for _ in range(3))
        self.down = nn.Linear(12, 8, bias=False)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-3) * self.scale
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


@network({"q": ("n", "t", 4), "mask": ("n", "t")}, whole={"mask": 2})
def masked(q: Tensor, mask: Tensor) -> Tensor:
    scores = q @ q.transpose(1, 2) / 2
    scores = scores.masked_fill((mask == 0)[:, None, :], -1e4)
    causal = torch.ones(q.shape[1], q.shape[1]).tril().bool()
    return scores.masked_fill(~causal, -1e4).softmax(-1) @ q
