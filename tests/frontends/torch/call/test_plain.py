"""A call of the model means what it means to the user: a ``__call__`` of its own included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tonnx


class Pooled(nn.Module):
    """``__call__`` fills in an argument, as those of graph networks do."""

    def __call__(self, x: Tensor, size: int | None = None) -> Any:
        return super().__call__(x, size=x.shape[1] if size is None else size)

    def forward(self, x: Tensor, size: int | None = None) -> Tensor:
        return torch.cat([x, x.new_ones(x.shape[0], size)], 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("capture", ["record", "export"])
def test_a_call_of_its_own_is_part_of_the_model(capture: str, tmp_path: Path) -> None:
    model = Pooled()
    model.register_forward_hook(lambda module, args, result: result + 1)
    x, path = torch.rand(2, 3), tmp_path / "net.onnx"
    result = tonnx.export(model, x, path, dynamic_shapes=({0: "b", 1: "n"},), capture=capture)
    assert result.verification is not None and result.verification.ok
    shape = result.model.graph.outputs[0].shape
    assert shape is not None and str(shape[1]) == "2*n"
