"""The model in float64: what it computes is near the truth, and nothing of the module is changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tonnx.frontends.torch.reference.wide import Wide


class Mixed(torch.nn.Module):
    """Weights, buffers, tensors that are neither, tensors that it makes, casts, and writes in place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.GELU())
        self.recurrent = torch.nn.LSTM(4, 5, batch_first=True)
        self.table = torch.randn(5, 5)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.layers(x).float().mean(2).transpose(1, 2)
        y = self.recurrent(x)[0] @ self.table
        places = torch.zeros(y.shape[1], 5)
        places[1:] += torch.linspace(0, 1, 5)
        y += places
        return F.softmax(y, -1).clamp_(min=0.01), y.argmax(-1)


def _in_float64(model: Mixed, x: torch.Tensor) -> Any:
    """As one would do it by hand."""
    y = model.recurrent.double()(model.layers.double()(x.double()).mean(2).transpose(1, 2))[0] @ model.table.double()
    places = torch.zeros(y.shape[1], 5, dtype=torch.float64)
    places[1:] += torch.linspace(0, 1, 5).double()
    return F.softmax(y + places, -1).clamp(min=0.01)


def test_all_of_it_is_computed_in_float64() -> None:
    model, x = Mixed().eval(), torch.randn(2, 3, 8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        plain = model(x)
        with Wide():
            wide = model(x)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        truth = _in_float64(model, x)
    assert wide[0].dtype == torch.float64
    assert torch.equal(wide[1], plain[1])
    assert torch.allclose(wide[0], truth, rtol=1e-12, atol=0)
    assert not torch.equal(plain[0].double(), truth)


@pytest.mark.parametrize("function", [lambda x: x.add_(1), lambda x: x.__setitem__(0, 2.0), lambda x: x.__iadd__(1)])
def test_what_is_written_to_an_older_tensor_arrives(function: Any) -> None:
    plain, wide = torch.ones(3), torch.ones(3)
    function(plain)
    with Wide():
        function(wide)
    assert torch.equal(plain, wide)
