"""Modules with state, recursion and layers, for TorchScript."""
# ruff: noqa: UP006, UP035 (what TorchScript understands, and users write)

from __future__ import annotations

from typing import List, Tuple

import torch
from torch import Tensor, nn

from tests.frontends.torch.script.harness import Program
from tests.frontends.torch.script.programs import BATCH, MIXED, MORE, PLUS, ROWS, THREE


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.mean() > 0:
            return self.up(x).relu()
        return self.down(x).tanh()


class Recursive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.ModuleList([Gate() for _ in range(3)])
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.scale = nn.Parameter(torch.tensor([1.0, -1, 2, 3]))

    def forward(self, x: Tensor) -> Tensor:
        for gate in self.gates:
            x = gate(x) - 0.5
        return self.drop(self.norm(x)) * self.scale


class Decoder(nn.Module):
    """Greedy decoding until an end token or a limit."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.cell = nn.GRUCell(8, 8)
        self.head = nn.Linear(8, 7)

    def forward(self, x: Tensor) -> Tensor:
        token = torch.zeros(1, dtype=torch.long)
        state = x
        tokens: List[Tensor] = []
        while len(tokens) < 9:
            state = self.cell(self.embed(token), state)
            token = self.head(state).argmax(1)
            tokens.append(token)
            if int(token) == 3:
                break
        return torch.cat(tokens)


class Stateful(nn.Module):
    """Keeps a running mean, and returns it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(4))
        self.register_buffer("count", torch.zeros(1))
        self.steps = 1

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, int]:
        if x.sum() > 0:
            self.mean = self.mean * 0.5 + x.mean(0) * 0.5
            self.steps += 1
        self.count += 1
        self.mean[0] = 3
        return x - self.mean, self.mean + self.count, self.steps


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y, (h, c) = self.lstm(x.unsqueeze(0))
        return y[0] + h.sum() - c.mean()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y, weights = self.attention(x[None], x[None], x[None])
        assert weights is not None
        return y[0] + weights.sum()


class Pyramid(nn.Module):
    """A convolution at as many scales as fit."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = x[None, None]
        outputs: List[Tensor] = []
        while y.size(2) > 1:
            y = nn.functional.avg_pool2d(self.conv(y).relu(), 2)
            outputs.append(y.flatten())
        return torch.cat(outputs)


PROGRAMS: dict[str, Program] = {
    "Gate": Program(Gate, THREE, BATCH, has=("If",)),
    "Recursive": Program(Recursive, [*ROWS, (MIXED * 9,)], BATCH, has=("If",)),
    "Decoder": Program(
        Decoder, [(torch.randn(1, 8, generator=torch.Generator().manual_seed(s)),) for s in range(10)], has=("Loop",)
    ),
    "Stateful": Program(Stateful, ROWS, BATCH, has=("If",)),
    "Lstm": Program(Lstm, ROWS, BATCH, has=("LSTM",)),
    "Attention": Program(Attention, ROWS, BATCH),
    "Pyramid": Program(
        Pyramid, [(MORE[:8].repeat(1, 2),), (PLUS[:2].repeat(1, 2),), (MORE.repeat(2, 4),)], {"x": [0, 1]}, lowest=13
    ),
}  # fmt: skip
