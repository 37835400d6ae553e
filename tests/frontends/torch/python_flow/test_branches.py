"""Branches that depend on the values of tensors: they become If, from the user's plain code."""
# ruff: noqa: SIM108 (the programs are written as users write them)

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tonnx
from tests.frontends.torch.python_flow.harness import BOTH, SCALES, Program, agree, export, ramp
from tonnx.proof.session import Session

HERE = "tests/frontends/torch/python_flow/test_branches.py"


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
    Program(contained, [[torch.eye(3)[[k] * n] + 1] for n in (1, 4) for k in range(3)]),
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
    Program(by_cases, [[ramp(n, 3, scale=s)] for n in (2, 5) for s in (0.1, 1, 1.5, 5, -5, -50)]),
    Program(by_a_far_size, [[ramp(n, 3)] for n in (2, 9, 10, 20, 21, 40)]),
    Program(by_size_one, [[ramp(n, 3, shift=s)] for n in (3, 1, 2) for s in (-2, 2)]),
    Program(Methods(), SCALES),
    Program(Derived(), SCALES),
    Program(EarlyExit(), SCALES),
    Program(Interpolation(), FRAMES),
]


@pytest.mark.parametrize("program", BRANCHES, ids=lambda p: p.name)
def test_programs(program: Program) -> None:
    agree(program)


@pytest.mark.parametrize("opset", [11, 13, 23])
@pytest.mark.parametrize("program", [BRANCHES[3], BRANCHES[15], BRANCHES[17]], ids=lambda p: p.name)
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
        assert f": {line}" in notes and f"a check of values is left out of the file: {HERE}:" in notes


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


def test_a_size_of_one_says_nothing_about_a_branch() -> None:
    """One column fits anywhere, so that the program is right there although the branch is not in it."""

    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        scaled = x if x.shape[1] == 1 else x * 1.0
        state, last = torch.zeros(x.shape[0], 4), x
        if x.shape[1] < 4:
            last = nn.functional.pad(x, (4 - x.shape[1], 0)) if x.shape[1] > 1 else x.expand(-1, 4)
        state.copy_(last[:, -4:])
        return scaled, state

    result = tonnx.export(model, torch.randn(2, 7), dynamic_axes={"x": {1: "n"}})
    assert {2, 3} <= {trial.sizes["n"] for trial in result.verification.trials if trial.comparisons}  # type: ignore[union-attr]


def test_one_chunk_in_the_example_and_several_elsewhere() -> None:
    """What is 1 inside of the model is more at many times the example's size, and the proof tries both."""

    def model(x: Tensor) -> Tensor:
        parts = nn.functional.pad(x, (0, -x.shape[1] % 64)).reshape(x.shape[0], -1, 64)
        count = parts.shape[1]
        before = torch.ones(count, count).tril(-1).bool()
        totals = parts.sum(2)[:, None, :].expand(-1, count, count).masked_fill(~before, 0).sum(2)
        return (parts + totals[:, :, None]).flatten(1)[:, : x.shape[1]]

    result = tonnx.export(model, torch.randn(2, 7), dynamic_axes={"x": {1: "n"}})
    tried = {trial.sizes["n"] for trial in result.verification.trials if trial.comparisons}  # type: ignore[union-attr]
    assert {7, 64, 65} <= tried


def test_one_key_in_the_example_on_both_sides_of_a_branch() -> None:
    """What the program says of sizes inside of the sides is looked at where they are not 1, too."""

    class Reduced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reduce = nn.Conv2d(4, 4, 4, 4, groups=4)
            self.keys = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4, bias=False))

        def forward(self, x: Tensor) -> Tensor:
            b, c, h, w = x.shape
            times = max(int(math.log(h // 16, 4)), int(math.log(w // 16, 4)))
            if times < 2:
                times = 2
            y = x
            for _ in range(times):
                y = self.reduce(y)
            keys = self.keys(y.reshape(b, c, -1).permute(0, 2, 1).contiguous()).reshape(b, -1, 2, 2).permute(0, 2, 1, 3)
            picture = keys.transpose(1, 2).reshape(b, -1, c).mT.contiguous().view(b, c, h // 4**times, w // 4**times)
            queries = x.flatten(2).mT.reshape(b, -1, 2, 2).permute(0, 2, 1, 3)
            return (queries @ keys.mT).softmax(-1) @ (keys + picture.view(b, 2, 2, -1).mT)

    result = tonnx.export(Reduced(), torch.randn(2, 4, 16, 24), dynamic_axes={"x": {2: "h", 3: "w"}})
    tried = {trial.sizes["h"] for trial in result.verification.trials if trial.comparisons}  # type: ignore[union-attr]
    assert max(tried) >= 32


@pytest.mark.parametrize(("product", "square"), [(16, True), (12, False)], ids=["square", "product"])
def test_sizes_that_decide_together(product: int, square: bool) -> None:
    """No other height alone, and no other width, comes to the side of a table that fits as it is."""

    def model(x: Tensor) -> Tensor:
        h, w = x.shape[1:]
        return x * 2 if h * w == product and (h == w or not square) else x + 1

    result = tonnx.export(model, torch.randn(1, 5, 7), dynamic_axes={"x": {1: "h", 2: "w"}})
    session = Session(result.proto.SerializeToString())
    for shape in ((1, 4, product // 4), (1, 5, 7), (1, 8, 8)):
        x = torch.randn(shape)
        (got,) = session.run({"x": x.numpy()}).values()
        np.testing.assert_allclose(got, model(x).numpy(), rtol=1e-6)


def test_large_numbers_of_several_sizes_are_not_counted_up_to() -> None:
    """It would not end; nor is the model run at factors that no memory holds."""

    def model(x: Tensor) -> Tensor:
        h, w = x.shape[1:]
        return x * 2 if h * w in (2**61 - 1, 10**12) else x + 1

    result = tonnx.export(model, torch.randn(1, 5, 7), dynamic_axes={"x": {1: "h", 2: "w"}})
    assert result.verification is not None and result.verification.ok
