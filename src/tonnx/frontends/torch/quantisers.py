"""PyTorch's modules of quantisation during a capture: fake quantisers say what they compute, packed ones are refused.

A fake quantiser looks into its own buffers for whether it is switched on, which a capture cannot: it sees no values.
For the length of a capture each one's forward is what its switches, read beforehand, make it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from tonnx.errors import InvalidArgument, UnsupportedArgument

_PACKED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized")


def check_modules(model: torch.nn.Module) -> None:
    """What no capture can take: weights packed for one backend, and weights that have no shape yet."""
    for name, module in model.named_modules():
        kind = f"{type(module).__module__}.{type(module).__name__}"
        if kind.startswith(_PACKED) and not kind.startswith("torch.ao.nn.quantized.reference"):
            raise InvalidArgument(
                f"the model is quantised for PyTorch's own kernels ({name or 'the model itself'} is a {kind})",
                why="its weights are packed, and its operators exist in PyTorch only",
                hint="export the fake-quantised model before torch.ao.quantization.convert, or a program that "
                "torchao's pt2e quantisation made: both become QuantizeLinear and DequantizeLinear",
            )
    for name, parameter in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(parameter):
            raise InvalidArgument(
                f"the parameter {name!r} has no shape yet",
                why="it belongs to a lazy module, which takes its shape from the first input",
                hint="run the model once before exporting it: model(x)",
            )


@contextlib.contextmanager
def fake_quantisers(model: torch.nn.Module) -> Iterator[None]:
    """Replace the forward of every fake quantiser of the model."""
    module = sys.modules.get("torch.ao.quantization.fake_quantize")
    found = [m for m in model.modules() if module is not None and isinstance(m, module.FakeQuantize)]
    try:
        for quantiser in found:
            vars(quantiser)["forward"] = partial(_forward, quantiser, *_switches(quantiser))
        yield
    finally:
        for quantiser in found:
            vars(quantiser).pop("forward", None)


def _switches(quantiser: Any) -> tuple[bool, bool]:
    return bool(quantiser.fake_quant_enabled[0]), bool(quantiser.observer_enabled[0])


def _forward(quantiser: Any, quantises: bool, observes: bool, x: torch.Tensor) -> torch.Tensor:
    if observes:
        raise UnsupportedArgument(
            "a fake quantiser still observes: its scale changes with every call",
            hint="model.apply(torch.ao.quantization.disable_observer)",
        )
    if not quantises:
        return x
    observer = quantiser.activation_post_process
    bounds = (observer.quant_min, observer.quant_max)
    if quantiser.is_per_channel:
        zero = quantiser.zero_point
        return torch.fake_quantize_per_channel_affine(x, quantiser.scale, zero, quantiser.ch_axis, *bounds)
    return torch.fake_quantize_per_tensor_affine(x, quantiser.scale, quantiser.zero_point, *bounds)


# What PyTorch has no fake of


def _same(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return torch.empty_like(x)


def _with_mask(x: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


def _dequantised(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=torch.float32, device=x.device)


_SHAPES: dict[str, Any] = {
    "fake_quantize_per_tensor_affine_cachemask": _with_mask,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _with_mask,
    "fake_quantize_per_channel_affine_cachemask": _with_mask,
    "_fake_quantize_learnable_per_tensor_affine": _same,
    "_fake_quantize_learnable_per_channel_affine": _same,
    "quantize_per_channel": _same,
    "dequantize.self": _dequantised,
}


@contextlib.contextmanager
def shapes_known() -> Iterator[None]:
    """For the length of a capture, PyTorch knows the shapes of the results of its operators of quantisation."""
    library = torch.library.Library("aten", "IMPL")
    try:
        for name, shape in _SHAPES.items():
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
                library.impl(name, shape, "Meta")
        yield
    finally:
        library._destroy()
