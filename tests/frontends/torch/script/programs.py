"""The programs: branches, loops, lists, writes in place, classes; each with inputs that take every path."""

# ruff: noqa: UP006, UP035, UP045, B905, SIM108, SIM114, SIM300, RET505, RUF005 (what TorchScript understands, and users write)

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from tests.frontends.torch.script.harness import Program

BATCH = {"x": {0: "batch"}}
PLUS, MINUS = torch.arange(1.0, 13).reshape(3, 4), -torch.arange(1.0, 13).reshape(3, 4)
MIXED = torch.tensor([[1.0, -2, 3, -4], [-0.5, 0.25, 8, -9], [0, 0, 0, 0.1]])
MORE = torch.cat([MIXED, PLUS, MINUS])


def either_sign(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x
    else:
        return -x


def nested_branches(x: Tensor) -> Tensor:
    if x.sum() > 0:
        if x.max() > 10:
            y = x * 2
        elif x.max() > 5:
            y = x + 100
        else:
            y = x - 1
    else:
        if x.min() < -11:
            y = x.abs()
        else:
            y = torch.zeros_like(x)
    return y + 1


def shapes_differ(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x[:2]
    return torch.cat([x, x], 1)


def ranks_differ(x: Tensor) -> Tensor:
    if bool(x.sum() > 0):
        y = x
    else:
        y = x.reshape(-1)
    return y * 2


def early_return(x: Tensor) -> Tensor:
    if x.max() < 0:
        return x * 10
    y = x.relu()
    if y.sum() > 50:
        return y.sum(1, keepdim=True)
    return y - 1


def early_return_in_loop(x: Tensor, limit: Tensor) -> Tensor:
    for i in range(x.size(0)):
        if x[i].sum() > limit:
            return x[i]
    return torch.zeros(x.size(1))


def running_sum(x: Tensor) -> Tensor:
    total = torch.zeros(x.size(1))
    for i in range(x.size(0)):
        total = total + x[i] * i
    return total


def collected(x: Tensor) -> Tensor:
    rows: List[Tensor] = []
    for i in range(x.size(0)):
        rows.append(x[i].cumsum(0) * i)
    return torch.stack(rows)


def collected_ragged(x: Tensor) -> Tensor:
    parts: List[Tensor] = []
    for i in range(x.size(0)):
        parts.append(x[: i + 1].sum(1))
    return torch.cat(parts)


def collected_some(x: Tensor) -> Tensor:
    rows = [x[0]]
    for i in range(1, x.size(0)):
        if x[i].sum() > 0:
            rows.append(x[i])
    return torch.stack(rows, dim=1)


def break_at(x: Tensor) -> Tuple[Tensor, int]:
    count = 0
    y = torch.zeros_like(x[0])
    for i in range(x.size(0)):
        if x[i].sum() < 0:
            break
        y = y + x[i]
        count += 1
    return y, count


def skip_some(x: Tensor) -> Tensor:
    y = torch.zeros(4)
    for i in range(x.size(0)):
        if x[i].sum() < 0:
            continue
        y += x[i]
    return y


def while_large(x: Tensor) -> Tuple[Tensor, int]:
    steps = 0
    while x.abs().max() > 1:
        x = x / 2
        steps += 1
    return x, steps


def trips_from_tensor(x: Tensor, n: Tensor) -> Tensor:
    for _ in range(int(n)):
        x = x * 1.5 + 1
    return x


def grows(x: Tensor, n: Tensor) -> Tensor:
    y = x[:1]
    for i in range(int(n.item())):
        y = torch.cat([y, y[-1:] * 0.5 + i], 0)
    return y


def nested_loops(x: Tensor) -> Tensor:
    y = torch.zeros(x.size(0), x.size(1))
    for i in range(x.size(0)):
        for j in range(x.size(1)):
            if x[i, j] > 0:
                y[i, j] = x[i, j] * 2 + i
            else:
                y[i, j] = float(j)
    return y


def fixed_trips(x: Tensor) -> Tensor:
    for i in range(4):
        x = x + x[:, i : i + 1]
    return x


def long_fixed_loop(x: Tensor) -> Tensor:
    for i in range(500):
        x = torch.tanh(x) + i * 0.001
    return x


def numbers_carried(x: Tensor) -> Tuple[int, float, bool, Tensor]:
    count, total, seen = 0, 0.0, False
    for i in range(x.size(0)):
        value = float(x[i].sum())
        total += value
        if value < 0:
            count += 1
            seen = True
    return count, total, seen, x * total


def list_of_ints(x: Tensor) -> Tensor:
    places: List[int] = []
    for i in range(x.size(0)):
        if x[i, 0] > 0:
            places.append(i)
    return torch.tensor(places).float().sum() + len(places) * 10


def list_popped(x: Tensor) -> Tensor:
    stack = [x, x + 1, x * 2]
    last = stack.pop()
    stack.insert(0, last)
    stack.extend([x * 3])
    stack[1] = stack[1] - 5
    first = stack.pop(0)
    return torch.cat(stack + [first], 1) if len(stack) > 2 else x


def dynamic_list_popped(x: Tensor) -> Tensor:
    rows: List[Tensor] = []
    for i in range(x.size(0)):
        rows.append(x[i])
        if x[i].sum() < 0 and len(rows) > 1:
            rows.pop()
    rows[0] = rows[0] * 10
    y = rows[-1]
    return torch.stack(rows) + y


def states_in_list(x: Tensor) -> Tensor:
    states = [torch.zeros(4), torch.ones(4)]
    for i in range(x.size(0)):
        states[0] = states[0] * 0.5 + x[i]
        states[1] = torch.maximum(states[1], states[0])
    return states[0] + states[1]


def fibonacci(n: Tensor) -> Tensor:
    a, b = 0, 1
    for _ in range(int(n)):
        a, b = b, a + b
    return torch.tensor([a, b])


def optional_state(x: Tensor) -> Tensor:
    best: Optional[Tensor] = None
    for i in range(x.size(0)):
        if best is None:
            best = x[i]
        elif x[i].sum() > best.sum():
            best = x[i]
    if best is None:
        return torch.zeros(4)
    return best


def optional_input(x: Tensor, scale: Optional[Tensor] = None, shift: Optional[float] = None) -> Tensor:
    if scale is not None:
        x = x * scale
    if shift is not None:
        x = x + shift
    return x


def writes_slices(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] += 1
    y[:, 1] = 7
    y[1:, 2:] *= 2
    row = y[2]
    row.mul_(3)
    y[:, 3][0] = -1
    return y


def write_on_one_side(x: Tensor) -> Tensor:
    y = x * 1
    view = y[0]
    if x.sum() > 0:
        y[0] = 5
        view += 1
    else:
        y.add_(100)
    return y + view


def masked(x: Tensor) -> Tensor:
    y = x.clone()
    y[y < 0] = 0
    y.masked_fill_(x > 5, 5.0)
    y.index_put_([torch.tensor([0, 1])], torch.tensor(9.0))
    return y


def writes_in_loop(x: Tensor) -> Tensor:
    y = torch.zeros(x.size(0), 2)
    for i in range(x.size(0)):
        y[i, 0] = x[i].max()
        y[i, 1] = x[i].min()
    return y


class Point(NamedTuple):
    a: Tensor
    b: int


def named_tuple(x: Tensor) -> Point:
    point = Point(x, 2)
    if x.sum() > 0:
        point = Point(x * 3, 5)
    return Point(point.a * point.b, point.b + 1)


def dictionary(x: Tensor) -> Dict[str, Tensor]:
    found = {"sum": x.sum(0), "max": x.max()}
    if x.sum() > 0:
        found["sum"] = found["sum"] * 2
    for key in found:
        found[key] = found[key] + 1
    if "min" not in found:
        found["min"] = x.min()
    return found


def dictionary_input(given: Dict[str, Tensor], flags: List[int]) -> Tensor:
    y = given["x"]
    for name, value in given.items():
        if name != "x":
            y = y + value
    return y * flags[1] + len(given)


def shape_arithmetic(x: Tensor) -> Tensor:
    n, c = x.shape
    half = (n + 1) // 2
    flat = x.view(-1)
    if n % 2 == 1:
        flat = flat * 2
    return torch.cat([flat[: half * c], flat[half * c :] - 1]).reshape(n, c) * (n / c) + max(n, 2) ** 2


def static_rank(x: Tensor) -> Tensor:
    assert x.dim() == 2, "two axes"
    if x.dim() == 3:
        x = x.squeeze(0)
    if torch.jit.is_scripting():
        x = x + 1
    if not x.is_floating_point():
        raise ValueError("floats only")
    if x.dtype == torch.float32 and [2, 4] != list(x.shape[1:]):
        x = x * 2
    return x


def raises_on_one_side(x: Tensor) -> Tensor:
    if x.sum() > 1e9:
        raise ValueError("too large")
    print(x.shape)
    return x + 1


def uninitialized(x: Tensor) -> Tensor:
    if x.sum() > 0:
        positive = True
        y = x * 2
    else:
        positive = False
        y = x
    if positive:
        z = y + 1
    else:
        z = y - 1
    return z


def beam_search(x: Tensor) -> Tuple[Tensor, Tensor]:
    scores = torch.zeros(2)
    tokens = torch.zeros(2, 1, dtype=torch.long)
    step = 0
    while step < x.size(0) and float(scores.max()) < 20.0:
        total = scores.unsqueeze(1) + x[step].unsqueeze(0)
        best = torch.topk(total.reshape(-1), 2)
        rows = torch.div(best.indices, x.size(1), rounding_mode="floor")
        picked = best.indices % x.size(1)
        tokens = torch.cat([tokens.index_select(0, rows), picked.unsqueeze(1)], 1)
        scores = best.values
        step += 1
    return tokens, scores


def string_constants(x: Tensor, mode: str = "floor") -> Tensor:
    if mode == "floor":
        y = torch.div(x, 2, rounding_mode=mode)
    else:
        y = torch.einsum("ij,kj->ik", x, x)
    return y + torch.einsum("ij->i", x).unsqueeze(1)


def inplace_accumulate(x: Tensor) -> Tensor:
    total = torch.zeros(4)
    for row in x.unbind(0):
        total += row
    for row in x:
        total.add_(row, alpha=0.5)
    return total


def enumerate_zip(x: Tensor) -> Tensor:
    y = torch.zeros(4)
    parts = [x[0], x[1], x[2]]
    for i, part in enumerate(parts):
        y = y + part * i
    for part, scale in zip(parts, [0.5, 0.25, 0.125]):
        y = y - part * scale
    return y + sum([1, 2, 3])


def refined(x: Tensor, y: Optional[Tensor]) -> Tensor:
    if torch.jit.isinstance(y, Tensor):
        return x + y
    z = torch.jit.annotate(List[Tensor], [])
    z.append(x)
    return torch.cat(z)


THREE = [(PLUS,), (MINUS,), (MIXED,)]
ROWS = [(PLUS,), (MORE,), (MIXED[:1],), (MINUS,)]


PROGRAMS: dict[str, Program] = {
    "either_sign": Program(either_sign, THREE, BATCH, has=("If",)),
    "nested_branches": Program(
        nested_branches, [(PLUS,), (PLUS / 2,), (PLUS / 4,), (MINUS,), (MINUS / 2,)], BATCH, has=("If",)
    ),
    "shapes_differ": Program(shapes_differ, THREE, BATCH, has=("If",)),
    "ranks_differ": Program(ranks_differ, THREE, BATCH, has=("If",)),
    "early_return": Program(early_return, [(PLUS,), (MINUS,), (MIXED,), (PLUS / 9,)], BATCH, has=("If",)),
    "early_return_in_loop": Program(
        early_return_in_loop,
        [(x, torch.tensor(limit)) for x, limit in ((PLUS, 20.0), (PLUS, 1e3), (MORE, -99.0), (MIXED, -0.5))],
        BATCH,
        has=("Loop",),
    ),
    "running_sum": Program(running_sum, ROWS, BATCH, has=("Loop",)),
    "collected": Program(collected, ROWS, BATCH, has=("Loop",)),
    "collected_ragged": Program(collected_ragged, ROWS, BATCH, lowest=13, has=("Loop",)),
    "collected_some": Program(collected_some, ROWS, BATCH, has=("Loop", "If")),
    "break_at": Program(break_at, ROWS, BATCH, has=("Loop",)),
    "break_at_fixed": Program(break_at, [(MORE,), (-MORE,), (MORE.flip(0),)], has=("Loop",)),
    "skip_some": Program(skip_some, ROWS, BATCH, has=("Loop",)),
    "while_large": Program(while_large, [(PLUS,), (MINUS * 20,), (MIXED / 100,)], BATCH, has=("Loop",)),
    "trips_from_tensor": Program(
        trips_from_tensor, [(PLUS, torch.tensor(n)) for n in (2, 0, 5)], BATCH, has=("Loop",)
    ),
    "grows": Program(grows, [(PLUS, torch.tensor(n)) for n in (2, 0, 5)], BATCH, has=("Loop",)),
    "nested_loops": Program(nested_loops, [(PLUS,), (MIXED,), (MORE,), (MINUS[:1],)], BATCH, has=("Loop", "If")),
    "fixed_trips": Program(fixed_trips, ROWS, BATCH, has_not=("Loop", "If")),
    "long_fixed_loop": Program(long_fixed_loop, [(PLUS,), (MIXED,)], BATCH, has=("Loop",)),
    "numbers_carried": Program(numbers_carried, ROWS, BATCH, has=("Loop",)),
    "list_of_ints": Program(list_of_ints, ROWS, BATCH, has=("Loop",)),
    "list_popped": Program(list_popped, ROWS, BATCH, has_not=("Loop", "If")),
    "dynamic_list_popped": Program(dynamic_list_popped, ROWS, BATCH, has=("Loop",)),
    "states_in_list": Program(states_in_list, ROWS, BATCH, has=("Loop",)),
    "fibonacci": Program(fibonacci, [(torch.tensor(n),) for n in (7, 0, 1, 30)], has=("Loop",)),
    "optional_state": Program(optional_state, [*ROWS, (MORE.flip(0),)], BATCH, has=("Loop",)),
    "optional_input": Program(
        optional_input, [(PLUS, torch.tensor(2.0), 3.5), (MINUS, torch.tensor(-1.0), 3.5)], BATCH
    ),
    "optional_input_absent": Program(optional_input, [(PLUS, None), (MINUS, None)], BATCH, has_not=("If",)),
    "writes_slices": Program(writes_slices, [(PLUS,), (MORE,)], BATCH),
    "write_on_one_side": Program(write_on_one_side, ROWS, BATCH, has=("If",)),
    "masked": Program(masked, [(PLUS,), (MORE,)], BATCH),
    "writes_in_loop": Program(writes_in_loop, ROWS, BATCH, has=("Loop",)),
    "named_tuple": Program(named_tuple, THREE, BATCH, has=("If",)),
    "dictionary": Program(dictionary, ROWS, BATCH, has=("If",)),
    "dictionary_input": Program(
        dictionary_input, [({"x": PLUS, "y": MIXED}, [1, 5])], {"given_x": {0: "n"}, "given_y": {0: "n"}}
    ),
    "shape_arithmetic": Program(shape_arithmetic, ROWS, BATCH),
    "static_rank": Program(static_rank, ROWS, BATCH, has_not=("If",)),
    "raises_on_one_side": Program(raises_on_one_side, ROWS, BATCH, has_not=("If",)),
    "uninitialized": Program(uninitialized, THREE, BATCH, has=("If",)),
    "beam_search": Program(beam_search, [(PLUS,), (MIXED,), (MORE,)], BATCH, has=("Loop",)),
    "string_constants": Program(string_constants, ROWS, BATCH),
    "string_constants_other": Program(string_constants, [(PLUS, "other"), (MIXED, "other")], BATCH),
    "inplace_accumulate": Program(inplace_accumulate, [(PLUS,), (MIXED,)]),
    "enumerate_zip": Program(enumerate_zip, [(PLUS,), (MORE,)], BATCH),
    "refined": Program(refined, [(PLUS, MIXED), (MINUS, PLUS)], BATCH | {"y": {0: "batch"}}),
}  # fmt: skip
