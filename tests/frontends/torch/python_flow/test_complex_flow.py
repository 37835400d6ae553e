"""Complex numbers that branches choose and loops carry: pairs cross the border of a graph as pairs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.frontends.torch.python_flow.harness import BOTH, SCALES, Program, agree


def chosen(x: Tensor) -> Tensor:
    z = torch.fft.rfft(x)
    if x.sum() > 0:
        z = z * 2j
    return torch.fft.irfft(z, n=3)


def chosen_or_real(x: Tensor) -> Tensor:
    z = torch.fft.rfft(x) if x.sum() > 0 else torch.complex(x[:, :2], torch.zeros(len(x), 2))
    return torch.view_as_real(z)


def written_on_one_side(x: Tensor) -> Tensor:
    z = torch.zeros(len(x), 2, dtype=torch.complex64)
    if x.mean() > 0:
        z[:, 1] = torch.fft.rfft(x)[:, 0]
    return z.abs()


def kept_by_passes(x: Tensor) -> Tensor:
    state = torch.zeros(3, dtype=torch.complex64)
    states = []
    for row in range(len(x)):
        state = state * (0.5 + 0.3j) + x[row]
        states.append(state)
    return torch.view_as_real(torch.stack(states))


def until_large(x: Tensor) -> Tensor:
    z = torch.polar(torch.ones_like(x), x)
    while z.abs().max() < 5:
        z = z * (1 + 1j)
    return z.imag


PROGRAMS = [
    Program(chosen, SCALES),
    Program(chosen_or_real, BOTH),
    Program(written_on_one_side, SCALES),
    Program(kept_by_passes, SCALES, ["Loop"]),
    Program(until_large, SCALES, ["Loop"]),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_programs(program: Program) -> None:
    agree(program)


def test_torch_cond() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: torch.fft.rfft(y), lambda y: torch.fft.rfft(y) * 2, (x,)).abs()

    agree(Program(model, SCALES))
