"""What a mask says by hand and the operator says itself: causality, and zeros for queries that see nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import nn

import tonnx
from tonnx.ir.target import ORT, ORT_CPU

Condition = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def causal(keys: torch.Tensor, queries: torch.Tensor, past: int) -> torch.Tensor:
    return keys[None] <= queries[:, None] + past


def strict(keys: torch.Tensor, queries: torch.Tensor, past: int) -> torch.Tensor:
    return keys[None] < queries[:, None] + past


def from_the_beginning(keys: torch.Tensor, queries: torch.Tensor, past: int) -> torch.Tensor:
    return keys[None] <= queries[:, None]


def turned_round(keys: torch.Tensor, queries: torch.Tensor, past: int) -> torch.Tensor:
    return keys[None] >= queries[:, None] + past


class Step(nn.Module):
    """Attention with a past behind a mask of conditions and padding, for two layers."""

    def __init__(self, condition: Condition) -> None:
        super().__init__()
        self.condition = condition

    def forward(self, x: torch.Tensor, mask: torch.Tensor, past: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        count, before = x.shape[2], past.shape[2]
        seen = self.condition(torch.arange(count + before), torch.arange(count), before)[None, None]
        seen = seen & mask[:, None, None, :].bool()
        for old in (past, other):
            key, value = torch.cat((old, x), 2), torch.cat((old, x * 2), 2)
            x = x + nn.functional.scaled_dot_product_attention(x, key, value, seen)
        return x


def exported(condition: Condition, opset: int, runtime: str | None) -> tonnx.ExportResult:
    torch.manual_seed(0)
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[0, :5] = 0  # the first query of the first text sees nothing
    inputs = (torch.randn(2, 2, 3, 8), mask, torch.randn(2, 2, 4, 8), torch.randn(2, 2, 4, 8))
    past = {0: "batch", 2: "past"}
    return tonnx.export(
        Step(condition), inputs, opset_version=opset, runtime=runtime,
        dynamic_axes={"x": {0: "batch", 2: "new"}, "mask": {0: "batch", 1: "past + new"}, "past": past, "other": past},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "opset", "runtime", "is_causal", "wanted"),
    [
        (causal, 24, ORT, 1, {"LessOrEqual": 0, "Expand": 1, "Where": 0}),
        (causal, 23, ORT, 0, {"LessOrEqual": 1, "Where": 2}),  # NaN in an older ONNX Runtime
        (causal, 24, ORT_CPU, 0, {"LessOrEqual": 1, "Where": 2}),
        (causal, 24, None, 0, {"LessOrEqual": 1, "Where": 2}),
        (strict, 24, ORT, 0, {"Less": 1, "Where": 0}),
        (from_the_beginning, 24, ORT, 0, {"LessOrEqual": 1, "Where": 0}),
        (turned_round, 24, ORT, 0, {"GreaterOrEqual": 1, "Where": 0}),
    ],
)
def test_what_the_operator_says_itself(
    condition: Condition, opset: int, runtime: str | None, is_causal: int, wanted: dict[str, int]
) -> None:
    result = exported(condition, opset, runtime)  # proven: at other sizes, and with queries that see nothing
    assert result.verification is not None
    attentions = [node for node in result.model.graph if node.op_type == "Attention"]
    assert [node.attributes["is_causal"].as_int() for node in attentions] == [is_causal] * 2
    counts = Counter(node.op_type for node in result.model.graph)
    assert {name: counts[name] for name in wanted} == wanted
