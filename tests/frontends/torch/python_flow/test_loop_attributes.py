"""Loops whose passes hand on attributes of objects, as networks that keep their state in themselves do."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.frontends.torch.capture.test_idioms import Idiom, compare


class Attribute(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.h = x[:, 0]
        for i in range(x.shape[1]):
            self.h = self.h * 0.5 + x[:, i]
        return self.h


class Keeps(nn.Module):
    """A method sets it."""

    def keep(self, x: Tensor) -> Tensor:
        self.kept = x + 0.5 * self.kept
        return self.kept

    def forward(self, x: Tensor) -> Tensor:
        self.kept = h = x[:, 0]
        for i in range(x.shape[1]):
            h = h + self.keep(x[:, i])
        return h


class Spiking(nn.Module):
    """A layer with a membrane, which is nothing at first; counted, and read where the loop is over."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.membrane: Tensor | None = None

    def step(self, x: Tensor) -> Tensor:
        self.membrane = self.layer(x) if self.membrane is None else 0.9 * self.membrane + self.layer(x)
        spikes = (self.membrane > 0.4).float()
        self.membrane = self.membrane - 0.4 * spikes
        return spikes

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.membrane, self.steps = None, 0
        outputs = []
        for t in range(x.shape[1]):
            outputs.append(self.step(x[:, t]))
            self.steps += 1
        assert self.membrane is not None
        return torch.stack(outputs, 1), self.membrane * self.steps


class Buffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((4,), 0.25))

    def forward(self, x: Tensor) -> Tensor:
        mean = self.mean
        for t in range(x.shape[1]):
            self.mean = 0.9 * self.mean + 0.1 * x[0, t]
        result, self.mean = self.mean, mean
        return x - result


class Remembers(nn.Module):
    """As often as the values say, perhaps never."""

    def forward(self, x: Tensor) -> Tensor:
        self.last = x
        while x.abs().max() > 0.3:
            x = x / 2
            self.last = self.last + x
        return self.last


class Membrane(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("held", torch.zeros(0), persistent=False)

    def forward(self, x: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
        self.held = held
        if self.held.shape != x.shape:
            self.held = torch.zeros_like(x)
        self.held = 0.9 * self.held + x
        return (self.held > 0.5).float(), self.held


class InAPart(nn.Module):
    """The passes call a module that sets it."""

    def __init__(self) -> None:
        super().__init__()
        self.membrane = Membrane()

    def forward(self, x: Tensor) -> Tensor:
        held, spikes = torch.zeros(0), []
        for t in range(x.shape[1]):
            spike, held = self.membrane(x[:, t], held)
            spikes.append(spike + held)
        return torch.stack(spikes)


class Solver:
    """An object that the model makes, with a state in one tuple."""

    def __init__(self, state: Tensor) -> None:
        self.state = (state, state.new_zeros(()))

    def step(self) -> None:
        y, t = self.state
        self.state = (y - 0.3 * y, t + 0.3)


def solved(x: Tensor) -> Tensor:
    solver = Solver(x)
    while solver.state[0].abs().max() > 0.2:
        solver.step()
    return solver.state[0] * (1 + solver.state[1])


def nested(x: Tensor) -> Tensor:
    solver = Solver(x)
    for i in range(x.shape[1]):
        for _ in range(x.shape[0]):
            solver.state = (solver.state[0] + x[:, i : i + 1], solver.state[1] + 1)
    return solver.state[0] * solver.state[1]


@pytest.mark.parametrize("model", [Attribute, Keeps, Spiking, Buffer, Remembers, InAPart, solved, nested])
def test_attributes_that_passes_hand_on(model: type[nn.Module], tmp_path: Path) -> None:
    compare(Idiom(model), tmp_path / "net.onnx")
