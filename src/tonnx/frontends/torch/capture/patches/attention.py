"""Attention that is causal at some sizes only, and of sizes that only the run knows."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from tonnx.frontends.torch.capture.python_flow.conditions import truth


def attention(
    original: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: Any = False,
    **options: Any,
) -> torch.Tensor:
    """``is_causal=n > 1``: a mask that hides what comes later, or nothing. ``scale=n**-0.5``."""
    if isinstance(scale := options.get("scale"), (torch.SymInt, torch.SymFloat)):
        query = query * (scale * query.shape[-1] ** 0.5)
        options["scale"] = None
    causal = truth(is_causal) if isinstance(is_causal, torch.SymBool) else is_causal
    if isinstance(causal, torch.Tensor) and attn_mask is not None:  # which goes only where it is not causal
        causal = False
    if isinstance(causal, torch.Tensor):
        earlier = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        attn_mask, causal = torch.logical_or(earlier, torch.logical_not(causal)), False
    try:
        result: torch.Tensor = original(query, key, value, attn_mask, dropout_p, causal, **options)
    except GuardOnDataDependentSymNode:  # which kernel it takes depends on sizes, and only the run knows them
        if dropout_p or options.get("enable_gqa"):
            raise
        result = _written_out(query, key, value, attn_mask, causal, options.get("scale"))
    return result


def _written_out(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: Any
) -> torch.Tensor:
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=scores.dtype).masked_fill(mask.logical_not(), -torch.inf)
    return (scores if mask is None else scores + mask).softmax(-1) @ value
