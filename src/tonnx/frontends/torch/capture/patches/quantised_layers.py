"""Layers that quantise as they go, during a capture: torch.export has no place for packed weights, but for tensors.

Their inputs and outputs are plain numbers, so an operator of our own with the unpacked weights says all there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from tonnx.frontends.patching import ABSENT, How, Patch
from tonnx.frontends.torch.capture.patches.library import operator
from tonnx.frontends.torch.operators.prepacked import Integers, Packed, unpacked

LINEAR = ("torch.ao.nn.quantized.dynamic.modules.linear.Linear",
          "torch.ao.nn.intrinsic.quantized.dynamic.modules.linear_relu.LinearReLU")  # fmt: skip
"""The modules that have a stand-in."""


def kind_of(module: torch.nn.Module) -> str:
    """The full name of a module's class."""
    return f"{type(module).__module__}.{type(module).__name__}"


_SCHEMA = (
    "linear_dynamic(Tensor x, Tensor weight, Tensor? scale, Tensor? zero, Tensor? bias, int axis, "
    "bool reduce_range, bool relu) -> Tensor"
)


def _linear(x: torch.Tensor, weight: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty([*x.shape[:-1], weight.shape[0]])


def _forward(
    tensors: dict[str, Any], axis: int, reduced: bool, relu: bool, original: Any, x: torch.Tensor
) -> torch.Tensor:
    weight, scale, zero, bias = (tensors[name] for name in ("weight", "scale", "zero", "bias"))
    result: torch.Tensor = operator(_SCHEMA, _linear)(x.float(), weight, scale, zero, bias, axis, reduced, relu)
    return result.to(x.dtype)


def _tensors(pack: Packed) -> tuple[dict[str, Any], int]:
    held = pack.weight
    arrays = {"weight": held, "scale": None, "zero": None, "bias": pack.bias}
    if isinstance(held, Integers):
        arrays |= {"weight": held.integers, "scale": held.scale, "zero": held.zero}
    tensors = {name: None if array is None else torch.as_tensor(array) for name, array in arrays.items()}
    return tensors, held.axis if isinstance(held, Integers) else 0


def quantised_layers(model: torch.nn.Module) -> Iterator[Patch]:
    """The forward of every such layer of the model; its packed weights are put aside."""
    for module in model.modules():
        if kind_of(module) not in LINEAR:
            continue
        packed: Any = module._modules["_packed_params"]
        pack = unpacked(packed._packed_params)
        tensors, axis = _tensors(pack)
        relu = kind_of(module) == LINEAR[1]
        # As in their forward: layers saved by an old PyTorch use all 8 bits.
        reduced = (relu or (module.version or 0) >= 4) and not pack.settings.get("all_bits")  # type: ignore[operator]
        forward = partial(_forward, tensors, axis, reduced, relu)
        yield Patch(module, "forward", forward, "torch.export has no place for packed weights")
        yield Patch(module._modules, "_packed_params", ABSENT, "torch.export would look into it", How.VALUE)
