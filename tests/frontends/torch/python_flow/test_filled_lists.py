"""Lists whose places are set one by one, as long as a size says; and lists of a tensor's numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.lowering.harness import Case, check

_Program = Callable[..., torch.Tensor]


def empty(x: torch.Tensor) -> torch.Tensor:
    outputs, h = [None] * x.shape[1], torch.zeros(x.shape[0])
    for t in range(x.shape[1]):
        h = torch.tanh(h + x[:, t])
        outputs[t] = h
    return torch.stack(outputs, 1)


def backwards(x: torch.Tensor) -> torch.Tensor:
    outputs, h = [None for _ in range(x.shape[1])], torch.zeros(x.shape[0])
    for t in range(x.shape[1] - 1, -1, -1):
        h = torch.tanh(h + x[:, t])
        outputs[t] = h.unsqueeze(1)
    return torch.cat(outputs, 1)


def zeros(x: torch.Tensor) -> torch.Tensor:
    outputs = [0] * x.shape[1]
    for t in reversed(range(x.shape[1])):
        outputs[t] = x[:, t] * t
    return torch.stack(outputs, 1)


def numbers(x: torch.Tensor) -> torch.Tensor:
    squares, means = [0] * x.shape[1], [0.0] * x.shape[1]
    for t in range(x.shape[1]):
        squares[t] = t * t + 1
        means[t] = x[:, t].mean()
    return torch.stack(means) * torch.tensor(squares)


def fractions(x: torch.Tensor) -> torch.Tensor:
    weights = [1] * x.shape[1]
    for t in range(1, x.shape[1]):
        weights[t] = 0.5 * t
    return x * torch.tensor(weights)


def on_both_sides(x: torch.Tensor) -> torch.Tensor:
    outputs, h = [None] * x.shape[1], torch.zeros(x.shape[0])
    for t in range(x.shape[1]):
        h = h + x[:, t]
        if h.sum() > 0:
            outputs[t] = h
        else:
            outputs[t] = h * 2
    return torch.stack(outputs, 1)


def the_one_before(x: torch.Tensor) -> torch.Tensor:
    outputs = [None] * x.shape[1]
    for t in range(x.shape[1]):
        before = outputs[t - 1] if t > 0 else torch.zeros(x.shape[0])
        outputs[t] = torch.tanh(x[:, t] + before)
    return torch.stack(outputs, 1)


def again(x: torch.Tensor) -> torch.Tensor:
    outputs = [x[:, t] for t in range(x.shape[1])]
    for _ in range(2):
        h = torch.zeros(x.shape[0])
        for t in range(len(outputs)):
            h = torch.tanh(h + outputs[t])
            outputs[t] = h
    return torch.stack(outputs, 1)


@pytest.mark.parametrize(
    "program",
    [empty, backwards, zeros, numbers, fractions, on_both_sides, the_one_before, again],
    ids=lambda each: each.__name__,
)
def test_places(program: _Program) -> None:
    check(Case(program.__name__, program, [torch.randn(2, 7)], "all", has=["Loop"]))


def _means(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.stack([x[i, :n].mean() for i, n in enumerate(lengths.tolist())])


_LENGTHS: dict[str, _Program] = {
    "enumerated": _means,
    "beside rows": lambda x, n: torch.stack([row[k - 1] for row, k in zip(x, n.tolist(), strict=True)]),
    "mapped": lambda x, n: torch.stack([x[i, :k].sum() for i, k in enumerate(map(int, n.tolist()))]),
    "the longest": lambda x, n: x[:, : max(n.tolist())] * min(n.tolist()),
    "added up": lambda x, n: x * sum(n.tolist()) / len(n.tolist()),
    "parts": lambda x, n: torch.stack([part.sum() for part in torch.split(x[0], n.tolist())]),
}

_BEYOND = {"beside rows": "out of bounds", "parts": "to sum exactly"}


@pytest.mark.parametrize("name", _LENGTHS)
def test_numbers_of_a_tensor(name: str) -> None:
    shapes, beyond = {0: {0: "b", 1: "n"}, 1: {0: "b"}}, _BEYOND.get(name)
    check(Case(name, _LENGTHS[name], [torch.randn(2, 6), torch.tensor([4, 2])], shapes, left_out=beyond))


def test_shape_by_map() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        b, n = map(int, x.shape)
        return x.reshape(b * n) + torch.arange(b * n)

    check(Case("map", model, [torch.randn(2, 7)], "all"))
