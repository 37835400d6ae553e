"""Programs in plain Python code whose course depends on values, exported and run on inputs that take every way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import tonnx
from tonnx.proof.session import Session


@dataclass
class Program:
    """A model, inputs that take every way through it (the first is the example), and what must be in the file."""

    model: Callable[..., Any] | nn.Module
    inputs: Sequence[Sequence[Tensor]]
    has: Sequence[str] = ("If",)
    dynamic: bool = True
    """Whether the first axis of the inputs is."""

    @property
    def name(self) -> str:
        return str(getattr(self.model, "__name__", type(self.model).__name__))


def export(program: Program, opset: int = 18, capture: str = "export") -> tonnx.ExportResult:
    inputs = tuple(x.clone() for x in program.inputs[0])
    names = [f"in{i}" for i in range(len(inputs))]
    axes = {name: {0: "n"} for name, x in zip(names, inputs, strict=True) if x.dim() and program.dynamic}
    options = {"input_names": names, "dynamic_axes": axes, "opset_version": opset, "capture": capture}
    return tonnx.export(program.model, inputs, None, **options, verify=False)  # `agree` compares, on more inputs


def agree(program: Program, opset: int = 18) -> tonnx.ExportResult:
    """Export, and compare with PyTorch on all inputs."""
    result = export(program, opset, "auto")
    assert "jit" not in result.capture
    sizes = {x.shape[0] for inputs in program.inputs for x in inputs if x.dim()}
    assert len(sizes) > 1 or not program.dynamic or not sizes, f"dynamic, but compared at {sizes} only"
    kinds = {node.op_type for node in result.model.graph.all_nodes()}
    assert set(program.has) <= kinds, f"{program.has} not in {sorted(kinds)}"
    assert result.model.opset_imports[""] == opset
    session = Session(result.proto.SerializeToString())
    model = program.model.eval() if isinstance(program.model, nn.Module) else program.model
    for inputs in program.inputs:
        feeds = {f"in{i}": x.numpy().copy() for i, x in enumerate(inputs)}
        found = list(session.run(feeds).values())
        with torch.no_grad():
            wanted = pytree.tree_leaves(model(*[x.clone() for x in inputs]))
        for got, want in zip(found, wanted, strict=True):
            want = np.asarray(want.numpy() if isinstance(want, Tensor) else want)
            assert got.shape == want.shape, f"{got.shape} instead of {want.shape}"
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return result


def ramp(*shape: int, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    count = math.prod(shape)
    return torch.linspace(-1, 1, count).reshape(shape) * scale + shift


BOTH = [[ramp(4, 3, shift=1)], [ramp(4, 3, shift=-1)], [ramp(2, 3, shift=1)], [ramp(7, 3, shift=-1)]]
"""Positive and negative sums, at several sizes."""
SCALES = [[ramp(4, 3, scale=s, shift=t)] for s in (0.5, 3.0, 40.0) for t in (0.4, 2.0, -2.0)] + [
    [ramp(1, 3, shift=0.4)]
]
