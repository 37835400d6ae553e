"""Sizes that go through tensors, and numbers of tensors that are asked for on one side of a branch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.frontends.torch.capture.test_idioms import Idiom, compare


def halves(x: Tensor) -> Tensor:
    half = torch.div(x.size(1), 2, rounding_mode="trunc")
    return x[:, : half * 2].view(x.size(0), half, 2, 4).sum(2)


def padded_to_fours(x: Tensor) -> Tensor:
    fours = torch.ceil(torch.tensor(x.size(1)) / 4).int()
    x = F.pad(x, (0, 0, 0, int(fours) * 4 - x.size(1)))
    return x.view(x.size(0), int(fours), 4, 4).sum(2)


def of_a_shape(x: Tensor) -> Tensor:
    sizes = torch.tensor(x.shape)
    n = sizes[1] // 2
    y = x[:, : n * 2].view(x.size(0), n, 2, 4)
    return y.reshape(y.numel() // 4, sizes.max() // sizes.max(), 4) + torch.maximum(sizes[1], sizes[0] - 3)


def power_of_two(x: Tensor) -> Tensor:
    """The length at which filters by Fourier transforms are quick."""
    length = (2 ** torch.ceil(torch.log2(torch.tensor(x.size(1) * 2 - 1)))).int()
    return torch.fft.irfft(torch.fft.rfft(x, length, dim=1) * 2, length, dim=1)[:, : x.size(1)]


def written_to(x: Tensor) -> Tensor:
    """What was a size, and is one no more."""
    n = torch.tensor(x.size(1))
    n.view(1).sub_(2)
    return x[:, : int(n)] * 2


def overlapping(x: Tensor) -> Tensor:
    """Windows over memory in which the axes lie in another order."""
    x = x.transpose(1, 2)
    size, gap = list(x.size()), list(x.stride())
    return x.as_strided((size[0], size[1], size[2] - 1, 2), (*gap, gap[2])).prod(-1)


class Twice(nn.Module):
    """Asks a tensor for places only where there are some, twice."""

    def chosen(self, x: Tensor, places: Tensor) -> Tensor:
        y = x * 2
        if places.any():
            y[places.nonzero(as_tuple=True)] = 0
        return y

    def forward(self, x: Tensor) -> Tensor:
        places = x[..., 0] > 0.5
        return self.chosen(self.chosen(x, places), places)


class AtTheEdge(nn.Module):
    """The example is as long as it must be: padding by nothing serves for it, but not for what is longer."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] < 6:
            x = F.pad(x, (0, 0, 6 - x.shape[1], 0))
        return x.cumsum(1)


MODELS = [halves, padded_to_fours, of_a_shape, power_of_two, written_to, overlapping, Twice, AtTheEdge]


@pytest.mark.parametrize("model", MODELS)
def test_sizes_in_tensors(model: type[nn.Module], tmp_path: Path) -> None:
    compare(Idiom(model, sizes=((2, 6), (3, 9), (1, 5), (2, 14))), tmp_path / "net.onnx")


@pytest.mark.parametrize("model", [halves, of_a_shape, power_of_two, overlapping])
def test_without_rewriting(model: type[nn.Module], tmp_path: Path) -> None:
    assert compare(Idiom(model), tmp_path / "net.onnx").capture == "recorder"


class Remembered(nn.Module):
    """A table that is made for longer inputs when one comes; dropout, which draws nothing in inference."""

    def __init__(self) -> None:
        super().__init__()
        self.known = 8
        self.register_buffer("table", torch.zeros(32, 4), persistent=False)
        self.table[: self.known] = torch.arange(8.0)[:, None] * 0.1 + 1

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        y = F.dropout(x, 0.5, self.training)
        return y * (self.table[:n] if n <= self.known else torch.arange(n)[:, None] * 0.1 + 1)


def test_dropout_hides_no_branch(tmp_path: Path) -> None:
    """Of what draws random numbers only shapes are compared."""
    model = Remembered().eval()
    compare(Idiom(model, sizes=((2, 6), (3, 8), (1, 5), (2, 14))), tmp_path / "net.onnx")
