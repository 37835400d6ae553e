"""Batch normalisations as part of the layer before them, in training as in the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class FoldedNorm:
    """A layer's weight and bias with the normalisation in them, and the statistics of the batch that they are by."""

    weight: torch.Tensor
    bias: torch.Tensor
    mean: torch.Tensor | None = None
    variance: torch.Tensor | None = None
    """Unbiased."""

    @torch.no_grad()
    def update(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> None:
        """The running statistics, as ``F.batch_norm`` would have left them."""
        if self.mean is None or self.variance is None or running_mean is None or running_var is None:
            return
        running_mean.lerp_(self.mean, momentum)
        running_var.lerp_(self.variance, momentum)


def folded(
    kind: str,
    function: Any,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    rest: tuple[Any, ...],
    options: dict[str, Any],
    norm: torch.nn.Module,
    frozen: bool,
) -> FoldedNorm:
    """By the statistics of the batch in training, which takes a run of the layer; else by those that were collected."""
    if not norm.training or frozen:
        return fold(kind, weight, bias, norm, norm.running_mean, norm.running_var)
    result = function(x, weight, bias, *rest, **options)
    channels = 1 if kind.startswith("conv") else -1
    dims = [dim for dim in range(result.dim()) if dim != channels % result.dim()]
    variance, mean = torch.var_mean(result, dims, correction=0)
    parts = fold(kind, weight, bias, norm, mean, variance)
    count = result.numel() / max(result.shape[channels], 1)
    parts.mean, parts.variance = mean.detach(), variance.detach() * (count / max(count - 1, 1))
    return parts


def fold(
    kind: str, weight: torch.Tensor, bias: torch.Tensor | None, norm: Any, mean: torch.Tensor, variance: torch.Tensor
) -> FoldedNorm:
    """``norm(layer(x))`` as one layer."""
    factor = (1.0 if norm.weight is None else norm.weight) / torch.sqrt(variance + norm.eps)
    shift = -mean if bias is None else bias - mean
    axis = 1 if kind.startswith("conv_transpose") else 0
    shaped = factor.reshape([-1] + [1] * (weight.dim() - 1 - axis))
    offset = shift * factor if norm.bias is None else norm.bias + shift * factor
    return FoldedNorm(weight * shaped, offset)
