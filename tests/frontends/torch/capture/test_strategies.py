"""The list of strategies: which one is taken, and what the others say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tonnx.errors import CaptureError, InvalidArgument
from tonnx.frontends.torch.call.signature import DimSpec, bind_call
from tonnx.frontends.torch.capture import strategies, torch_export
from tonnx.frontends.torch.capture.strategies import STRATEGIES, Strategy, capture
from tonnx.frontends.torch.convert import as_module
from tonnx.frontends.torch.fx.trace import FxTrace
from tonnx.frontends.torch.reference.mode import inference_mode

REWRITTEN = "control flow rewritten"


def plain(x: Tensor) -> Tensor:
    return x + 1


def branch(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x + 1
    return x - 1


class ScriptedPart(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = torch.jit.script(branch)

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x) * 2


class Unscriptable(ScriptedPart):
    def forward(self, x: Tensor) -> Tensor:
        return self.part(x) * len([*"ab"])


def taken(asked: str, model: Any) -> Any:
    module = as_module(model)
    with inference_mode(module):
        return capture(asked, module, bind_call(module, (torch.ones(2, 3),), None, None), FxTrace)


@pytest.mark.parametrize(
    ("asked", "model", "how"),
    [
        ("auto", plain, "recorder"),
        ("export", plain, "torch.export"),
        ("auto", branch, REWRITTEN),
        ("export", branch, REWRITTEN),
        ("script", plain, "torch.jit.script"),
        ("trace", plain, "torch.jit.trace"),
        ("auto", torch.jit.script(branch), "TorchScript"),
        ("auto", ScriptedPart(), "torch.jit.script"),
        ("auto", Unscriptable(), "torch.jit.trace"),
    ],
)
def test_taken(asked: str, model: Any, how: str) -> None:
    program = taken(asked, model)
    assert program.how == how
    before = [strategy.name for strategy in STRATEGIES][: len(program.passed_over)]
    assert [line.partition(":")[0] for line in program.passed_over] == before
    assert all(line.partition(": ")[2] for line in program.passed_over)


def loop(x: Tensor) -> Tensor:
    total = x.new_zeros(x.shape[1])
    for row in range(x.shape[0]):
        total = torch.tanh(total + x[row])
    return total


@pytest.mark.parametrize("asked", ["auto", "export"])
def test_a_loop_is_recorded_without_torch_export(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    exports: list[Any] = []
    export = torch_export.export
    monkeypatch.setattr(torch_export, "export", lambda *args: exports.append(args) or export(*args))
    module = as_module(loop)
    call = bind_call(module, (torch.ones(2, 3),), None, None)
    call.leaves[0].dynamic[0] = DimSpec("n")
    with inference_mode(module):
        program = capture(asked, module, call, FxTrace)
    assert program.how == REWRITTEN
    assert bool(exports) is (asked == "export")


def test_one_more_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more row is all that another way needs; its error does not hide those of the others."""

    def refuses(task: strategies.Task) -> Any:
        raise CaptureError("it cannot")

    row = Strategy("another", "always", lambda task: True, refuses, telling=False)
    monkeypatch.setattr(strategies, "STRATEGIES", (row, *STRATEGIES))
    program = taken("auto", plain)
    assert program.how == "recorder" and program.passed_over[0] == "another: it cannot"


@pytest.mark.parametrize(
    ("asked", "model", "message"),
    [
        ("jit", plain, "one of auto, record, export, script, trace"),
        ("export", torch.jit.script(branch), "takes no TorchScript"),
    ],
)
def test_refused(asked: str, model: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        taken(asked, model)


@pytest.mark.parametrize("asked", ["auto", "export"])
def test_a_model_that_fails_on_its_example_says_so(asked: str) -> None:
    with pytest.raises(CaptureError, match="the model itself fails on the example") as raised:
        taken(asked, nn.Conv2d(3, 4, 3))
    assert "channels" in str(raised.value) or "expected" in str(raised.value).lower()
    assert "torch's functions" not in str(raised.value)
