"""Branches whose sides leave what ONNX has no value for, elements that the run picks, sizes of 0, what is caught."""
# ruff: noqa: SIM102, SIM108, UP031 (the programs are written as users write them)

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tonnx
from tests.frontends.torch.python_flow.harness import SCALES, Program, agree, export, ramp

HERE = "tests/frontends/torch/python_flow/test_choices.py"

SIZES = [[ramp(n, 3)] for n in (4, 0, 1, 5)]

# What comes after a branch goes into its sides


def nothing_on_one_side(x: Tensor) -> Tensor:
    found = None
    if x.sum() > 0:
        found = x
    return x if found is None else found * 2


def two_that_may_be_none(x: Tensor) -> Tensor:
    one = other = None
    if x.sum() > 0:
        one = x
    if x.max() > 3:
        other = x * 3
    out = x * 0
    if one is not None:
        out = out + one
    if other is not None:
        out = out + other
    return out


def none_below_a_branch(x: Tensor) -> Tensor:
    mask = None
    if x.sum() > 0:
        if x.max() > 3:
            mask = x * 2
    y = x + 1
    if mask is not None:
        y = y + mask
    return y


def a_mask_that_hides_nothing(x: Tensor) -> Tensor:
    mask = x > 1
    y = x * mask
    if not mask.any():
        mask = None
    for factor in (2, 3):
        y = y + x * factor if mask is None else (y + x * factor).masked_fill(mask, 0)
    return y


def scaled(x: Tensor, mask: Tensor | None = None) -> Tensor:
    return x if mask is None else x * mask


def none_for_a_helper(x: Tensor) -> Tensor:
    mask = None
    if x.sum() > 0:
        mask = (x > 1).float()
    return scaled(x, mask)


class Mode(Enum):
    UP = 1
    DOWN = 2


def by_mode(x: Tensor, mode: Mode) -> Tensor:
    if mode is Mode.UP:
        return x * 2
    return x - 1


def members_differ(x: Tensor) -> Tensor:
    return by_mode(x, Mode.UP if x.sum() > 0 else Mode.DOWN)


def texts_differ(x: Tensor) -> Tensor:
    one = "p" if x.sum() > 0 else "q"
    other = "r" if x.max() > 3 else "s"
    y = x
    if one == "p":
        y = y * 2
    if one + other == "ps":
        y = y - 5
    return y


def texts_differ_in_a_loop(x: Tensor) -> Tensor:
    for i in range(3):
        mode = "up" if x.sum() > 0 else "down"
        if mode == "up":
            x = x - i
        else:
            x = x * 2
    return x


def texts_differ_inside_a_choice(x: Tensor) -> Tensor:
    """For None, the inner condition has no meaning."""
    for given in (None, x):
        mode = (
            "none" if given is None
            else ("up" if given.sum() > 0 else "down")
        )  # fmt: skip
        x = {"none": x + 1, "up": x * 2, "down": x - 3}[mode]
    return x


def key_differs(x: Tensor) -> Tensor:
    table = {"a": x * 2, "b": x - 1}
    key = "a" if x.sum() > 0 else "b"
    return table[key]


def functions_differ(x: Tensor) -> Tensor:
    function = torch.relu if x.sum() > 0 else torch.tanh
    return function(x)


def dtypes_differ(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x.long()
    return (y * 2).float().sum(1)


def ranks_differ(x: Tensor) -> Tensor:
    y = x
    if x.sum() > 0:
        y = x.sum(1)
    return (y.relu() + 1).sum()


def axis_differs(x: Tensor) -> Tensor:
    axis = 0 if x.sum() > 0 else 1
    return x.cumsum(dim=axis)


def deleted(x: Tensor) -> Tensor:
    t = x * 2
    if t.sum() > 0:
        u = t
        del t
    else:
        u = -t
    return u


# Elements that the run picks


def from_a_list(x: Tensor) -> Tensor:
    return x * [1.0, 5.0, -3.0][int(x.sum().abs() + 0.4) % 3]


def from_a_dict(x: Tensor) -> Tensor:
    table = {0: x, 1: x * 2, 5: -x}
    return table[int(x.sum().abs() + 0.4) % 2 * 5]


def from_behind(x: Tensor) -> Tensor:
    rows = [x[:, 0], x[:, 1], x[:, 2]]
    k = -1 if x.sum() > 0 else 1
    return rows[k]


def functions_by_index(x: Tensor) -> Tensor:
    return [torch.relu, torch.tanh, torch.sigmoid][x.sum(0).argmax()](x)


class Experts(nn.Module):
    """One of them for each row."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate = nn.Linear(3, 3)
        self.experts = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.experts[self.gate(row).argmax()](row) for row in x])


def guarded_case(x: Tensor) -> Tensor:
    match int(x.sum() + 0.4) % 4:
        case 0:
            return x
        case n if n > 1:
            return x * 2
        case _:
            return x - 1


# Sizes of 0, which torch.export takes for impossible


def empty(x: Tensor) -> Tensor:
    if x.shape[0] == 0:
        return torch.ones(1, 3)
    return x * 2


def no_elements(x: Tensor) -> Tensor:
    return x + 1 if x.numel() else torch.ones(1, 3)


def several_sizes(x: Tensor) -> Tensor:
    if len(x) < 1:
        return torch.ones(2, 3)
    if x.shape[0] == 1:
        return x * 100
    return x[:3] if x.shape[0] >= 5 else x


# Writes on both sides, and an `except` that has nothing to do with it


def written_on_both_sides(x: Tensor) -> Tensor:
    y = x.clone()
    if x.sum() > 0:
        y[0] = 0
        y += 1
    else:
        y[:, 1].mul_(3)
    return y


def in_a_try(x: Tensor) -> Tensor:
    try:
        if x.sum() > 0:
            y = x * 2
        else:
            y = x - 1
    except Exception:
        y = x * 0
    return y


# What torch knows of `torch.tensor(0)` does not hold where the run decides whether it is written to


def counted(x: Tensor) -> tuple[Tensor, Tensor]:
    n = torch.tensor(0)
    while (x > 1).any() and n < 6:
        x = x * 0.7
        n += 1
    return x, n


def counted_on_one_side(x: Tensor) -> Tensor:
    n = torch.tensor(0)
    if x.sum() > 0:
        n += 1
    return x * 2 if n > 0 else x


def filled(x: Tensor) -> tuple[Tensor, Tensor]:
    out, k = torch.zeros(5), torch.tensor(0)
    for row in x:
        if row.sum() > 0 and k < 5:
            out[k] = row.sum()
            k += 1
    return out, k


def between_tensors(x: Tensor) -> Tensor:
    first = x[:, 0].argmax()
    last = torch.clamp(first + 2, max=x.shape[0])
    return x[first:last].sum(0)


CHOICES = [
    *[Program(f, SCALES) for f in (nothing_on_one_side, two_that_may_be_none, none_below_a_branch, none_for_a_helper,
                                   a_mask_that_hides_nothing)],
    *[Program(f, SCALES) for f in (members_differ, texts_differ, texts_differ_in_a_loop, key_differs)],
    Program(texts_differ_inside_a_choice, SCALES),
    *[Program(f, SCALES) for f in (functions_differ, dtypes_differ, ranks_differ, axis_differs, deleted)],
    *[Program(f, SCALES) for f in (from_a_list, from_a_dict, from_behind, functions_by_index, guarded_case)],
    Program(Experts(), SCALES, ["If", "Loop"]),
    *[Program(f, SIZES) for f in (empty, no_elements, several_sizes)],
    *[Program(f, SCALES) for f in (written_on_both_sides, in_a_try, counted_on_one_side)],
    *[Program(f, SCALES, ["Loop"]) for f in (counted, filled)],
    Program(between_tensors, SCALES, ["Slice"]),
]


@pytest.mark.parametrize("program", CHOICES, ids=lambda p: p.name)
def test_programs(program: Program) -> None:
    agree(program)


@pytest.mark.parametrize("opset", [11, 23])
@pytest.mark.parametrize("program", [CHOICES[1], CHOICES[14], CHOICES[20]], ids=lambda p: p.name)
def test_opsets(program: Program, opset: int) -> None:
    agree(program, opset)


def test_a_function_with_results_of_two_ranks_is_compiled() -> None:
    def model(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x.sum(1)
        return x

    result = tonnx.export(model, ramp(4, 3, shift=0.4), dynamic_axes={"x": {0: "n"}})
    assert result.capture == "torch.jit.script" and "torch.export stops" in result.notes[0]


# Never in silence


def too_large(x: Tensor) -> None:
    if x.max() > 2:
        raise ValueError("too large")


def caught(x: Tensor) -> Tensor:
    try:
        too_large(x)
        return x
    except ValueError:
        return x * 0


def caught_text(x: Tensor) -> Tensor:
    try:
        return x * len("%.3f" % x.max().item())
    except Exception:
        return x * 0


def caught_key(x: Tensor) -> Tensor:
    try:
        factor = {0: 1.0}[int(x.max() > 2)]
    except KeyError:
        factor = 5.0
    return x * factor


def to_numpy(x: Tensor) -> Tensor:
    return x * 2 if np.unwrap(x.numpy()).sum() > 0 else x


def returns_none(x: Tensor) -> Tensor | None:
    return x * 2 if x.sum() > 0 else None


REFUSED: list[tuple[Callable[..., Any], list[str]]] = [
    (caught, ["if x.max() > 2:", f"the exception is caught ({HERE}", "except ValueError:)"]),
    (caught_text, ["x.max().item())", "caught by the model itself", "except Exception:", "out of the try block"]),
    (caught_key, ["factor = {0: 1.0}", f"is caught ({HERE}", "except KeyError:)"]),
    (to_numpy, ["np.unwrap(x.numpy())", "hands a tensor to numpy", "torch's functions"]),
    (returns_none, ["the result is float32[?, 3] on one side and None on the other", "torch.where"]),
]


@pytest.mark.parametrize("model, parts", REFUSED, ids=[model.__name__ for model, _ in REFUSED])
def test_refused(model: Callable[..., Any], parts: list[str]) -> None:
    with pytest.raises(tonnx.CaptureError) as error:
        export(Program(model, SCALES))
    text = str(error.value)
    assert f"where: {HERE}:" in text
    for part in parts:
        assert part in text, text


def test_what_is_fixed_is_noted() -> None:
    def model(x: Tensor, factor: float, flags: list[bool]) -> Tensor:
        return x * factor * random.random() if flags[0] else x * float(np.random.rand())

    result = tonnx.export(model, (ramp(2, 3), 2.0, [True]), verify=False)
    fixed, drawn = result.notes
    assert "factor = 2.0, flags[0] = True" in fixed and "not inputs" in fixed
    assert drawn.startswith("[!] the model draws from random")
