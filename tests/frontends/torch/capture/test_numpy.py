"""NumPy inside of a model: on sizes, and on tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.frontends.torch.capture.test_idioms import Idiom, compare


def later_places(x: Tensor) -> Tensor:
    n = x.shape[1]
    hidden = np.triu(np.ones((1, n, n)), k=1).astype("uint8")
    return (x @ x.mT).masked_fill(torch.from_numpy(hidden) == 1, -1e9).softmax(-1) @ x


def turned_mask(x: Tensor) -> Tensor:
    seen = np.tril(np.ones((x.shape[1], x.shape[1]), dtype=bool))
    return (x @ x.mT).masked_fill(torch.from_numpy(~seen), -1e9).softmax(-1) @ x


def positions(x: Tensor) -> Tensor:
    places, axis = np.arange(x.shape[1])[:, np.newaxis], np.arange(x.shape[2])[np.newaxis, :]
    angles = places / np.power(100, (2 * (axis // 2)) / np.float32(x.shape[2]))
    angles[:, 0::2] = np.sin(angles[:, 0::2])
    angles[:, 1::2] = np.cos(angles[:, 1::2])
    return x + torch.from_numpy(angles).float()[None]


def ramp(x: Tensor) -> Tensor:
    weights = np.linspace(0.0, 1.0, x.shape[1]).reshape(1, -1, 1).astype(np.float32)
    return x * torch.from_numpy(weights) + torch.tensor(np.ones(x.shape[1]) / x.shape[1], dtype=x.dtype)[:, None]


def grid(x: Tensor) -> Tensor:
    parts = np.stack(np.meshgrid(np.arange(x.shape[1]), np.arange(x.shape[2]), indexing="ij"), -1)
    return x * torch.from_numpy(parts.astype(np.float32)).sum(-1)


def turned_round(x: Tensor) -> Tensor:
    return x[:, np.arange(x.shape[1])[::-1].copy()]


def a_part_by_sizes(x: Tensor) -> Tensor:
    shape = np.array(x.shape)
    return x[:, : shape[1] // 2] * shape[1]


def normed(x: Tensor) -> Tensor:
    values = x.detach().cpu().numpy()
    mean, spread = values.mean(axis=1, keepdims=True), values.std(axis=1, keepdims=True)
    return torch.from_numpy((values - mean) / (spread + 0.1)).float()


def joined(x: Tensor) -> Tensor:
    values = np.clip(x.numpy(), -1, 1)
    return torch.as_tensor(np.concatenate([values, values * 2], axis=1))


def picked(x: Tensor) -> Tensor:
    best = x.sum(-1).argmax(1).numpy()
    return x[torch.arange(x.shape[0]), torch.from_numpy(best)] + x[np.arange(x.shape[0]), best]


def up_to_the_largest(x: Tensor) -> Tensor:
    end = int(x.sum(-1).argmax(1).numpy()[0])
    return x[:, : end + 1].sum(1)


def chosen(x: Tensor) -> Tensor:
    return x * 2 if x.numpy().sum() > 0 else x


def row_by_row(x: Tensor) -> Tensor:
    rows = [x[i, place] for i, place in enumerate(x.sum(-1).argmax(1).numpy())]
    return torch.stack(rows)


PROGRAMS: list[Callable[[Tensor], Tensor]] = [
    later_places, turned_mask, positions, ramp, grid, turned_round, a_part_by_sizes, normed, joined, picked,
    up_to_the_largest, chosen, row_by_row,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_numpy(program: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    compare(Idiom(program), tmp_path / "net.onnx")
