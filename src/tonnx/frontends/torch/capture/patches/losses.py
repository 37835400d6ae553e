"""Losses that check the values of their tensors, which a capture does not have, or work in chunks to save memory."""

from __future__ import annotations

import math
from typing import Any

import torch


def gaussian_nll_loss(
    original: Any,
    input: torch.Tensor,
    target: torch.Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """Without the check that no variance is negative."""
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    elif var.dim() == input.dim() - 1:
        var = var.unsqueeze(-1)
    var = var.clamp(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return {"mean": loss.mean, "sum": loss.sum, "none": lambda: loss}[reduction]()


def linear_cross_entropy(original: Any, *args: Any, options: Any = None, **kwargs: Any) -> Any:
    """All at once: ``options`` say in how many chunks, for an operator that computes gradients beside the loss."""
    return original(*args, **kwargs)
