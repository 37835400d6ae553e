"""Python loops over a dynamic size: they become an ONNX Loop, from the user's plain code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tonnx
from tests.lowering.harness import Case, check, table


class Cell(nn.Module):
    """A recurrent cell with weights of its own."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.inner = nn.Linear(2 * size, size)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(self.inner(torch.cat([x, h], -1)))


class Recurrent(nn.Module):
    """A loop in a forward, over the axis 1 of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = Cell()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = x.new_zeros(x.shape[0], x.shape[2])
        outputs = []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            outputs.append(h)
        return torch.stack(outputs, dim=1), h


class Outer(nn.Module):
    """The loop is in the forward of a submodule, which runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Recurrent(), Recurrent()

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.first, self.second):
            x = layer(x)[0] + x
        return x


class Stateful(nn.Module):
    """The LSTM of many tutorials: a tuple as state, None at first."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        state = None
        outputs = []
        for x_t in x.unbind(1):
            state = self.cell(x_t, state)
            outputs += [state[0]]
        return torch.stack(outputs, 1), state[1]


class Unbound(nn.Module):
    """The LSTM of PyTorch's own examples for TorchScript."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 3)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        inputs = x.unbind(0)
        outputs = []
        for i in range(len(inputs)):
            state = self.cell(inputs[i], state)
            outputs += [state[0]]
        return torch.stack(outputs), state


class Layers(nn.Module):
    """A loop over layers inside of the loop over time, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(x.shape[1])
        for i in range(x.shape[0]):
            y = x[i]
            for layer in self.layers:
                y = torch.relu(layer(y))
            with torch.no_grad():
                h = h * self.scale + y
        return h


def cumulative(x: Tensor) -> Tensor:
    total = torch.zeros_like(x[0])
    for i in range(x.shape[0]):
        total = total + x[i]
    return total


def two_carried(x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x[0], x[0] * 0
    for i in range(x.shape[0]):
        a, b = b + x[i], a * 0.5
    return a, b


def concatenated(x: Tensor) -> Tensor:
    parts = []
    for i in range(x.shape[1]):
        parts.append(x[:, i : i + 1] * i)
    return torch.cat(parts, dim=1)


def concatenated_rows(x: Tensor) -> Tensor:
    parts = [torch.ones(2, x.shape[1])]
    for i in range(x.shape[0]):
        parts.append(x[i : i + 1].expand(2, -1))
        parts.append(x[i : i + 1].expand(2, -1) * 2)
    return torch.cat(parts, 0)


def nested(x: Tensor) -> Tensor:
    rows = []
    for i in range(x.shape[0]):
        total = x[i, 0] * 0
        for j in range(x.shape[1]):
            total = total + x[i, j] * (i - j)
        rows.append(total)
    return torch.stack(rows)


def triangular(x: Tensor) -> Tensor:
    total = x[0] * 0
    for i in range(x.shape[0]):
        for j in range(i):
            total = total + x[i] * x[j]
    return total


def nested_appends(x: Tensor) -> Tensor:
    flat = []
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            flat.append(x[i, j] + 1)
    return torch.stack(flat)


def from_one(x: Tensor) -> tuple[Tensor, Tensor]:
    h = x[:, 0]
    differences = []
    for t in range(1, x.shape[1]):
        h = h * 0.5 + x[:, t]
        differences.append(x[:, t] - x[:, t - 1])
    return h, torch.stack(differences, -1)


def downwards(x: Tensor) -> Tensor:
    h = x[-1] * 0
    for t in range(x.shape[0] - 1, -1, -1):
        h = h * 0.5 + x[t]
    return h


def with_step(x: Tensor) -> Tensor:
    h = x[0] * 0
    for t in range(0, x.shape[0], 2):
        h = h * 0.5 + x[t]
    return h


def index_arithmetic(x: Tensor) -> Tensor:
    h, n = x[0], x.shape[0]
    for i in range(n):
        h = h + x[(i + 1) % n] * (i / n) + i**2
    return h


def counters(x: Tensor) -> tuple[Tensor, Tensor]:
    h, count, weight = x[0] * 0, 0, 1.0
    for i in range(x.shape[0]):
        h = h + x[i] * weight
        count += 2
        weight = weight * 0.5
    return h + count, h * weight


def enumerated(x: Tensor, y: Tensor) -> Tensor:
    h = x[0] * 0
    for i, (a, b) in enumerate(zip(x, y, strict=False), start=1):
        h = h + a * b * i
    return h


def backwards(x: Tensor) -> Tensor:
    h = x[0] * 0
    outputs = []
    for row in reversed(x):
        h = 0.5 * h + row
        outputs.append(h)
    return torch.stack(outputs[::-1])


def comprehension(x: Tensor) -> Tensor:
    return torch.stack([torch.softmax(row, -1) * i for i, row in enumerate(x)], dim=0)


def writes_in_place(x: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.zeros_like(x)
    total = x[0] * 0
    for i in range(x.shape[0]):
        out[i] = x[i] * 2
        out[i, 0] += 1
        total += x[i]
    return out, total


def writes_through_views(x: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.zeros_like(x)
    whole = out.view(-1)
    for i in range(x.shape[0]):
        row = out[i]
        row.add_(x[i])
        row[0] = i
        out[i, 1:] *= 2
    return out, whole


def writes_twice_nested(x: Tensor) -> Tensor:
    out = torch.zeros(x.shape[0], x.shape[1])
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * (i + 1) - j
    return out


def writes_to_the_input(x: Tensor) -> Tensor:
    h = x[0] * 0
    for i in range(x.shape[0]):
        h, x[i] = h + x[i], h * 2
    return x + h


def dict_of_states(x: Tensor) -> tuple[Tensor, Tensor]:
    state = {"a": x[0], "n": 0, "p": (x[0], x[0] * 2)}
    for i in range(x.shape[0]):
        a, (p, q) = state["a"], state["p"]
        state = {"a": a + x[i], "n": state["n"] + 1, "p": (q, p)}
    return state["a"] * state["n"], state["p"][0]


def list_of_states(x: Tensor) -> tuple[Tensor, Tensor]:
    states = [x[0] * 0, x[0] + 1]
    for i in range(x.shape[0]):
        for layer in range(2):
            states[layer] = torch.tanh(states[layer] + states[layer - 1] + x[i])
    return states[0], states[1]


def last_values(x: Tensor) -> tuple[Tensor, int]:
    for i in range(x.shape[0]):
        y = x[i] * 2
        z = y + i
    return z, i


def first_pass_differs(x: Tensor) -> tuple[Tensor, Tensor]:
    total: Any = 0
    for i in range(x.shape[0]):
        if i == 0:
            h = x[i] * 3
            total = total + 1
        else:
            h = h + x[i]
        total = total + h
    return total, h


def list_afterwards(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    outputs = []
    for i in range(x.shape[0]):
        outputs.append(x[i] * i)
    total = outputs[0]
    for output in outputs:
        total = total + output
    mean = total / len(outputs)
    outputs.append(total)
    return mean, outputs[-2], torch.stack(outputs)


def stack_and_count(outputs: list[Tensor]) -> Tensor:
    return torch.stack(tuple(outputs)) * len(outputs)


def list_to_a_function(x: Tensor) -> Tensor:
    outputs = []
    for row in x.split(1):
        outputs.append(row[0] + 1)
    return stack_and_count(outputs)


def generator(x: Tensor) -> Tensor:
    return sum(x[i] * i for i in range(x.shape[0]))


def each_row(x: Tensor, step: int = 1) -> Iterator[Tensor]:
    """Weighted rows."""
    for i in range(0, x.shape[0], step):
        if step > 5:
            yield x
        yield x[i] * i


def generator_function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    total = x[0]
    for row in each_row(x, 2):
        total = total + row.tanh()
    pairs = [a * b for a, b in zip(each_row(x), each_row(x + 1))]  # noqa: B905 (as users write it)
    first = next(each_row(torch.ones(3, 3)))  # of as many as are known is an iterator, too
    return total + first, torch.stack(pairs), torch.stack(list(each_row(x)))


def comprehension_and_more(x: Tensor) -> Tensor:
    return torch.cat([x[i : i + 1] for i in range(x.shape[0])] + [x[:1]])


def by_threes(x: Tensor) -> Tensor:
    # PyTorch fixes n // 3 to 1 without fixing n: the export succeeds, for n of 3 to 5.
    total = x[0] * 0
    for i in range(x.shape[0] // 3):
        total = total + x[i * 3]
    return total


def data_dependent(x: Tensor, count: Tensor) -> Tensor:
    h = x
    for _ in range(count.item()):
        h = h * 0.5 + x
    return h


def prefixes(x: Tensor) -> Tensor:
    outputs = []
    for i in range(x.shape[0]):
        outputs.append(x[: i + 1].sum(0))
    return torch.stack(outputs)


def helper(x: Tensor, weight: float) -> Tensor:
    h = x[:, 0] * 0
    for t in range(x.shape[1]):
        h = h * weight + x[:, t]
    return h


def static_and_dynamic(x: Tensor) -> Tensor:
    # The same line, once over a fixed size and once over a dynamic one.
    return helper(x, 0.5) + helper(x.mean(1, keepdim=True).expand(-1, 3), 2.0)


def with_closure(weight: Tensor) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        def step(h: Tensor) -> Tensor:
            for t in range(x.shape[0]):
                h = h * weight + x[t]
            return h

        return step(x[0]) - weight

    return run


def static(x: Tensor) -> Tensor:
    h = x[0]
    for i in range(x.shape[1]):
        h = h + x[:, i].sum() * i
    return h


def breaks(x: Tensor) -> Tensor:
    h = x[0]
    for i in range(x.shape[0]):
        h = h + x[i]
        if i == 2:
            break
    return h


def returns(x: Tensor) -> Tensor:
    h = x[0]
    for i in range(x.shape[0]):
        return h + x[i]
    return h


def has_else(x: Tensor) -> Tensor:
    h = x[0]
    for i in range(x.shape[0]):
        h = h + x[i]
    else:
        h = h * 2
    return h


def grows(x: Tensor) -> Tensor:
    h = x[:1]
    for i in range(x.shape[0]):
        h = torch.cat([h, x[i : i + 1]])
    return h


def reads_list(x: Tensor) -> Tensor:
    parts = [x[0]]
    for i in range(x.shape[0]):
        parts.append(x[i] + parts[-1])
    return torch.stack(parts)


def decides(x: Tensor) -> Tensor:
    h = x[0]
    for i in range(x.shape[0]):
        h = h + x[i] if i % 2 == 0 else h - x[i]
    return h


def windows(x: Tensor) -> Tensor:
    parts = []
    for i in range(0, x.shape[1], 4):
        part = x[:, i : i + 6]
        parts.append(part - part.mean(1, keepdim=True))
    return torch.cat(parts, dim=1)


def windows_listed(x: Tensor) -> Tensor:
    return torch.cat([x[i : i + 4].softmax(0) for i in range(0, x.shape[0], 4)])


def windows_afterwards(x: Tensor) -> tuple[Tensor, Tensor, int]:
    parts = [x[:1]]
    for part in x.split(4):
        parts.append(part.exp())
    total = parts[0].sum()
    for part in parts:
        total = total * 0.5 + part.sum()
    parts.append(x)
    return torch.cat(parts), total + parts[-2].sum(), len(parts)


def parts_of_a_split(x: Tensor) -> Tensor:
    return torch.cat([part.cumsum(1) for part in torch.split(x, 3, dim=1)], 1)


def padded_prefixes(x: Tensor) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([x[: i + 1] * i for i in range(x.shape[0])], True, -1.0)


def padded_rows(x: Tensor) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([row * 2 for row in x])


def backtracked(x: Tensor) -> Tensor:
    steps = []
    for i in range(1, x.shape[0]):
        steps.append(x[i] > x[i - 1])
    path = [x[-1]]
    for step in reversed(steps):
        path.insert(0, torch.where(step, path[0], -path[0]))
    return torch.stack(path)


def normed(row: Tensor) -> Tensor:
    return row / row.norm()


def mapped(x: Tensor) -> tuple[Tensor, Tensor]:
    products = map(lambda a, b: a * b.sum(), x, x.flip(0))
    return torch.stack(list(map(normed, x))), torch.stack([*products])


def mapped_layers(x: Tensor) -> Tensor:
    first = next(map(torch.relu, [x, -x]))
    for row in map(normed, x):
        first = first + row
    return first


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape)


CASES = [
    Case("recurrent", Recurrent(), [rows(3, 5, 4)], {0: [0, 1]}, has=["Loop"]),
    Case("submodule", Outer(), [rows(2, 5, 4)], {0: [0, 1]}, has=["Loop"]),
    Case("state_none_at_first", Stateful(), [rows(2, 5, 4)], {0: [0, 1]}, has=["Loop"]),
    Case("layers", Layers(), [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("cumulative", cumulative, [rows(5, 3)], "all", has=["Loop"]),
    Case("two_carried", two_carried, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("concatenated", concatenated, [rows(2, 5, 3)], {0: [1]}, has=["Loop"]),
    Case("concatenated_rows", concatenated_rows, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("nested", nested, [rows(3, 4)], "all", has=["Loop"]),
    Case("triangular", triangular, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("nested_appends", nested_appends, [rows(3, 4, 2)], {0: [0, 1]}, has=["Loop"]),
    Case("from_one", from_one, [rows(2, 5)], {0: [0, 1]}, has=["Loop"], left_out="non-empty TensorList"),
    Case("downwards", downwards, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("with_step", with_step, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("index_arithmetic", index_arithmetic, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("counters", counters, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("enumerated", enumerated, [rows(5, 3), rows(5, 3)], {0: {0: "n"}, 1: {0: "n"}}, has=["Loop"]),
    Case("backwards", backwards, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("comprehension", comprehension, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("writes_in_place", writes_in_place, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("writes_through_views", writes_through_views, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("writes_twice_nested", writes_twice_nested, [rows(3, 4)], "all", has=["Loop"]),
    Case("writes_to_the_input", writes_to_the_input, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("dict_of_states", dict_of_states, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("list_of_states", list_of_states, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("last_values", last_values, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("first_pass_differs", first_pass_differs, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("list_afterwards", list_afterwards, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("list_to_a_function", list_to_a_function, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("generator", generator, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("generator_function", generator_function, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("comprehension_and_more", comprehension_and_more, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("by_threes", by_threes, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("windows", windows, [rows(2, 9, 3)], {0: [0, 1]}, has=["Loop"]),
    Case("windows_listed", windows_listed, [rows(9, 3)], {0: [0]}, has=["Loop"]),
    Case("windows_afterwards", windows_afterwards, [rows(9, 3)], {0: [0]}, has=["Loop"]),
    Case("parts_of_a_split", parts_of_a_split, [rows(2, 8)], "all", has=["Loop"]),
    Case("padded_prefixes", padded_prefixes, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("padded_rows", padded_rows, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("backtracked", backtracked, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("mapped", mapped, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("mapped_layers", mapped_layers, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("data_dependent", data_dependent, [rows(2, 3), torch.tensor(4)], has=["Loop"]),
    Case("prefixes", prefixes, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("free_function", lambda x: helper(x, 0.5), [rows(2, 5)], {0: [1]}, has=["Loop"]),
    Case("static_and_dynamic", static_and_dynamic, [rows(2, 5)], {0: [1]}, has=["Loop"]),
    Case("closure", with_closure(torch.tensor(0.5)), [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("breaks", breaks, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("returns", returns, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("has_else", has_else, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("grows", grows, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("reads_list", reads_list, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    Case("decides", decides, [rows(5, 3)], {0: [0]}, has=["Loop", "If"]),
    Case("static_stays_unrolled", static, [rows(3, 4)], {0: [0]}, has_not=["Loop"]),
]


@table(CASES)
def test_loops(case: Case) -> None:
    assert "jit" not in check(case).capture


@table(CASES[::8])
def test_without_the_recorder(case: Case) -> None:
    """Which knows the loops: then they are rewritten after torch.export has failed at them."""
    check(case, capture="export")


def test_unbound() -> None:
    result = tonnx.export(
        Unbound(), (rows(5, 2, 4), (rows(2, 3), rows(2, 3))), dynamic_shapes={"x": {0: "time"}, "state": None}
    )
    assert "Loop" in {node.op_type for node in result.model.graph}


AT_OPSETS = {
    "recurrent": Case("recurrent", Recurrent(), [rows(3, 5, 4)], {0: [0, 1]}, has=["Loop"]),
    "nothing_carried": Case("nothing_carried", comprehension, [rows(5, 3)], {0: [0]}, has=["Loop"]),
    "nested": Case("nested", nested, [rows(3, 4)], "all", has=["Loop"]),
}


@pytest.mark.parametrize(
    ("opset", "name"),
    [
        *((8, name) for name in AT_OPSETS),
        *((9, "nothing_carried"), (11, "recurrent"), (13, "nested"), (26, "recurrent"), (26, "nothing_carried")),
    ],
)
def test_opsets(opset: int, name: str) -> None:
    check(replace(AT_OPSETS[name], opset=opset))


def test_after_torch_dynamo_has_failed_in_a_capture() -> None:
    """Functions are called in another way from then on, and an argument has one reference more."""

    def reads(x: Tensor) -> Tensor:
        return torch.compile(lambda x: x if x.sum() > 0 else -x, backend="eager", fullgraph=True)(x)

    with pytest.raises(tonnx.TonnxError, match="ata-dependent"):
        tonnx.export(reads, torch.ones(2))
    result = tonnx.export(Recurrent(), rows(2, 5, 4), dynamic_axes={"x": {1: "t"}}, capture="export")
    assert result.capture == "control flow rewritten"
