"""Operators of our own: each is one node of a captured program, for which `lowering/ops/quant.py` has the rule.

``torch.ops.tonnx.fake_quantise`` rounds to the nearest step, and has the gradients of LSQ (Esser and others, 2020):
that of the numbers passes inside of the range; that of the scale is what one step more or less would change.
"""

from __future__ import annotations

import math
from typing import Any

import torch


def _spread(parameter: torch.Tensor, x: torch.Tensor, axis: int) -> torch.Tensor:
    """One number for each channel, shaped to meet the channels."""
    return parameter if parameter.dim() == 0 else parameter.reshape([-1] + [1] * (x.dim() - 1 - axis))


def integers(
    x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, low: int, high: int, axis: int, half_up: bool
) -> torch.Tensor:
    """Steps from zero, as floats: ``clamp(round(x / scale), low - zero_point, high - zero_point)``."""
    ratio = x / _spread(scale, x, axis)
    steps = torch.floor(ratio + 0.5) if half_up else torch.round(ratio)
    zero = _spread(zero_point, x, axis).to(x.dtype)
    return torch.maximum(torch.minimum(steps, high - zero), low - zero)


@torch.library.custom_op("tonnx::fake_quantise", mutates_args=())
def fake_quantise(
    x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, low: int, high: int, axis: int, half_up: bool
) -> torch.Tensor:
    """The nearest step to each number."""
    return integers(x, scale, zero_point, low, high, axis, half_up) * _spread(scale, x, axis)


@fake_quantise.register_fake
def _(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(x)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, scale, zero_point, *ctx.settings = inputs
    ctx.save_for_backward(x, scale, zero_point)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, scale, zero_point = ctx.saved_tensors
    low, high, axis, half_up = ctx.settings
    ratio = x / _spread(scale, x, axis)
    zero = _spread(zero_point, x, axis).to(x.dtype)
    inside = (ratio >= low - zero - 0.5) & (ratio <= high - zero + 0.5)
    of_x = grad * inside if ctx.needs_input_grad[0] else None
    of_scale = None
    if ctx.needs_input_grad[1]:
        steps = integers(x, scale, zero_point, low, high, axis, half_up)
        change = grad * torch.where(inside, steps - ratio, steps)
        others = [dim for dim in range(x.dim()) if dim != axis % x.dim()]
        change = change.sum(others) if scale.dim() and others else change if scale.dim() else change.sum()
        numbers = x.numel() / max(scale.numel(), 1)
        of_scale = change / math.sqrt(max(numbers, 1.0) * max(high, 1))
    return of_x, of_scale, None, None, None, None, None


fake_quantise.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("tonnx::fake_quantise_bias", mutates_args=())
def fake_quantise_bias(x: torch.Tensor, input_scale: torch.Tensor, weight_scale: torch.Tensor) -> torch.Tensor:
    """The nearest step of input times weight, in which integer kernels add up."""
    scale = input_scale * weight_scale
    return torch.clamp(torch.round(x / scale), -(2.0**31), 2.0**31 - 128) * scale


@fake_quantise_bias.register_fake
def _(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(x)


def _pass_on(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    return grad, None, None


fake_quantise_bias.register_autograd(_pass_on)
