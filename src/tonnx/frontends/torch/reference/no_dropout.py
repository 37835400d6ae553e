"""A model in training without chance: its dropouts pass on what they are given, as those of the file can be told to."""

from __future__ import annotations

from typing import Any

import torch

from tonnx.frontends.patching import Patch
from tonnx.lowering.training import alpha_factors


def _passed_on(original: Any, x: torch.Tensor, p: float = 0.5, train: bool = True, **_: Any) -> torch.Tensor:
    return x


def _scaled(original: Any, x: torch.Tensor, p: float = 0.5, train: bool = True, **_: Any) -> torch.Tensor:
    return x / (1 - p) if train and p != 1 else x


def _alpha(original: Any, x: torch.Tensor, p: float = 0.5, train: bool = False, **_: Any) -> torch.Tensor:
    if not train or p in (0, 1):
        return x
    scale, shift = alpha_factors(p)
    return x * scale + shift


def _attention(original: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("dropout_p", None)
    return original(*(args[:4] + ((0.0, *args[5:]) if len(args) > 4 else ())), **kwargs)


_FUNCTIONS = {
    "dropout": _passed_on,
    "feature_dropout": _scaled,
    "alpha_dropout": _alpha,
    "feature_alpha_dropout": _alpha,
}
_REASON = "what a file leaves out when its dropouts are told to"

NO_DROPOUT = (
    *(
        Patch(owner, name + suffix, function, _REASON)
        for owner in ("torch._VF", "torch")
        for name, function in _FUNCTIONS.items()
        for suffix in ("", "_")
    ),
    Patch("torch.nn.functional", "scaled_dot_product_attention", _attention, _REASON),
)
"""The layers and functional forms of dropout all end up at these functions."""
