"""Loops that depend on the values of tensors: they become Loop, from the user's plain code."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import tonnx
from tests.frontends.torch.python_flow.harness import SCALES, Program, agree, ramp


def doubles(x: Tensor) -> Tensor:
    while x.abs().sum() < 100:
        x = x * 2 + 1
    return x


def counts(x: Tensor) -> tuple[Tensor, int]:
    passes = 0
    while x.abs().max() > 1:
        x = x / 2
        passes += 1
    return x, passes


def until_break(x: Tensor) -> tuple[Tensor, int]:
    i = 0
    while True:
        x = x + 1
        i += 1
        if x.sum() > 20:
            break
        if i > 10:
            x = x * 0
            break
    return x, i


def until_done(x: Tensor) -> tuple[Tensor, Tensor]:
    done, total = False, 0
    while not done:
        x = x * 0.5
        total = total + x.sum()
        done = x.abs().max() < 0.1
    return x, total


def bisection(x: Tensor) -> Tensor:
    low, high = torch.tensor(0.0), torch.tensor(100.0)
    while high - low > 1e-3:
        middle = (low + high) / 2
        if middle * middle < x.abs().mean():
            low = middle
        else:
            high = middle
    return low


def keeps_apart(x: Tensor) -> Tensor:
    kept = []
    left = x[:, 0].argsort(descending=True)
    while left.numel() > 0:
        kept.append(left[0])
        left = left[(x[left] - x[left[0]]).abs().sum(1) > 1.0]
    return torch.stack(kept)


def range_of_a_tensor(x: Tensor, n: Tensor) -> Tensor:
    for i in range(n):
        x = x * 2 + i
    return x


def compares(x: Tensor) -> Tensor:
    if torch.equal(x, x.abs()):
        return x + 1
    return x - 1 if torch.allclose(x, -x.abs(), atol=1e-3) else x


def compares_by_another_name(x: Tensor) -> Tensor:
    same = torch.equal
    return x + same(x, x.abs())


def newton(x: Tensor) -> Tensor:
    x = x.abs() + 1
    guess = x
    for _ in range(50):
        better = (guess + x / guess) / 2
        if (better - guess).abs().max() < 1e-3:
            return better
        guess = better
    return guess * 0


def breaks_and_continues(x: Tensor) -> Tensor:
    total = torch.zeros(())
    for i in range(8):
        x = x * 1.5
        if x.max() < 1:
            continue
        total = total + x.max() * i
        if total > 50:
            break
    else:
        total = total - 1
    return total


def collatz(n: Tensor) -> tuple[Tensor, int]:
    steps, value = 0, int(n)
    while value != 1:
        value = value // 2 if value % 2 == 0 else 3 * value + 1
        steps += 1
    return n * 0, steps


def for_int(x: Tensor, n: Tensor) -> Tensor:
    y = x
    for i in range(int(n)):
        y = y + x * i
    return y


def suppressed(x: Tensor) -> Tensor:
    """What of several intervals is kept: those that a better one does not cover, one of which may be the last."""
    order, kept = x[:, 0].sort(descending=True)[1], []
    while order.numel() > 0:
        if order.numel() == 1:
            kept.append(order.item())
            break
        best = order[0].item()
        kept.append(best)
        order = order[1:][(x[order[1:], 0] - x[best, 0]).abs() > 0.5]
    return torch.LongTensor(kept)


def stacked(x: Tensor, n: Tensor) -> Tensor:
    parts = []
    for i in range(n.item()):
        parts.append(x[0] * i)
    return torch.stack(parts)


def kept_rows(x: Tensor) -> Tensor:
    kept = [x[0]]
    for row in x:
        if row.sum() > 0:
            kept.append(row * 2)
    return torch.stack(kept)


def filtered(x: Tensor) -> Tensor:
    return torch.stack([x[0]] + [row for row in x if row.max() > 0])


def nested_loops(x: Tensor) -> Tensor:
    total = torch.zeros(())
    for i in range(x.shape[0]):
        row = x[i]
        if row.sum() > 0:
            total = total + row.max() if row.max() > 1 else total - 1
        elif row.min() < -1:
            passes = 0
            while total > 0 and passes < 3:
                total = total / 2 - 0.1
                passes += 1
    return total


def finds_first(x: Tensor) -> Tensor:
    for i in range(x.shape[0]):
        if x[i].sum() > 0:
            return x[i] * (i + 1)
    return x[0]


def grows(x: Tensor) -> Tensor:
    y = x[:1]
    while y.shape[0] < 5 and y.sum() < 10:
        y = torch.cat([y, y[-1:] + 1])
    return y


def dict_of_states(x: Tensor) -> tuple[Tensor, int]:
    state = {"x": x, "n": 0}
    while state["x"].abs().max() > 1:
        state["x"] = state["x"] * 0.5
        state["n"] += 1
    return state["x"], state["n"]


def writes_in_a_loop(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    i = 0
    while i < x.shape[0] and out.sum() < 4:
        out[i] = x[i].abs() + 1
        i += 1
    return out


class Decoder(nn.Module):
    """Greedy: a GRU cell until the end token or a limit."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding, self.cell, self.head = nn.Embedding(9, 8), nn.GRUCell(8, 8), nn.Linear(8, 9)
        self.end, self.limit = 3, 12

    def step(self, token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.cell(self.embedding(token), state)
        return self.head(state).argmax(-1), state

    def forward(self, state: Tensor) -> Tensor:
        token, tokens = torch.zeros(1, dtype=torch.long), []
        while len(tokens) < self.limit:
            token, state = self.step(token, state)
            if token.item() == self.end:
                break
            tokens.append(token)
        return torch.cat([torch.zeros(1, dtype=torch.long), *tokens]) if len(tokens) == 0 else torch.cat(tokens)


class GrowingDecoder(Decoder):
    """The same, with one tensor that grows."""

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        tokens, done = torch.zeros(1, 1, dtype=torch.long), False
        while not done and tokens.shape[1] < self.limit:
            token, state = self.step(tokens[:, -1], state)
            tokens = torch.cat([tokens, token[:, None]], dim=1)
            done = (token == self.end).all()
        return tokens, state


class NumberDecoder(Decoder):
    """The same, with Python's numbers."""

    def forward(self, state: Tensor) -> Tensor:
        token, tokens = 0, [0]
        for _ in range(self.limit):
            next_token, state = self.step(torch.tensor([token]), state)
            token = int(next_token)
            tokens.append(token)
            if token == self.end:
                break
        return torch.tensor(tokens)


class BatchDecoder(Decoder):
    """The same for a batch, until all are done."""

    def forward(self, state: Tensor) -> Tensor:
        token = torch.zeros(state.shape[0], dtype=torch.long)
        finished, outputs = torch.zeros(state.shape[0], dtype=torch.bool), []
        for _ in range(self.limit):
            token, state = self.step(token, state)
            outputs.append(torch.where(finished, torch.full_like(token, self.end), token))
            finished = finished | (token == self.end)
            if finished.all():
                break
        return torch.stack(outputs, 1)


def seeded(count: int, *shape: int) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [[torch.randn(shape, generator=generator) * 2] for _ in range(count)]


NUMBERS = [[ramp(rows, 3), torch.tensor(n)] for rows, n in ((4, 4), (4, 1), (2, 7))]

LOOPS = [
    Program(doubles, SCALES, ["Loop"]),
    Program(counts, SCALES, ["Loop"]),
    Program(until_break, SCALES, ["Loop"]),
    Program(until_done, SCALES, ["Loop"]),
    Program(bisection, SCALES, ["Loop", "If"]),
    Program(keeps_apart, SCALES, ["Loop"]),
    Program(range_of_a_tensor, NUMBERS, ["Loop"]),
    Program(compares, SCALES),
    Program(newton, SCALES, ["Loop", "If"]),
    Program(breaks_and_continues, SCALES, ["Loop", "If"]),
    Program(collatz, [[torch.tensor([n])] for n in (6, 1, 7, 8)], ["Loop", "If"], dynamic=False),
    Program(for_int, NUMBERS, ["Loop"]),
    Program(stacked, NUMBERS, ["Loop"]),
    Program(kept_rows, [*SCALES[:-1], [ramp(6, 3, shift=0.4)]], ["Loop", "If"]),
    Program(filtered, [*SCALES[:-1], [ramp(6, 3, shift=0.4)]], ["Loop", "If"]),
    Program(nested_loops, SCALES, ["Loop", "If"]),
    Program(finds_first, SCALES, ["Loop", "If"]),
    Program(grows, SCALES, ["Loop"]),
    Program(dict_of_states, SCALES, ["Loop"]),
    Program(writes_in_a_loop, SCALES, ["Loop"]),
    Program(suppressed, [[ramp(6, 3, shift=0.4)], [ramp(1, 3)], [ramp(9, 3) / 9], [torch.ones(4, 3)]], ["Loop", "If"]),
    Program(Decoder(), seeded(10, 1, 8), ["Loop"], dynamic=False),
    Program(GrowingDecoder(), seeded(10, 1, 8), ["Loop"], dynamic=False),
    Program(NumberDecoder(), seeded(10, 1, 8), ["Loop"], dynamic=False),
    Program(BatchDecoder(), seeded(5, 3, 8) + seeded(5, 1, 8), ["Loop"]),
    Program(compares_by_another_name, SCALES, ["Equal"]),
]


@pytest.mark.parametrize("program", LOOPS, ids=lambda p: p.name)
def test_programs(program: Program) -> None:
    agree(program)


@pytest.mark.parametrize("opset", [11, 13, 23])
@pytest.mark.parametrize("program", [LOOPS[4], LOOPS[21]], ids=lambda p: p.name)
def test_opsets(program: Program, opset: int) -> None:
    agree(program, opset)


def test_sizes_of_an_attempt_are_not_known_outside() -> None:
    """The outer loop is recorded twice: what the first attempt has found of `found` is none of the second's numbers."""

    def places(mask: Tensor, keys: Tensor) -> Tensor:
        out = torch.full((mask.shape[0], 1, 16), -1)
        for i in range(mask.shape[0]):
            for j in range(mask.shape[1]):
                found = torch.nonzero(mask[i, j]).flatten()
                best = found[keys[i].index_select(0, found).topk(2).indices] if len(found) > 1 else found
                out[i, j, : best.numel()] = best
        return out

    mask = torch.arange(26).reshape(2, 1, 13) % 3 > 0
    tonnx.export(
        places, (mask, ramp(2, 13)), dynamic_axes={"mask": {0: "batch", 2: "total"}, "keys": {0: "batch", 1: "total"}}
    )
