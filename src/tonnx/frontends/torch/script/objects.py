"""PyTorch's own values as things: modules, attributes, and weights, each piece of memory once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import torch

from tonnx.errors import LoweringError
from tonnx.frontends.torch.operators.prepacked import Integers, Packed, is_packed, unpacked
from tonnx.frontends.torch.operators.weights import as_tensor
from tonnx.frontends.torch.script.values import Dict, Fields, List, Object, Tensor
from tonnx.ir import facts
from tonnx.ir.build import Builder
from tonnx.lowering.ops.quantized import Pack

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.walk import ScriptWalk


class Parameters:
    """Weights as tensors of the program, by the user's names."""

    def __init__(self, op: Builder) -> None:
        self._op = op
        self._names: dict[Any, str] = {}
        self._made: dict[Any, Tensor] = {}
        self._packs: dict[int, tuple[Any, Pack]] = {}

    def name(self, module: Any) -> None:
        """Take the names of parameters and buffers from a module."""
        for named_tensors in (module.named_parameters(), module.named_buffers()):
            for name, tensor in named_tensors:
                self._names.setdefault(_key(tensor), name)

    def name_of(self, tensor: torch.Tensor) -> str | None:
        """The name of a parameter or buffer; None if it is neither."""
        return self._names.get(_key(tensor))

    def tensor(self, tensor: torch.Tensor, path: str) -> Tensor:
        """The weight as an initializer. Two names for one piece of memory are one tensor."""
        if tensor.is_quantized:
            raise LoweringError(
                f"{path} is a quantised tensor",
                why="only what layers of torch.ao.nn.quantized hold is supported",
                hint="keep it as a plain tensor, and call torch.quantize_per_tensor in forward",
            )
        key = _key(tensor)
        if key not in self._made:
            name = self._names.get(key, path)
            value = self._op.initializer(name, as_tensor(tensor, name))
            facts.WEIGHT.add(value)
            if tensor.is_complex():
                facts.COMPLEX.add(value)
            self._made[key] = Tensor(value)
            self._made[key].packed = tensor.is_contiguous()
        return self._made[key]

    def pack(self, value: Any, path: str) -> Pack:
        """The weights that PyTorch packed for its integer kernels."""
        if id(value) not in self._packs:  # which holds on to it: otherwise another might get the same id
            self._packs[id(value)] = value, self._pack(unpacked(value), path.removesuffix("._packed_params"))
        return self._packs[id(value)][1]

    def _pack(self, packed: Packed, path: str) -> Pack:
        def entered(array: np.ndarray | None, name: str) -> ir.Value | None:
            if array is None:
                return None
            if array.ndim == 0:
                return self._op.constant(array)
            value = self._op.initializer(f"{path}.{name}" if path else name, ir.Tensor(np.ascontiguousarray(array)))
            facts.WEIGHT.add(value)
            return value

        cell = [self._pack(part, f"{path}.{name}") for part, name in zip(packed.cell, ("ih", "hh"), strict=False)]
        bias = entered(packed.bias, "bias")
        held = packed.weight
        if not isinstance(held, Integers):
            weight = entered(held, "weight")
            assert weight is not None
            return Pack(weight, None, None, 0, bias, packed.settings, cell)
        weight, scale, zero = (
            entered(np.asarray(array), name)
            for array, name in ((held.integers, "weight"), (held.scale, "scale"), (held.zero, "zero_point"))
        )
        assert weight is not None
        return Pack(weight, scale, zero, held.axis, bias, packed.settings, cell)

    def changed(self) -> bool:
        """Whether the program writes to one of them."""
        return any(not tensor.value.is_initializer() for tensor in self._made.values())


def _key(tensor: torch.Tensor) -> Any:
    if tensor.layout != torch.strided or tensor.numel() <= 1 or tensor.is_meta:
        return id(tensor) if tensor.numel() > 1 or tensor.is_meta else ("one", tensor.data_ptr(), tensor.dtype)
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def thing_of(walk: ScriptWalk, value: Any, path: str) -> Any:
    """A value of PyTorch's: an attribute, or a constant."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        return walk.parameters.tensor(value, path)
    if is_packed(value):
        return walk.parameters.pack(value, path)
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
