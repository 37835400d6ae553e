"""Complex numbers that loops carry, and that branches choose: pairs of reals in the file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.lowering.harness import Case, check


def carried(x: torch.Tensor) -> torch.Tensor:
    h, outputs = torch.zeros(x.shape[0], dtype=torch.complex64), []
    for t in range(x.shape[1]):
        h = h * (0.3 + 0.4j) + x[:, t]
        outputs.append(h)
    return torch.view_as_real(torch.stack(outputs, 1))


def written(x: torch.Tensor) -> torch.Tensor:
    outputs = torch.zeros(x.shape[0], x.shape[1], dtype=torch.complex64)
    h = outputs[:, 0]
    for t in range(x.shape[1]):
        h = h * (0.3 + 0.4j) + x[:, t]
        outputs[:, t] = h
    return outputs.imag


def filled(x: torch.Tensor) -> torch.Tensor:
    z, outputs = torch.complex(x, x + 1), [None] * x.shape[1]
    for t in range(x.shape[1]):
        outputs[t] = z[:, t] * 1j
    return torch.stack(outputs, 1).real


def of_the_last_pass(x: torch.Tensor) -> torch.Tensor:
    for t in range(x.shape[1]):
        z = torch.complex(x[:, t], x[:, t] * 2)
    return torch.view_as_real(z)


def chosen(x: torch.Tensor) -> torch.Tensor:
    z = torch.fft.fft(x, dim=1)
    if z.abs().max() > 3:
        z = z * (0.5 + 0.5j)
        x = x + 1
    else:
        z = x.to(torch.complex64)
    return torch.view_as_real(z * x)


def written_on_one_side(x: torch.Tensor) -> torch.Tensor:
    z = torch.complex(x, x + 1)
    if x.sum() > 0:
        z += 1j
    return z.imag


@pytest.mark.parametrize(
    "program", [carried, written, filled, of_the_last_pass, chosen, written_on_one_side], ids=lambda each: each.__name__
)
def test_complex(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    check(Case(program.__name__, program, [torch.randn(2, 7)], "all"))


def test_size_that_nothing_read_before() -> None:
    def last(x: torch.Tensor) -> torch.Tensor:
        for t in range(x.shape[1]):
            z = x[:, t] * 2
        return z

    check(Case("last", last, [torch.randn(2, 7)], "all", has=["Loop"]))
