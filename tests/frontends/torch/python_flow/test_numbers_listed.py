"""Lists of as many numbers, or tuples of them, as a size says: ranges, comprehensions, repeated elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.lowering.harness import Case, check

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "list of a range": lambda x: x + torch.tensor(list(range(x.shape[1]))),
    "range": lambda x: x + torch.tensor(range(x.shape[1])),
    "range with steps": lambda x: x[:, list(range(0, x.shape[1], 2))],
    "the end of a range": lambda x: x.sum() + torch.tensor(list(range(x.shape[1]))[2:]).sum(),
    "backwards": lambda x: x + torch.tensor(list(range(x.shape[1]))[::-1]),
    "reversed": lambda x: x[:, list(reversed(range(x.shape[1])))],
    "how many": lambda x: x + len(range(0, x.shape[1], 3)),
    "added up": lambda x: x + sum(range(x.shape[1])),
    "computed": lambda x: x * torch.tensor([0.5 * i for i in range(x.shape[1])]),
    "by the name of a class": lambda x: x + torch.FloatTensor(list(range(x.shape[1]))),
    "one number again and again": lambda x: x + torch.tensor([1.5] * x.shape[1]),
    "a size again and again": lambda x: x.sum(1) + torch.tensor(x.shape[0] * [x.shape[1]]),
    "two numbers again and again": lambda x: x.repeat(1, 2) + torch.tensor([1, 2] * x.shape[1]),
    "tensors again and again": lambda x: torch.stack([x[0, 0], x[0, -1]] * x.shape[1]),
    "a fixed number of them": lambda x: x + torch.tensor([1, 2] * 2).sum(),
}


def spans(x: torch.Tensor) -> torch.Tensor:
    n, starts_and_ends, wider = x.shape[1], [], []
    for start in range(0, n, 3):
        starts_and_ends.append((start, min(n, start + 3)))
        wider.append((max(0, start - 1), min(n, start + 4)))
    parts = []
    for (a, b), (c, d) in zip(starts_and_ends, wider, strict=True):
        parts.append(x[:, a:b] + x[:, c:d].sum(1, keepdim=True))
    return torch.cat(parts, 1)


def tuples_of_tensors(x: torch.Tensor) -> torch.Tensor:
    pairs = []
    for i in range(x.shape[0]):
        pairs.append((x[i] * 2, x[i] + 1))
    return torch.stack([a * b for a, b in pairs])


def tuples_of_a_comprehension(x: torch.Tensor) -> torch.Tensor:
    opposites = [(i, x.shape[1] - 1 - i) for i in range(x.shape[1])]
    return torch.stack([x[:, a] - 2 * x[:, b] for a, b in opposites], 1)


def lists_of_numbers(x: torch.Tensor) -> torch.Tensor:
    boxes = []
    for i, j in itertools.product(range(x.shape[0]), range(x.shape[1])):
        boxes.append([(i + 0.5) / x.shape[0], (j + 0.5) / x.shape[1]])
        boxes.append([0.5 * i, 2.0])
    return x.sum() + torch.tensor(boxes)


def of_a_product(x: torch.Tensor) -> torch.Tensor:
    boxes = []
    for i, j, k in itertools.product(range(x.shape[1]), repeat=3):
        boxes += [i + 0.5, 10 * j - k]
    for (i,) in itertools.product(range(x.shape[0])):
        boxes += [i, 1.0]
    return torch.Tensor(boxes).view(-1, 2)


OF_SEVERAL = [spans, tuples_of_tensors, tuples_of_a_comprehension, lists_of_numbers, of_a_product]


@pytest.mark.parametrize("model", OF_SEVERAL, ids=lambda each: each.__name__)
def test_tuples(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    check(Case(model.__name__, model, [torch.randn(2, 7)], "all", has=["Loop"]))


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers(name: str) -> None:
    check(Case(name, PROGRAMS[name], [torch.randn(2, 7)], "all", has_not=["Loop"] if name != "computed" else []))
