"""A deep model, its file, and faults that are planted in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn

import tonnx
from tonnx.frontends.torch.settings import Settings


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, width)
        self.act = nn.Tanh()

    def forward(self, x: Tensor) -> Tensor:
        return x - self.act(self.fc(self.norm(x)))


class Deep(nn.Module):
    """Four nodes a block, and one at the end."""

    def __init__(self, blocks: int, width: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return torch.sigmoid(x)


def deep(blocks: int) -> Deep:
    torch.manual_seed(0)
    model = Deep(blocks).eval()
    for block in model.blocks:
        nn.init.uniform_(block.norm.bias, -0.5, 0.5)
    return model


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


def exported(model: nn.Module, args: Any, path: Path, opset: int = 18, **options: Any) -> onnx.ModelProto:
    tonnx.export(model, args, path, opset_version=opset, verify=False, **options)
    return onnx.load(path)


# Faults


def other_weights(model: onnx.ModelProto, index: int) -> None:
    name = next(n for n in model.graph.node[index].input if any(n == t.name for t in model.graph.initializer))
    tensor = next(t for t in model.graph.initializer if t.name == name)
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor)[::-1].copy(), name))


def another_attribute(model: onnx.ModelProto, index: int) -> None:
    node = model.graph.node[index]
    name, value = {"Gemm": ("alpha", 1.25), "LayerNormalization": ("epsilon", 0.5)}[node.op_type]
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def swapped(model: onnx.ModelProto, index: int) -> None:
    node = model.graph.node[index]
    node.input[0], node.input[1] = node.input[1], node.input[0]


def another_operator(model: onnx.ModelProto, index: int) -> None:
    model.graph.node[index].op_type = "Sin"


FAULTS: dict[str, tuple[str, Callable[[onnx.ModelProto, int], None]]] = {
    "other weights": ("Gemm", other_weights),
    "another attribute": ("Gemm", another_attribute),
    "operands swapped": ("Sub", swapped),
    "another operator": ("Tanh", another_operator),
    "another epsilon": ("LayerNormalization", another_attribute),
}
MODULES = {"Gemm": "fc", "Tanh": "act", "LayerNormalization": "norm", "Sub": ""}


def strip(model: onnx.ModelProto) -> None:
    """All names and origins go."""
    renamed: dict[str, str] = {}
    kept = {value.name for value in (*model.graph.input, *model.graph.output)}
    for node in model.graph.node:
        node.ClearField("name")
        node.ClearField("doc_string")
        node.ClearField("metadata_props")
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
        for place, name in enumerate(node.output):
            if name not in kept:
                renamed[name] = node.output[place] = f"v{len(renamed)}"
    del model.graph.value_info[:]


def wrong_rule(monkeypatch: pytest.MonkeyPatch, operator: str, function: Any) -> None:
    right = Settings.rule

    def rule(self: Settings, schema: Any, **how: Any) -> Any:
        found = right(self, schema, **how)
        return replace(found, function=function) if schema.name == operator else found

    monkeypatch.setattr(Settings, "rule", rule)
