"""A model in training without chance: its dropouts pass on what they are given, as those of the file can be told to."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from tonnx.lowering.training import alpha_factors


def _passed_on(x: torch.Tensor, p: float = 0.5, train: bool = True, **_: Any) -> torch.Tensor:
    return x


def _scaled(x: torch.Tensor, p: float = 0.5, train: bool = True, **_: Any) -> torch.Tensor:
    return x / (1 - p) if train and p != 1 else x


def _alpha(x: torch.Tensor, p: float = 0.5, train: bool = False, **_: Any) -> torch.Tensor:
    if not train or p in (0, 1):
        return x
    scale, shift = alpha_factors(p)
    return x * scale + shift


def _undropped(original: Any) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("dropout_p", None)
        return original(*(args[:4] + ((0.0, *args[5:]) if len(args) > 4 else ())), **kwargs)

    return call


@contextlib.contextmanager
def without_dropout() -> Iterator[None]:
    """Replace PyTorch's dropouts for a while. The layers and functional forms all end up at these functions."""
    plain = dict.fromkeys(("dropout", "dropout_"), _passed_on) | dict.fromkeys(
        ("feature_dropout", "feature_dropout_"), _scaled
    )
    alpha = dict.fromkeys(
        ("alpha_dropout", "alpha_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_"), _alpha
    )
    attention = torch.nn.functional.scaled_dot_product_attention
    changes = [(owner, name, function) for owner in (torch._VF, torch) for name, function in {**plain, **alpha}.items()]
    changes.append((torch.nn.functional, "scaled_dot_product_attention", _undropped(attention)))
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, function in changes:
            setattr(owner, name, function)
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)
