"""PyTorch's own values as things: modules, attributes, and weights, each piece of memory once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tonnx.build import Builder
from tonnx.errors import LoweringError
from tonnx.frontends.torch.weights import WEIGHT, as_tensor
from tonnx.frontends.torchscript.things import Dict, Fields, List, Object, Tensor

if TYPE_CHECKING:
    from tonnx.frontends.torchscript.walk import Walk


class Parameters:
    """Weights as tensors of the program, by the user's names."""

    def __init__(self, op: Builder) -> None:
        self._op = op
        self._names: dict[Any, str] = {}
        self._made: dict[Any, Tensor] = {}

    def name(self, module: Any) -> None:
        """Take the names of parameters and buffers from a module."""
        for found in (module.named_parameters(), module.named_buffers()):
            for name, tensor in found:
                self._names.setdefault(_key(tensor), name)

    def known(self, tensor: torch.Tensor) -> str | None:
        """The name of a parameter or buffer; None if it is neither."""
        return self._names.get(_key(tensor))

    def tensor(self, tensor: torch.Tensor, path: str) -> Tensor:
        """The weight as an initializer. Two names for one piece of memory are one tensor."""
        if tensor.is_quantized:
            raise LoweringError(f"{path} is a quantized tensor", hint="export the model before its quantization")
        key = _key(tensor)
        if key not in self._made:
            name = self._names.get(key, path)
            value = self._op.initializer(name, as_tensor(tensor, name))
            value.meta[WEIGHT] = True
            self._made[key] = Tensor(value)
            self._made[key].packed = tensor.is_contiguous()
        return self._made[key]

    def changed(self) -> bool:
        """Whether the program writes to one of them."""
        return any(not made.value.is_initializer() for made in self._made.values())


def _key(tensor: torch.Tensor) -> Any:
    if tensor.layout != torch.strided or tensor.numel() <= 1 or tensor.is_meta:
        return id(tensor) if tensor.numel() > 1 or tensor.is_meta else ("one", tensor.data_ptr(), tensor.dtype)
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def thing_of(walk: Walk, value: Any, path: str) -> Any:
    """A value of PyTorch's: an attribute, or a constant."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        return walk.parameters.tensor(value, path)
    if isinstance(value, torch.nn.Module):
        value = value._c  # type: ignore[attr-defined]
    if isinstance(value, (torch._C.ScriptModule, torch._C.ScriptObject)):
        return Object(value, path)
    if isinstance(value, tuple):
        items = [thing_of(walk, item, f"{path}.{i}") for i, item in enumerate(value)]
        names = getattr(value, "_fields", ())
        return Fields.of(items, names) if names else tuple(items)
    if isinstance(value, (list, torch._C.ScriptList)):
        return List(thing_of(walk, item, f"{path}.{i}") for i, item in enumerate(value))
    if isinstance(value, (dict, torch._C.ScriptDict)):
        return Dict({key: thing_of(walk, item, f"{path}.{key}") for key, item in value.items()})
    if isinstance(value, torch.device):
        return str(value)
    return value
