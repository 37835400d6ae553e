"""Weights that PyTorch packed for its integer kernels, unpacked: what the modules of ``torch.ao.quantization`` hold.

Only TorchScript shows them: to ``torch.export`` they are objects without a shape. Weights of 4 bits are tensors, whose
order is that of this processor's kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder

_CLASSES = "__torch__.torch.classes."
_INT4_PRODUCT = "aten::_weight_int4pack_mm_for_cpu"
_UNPACK = {
    "quantized.Conv2dPackedParamsBase": "conv2d",
    "quantized.Conv3dPackedParamsBase": "conv3d",
}


@dataclass
class Integers:
    """A quantised tensor: ``(integers - zero) · scale``, with one scale for all or one for each index of ``axis``."""

    integers: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    axis: int


@dataclass
class Packed:
    """The weight and bias of a quantised layer, and what a convolution of it looks like."""

    weight: Integers | np.ndarray
    bias: np.ndarray | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    cell: list[Any] = field(default_factory=list)
    """Of a recurrent cell: two more of these, and whether inputs are quantised to 7 bits."""


def is_packed(value: Any) -> bool:
    """Whether an object of a program is such a pack."""
    return isinstance(value, torch._C.ScriptObject) and _kind(value).startswith(("quantized.", "rnn.CellParams"))


def _kind(value: Any) -> str:
    return str(value._type().qualified_name()).removeprefix(_CLASSES)


def unpacked(value: Any) -> Packed:
    kind = _kind(value)
    if kind == "quantized.LinearPackedParamsBase":
        return _linear(value)
    if kind in _UNPACK:
        return _conv(value, _UNPACK[kind])
    if kind == "quantized.EmbeddingPackedParamsBase":
        return Packed(_tensor(torch.ops.quantized.embedding_bag_unpack(value)))
    if kind == "rnn.CellParamsBase":
        return _cell(value)
    raise UnsupportedArgument(f"weights packed as {kind} cannot be unpacked")


def _linear(value: Any) -> Packed:
    weight, bias = torch.ops.quantized.linear_unpack(value)
    # QNNPACK has no 7-bit inputs: what it packs does not care for reduce_range.
    return Packed(_tensor(weight), _bias(bias), {"all_bits": torch.backends.quantized.engine == "qnnpack"})


def _conv(value: Any, name: str) -> Packed:
    ops = torch.ops.quantized
    weight, bias = getattr(ops, f"{name}_unpack")(value)
    settings = {
        part: [int(n) for n in getattr(ops, f"{name}_{part}")(value)]
        for part in ("stride", "padding", "dilation", "output_padding")
    }
    groups = int(getattr(ops, f"{name}_groups")(value))
    transposed = bool(getattr(ops, f"{name}_transpose")(value))
    return Packed(_tensor(weight), _bias(bias), {**settings, "groups": groups, "transposed": transposed})


def _cell(value: Any) -> Packed:
    kind, tensors, _, integers, packs = value.__getstate__()[0]
    if kind not in ("quantized_dynamic", "quantized_fp16"):
        raise UnsupportedArgument(f"a recurrent layer quantised as {kind!r} is not supported")
    dynamic = kind == "quantized_dynamic"
    parts = [unpacked(pack) for pack in packs]
    if dynamic:  # the packs of a cell that quantises as it goes have no bias: it is added to what they give
        for part, bias in zip(parts, tensors, strict=True):
            part.bias = _bias(bias)
    reduced = bool(integers[0]) if dynamic else False
    return Packed(np.empty(0), None, {"reduce_range": reduced, "dynamic": dynamic}, parts)


def _bias(bias: torch.Tensor | None) -> np.ndarray | None:
    return None if bias is None else bias.detach().float().numpy()


def _tensor(tensor: torch.Tensor) -> Integers | np.ndarray:
    """A quantised tensor as integers, or as reals where ONNX has no such integers."""
    if not tensor.is_quantized or tensor.dtype not in (torch.qint8, torch.quint8):
        return tensor.dequantize().float().numpy() if tensor.is_quantized else tensor.detach().float().numpy()
    integers = tensor.int_repr().numpy()
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scale, zero = np.asarray(tensor.q_scale(), np.float32), np.asarray(tensor.q_zero_point(), integers.dtype)
        return Integers(integers, scale, zero, 0)
    zeros = tensor.q_per_channel_zero_points()
    kept = zeros.float().numpy() if zeros.is_floating_point() else zeros.numpy().astype(integers.dtype)
    return Integers(integers, tensor.q_per_channel_scales().float().numpy(), kept, tensor.q_per_channel_axis())


def with_integers(name: str, arguments: dict[str, Any], op: Builder) -> dict[str, Any]:
    """The arguments of an operator, with integers in the place of a weight that is packed for its kernel."""
    if name != _INT4_PRODUCT:
        return arguments
    tensor = ir.convenience.get_const_tensor(arguments["mat2"])
    if tensor is None:
        raise UnsupportedArgument("a product with weights of 4 bits that are packed while the model runs")
    integers = _of_four_bits(torch.from_numpy(tensor.numpy()), int(arguments["qGroupSize"])).astype(ml_dtypes.int4)
    return {**arguments, "mat2": op.initializer(str(arguments["mat2"].name), ir.Tensor(integers))}


def _of_four_bits(packed: torch.Tensor, group: int) -> np.ndarray:
    """The integers, from -8 on, by rows and columns: what the kernel itself makes of unit vectors."""
    columns, rows = packed.shape[0], packed.shape[1] * 2
    scale_and_zero = torch.tensor([1.0, 0.0]).expand(rows // group, columns, 2).contiguous()
    product, step = torch.ops.aten._weight_int4pack_mm_for_cpu, 256
    units = (torch.eye(min(step, rows - first), rows).roll(first, 1) for first in range(0, rows, step))
    parts = [product(some, packed, group, scale_and_zero).to(torch.int8) for some in units]
    return torch.cat(parts).numpy()
