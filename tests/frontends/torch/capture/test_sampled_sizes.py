"""Models whose sizes go through code that takes plain numbers only: recorded at several sizes, and made one."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tonnx
from tests.frontends.torch.capture.test_idioms import Idiom, compare, rows
from tonnx.frontends.torch.capture.sampled_sizes import following

_plain = operator.index
"""C, which gives a size as the number that it is in the example."""


def written(x: Tensor) -> Tensor:
    """By a program for one shape, as text."""
    b, n, d = map(_plain, x.shape)
    program = eval(f"lambda x: x.reshape({b * n}, {d}).cumsum(1).reshape({b}, {n}, {d}).mT.reshape({b}, {n * d})")
    return program(x) / n


def scaled(x: Tensor) -> tuple[Tensor, ...]:
    n = _plain(x.shape[1])
    places = torch.arange(n)[:, None] - torch.arange(n)
    sizes = torch.tensor([float(n), 2 * n, 1, 2])
    return x @ x.mT * n**-0.5 + places, nn.functional.pad(x, (0, 0, 1, 2 * n - 3)), x * sizes


class Inside(nn.Module):
    """Sizes that no input has."""

    def __init__(self) -> None:
        super().__init__()
        self.halved, self.mixed = nn.Conv1d(4, 4, 3, stride=2), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.halved(x.mT)
        half = _plain(y.shape[2])
        return self.mixed(y.reshape(-1, 4, half).mT.reshape(-1, 2 * half, 2).sum(1, keepdim=True).repeat(1, half, 2))


def mirrored(x: Tensor) -> Tensor:
    """Padded to a whole number of halves by places of NumPy, twice, as wavelets are."""
    for _ in range(2):
        n = _plain(x.shape[1])
        places = np.arange(-3, n + 3 + n % 2)
        places = np.where(places < 0, -1 - places, np.where(places < n, places, 2 * n - 1 - places))
        x = x[:, places].unfold(1, 6, 2).mean(-1)
    return x


@pytest.mark.parametrize("model", [written, scaled, Inside, mirrored])
def test_sizes_as_plain_numbers(model: Any, tmp_path: Path) -> None:
    result = compare(Idiom(model, "plain numbers was followed at b = 2, 3, 5, 8, n = 6, "), tmp_path / "net.onnx")
    assert result.capture == "several sizes"


class Table(nn.Module):
    """What it remembers of earlier calls serves a few sizes; what it computes, serves all."""

    def __init__(self) -> None:
        super().__init__()
        self.places = torch.arange(9) * 2.0

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        places = self.places[:n] if n <= 9 else torch.arange(_plain(n)) * 2.0
        return x + places[:, None]


def test_the_side_that_serves_all(tmp_path: Path) -> None:
    result = compare(Idiom(Table, sizes=((2, 6), (3, 9), (1, 20))), tmp_path / "net.onnx")
    assert result.capture == "several sizes"


def far(x: Tensor) -> Tensor:
    """Another way at a size that is not recorded, but judged by."""
    return x.reshape(_plain(x.shape[0]), -1) * (2 if _plain(x.shape[1]) > 40 else 1)


def steps(x: Tensor) -> Tensor:
    for _ in range(_plain(x.shape[1]) // 4):
        x = x.cumsum(1)
    return x


def power(x: Tensor) -> Tensor:
    return nn.functional.pad(x, (0, 0, 0, 2 ** (_plain(x.shape[1]) - 1).bit_length() - x.shape[1]))


def table(x: Tensor) -> Tensor:
    return x + torch.tensor([[float(i * i)] for i in range(_plain(x.shape[1]))])


@pytest.mark.parametrize("model", [far, steps, power, table])
def test_what_does_not_go_on_is_refused(model: Any) -> None:
    with pytest.raises(tonnx.CaptureError, match="the model fixes it to 6"):
        tonnx.export(model, (rows(2, 6),), dynamic_axes={"x": {0: "b", 1: "n"}})


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((6, 7, 11, 13), 100),
        ((5, 6, 10, 12), 99),
        ((9, 11, 19, 23), 197),
        ((12, 21, 55, 91), 700),
        ((36, 49, 121, 169), 10_000),
        ((2, 3, 5, 6), 49),
        ((3, 3, 5, 6), 50),
        ((4, 5, 6, 5), 5),
        ((2, 1, 5, 3), 4),
        ((8, 8, 16, 16), None),
        ((6, 7, 11, 14), None),
    ],
)
def test_following(numbers: tuple[int, ...], expected: int | None) -> None:
    """What a number is where other sizes are 100 and 7."""
    assert following(numbers, {(6, 7, 11, 13): 100, (2, 3, 5, 7): 7}) == expected
