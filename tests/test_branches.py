"""Branches and loops that depend on the values of tensors: they become If and Loop, from the user's plain code."""
# ruff: noqa: SIM108 (the programs are written as users write them)

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import tonnx
from tonnx.proof import Session


@dataclass
class Program:
    """A model, inputs that take every way through it (the first is the example), and what must be in the file."""

    model: Callable[..., Any] | nn.Module
    inputs: Sequence[Sequence[Tensor]]
    has: Sequence[str] = ("If",)
    dynamic: bool = True
    """Whether the first axis of the inputs is."""

    @property
    def name(self) -> str:
        return str(getattr(self.model, "__name__", type(self.model).__name__))


def export(program: Program, opset: int = 18) -> tonnx.ExportResult:
    inputs = tuple(x.clone() for x in program.inputs[0])
    names = [f"in{i}" for i in range(len(inputs))]
    axes = {name: {0: "n"} for name, x in zip(names, inputs, strict=True) if x.dim() and program.dynamic}
    options = {"input_names": names, "dynamic_axes": axes, "opset_version": opset, "capture": "export"}
    return tonnx.export(program.model, inputs, None, **options, verify=False)  # `agree` compares, on more inputs


def agree(program: Program, opset: int = 18) -> tonnx.ExportResult:
    """Export, and compare with PyTorch on all inputs."""
    result = export(program, opset)
    kinds = {node.op_type for node in result.model.graph.all_nodes()}
    assert set(program.has) <= kinds, f"{program.has} not in {sorted(kinds)}"
    assert result.model.opset_imports[""] == opset
    session = Session(result.proto.SerializeToString())
    model = program.model.eval() if isinstance(program.model, nn.Module) else program.model
    for inputs in program.inputs:
        feeds = {f"in{i}": x.numpy().copy() for i, x in enumerate(inputs)}
        found = list(session.run(feeds).values())
        with torch.no_grad():
            wanted = pytree.tree_leaves(model(*[x.clone() for x in inputs]))
        for got, want in zip(found, wanted, strict=True):
            want = np.asarray(want.numpy() if isinstance(want, Tensor) else want)
            assert got.shape == want.shape, f"{got.shape} instead of {want.shape}"
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return result


def ramp(*shape: int, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    count = math.prod(shape)
    return torch.linspace(-1, 1, count).reshape(shape) * scale + shift


BOTH = [[ramp(4, 3, shift=1)], [ramp(4, 3, shift=-1)], [ramp(2, 3, shift=1)], [ramp(7, 3, shift=-1)]]
"""Positive and negative sums, at several sizes."""
SCALES = [[ramp(4, 3, scale=s, shift=t)] for s in (0.5, 3.0, 40.0) for t in (0.4, 2.0, -2.0)] + [
    [ramp(1, 3, shift=0.4)]
]


# Branches


def simple(x: Tensor) -> Tensor:
    if x.sum() > 0:
        y = x * 2
    else:
        y = x - 1
    return y


def one_sided(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x * 2
    return x + 1


def chain(x: Tensor) -> Tensor:
    mean = x.mean()
    if mean > 1:
        factor, y = 1, x
    elif mean > 0:
        factor, y = 2, x * 3
    else:
        factor, y = 3, -x
    return y * factor


def early_returns(x: Tensor) -> Tensor:
    if x.max() > 30:
        return x * 0
    y = x + 1
    if x.min() < -2:
        return y * 5
    if x.max() > 2:
        y = y - 3
    return y * 2


def returns_in_nested_ifs(x: Tensor) -> Tensor:
    if x.max() > 2:
        if x.min() < -2:
            return x * 10
        x = x + 1
    else:
        if x.sum() > 0:
            return -x
    return x / 2


def conditional_expression(x: Tensor) -> Tensor:
    return (x if x.sum() > 0 else -x) + (1 if x.max() > 2 else 2)


def words(x: Tensor) -> Tensor:
    if (x.sum() > 0 and x.max() < 10) or not x.min() < 0:
        return x + 1
    return x - 1


def lazy_and(x: Tensor) -> Tensor:
    rows = x[x[:, 0] > 0]
    if rows.shape[0] > 0 and rows.max() > 1:
        return x + 1
    return x - 1


def truth_values(x: Tensor) -> tuple[Tensor, Tensor]:
    positive = x.sum() > 0
    large = x.max() > 2
    either = positive or large
    y = x * 2 if bool(positive) else x
    return y if either else -y, torch.zeros(1) + (positive and not large)


def between(x: Tensor) -> Tensor:
    if -0.5 < x.mean() < 0.5:
        return x
    return x / 2


def contained(x: Tensor) -> Tensor:
    label = x.sum(0).argmax()
    if label in (0, 2):
        return x * 2
    if label.item() not in [0, 2]:
        x = x - 1
    return x


def item(x: Tensor) -> Tensor:
    if x.sum().item() > 0:
        return x + x.max().item()
    return x - 1


def integers(x: Tensor) -> Tensor:
    count = int((x > 0).sum())
    if count > 3 and float(x.max()) > 1.0:
        return x * count
    return x - count


def numbers(x: Tensor) -> tuple[Tensor, Tensor]:
    rows, weight = 1, 0.5
    if x.sum() > 0:
        rows, weight = 2, 0.25
    return x[:rows] * weight, x.new_ones(rows, 2)


def largest(x: Tensor) -> Tensor:
    top = max(x.sum(), x.max() * 2)
    return x * min(int(top), 3) + (1 if any([x.max() > 2, x.min() < -2]) else 0)


def shapes_differ(x: Tensor) -> Tensor:
    if x.sum() > 0:
        y = x[:1]
    else:
        y = torch.cat([x, x])
    return y * 2 + y.sum(0)


def only_on_one_side(x: Tensor) -> Tensor:
    found = False
    if x.sum() > 0:
        found = True
        top = x.max()
    if found:
        return x + top
    return x


def writes_in_place(x: Tensor) -> Tensor:
    y = x.clone()
    view = y[0]
    if x.sum() > 0:
        y[0] = 5
        y += 1
    else:
        view.mul_(2)
    return y + view


def writes_to_the_input(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x[0] = 7
    return x * 2


def tuples_and_dicts(x: Tensor) -> Tensor:
    state = {"a": x, "pair": (x, 1)}
    if x.sum() > 0:
        state = {"a": x + 1, "pair": (x * 2, 3)}
    else:
        state["a"] = x - 1
    return state["a"] * state["pair"][1] + state["pair"][0]


def lists(x: Tensor) -> Tensor:
    parts = [x]
    if x.sum() > 0:
        parts.append(x * 2)
        parts[0] = x + 1
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def in_a_with(x: Tensor) -> Tensor:
    with torch.no_grad():
        if x.sum() > 0:
            return x + 1
        y = x * 3
    return y - 2


def outer(x: Tensor) -> Tensor:
    y = x

    def change(z: Tensor) -> None:
        nonlocal y
        if z.sum() > 0:
            y = z * 2
        else:
            y = z * 3

    change(x)
    return y + (lambda z: z if z.sum() > 0 else -z)(x)


def by_size_and_value(x: Tensor) -> Tensor:
    if x.shape[0] > 3 and x.sum() > 0:
        return x[:3] + 1
    if x.shape[0] > 5:
        x = x * 2
    return x


def by_size(x: Tensor) -> Tensor:
    if x.shape[0] % 2 == 1:
        x = torch.cat([x, x[:1]])
    return x.reshape(-1, 2, 3) * int(x.shape[0])


def by_a_far_size(x: Tensor) -> Tensor:
    if x.shape[0] > 20:
        return x[:20] * 2
    if x.numel() >= 30:
        x = x - 5
    return x + 1


def by_size_one(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x * 2
    if len(x) == 1:
        return x * 100
    return x


def by_cases(x: Tensor) -> Tensor:
    match int(x.abs().max()):
        case 0:
            return x
        case 1 | 2:
            y = x * 2
        case 3 | 4 | 5 if x.sum() > 0:
            y = x / 3
        case _:
            y = -x
    match int(y.abs().sum()) // 10:
        case 0:
            y = y + 1
        case n:
            y = y * n
    return y


class Methods(nn.Module):
    """In a helper method, and both sides have weights; an attribute is set on both."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.small, self.large = nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

    def pick(self, x: Tensor) -> Tensor:
        if x.abs().max() > 2:
            self.used = x.max()
            return self.large(x)
        self.used = x.min()
        return self.small(x)

    def forward(self, x: Tensor) -> Tensor:
        y = self.pick(x)
        if y.sum() > 0:
            y = self.pick(x * 10)
        return y + self.used


class Base(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x * 3


class Derived(Base):
    """super() in a branch."""

    def forward(self, x: Tensor) -> Tensor:
        if x.max() > 2:
            return super().forward(x)
        return super().forward(-x)


class EarlyExit(nn.Module):
    """A loop over layers that stops when it is sure."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
            if x.mean() > 0.5:
                break
        else:
            x = x - 1
        return x


class Interpolation(nn.Module):
    """Two frames; large motion is looked at in half the size."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)

    def between(self, a: Tensor, b: Tensor) -> Tensor:
        return self.outer(torch.relu(self.inner(torch.cat([a, b], 1))))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        motion = (a - b).abs()
        if motion.max() > 32:
            size = a.shape[-2:]
            half = [nn.functional.interpolate(x, scale_factor=0.5, mode="bilinear") for x in (a, b)]
            return nn.functional.interpolate(self.between(*half), size=size, mode="bilinear")
        return self.between(a, b)


FRAMES = [[ramp(2, 1, 8, 6, scale=s), ramp(2, 1, 8, 6, scale=-s)] for s in (1.0, 40.0)]
FRAMES += [[ramp(1, 1, 8, 6, scale=s), ramp(1, 1, 8, 6, shift=2)] for s in (1.0, 60.0)]

BRANCHES = [
    Program(simple, BOTH),
    Program(one_sided, BOTH),
    Program(chain, SCALES),
    Program(early_returns, SCALES),
    Program(returns_in_nested_ifs, SCALES),
    Program(conditional_expression, SCALES),
    Program(words, SCALES),
    Program(lazy_and, SCALES),
    Program(truth_values, SCALES),
    Program(between, SCALES),
    Program(contained, [[torch.eye(3)[[k]] + 1] for k in range(3)]),
    Program(item, BOTH),
    Program(integers, SCALES),
    Program(numbers, BOTH),
    Program(largest, SCALES),
    Program(shapes_differ, BOTH),
    Program(only_on_one_side, BOTH),
    Program(writes_in_place, BOTH),
    Program(writes_to_the_input, BOTH),
    Program(tuples_and_dicts, BOTH),
    Program(lists, BOTH),
    Program(in_a_with, BOTH),
    Program(outer, BOTH),
    Program(by_size_and_value, BOTH),
    Program(by_size, [[ramp(n, 3)] for n in (6, 5, 7, 2)]),
    Program(by_cases, [[ramp(2, 3, scale=s)] for s in (0.1, 1, 1.5, 5, -5, -50)]),
    Program(by_a_far_size, [[ramp(n, 3)] for n in (2, 9, 10, 20, 21, 40)]),
    Program(by_size_one, [[ramp(n, 3, shift=s)] for n in (3, 1, 2) for s in (-2, 2)]),
    Program(Methods(), SCALES),
    Program(Derived(), SCALES),
    Program(EarlyExit(), SCALES),
    Program(Interpolation(), FRAMES),
]


# Loops


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


NUMBERS = [[ramp(4, 3), torch.tensor(n)] for n in (4, 1, 7)]

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
    Program(kept_rows, SCALES[:-1], ["Loop", "If"]),
    Program(filtered, SCALES[:-1], ["Loop", "If"]),
    Program(nested_loops, SCALES, ["Loop", "If"]),
    Program(finds_first, SCALES, ["Loop", "If"]),
    Program(grows, SCALES, ["Loop"]),
    Program(dict_of_states, SCALES, ["Loop"]),
    Program(writes_in_a_loop, SCALES, ["Loop"]),
    Program(Decoder(), seeded(10, 1, 8), ["Loop"], dynamic=False),
    Program(GrowingDecoder(), seeded(10, 1, 8), ["Loop"], dynamic=False),
    Program(NumberDecoder(), seeded(10, 1, 8), ["Loop"], dynamic=False),
    Program(BatchDecoder(), seeded(5, 3, 8) + seeded(5, 1, 8), ["Loop"]),
]


@pytest.mark.parametrize("program", BRANCHES + LOOPS, ids=lambda p: p.name)
def test_programs(program: Program) -> None:
    agree(program)


@pytest.mark.parametrize("opset", [11, 13, 23])
@pytest.mark.parametrize(
    "program", [BRANCHES[3], BRANCHES[15], BRANCHES[17], LOOPS[4], LOOPS[21]], ids=lambda p: p.name
)
def test_opsets(program: Program, opset: int) -> None:
    agree(program, opset)


def test_dimensions_stay_dynamic() -> None:
    result = export(Program(shapes_differ, BOTH))
    (output,) = result.model.graph.outputs
    assert output.shape is not None and not isinstance(output.shape[0], int) and output.shape[1] == 3
    result = export(Program(simple, BOTH))
    assert str(result.model.graph.outputs[0].shape) == "[n,3]"


def test_checks_are_left_out_and_noted() -> None:
    def model(x: Tensor) -> Tensor:
        if torch.isnan(x).any():
            raise ValueError(f"not a number in {x}")
        assert x.abs().max() < 1e6, "too large"
        if x.max() > 1e5:
            print("large")
        return x * 2

    result = export(Program(model, BOTH))
    assert "If" not in {node.op_type for node in result.model.graph.all_nodes()}
    notes = "\n".join(result.notes)
    for line in ("if torch.isnan(x).any():", 'assert x.abs().max() < 1e6, "too large"', "if x.max() > 1e5:"):
        assert f": {line}" in notes and "a check of values is left out of the file: tests/test_branches.py:" in notes


def test_static_checks_still_fail() -> None:
    def model(x: Tensor) -> Tensor:
        if x.shape[1] != 4:
            raise ValueError("four columns are needed")
        return x * 2 if x.sum() > 0 else x

    with pytest.raises(tonnx.CaptureError, match="four columns are needed"):
        export(Program(model, BOTH))


def test_functions_are_put_back() -> None:
    code, method = simple.__code__, Methods.pick.__code__
    export(Program(simple, BOTH))
    export(Program(Methods(), SCALES))
    assert simple.__code__ is code and Methods.pick.__code__ is method


# What cannot be expressed


def nothing_on_one_side(x: Tensor) -> Tensor:
    found = None
    if x.sum() > 0:
        found = x
    return x if found is None else found * 2


def dtypes_differ(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x.int()
    return y * 2


def ranks_differ(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x.sum()
    return y * 2


def dtypes_returned(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x.long()
    return x


def functions_differ(x: Tensor) -> Tensor:
    function = torch.sin
    if x.sum() > 0:
        function = torch.cos
    return function(x)


def generates(x: Tensor) -> Tensor:
    def rows() -> Any:
        if x.sum() > 0:
            yield x
        yield x * 2

    return sum(rows())


class Holds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.kept: list[Tensor] = []
        if x.sum() > 0:
            self.kept.append(x)
        return torch.stack([x, *self.kept])


class Remembers(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.last = x
        while x.abs().max() > 1:
            x = x / 2
            self.last = self.last + x
        return self.last


def never_ends(x: Tensor) -> Tensor:
    return never_ends(x / 2) if x.abs().max() > 1 else x


def dtype_after_a_pass(x: Tensor) -> Tensor:
    y = x.int()
    while y.sum() < 10:
        y = y * 1.5 + 1
    return y


SIDES = "on one side and"
REFUSED = [
    (nothing_on_one_side, "if x.sum() > 0:", f"found is float32[?, 3] {SIDES} None on the other"),
    (dtypes_differ, "if x.sum() > 0:", f"y is int32[?, 3] {SIDES} float32[?, 3] on the other"),
    (ranks_differ, "if x.sum() > 0:", f"y is float32[] {SIDES} float32[?, 3] on the other"),
    (dtypes_returned, "if x.sum() > 0:", f"the result is int64[?, 3] {SIDES} float32[?, 3] on the other"),
    (functions_differ, "if x.sum() > 0:", f"function is a builtin_function_or_method {SIDES} a builtin"),
    (generates, "if x.sum() > 0:", "rows is a generator or a coroutine"),
    (Holds(), "if x.sum() > 0:", "the list of a module that a side fills is held elsewhere too"),
    (Remembers(), "while x.abs().max() > 1:", "its body sets the attribute last of a Remembers"),
    (never_ends, "return never_ends(x / 2)", "RecursionError"),
    (dtype_after_a_pass, "while y.sum() < 10:", "y is int32[?, 3] before a pass and float32[?, 3] after it"),
]


@pytest.mark.parametrize("model, line, reason", REFUSED, ids=[reason for *_, reason in REFUSED])
def test_refused(model: Any, line: str, reason: str) -> None:
    with pytest.raises(tonnx.CaptureError) as caught:
        export(Program(model, BOTH))
    text = str(caught.value)
    name = type(model).__name__ if isinstance(model, nn.Module) else model.__name__
    assert f"the control flow of {name} depends on the values of a tensor" in text
    assert f"where: tests/test_branches.py:{caught.value.where.split(':')[1]}: {line}" in text  # type: ignore[union-attr]
    assert "it cannot become an If or a Loop of ONNX, since" in text and reason in text
    assert "torch.where" in text and "torch.cond" in text and "torch.jit.script" in text and "out of the model" in text
    assert caught.value.data_dependent


def test_a_write_to_what_a_branch_chose() -> None:
    def model(x: Tensor) -> Tensor:
        a = x * 1
        y = a if x.sum() > 0 else a * 2
        y += 1
        return y + a

    with pytest.raises(tonnx.LoweringError, match="a tensor that a branch chose is written in place, and mul"):
        export(Program(model, BOTH))


def other_rank_far_away(x: Tensor) -> Tensor:
    if x.shape[0] > 20:
        return x.sum(0)
    return x + 1


def test_a_side_that_only_other_sizes_take_is_not_dropped_in_silence() -> None:
    result = tonnx.export(
        other_rank_far_away, torch.ones(3, 2), input_names=["x"], dynamic_axes={"x": [0]}, capture="export"
    )
    (note,) = (note for note in result.notes if note.startswith("[!]"))
    assert "other sizes take another side, which is not in the file: tests/test_branches.py" in note
    assert "if x.shape[0] > 20:" in note
