"""PyTorch's own integer kernels: whether they can be believed on this processor."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import onnx_ir as ir
import torch

from tonnx.ir.provenance import origin_of

FRAMEWORK = "PyTorch"


def judge_of_kernels(model: ir.Model) -> Callable[[], str | None] | None:
    """For a model that was lowered from integer kernels: a function that names PyTorch if they saturate here."""
    operators = (origin_of(node).operator for node in model.graph.all_nodes())
    return saturating if any(name.startswith("quantized") for name in operators) else None


def saturating() -> str | None:
    """PyTorch, if its product of uint8 by int8 is cut off on this processor by the engine that is in use."""
    return FRAMEWORK if _saturates(torch.backends.quantized.engine) else None


@cache
def _saturates(engine: str) -> bool:
    if engine == "none":
        return False
    size, most = 4, 4 * 255 * 127
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that quantised tensors will go one day
        x = torch.quantize_per_tensor(torch.full((1, size), 255.0), 1.0, 0, torch.quint8)
        weight = torch.quantize_per_tensor(torch.full((1, size), 127.0), 1.0, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(weight, None)
    step = most / 200
    return bool(torch.ops.quantized.linear(x, packed, step, 0).dequantize().item() < most - step)
