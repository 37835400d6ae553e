"""The parameters and buffers of a program as initializers, straight from their memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from tonnx.errors import CaptureError
from tonnx.frontends.torch.operators.bind import stored_dtype
from tonnx.ir import facts
from tonnx.ir.build import Builder

_VIEWED = {  # dtypes that numpy has not: viewed as integers of the same width, then named by ml_dtypes
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e4m3fnuz: (torch.uint8, ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
    torch.float8_e5m2fnuz: (torch.uint8, ml_dtypes.float8_e5m2fnuz),
}


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's memory as an array, complex numbers as pairs; copied only if it is not in main memory."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype in _VIEWED:
        as_int, named = _VIEWED[tensor.dtype]
        return tensor.view(as_int).numpy().view(named)
    return tensor.numpy()


def as_tensor(tensor: torch.Tensor, name: str) -> ir.Tensor:
    """A weight as an ONNX tensor that shares its memory."""
    if tensor.is_meta or type(tensor).__name__ == "FakeTensor":
        raise CaptureError(
            f"the parameter {name!r} has no data (device {tensor.device})",
            hint="load the weights before exporting, for example with model.to_empty() and load_state_dict()",
        )
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return ir.Tensor(as_numpy(tensor), dtype=stored_dtype(tensor.dtype), name=name)


class Weights:
    """Initializers made when first used, one for each piece of memory: tied weights are stored once."""

    def __init__(self, op: Builder, program: ExportedProgram, names: Mapping[str, str] | None = None) -> None:
        self._op = op
        self._tensors: dict[str, Any] = {**program.state_dict, **program.constants}
        self._made: dict[Any, ir.Value] = {}
        self._names = names or {}  # names that are reserved for them

    def value(self, name: str) -> ir.Value:
        """The initializer of the parameter, buffer or constant ``name``."""
        tensor = self._tensors[name]
        key: Any = name
        if tensor.layout == torch.strided and tensor.numel() > 1 and not tensor.is_meta:
            key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if key not in self._made:
            value = self._op.initializer(name, as_tensor(tensor, name))
            facts.WEIGHT.add(value)
            if tensor.is_complex():
                facts.COMPLEX.add(value)
            if name in self._names:
                _rename(self._op, value, self._names[name])
            self._made[key] = value
        return self._made[key]


def _rename(op: Builder, value: ir.Value, name: str) -> None:
    del op.graph.initializers[str(value.name)]
    value.name = name
    op.graph.initializers.add(value)
