"""Operators that take graphs: modes are inlined, torch.cond becomes If."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import tonnx
from tonnx.proof import Session


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
