"""What libraries write around the shapes of tensors: shapes compared as a whole, masks of bytes, tensors compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.frontends.torch.capture.test_idioms import Idiom, compare
from tests.frontends.torch.capture.test_record import recorded


def mask_of_bytes(x: Tensor) -> tuple[Tensor, Tensor]:
    mask = (x > 0.5).to(torch.uint8)
    return torch.where(mask, x, 2 * x), x.where(condition=mask, other=-x)


def equal_of_other_sizes(x: Tensor) -> Tensor:
    even, odd = 0 * x[:, ::2], 0 * x[:, 1::2]
    return x + 1 if torch.equal(even, odd) else x * 2


def shapes_compared(x: Tensor) -> Tensor:
    y = F.interpolate(F.avg_pool1d(x.mT, 2), scale_factor=2)
    if y.shape[1:] != x.mT.shape[1:]:
        y = F.interpolate(y, size=x.shape[1]) + 1
    return y


class UsualSizes(nn.Module):
    """A table for the usual sizes, something else for all others, as shifted windows have it."""

    def __init__(self) -> None:
        super().__init__()
        self.usual = (2, 6)
        self.register_buffer("table", torch.arange(12.0).reshape(2, 6, 1))

    def forward(self, x: Tensor) -> Tensor:
        sizes = (x.shape[0], x.shape[1])
        return x + self.table if self.usual == sizes else x * 2 + torch.arange(sizes[1])[:, None]


def pictures(b: int, n: int) -> Tensor:
    return torch.rand(b, 3, n, 8)


def nearest(x: Tensor) -> Tensor:
    return F.interpolate(F.avg_pool2d(x, 2, 1), scale_factor=2)


SHAPES = [
    Idiom(mask_of_bytes), Idiom(equal_of_other_sizes), Idiom(shapes_compared),
    Idiom(UsualSizes), Idiom(UsualSizes, sizes=((2, 9), (2, 6), (3, 6))),
    Idiom(nearest, example=pictures),
]  # fmt: skip


@pytest.mark.parametrize("idiom", SHAPES, ids=str)
def test_shapes(idiom: Idiom, tmp_path: Path) -> None:
    compare(idiom, tmp_path / "net.onnx")


@pytest.mark.parametrize("model", [mask_of_bytes, nearest])
def test_shapes_are_found_by_the_recorder(model: Any) -> None:
    recorded(model, pictures(2, 6), axes={"x": {0: "b", 2: "n"}})


def test_what_sympy_cannot_solve_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unsolved(*args: object) -> None:
        raise NotImplementedError("the inequality cannot be solved")

    monkeypatch.setattr("sympy.solvers.inequalities.reduce_inequalities", unsolved)
    compare(Idiom(shapes_compared), tmp_path / "net.onnx")
