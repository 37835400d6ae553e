"""Attention that is causal at some sizes only."""

from __future__ import annotations

from typing import Any

import torch

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
    """``is_causal=n > 1``: a mask that hides what comes later, or nothing."""
    causal = truth(is_causal) if isinstance(is_causal, torch.SymBool) else is_causal
    if isinstance(causal, torch.Tensor) and attn_mask is not None:  # which goes only where it is not causal
        causal = False
    if isinstance(causal, torch.Tensor):
        earlier = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
        attn_mask, causal = torch.logical_or(earlier, torch.logical_not(causal)), False
    result: torch.Tensor = original(query, key, value, attn_mask, dropout_p, causal, **options)
    return result
