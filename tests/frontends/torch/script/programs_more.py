"""More programs: what aliases what, containers of all kinds, odd loops, classes and enums."""

# ruff: noqa: UP006, UP035, UP045, B905, RUF005, RUF021 (what TorchScript understands, and users write)

from __future__ import annotations

from enum import Enum
from typing import Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn

from tests.frontends.torch.script.harness import Program
from tests.frontends.torch.script.programs import BATCH, MINUS, MIXED, MORE, PLUS, ROWS, THREE


def alias_of_a_slice(x: Tensor) -> Tuple[Tensor, Tensor]:
    y = x.clone()
    row, column = y[0], y[:, 0]
    row += 1
    column.mul_(2)
    flat = y.view(-1)
    flat[1] = -7
    return row + column.sum(), y


def alias_in_a_list(x: Tensor) -> Tensor:
    parts = [x * 1, x * 2]
    first = parts[0]
    first[0] = 9
    for part in parts:
        part.add_(1)
    return parts[0] + parts[1] + first


def alias_under_a_branch(x: Tensor) -> Tensor:
    y = x * 1
    z = y
    if x.sum() > 0:
        z += 5
    return y + z


def swapped_in_a_loop(x: Tensor) -> Tensor:
    a, b = x[0] * 1, x[0] * 2
    for i in range(x.size(0)):
        a, b = b, a + x[i]
    return a - b


def down_in_steps(x: Tensor) -> Tensor:
    y = torch.zeros(4)
    for i in range(x.size(0) - 1, -1, -2):
        y = y * 2 + x[i] * i
    return y


def classes_of_a_size(x: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(torch.arange(x.size(0)), x.size(0) + 1)


def points_of_a_size(x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    return (
        torch.linspace(-1.0, 4.0, x.size(0)),
        torch.linspace(-3, 5, x.size(0), dtype=torch.int64),
        torch.logspace(0.0, 2.0, x.size(0)),
    )


def negative_index(x: Tensor, n: Tensor) -> Tensor:
    k = int(n)
    rows = [x[0], x[1], x[2]]
    return rows[k] + x[k]


def break_of_two(x: Tensor) -> Tuple[Tensor, int]:
    total = torch.zeros(1)
    steps = 0
    for i in range(x.size(0)):
        for j in range(x.size(1)):
            if x[i, j] < 0:
                break
            total = total + x[i, j]
            steps += 1
        if total > 20:
            break
    return total, steps


def return_of_two(x: Tensor) -> Tensor:
    for i in range(x.size(0)):
        for j in range(4):
            if x[i, j] < -5:
                return x[i] * 100
    if x.size(0) > 5:
        return x[0] * 2
    return x[0]


def both_conditions(x: Tensor) -> Tensor:
    if x.sum() > 0 and x.max() > 5 or bool((x == 0.25).any()):
        return x * 3
    if not (x.min() < -8):
        return x - 3
    return x


def ternary(x: Tensor) -> Tensor:
    scale = 2.0 if x.sum() > 0 else -0.5
    count = x.size(0) if x.max() > 1 else 7
    return x * scale + count


def dict_in_a_loop(x: Tensor) -> Tensor:
    state = {"sum": torch.zeros(4), "last": x[0]}
    for i in range(x.size(0)):
        state["sum"] = state["sum"] + state["last"]
        state["last"] = x[i]
    return state["sum"] * state["last"]


def tuple_in_a_loop(x: Tensor) -> Tensor:
    state = (torch.zeros(4), 0)
    for i in range(x.size(0)):
        state = (state[0] + x[i], state[1] + i)
    return state[0] * state[1]


def comprehension(x: Tensor) -> Tensor:
    rows = [row * 2 for row in x.unbind(1)]
    scales = [float(i) for i in range(len(rows))]
    return torch.stack([r * s for r, s in zip(rows, scales)]).sum(0)


def rows_of_a_dynamic_axis(x: Tensor) -> Tensor:
    y = torch.zeros(4)
    for row in x.unbind(0):
        y = torch.maximum(y, row)
    for part in x.split(2):
        y = y + part.sum(0)
    return y


def extended_in_a_loop(x: Tensor) -> Tensor:
    rows: List[Tensor] = []
    for i in range(x.size(0)):
        rows.extend([x[i], x[i] * 2])
        if x[i].sum() < 0:
            rows = rows + [x[i] - 100]
    return torch.stack(rows[1:]) if len(rows) > 2 else torch.stack(rows)


def selected(x: Tensor) -> Tensor:
    y = x[x[:, 0] > 0]
    if y.size(0) == 0:
        return torch.zeros(4)
    return y.mean(0)


def integers(x: Tensor, n: Tensor) -> Tensor:
    k = int(n)
    values = [k // 3, k % 3, -k // 2, k * k, abs(k), min(k, 3), max(k, -1), k << 1 if k > 0 else 0]
    return torch.tensor(values) + x.size(0)


def floats(x: Tensor, n: Tensor) -> Tensor:
    f = float(n) / 3
    return torch.tensor([f, f // 0.5, f % 0.5, f**2, float(int(f)), round(f) * 1.0, abs(f)]) + x.sum()


def in_list(x: Tensor, n: Tensor) -> Tensor:
    k = int(n)
    if k in [1, 4, x.size(0)]:
        return x + 1
    return x - 1


def many_dtypes(x: Tensor, n: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    scalar = float(x[0, 0])
    return (n * scalar, (n + 1) * int(x[0, 1]), x.half() * scalar + n.to(torch.int32))


class Mode(Enum):
    ADD = 1
    MULTIPLY = 2


def with_enum(x: Tensor, flag: bool = True) -> Tensor:
    mode = Mode.ADD if flag else Mode.MULTIPLY
    if mode == Mode.ADD:
        return x + mode.value
    return x * 2


@torch.jit.script
class Counter:
    def __init__(self, start: int) -> None:
        self.count = start
        self.total = torch.zeros(4)

    def add(self, row: Tensor) -> int:
        self.count += 1
        self.total = self.total + row
        return self.count


def with_class(x: Tensor) -> Tuple[Tensor, int]:
    counter = Counter(10)
    for i in range(x.size(0)):
        if x[i].sum() > 0:
            counter.add(x[i])
    return counter.total, counter.count


def optional_of_a_branch(x: Tensor) -> Tensor:
    bias: Optional[Tensor] = None
    if x.sum() > 0:
        bias = x.mean(0)
    y = x * 2
    if bias is not None:
        y = y - bias
    return y


def optional_in_a_dict(x: Tensor, extra: Optional[Dict[str, Tensor]] = None) -> Tensor:
    if extra is None:
        return x
    if "bias" in extra:
        x = x + extra["bias"]
    return x * extra.get("scale", torch.ones(1))


def while_with_counter(x: Tensor) -> Tuple[Tensor, Tensor]:
    low, high = torch.zeros(1), torch.full([1], 100.0)
    steps = torch.zeros(1, dtype=torch.long)
    while bool((high - low) > 0.5) and int(steps) < 12:
        middle = (low + high) / 2
        if x.abs().sum() > middle:
            low = middle
        else:
            high = middle
        steps += 1
    return low, steps


class Cache(nn.Module):
    """A list among the attributes, and one that the program fills."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = [0.5, 2.0, 4.0]
        self.names = {"a": 1, "b": 2}
        self.register_buffer("table", torch.arange(12.0).reshape(3, 4))

    @torch.jit.export
    def other(self, x: Tensor) -> Tensor:
        return x + self.table[: x.size(0)].sum()

    def forward(self, x: Tensor) -> Tensor:
        kept: List[Tensor] = []
        for i, scale in enumerate(self.scales):
            kept.append(x * scale + self.table[i] * self.names["b"])
        y = torch.cat(kept, dim=1)
        return self.other(y)


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleDict(
            {"small": nn.Linear(4, 2), "large": nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))}
        )
        self.shared = self.experts["small"]

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros(x.size(0), 2)
        for name, expert in self.experts.items():
            part = expert(x)
            if name == "large":
                y = y + part.relu()
            elif part.sum() > 0:
                y = y - part
        return y * self.shared(x)


def on_strings(x: Tensor) -> Tensor:
    for name in ["gain", "shift.all", "other"]:
        if name.startswith("g") and name.endswith("n"):
            x = x * 2
        elif len(name.split(".")) == 2 and name.find("all") == 6:
            x = x + name.count("s")
    return x if "A".lower() == "a" else -x


def powers(x: Tensor) -> Tuple[float, float, Tensor]:
    n = x.size(0)
    return n**2, 2.0**n, x * (n**2)


def size_of_a_choice(x: Tensor) -> Tuple[Tensor, int]:
    y = x[:1] if x.sum() > 0 else torch.cat([x, x])
    return y, y.size(0)


class Cells(nn.Module):
    """Cells with a batch of any size, and a state that a loop hands on."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.lstm = nn.GRUCell(3, 4), nn.LSTMCell(4, 2)
        self.plain, self.other = nn.RNNCell(2, 3), nn.RNNCell(2, 3, nonlinearity="relu", bias=False)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        x = x[:, :3]
        h, state = torch.zeros(x.size(0), 4), (torch.zeros(x.size(0), 2), torch.zeros(x.size(0), 2))
        passes = 0
        while passes < 4:
            h = self.gru(x, h)
            state = self.lstm(h, state)
            x = self.plain(state[0], x) + self.other(state[1])
            passes += 1
            if bool(x.sum() > 1):
                break
        return x, h


def backwards(x: Tensor) -> Tuple[Tensor, Tensor]:
    rows: List[Tensor] = []
    for i in range(x.size(0)):
        rows.append(x[i] * i)
        if bool(x[i].sum() > 50):
            break
    last: List[Tensor] = []
    for i in range(len(rows) - 1, -1, -1):
        last.append(rows[i] + i)
    return torch.stack(rows[::-1]), torch.stack(last[::-1])


PROGRAMS: dict[str, Program] = {
    "alias_of_a_slice": Program(alias_of_a_slice, [(PLUS,), (MIXED,)]),
    "alias_in_a_list": Program(alias_in_a_list, ROWS, BATCH),
    "alias_under_a_branch": Program(alias_under_a_branch, THREE, BATCH, has=("If",)),
    "swapped_in_a_loop": Program(swapped_in_a_loop, ROWS, BATCH, has=("Loop",)),
    "down_in_steps": Program(down_in_steps, ROWS, BATCH, has=("Loop",)),
    "negative_index": Program(negative_index, [(PLUS, torch.tensor(k)) for k in (0, 2, -1, -3)]),
    "break_of_two": Program(break_of_two, ROWS, BATCH, has=("Loop",)),
    "return_of_two": Program(return_of_two, [*ROWS, (MORE[:7],)], BATCH, has=("Loop",)),
    "both_conditions": Program(both_conditions, [*THREE, (PLUS / 4,), (MINUS / 4,)], BATCH, has=("If",)),
    "ternary": Program(ternary, [*THREE, (PLUS / 100,)], BATCH),
    "dict_in_a_loop": Program(dict_in_a_loop, ROWS, BATCH, has=("Loop",)),
    "tuple_in_a_loop": Program(tuple_in_a_loop, ROWS, BATCH, has=("Loop",)),
    "comprehension": Program(comprehension, ROWS, BATCH, has_not=("Loop",)),
    "rows_of_a_dynamic_axis": Program(rows_of_a_dynamic_axis, ROWS, BATCH, has=("Loop",)),
    "extended_in_a_loop": Program(extended_in_a_loop, ROWS, BATCH, has=("Loop",)),
    "selected": Program(selected, ROWS, BATCH, has=("If",)),
    "integers": Program(integers, [(PLUS, torch.tensor(k)) for k in (7, -7, 0, 2)]),
    "floats": Program(floats, [(PLUS, torch.tensor(k)) for k in (7.5, -7.25, 0.0, 2.0)]),
    "in_list": Program(in_list, [(PLUS, torch.tensor(k)) for k in (1, 2, 3, 4)], BATCH, has=("If",)),
    "many_dtypes": Program(many_dtypes, [(PLUS, torch.tensor(3)), (MIXED, torch.tensor(-2))]),
    "classes_of_a_size": Program(classes_of_a_size, ROWS, BATCH),
    "points_of_a_size": Program(points_of_a_size, ROWS, BATCH),
    "with_enum": Program(with_enum, [(PLUS,), (MIXED,)], BATCH),
    "with_class": Program(with_class, ROWS, BATCH, has=("Loop",)),
    "optional_of_a_branch": Program(optional_of_a_branch, THREE, BATCH, has=("If",)),
    "optional_in_a_dict": Program(optional_in_a_dict, [(PLUS, {"bias": MIXED}), (MINUS, {"bias": PLUS})]),
    "while_with_counter": Program(while_with_counter, [*ROWS, (MIXED * 9,)], BATCH, has=("Loop",)),
    "Cache": Program(Cache, [(PLUS,), (MIXED,)]),
    "Holder": Program(Holder, ROWS, BATCH, has=("If",)),
    "on_strings": Program(on_strings, [(PLUS,), (MIXED,)], BATCH),
    "powers": Program(powers, ROWS, BATCH),
    "size_of_a_choice": Program(size_of_a_choice, THREE, BATCH, has=("If",)),
    "Cells": Program(Cells, ROWS, BATCH, has=("Loop",)),
    "backwards": Program(backwards, ROWS, BATCH, has=("Loop",)),
}
