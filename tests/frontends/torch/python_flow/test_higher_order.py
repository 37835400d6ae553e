"""Operators that take graphs: modes are inlined, torch.cond becomes If, loops and scans become Loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.map import map as map_over
from torch.compiler import nested_compile_region
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

import tonnx
from tests.lowering.harness import Case, check, table
from tonnx.proof.session import Session


class NoGradInside(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x * 2
        with torch.enable_grad():
            return y + x


class AutocastOff(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            y = torch.softmax(x.float(), -1)
        return y * x


class Cond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.linear(x) + 1, lambda x: x - 1, (x,)) * 2


def test_modes_are_inlined() -> None:
    for model in (NoGradInside(), AutocastOff()):
        result = tonnx.export(model, torch.randn(2, 3), dynamic_axes={"x": {0: "batch"}})
        assert result.verification is not None and result.verification.ok


def test_cond_becomes_if_and_takes_both_sides() -> None:
    model = Cond().eval()
    for opset in (11, 13, 18, 23):
        result = tonnx.export(model, torch.randn(2, 3), dynamic_axes={"x": {0: "batch"}}, opset_version=opset)
        assert "If" in {node.op_type for node in result.model.graph}
        session = Session(result.proto.SerializeToString())
        for sign in (1.0, -1.0):
            x = sign * np.abs(np.random.default_rng(0).standard_normal((5, 3), dtype=np.float32))
            (got,) = session.run({"x": x}).values()
            with torch.no_grad():
                np.testing.assert_allclose(got, model(torch.from_numpy(x)).numpy(), rtol=1e-4, atol=1e-5)


class Linear(nn.Module):
    """A model with a weight, which what is inside it closes over."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 3)


class WhileLoop(Linear):
    def forward(self, x: Tensor) -> Any:
        return while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, self.linear(y)), (torch.tensor(0), x))


class WhileOnValues(Linear):
    """Two states, a condition on both, none of which may be true at the beginning."""

    def forward(self, x: Tensor) -> Any:
        y = x.abs() + 1
        return while_loop(lambda y, z: (y.sum() < 500) & (z.sum() < 1000), lambda y, z: (y * 2, z + y), (y, x * 0))


class NestedLoops(Linear):
    def forward(self, x: Tensor) -> Any:
        def inner(i: Tensor, y: Tensor) -> Any:
            return while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z + self.linear.bias), (torch.tensor(0), y))[1]

        return while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, inner(i, y) * 0.5), (torch.tensor(0), x))[1]


class Scan(Linear):
    def forward(self, x: Tensor) -> Any:
        return scan(lambda carry, y: (carry + self.linear(y), carry * 2), torch.zeros(3), x)


class ScanOfTrees(Linear):
    """Along another axis, backwards, with a dict as state."""

    def forward(self, x: Tensor) -> Any:
        def step(state: Any, y: Tensor) -> Any:
            return {"a": state["a"] + y, "b": state["b"] * 0.5 + state["a"]}, (state["a"] * 2, y + 1)

        first = {"a": x[:, 0] * 0, "b": x[:, 0] + 1}
        return scan(step, first, x, dim=1, reverse=True)


class CondInScan(Linear):
    def forward(self, x: Tensor) -> Any:
        def step(carry: Tensor, y: Tensor) -> Any:
            return torch.cond(y.sum() > 0, lambda a, b: a + b, lambda a, b: a - b, (carry, y)), carry * 2

        return scan(step, torch.zeros(3), x)


class Map(Linear):
    def forward(self, x: Tensor) -> Any:
        return map_over(lambda row, weight: self.linear(row) + weight, x, self.linear.bias * 2)


class AssociativeScan(Linear):
    """The recurrence of state space models."""

    def forward(self, x: Tensor) -> Any:
        def combine(a: Any, b: Any) -> Any:
            return a[0] * b[0], a[1] * b[0] + b[1]

        forwards = associative_scan(combine, (x.sigmoid(), x), 0, combine_mode="generic")
        backwards = associative_scan(torch.add, x, 0, reverse=True, combine_mode="generic")
        return forwards, backwards


class Checkpoint(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(lambda y: self.linear(y) * 2, x, use_reentrant=False)


class Autocast(Linear):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.softmax(self.linear(x), -1)
        return y.float() + x


class WritesWithoutGradients(Linear):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        with torch.enable_grad():
            y.add_(1)
        return y


class FlexAttention(nn.Module):
    def forward(self, q: Tensor) -> Tensor:
        def score(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where(i >= j, score + (i - j) * 0.1, -1e4)

        return flex_attention(q, q * 2, q, score_mod=score)


X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
Q = torch.randn(2, 2, 6, 16, generator=torch.Generator().manual_seed(0))

CASES = [
    Case("while_loop", WhileLoop(), [X], {0: [0]}, has=["Loop"]),
    Case("while_on_values", WhileOnValues(), [X], {0: [0]}, has=["Loop"]),
    Case("nested_loops", NestedLoops(), [X], {0: [0]}, has=["Loop"]),
    Case("scan", Scan(), [X], {0: [0]}, has=["Loop"]),
    Case("scan_of_trees", ScanOfTrees(), [X], {0: [0, 1]}, has=["Loop"]),
    Case("cond_in_scan", CondInScan(), [X], {0: [0]}, has=["Loop", "If"]),
    Case("map", Map(), [X], {0: [0]}, has=["Loop"]),
    Case("associative_scan", AssociativeScan(), [X], {0: [0]}, has=["Loop"]),
    Case("checkpoint", Checkpoint(), [X], {0: [0]}),
    Case("autocast", Autocast(), [X], {0: [0]}, rtol=2e-2, atol=1e-2),
    Case("writes_without_gradients", WritesWithoutGradients(), [X], {0: [0]}),
    Case("flex_attention", FlexAttention(), [Q], {0: [0]}),
]


@table(CASES)
def test_higher_order(case: Case) -> None:
    check(case, capture="export")


@pytest.mark.parametrize(("opset", "at"), [(11, 1), (11, 4), (11, 7), (13, 1), (23, 4)])
def test_opsets(opset: int, at: int) -> None:
    case = CASES[at]
    check(Case(case.name, case.model, case.inputs, case.dynamic, opset, has=["Loop"]), capture="export")


@nested_compile_region
def region(x: Tensor) -> Tensor:
    return torch.sin(x) + 1


class Regions(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return region(x) + region(x * 2)


class Hints(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return hints_wrapper(lambda y: torch.relu(y) * 2, (x,), {}, hints={"quant": False})


@pytest.mark.parametrize("model", [Regions(), Hints()], ids=["invoke_subgraph", "hints_wrapper"])
def test_only_in_strict_programs(model: nn.Module) -> None:
    result = tonnx.export(torch.export.export(model, (X,), strict=True))
    assert result.verification is not None and result.verification.ok
