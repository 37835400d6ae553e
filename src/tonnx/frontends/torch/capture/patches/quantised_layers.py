"""Layers that quantise as they go, during a capture: torch.export has no place for packed weights, but for tensors.

Their inputs and outputs are plain numbers, so an operator of our own with the unpacked weights says all there is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import torch

from tonnx.frontends.torch.operators.prepacked import Integers, Packed, unpacked

LINEAR = ("torch.ao.nn.quantized.dynamic.modules.linear.Linear",
          "torch.ao.nn.intrinsic.quantized.dynamic.modules.linear_relu.LinearReLU")  # fmt: skip
"""The modules that have a stand-in."""


def kind_of(module: torch.nn.Module) -> str:
    """The full name of a module's class."""
    return f"{type(module).__module__}.{type(module).__name__}"


@cache
def _linear() -> Any:
    library = torch.library.Library("tonnx", "FRAGMENT")
    library.define(
        "linear_dynamic(Tensor x, Tensor weight, Tensor? scale, Tensor? zero, Tensor? bias, int axis, "
        "bool reduce_range, bool relu) -> Tensor"
    )

    def fake(x: torch.Tensor, weight: torch.Tensor, *_: Any) -> torch.Tensor:
        return x.new_empty([*x.shape[:-1], weight.shape[0]])

    torch.library.register_fake("tonnx::linear_dynamic", fake, lib=library)
    return torch.ops.tonnx.linear_dynamic.default, library  # unloading the library would take its operators along


def _forward(tensors: dict[str, Any], axis: int, reduced: bool, relu: bool, x: torch.Tensor) -> torch.Tensor:
    weight, scale, zero, bias = (tensors[name] for name in ("weight", "scale", "zero", "bias"))
    made: torch.Tensor = _linear()[0](x.float(), weight, scale, zero, bias, axis, reduced, relu)
    return made.to(x.dtype)


def _tensors(pack: Packed) -> tuple[dict[str, Any], int]:
    held = pack.weight
    arrays = {"weight": held, "scale": None, "zero": None, "bias": pack.bias}
    if isinstance(held, Integers):
        arrays |= {"weight": held.integers, "scale": held.scale, "zero": held.zero}
    made = {name: None if array is None else torch.as_tensor(array) for name, array in arrays.items()}
    return made, held.axis if isinstance(held, Integers) else 0


@contextlib.contextmanager
def quantised_layers(model: torch.nn.Module) -> Iterator[None]:
    """Replace the forward of every such layer of the model, and put its packed weights aside."""
    found = {module: module._modules["_packed_params"] for module in model.modules() if kind_of(module) in LINEAR}
    try:
        for module, packed in found.items():
            pack = unpacked(packed._packed_params)  # type: ignore[union-attr]
            tensors, axis = _tensors(pack)
            relu = kind_of(module) == LINEAR[1]
            # As in their forward: layers saved by an old PyTorch use all 8 bits.
            reduced = (relu or (module.version or 0) >= 4) and not pack.settings.get("all_bits")  # type: ignore[operator]
            vars(module)["forward"] = partial(_forward, tensors, axis, reduced, relu)
            del module._modules["_packed_params"]
        yield
    finally:
        for module, packed in found.items():
            vars(module).pop("forward", None)
            module._modules["_packed_params"] = packed
