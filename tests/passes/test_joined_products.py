"""Three products of one value and more are one, for ONNX Runtime."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

import tonnx
from tonnx.ir.target import ORT, ORT_CPU


class Layers(nn.Module):
    """Linear layers of several widths that read one sequence."""

    def __init__(self, widths: tuple[int, ...], bias: bool = False, shared: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, width, bias=bias) for width in widths)
        self.shared = shared

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        results = [layer(x).reshape(*x.shape[:2], 2, -1) for layer in self.layers]
        return [*results, self.layers[0](torch.tanh(x))] if self.shared else results


@pytest.mark.parametrize(
    ("model", "runtime", "wanted"),
    [
        (Layers((16, 8, 8)), ORT, {"MatMul": 1, "Split": 1}),
        (Layers((16, 8, 8), bias=True), ORT, {"MatMul": 1, "Add": 1, "Split": 1}),
        (Layers((16, 8, 8)), ORT_CPU, {"MatMul": 3}),
        (Layers((16, 8)), ORT, {"MatMul": 2}),
        (Layers((8, 8, 8, 4), shared=True), ORT, {"MatMul": 3, "Split": 1}),
    ],
    ids=["three", "with biases", "not asked for", "two", "a weight of two"],
)
def test_products_of_one_value(model: Layers, runtime: str, wanted: dict[str, int]) -> None:
    torch.manual_seed(0)
    axes = {"x": {0: "batch", 1: "sequence"}}
    result = tonnx.export(model.eval(), (torch.randn(2, 3, 16),), dynamic_axes=axes, runtime=runtime)
    counts = Counter(node.op_type for node in result.model.graph)
    assert {name: counts[name] for name in ("MatMul", "Gemm", "Add", "Split") if counts[name]} == wanted
    assert result.verification is not None
    stored = sum(value.const_value.nbytes for value in result.model.graph.initializers.values())  # type: ignore[union-attr]
    assert stored < 4 * sum(parameter.numel() for parameter in model.parameters()) + 512


def test_weights_that_stay_in_a_file(tmp_path: object) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    model, path = Layers((16, 8, 8)), f"{tmp_path}/model.safetensors"
    safetensors.save_file(model.state_dict(), path)
    model.load_state_dict(safetensors.load_file(path), assign=True)
    result = tonnx.export(
        model.eval(), (torch.randn(2, 3, 16),), f"{tmp_path}/m.onnx", runtime=ORT, weights="reference"
    )
    assert Counter(node.op_type for node in result.model.graph)["Split"] == 0
