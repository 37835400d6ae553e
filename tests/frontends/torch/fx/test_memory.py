"""Random programs of views and writes in place, beside what PyTorch computes; and writes that cannot be expressed.

A program is data: which tensor is looked at or written to, and how. Many run in one model, so that one capture serves.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tonnx
from tests.lowering.harness import assert_compared
from tonnx.errors import LoweringError

ROWS, COLUMNS = "rows", 6
View = Callable[[Tensor], Tensor]
VIEWS: dict[str, View] = {
    "x[1:]": lambda x: x[1:],
    "x[:, ::2]": lambda x: x[:, ::2],
    "x[..., -2:]": lambda x: x[..., -2:],
    "x[0]": lambda x: x[0],
    "x[..., 1]": lambda x: x[..., 1],
    "x.t()": lambda x: x.t(),
    "x.transpose(0, -1)": lambda x: x.transpose(0, -1),
    "x.unsqueeze(1)": lambda x: x.unsqueeze(1),
    "x.unsqueeze(0).squeeze(0)": lambda x: x.unsqueeze(0).squeeze(0),
    "x.flatten()": lambda x: x.flatten(),
    "x.reshape(-1, 2)": lambda x: x.reshape(-1, 2),
    "x.view(-1)": lambda x: x.view(-1),
    "x.unflatten(-1, (-1, 1))": lambda x: x.unflatten(-1, (-1, 1)),
    "x.movedim(0, -1)": lambda x: x.movedim(0, -1),
    "x.narrow(-1, 0, 1)": lambda x: x.narrow(-1, 0, 1),
    "x.split(2, -1)[0]": lambda x: x.split(2, -1)[0],
    "x.chunk(2, -1)[-1]": lambda x: x.chunk(2, -1)[-1],
    "x.unbind(-1)[-1]": lambda x: x.unbind(-1)[-1],
    "x.diagonal()": lambda x: x.diagonal(),
    "x.detach()": lambda x: x.detach(),
    "x.contiguous()": lambda x: x.contiguous(),
    "x.expand(...)": lambda x: x.expand(*x.shape),
}
"""Some are copies where the memory does not allow a view: PyTorch decides, and tonnx has to know."""
FIXED = {"x.split(2, -1)[0]", "x.chunk(2, -1)[-1]", "x.unbind(-1)[-1]"}
"""Views that need the size of the last axis, of which a capture makes a number."""
Write = Callable[[Tensor, Tensor], Any]


def assign(x: Tensor, y: Tensor) -> None:
    x[...] = y


WRITES: dict[str, Write] = {
    "x.add_(1.5)": lambda x, y: x.add_(1.5),
    "x.mul_(-2)": lambda x, y: x.mul_(-2),
    "x.relu_()": lambda x, y: x.relu_(),
    "x.fill_(3)": lambda x, y: x.fill_(3),
    "x.zero_()": lambda x, y: x.zero_(),
    "x.clamp_(max=2)": lambda x, y: x.clamp_(max=2),
    "x.copy_(y.sum())": lambda x, y: x.copy_(y.sum()),
    "x.add_(y.mean())": lambda x, y: x.add_(y.mean()),
    "x[...] = y.max()": lambda x, y: assign(x, y.max()),
    "x.masked_fill_(x > 1, 0.5)": lambda x, y: x.masked_fill_(x > 1, 0.5),
}


@dataclass(frozen=True)
class Step:
    """A view of, or a write to, the tensor ``of`` of those that there are; ``other`` gives a number that is written."""

    kind: str
    of: int
    other: int = 0


def generated(seed: int, length: int = 8) -> list[Step]:
    """Steps that PyTorch can do, at several sizes."""
    rng = random.Random(seed)
    steps: list[Step] = []
    count = 2
    while len(steps) < length:
        view = rng.random() < 0.55
        step = Step(rng.choice(list(VIEWS if view else WRITES)), rng.randrange(count), rng.randrange(count))
        try:
            runs = [played([*steps, step], base(size), base(size) / 3) for size in (1, 4, 7)]
        except (RuntimeError, IndexError, ValueError):  # a view that the memory or the rank does not allow
            continue
        if step.kind in FIXED and len({tensors[step.of].shape[-1:] for tensors in runs[1:]} | {()}) != 2:
            continue
        if len({tuple(map(tensors_sharing(tensors), tensors)) for tensors in runs}) > 1:
            continue  # a view of one row, and a copy of several: no graph is both
        steps.append(step)
        count += view
    return steps


def tensors_sharing(tensors: list[Tensor]) -> Callable[[Tensor], int]:
    """Gives the first tensor whose memory one shares."""
    places = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return lambda tensor: places.index(tensor.untyped_storage().data_ptr())


def base(size: int) -> Tensor:
    return torch.linspace(-3, 3, size * COLUMNS).reshape(size, COLUMNS)


def played(steps: list[Step], x: Tensor, y: Tensor) -> list[Tensor]:
    """All tensors of a program after its last step."""
    tensors = [x.clone(), y * 1]
    for step in steps:
        if step.kind in VIEWS:
            tensors.append(VIEWS[step.kind](tensors[step.of]))
        else:
            WRITES[step.kind](tensors[step.of], tensors[step.other])
    return tensors


class Programs(nn.Module):
    def __init__(self, programs: list[list[Step]]) -> None:
        super().__init__()
        self.programs = programs

    def forward(self, x: Tensor, y: Tensor) -> list[Tensor]:
        # The sum tells that a tensor differs; the two that own the memory tell where.
        results = []
        for steps in self.programs:
            one, two, *views = played(steps, x, y)
            results += [one, two, torch.stack([view.sum() for view in views])] if views else [one, two]
        return results


SEEDS = [range(8), range(8, 16)]


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_random_programs(seeds: range) -> None:
    programs = [generated(seed) for seed in seeds]
    axes = {name: {0: ROWS} for name in ("x", "y")}
    result = tonnx.export(Programs(programs), (base(4), base(4) / 3), dynamic_axes=axes, rtol=1e-4, atol=1e-4)
    assert result.verification is not None
    assert_compared(result.verification)


def test_the_programs_do_something() -> None:
    """Otherwise the test above proves nothing: most views see a write that was made through another tensor."""
    seen = 0
    programs = [generated(seed) for seeds in SEEDS for seed in seeds]
    kinds = {step.kind for steps in programs for step in steps}
    assert len(kinds) > 0.9 * (len(VIEWS) + len(WRITES))
    for steps in programs:
        written = [i for i, step in enumerate(steps) if step.kind in WRITES]
        before, after = played(steps[: written[-1]], base(4), base(4) / 3), played(steps, base(4), base(4) / 3)
        changed = [one for one, two in zip(before, after, strict=False) if not torch.equal(one, two)]
        seen += len(changed) > 1
    assert seen > len(programs) / 2


def overlapping(x: Tensor) -> Tensor:
    y = x.clone()
    y.as_strided((3, 2), (1, 1)).add_(1)
    return y


def other_bits(x: Tensor) -> Tensor:
    y = x.clone()
    y.view(torch.int32).add_(1)
    return y


@pytest.mark.parametrize("function", [overlapping, other_bits], ids=lambda f: f.__name__)
def test_what_cannot_be_expressed_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(LoweringError, match="cannot be expressed"):
        tonnx.export(function, (base(4),), capture="export")
