"""Loops that cannot be recorded, and what a capture leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import tonnx
from tests.frontends.torch.python_flow.test_loops import CASES, Recurrent, cumulative, rows
from tests.lowering.harness import Case, check

# What cannot be recorded


def uneven(x: Tensor) -> Tensor:
    parts = []
    for i in range(x.shape[0]):
        parts.append(x.new_ones(i + 1, i + 1))
    return parts[-1]


def shared_list(x: Tensor) -> Tensor:
    parts: list[Tensor] = []
    alias = parts
    for i in range(x.shape[0]):
        parts.append(x[i])
    return torch.stack(alias)


def returns_list(x: Tensor) -> list[Tensor]:
    parts = []
    for i in range(x.shape[0]):
        parts.append(x[i])
    return parts


def outer_dict(x: Tensor) -> Tensor:
    cache: dict[str, Tensor] = {}
    for i in range(x.shape[0]):
        cache.update(last=x[i])
    return cache["last"]


REFUSED = [
    (uneven, "what it appends to parts has another shape in each pass"),
    (returns_list, "return torch.stack of it"),
    (shared_list, "the list parts that it fills is held elsewhere too"),
    (outer_dict, "its body changes an object from outside of it, a dict"),
]


@pytest.mark.parametrize("model, reason", REFUSED, ids=[reason for _, reason in REFUSED])
def test_refused(model: Any, reason: str) -> None:
    with pytest.raises(tonnx.CaptureError) as caught:
        check(Case("refused", model, [rows(5, 3)], {0: {0: "n"}}), capture="export")
    text = str(caught.value)
    assert "dimension 0 of the input 'in0' (n) cannot be dynamic: the model fixes it to 5" in text
    assert "for i in range(x.shape[0])" in text
    assert reason in text


def test_write_that_shows_outside() -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        h = x[0] * 1
        first = h
        for i in range(x.shape[0]):
            h.mul_(0.5)
            h = h + x[i]
        return h, first

    with pytest.raises(tonnx.LoweringError, match="the loop writes in place to mul, which is used outside of it too"):
        check(Case("refused", model, [rows(5, 3)], {0: [0]}))


def test_functions_are_put_back() -> None:
    code, forward = cumulative.__code__, Recurrent.forward.__code__
    check(CASES[0])
    check(next(case for case in CASES if case.model is cumulative))
    with pytest.raises(tonnx.CaptureError):
        check(Case("refused", uneven, [rows(5, 3)], {0: [0]}), capture="export")
    assert cumulative.__code__ is code
    assert Recurrent.forward.__code__ is forward
    assert "tonnx_control" not in uneven.__code__.co_names + uneven.__code__.co_varnames


def test_source_lines_are_the_users() -> None:
    result = check(CASES[0])
    sources = {node.metadata_props.get("tonnx.source", "") for node in result.model.graph.all_nodes()}
    line = Recurrent.forward.__code__.co_firstlineno + 4  # x[:, t]
    assert f"tests/frontends/torch/python_flow/test_loops.py:{line}" in sources
    assert all("loops.py" not in source or "test_loops.py" in source for source in sources)
