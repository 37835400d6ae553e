"""PyTorch's modules of quantisation during a capture: fake quantisers say what they compute, packed ones are found.

A fake quantiser looks into its own buffers for whether it is switched on, which a capture cannot: it sees no values.
For the length of a capture each one's forward is what its switches, read beforehand, make it.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tonnx.errors import InvalidArgument, UnsupportedArgument
from tonnx.frontends.patching import ABSENT, How, Patch, restored
from tonnx.frontends.torch.capture.patches.quantised_layers import LINEAR, kind_of

_PACKED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized")
_PLAIN = ("torch.ao.nn.quantized.reference", "torch.ao.nn.quantized.modules.linear.LinearPackedParams")
_VMAP = "torch._functorch.predispatch"
_STEP = re.compile(r"(^|_)(scale|zero_point)(_\d+)?$")


def packed_part(model: torch.nn.Module) -> str | None:
    """The first module whose weights are packed for PyTorch's integer kernels: torch.export has no place for them."""
    for name, module in model.named_modules():
        kind = kind_of(module)
        if kind.startswith(_PACKED) and not kind.startswith(_PLAIN) and kind not in LINEAR:
            return f"{name or 'the model itself'} is a {kind}"
    return None


def steps_as_numbers(model: torch.nn.Module) -> Iterator[Patch]:
    """Quantised layers read numbers from buffers that hold their scales, which a trace would take for a choice."""
    reason = "the layer reads a number from it"
    for module in model.modules():
        if kind_of(module).startswith(_PACKED) or isinstance(module, torch.fx.GraphModule):
            for name, buffer in list(module._buffers.items()):
                if buffer is not None and buffer.numel() == 1 and _STEP.search(name):
                    yield Patch(module._buffers, name, ABSENT, reason, How.VALUE)
                    yield Patch(module, name, buffer.item(), reason, How.VALUE)


def check_modules(model: torch.nn.Module) -> None:
    """What no capture can take: weights that have no shape yet."""
    for name, parameter in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(parameter):
            raise InvalidArgument(
                f"the parameter {name!r} has no shape yet",
                why="it belongs to a lazy module, which takes its shape from the first input",
                hint="run the model once before exporting it: model(x)",
            )


def fake_quantisers(model: torch.nn.Module) -> Iterator[Patch]:
    """The forward of every fake quantiser of the model."""
    module = sys.modules.get("torch.ao.quantization.fake_quantize")
    for quantiser in model.modules() if module is not None else ():
        if isinstance(quantiser, module.FakeQuantize):  # type: ignore[union-attr]
            forward = partial(_forward, quantiser, *_switches(quantiser))
            yield Patch(quantiser, "forward", forward, "its switches are values in its buffers")


def _switches(quantiser: Any) -> tuple[bool, bool]:
    return bool(quantiser.fake_quant_enabled[0]), bool(quantiser.observer_enabled[0])


def _forward(quantiser: Any, quantises: bool, observes: bool, original: Any, x: torch.Tensor) -> torch.Tensor:
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


def made_plain(program: ExportedProgram) -> ExportedProgram:
    """Weights of a class of their own, as torchao has them, taken apart into plain tensors; `torch.vmap` worked in."""
    odd = any(is_traceable_wrapper_subclass(tensor) for tensor in program.state_dict.values())
    mapped = any(getattr(node.target, "__module__", "") == _VMAP for node in program.graph.nodes)
    return program.run_decompositions({}) if odd or mapped else program


# What PyTorch has no fake of


def _same(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return torch.empty_like(x)


def _with_mask(x: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


_SHAPES: dict[str, Any] = {
    "fake_quantize_per_tensor_affine_cachemask": _with_mask,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _with_mask,
    "fake_quantize_per_channel_affine_cachemask": _with_mask,
    "_fake_quantize_learnable_per_tensor_affine": _same,
    "_fake_quantize_learnable_per_channel_affine": _same,
    "quantize_per_tensor": _same,  # has one after 2.10
    "quantize_per_channel": _same,
    "dequantize.self": lambda x: torch.empty(x.shape, dtype=torch.float32, device=x.device),
}


@contextlib.contextmanager
def shapes_known() -> Iterator[None]:
    """For the length of a capture, PyTorch knows the shapes of the results of its operators of quantisation."""
    library = torch.library.Library("aten", "IMPL")
    with restored(library._destroy):
        for name, shape in _SHAPES.items():
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
                library.impl(name, shape, "Meta")
        yield
