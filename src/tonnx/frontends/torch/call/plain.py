"""A module that takes tensors and gives a dict of them, around one that takes and gives anything.

What captures a model need not know the classes of its arguments and results; PyTorch's registry of such classes plays
no part.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch

from tonnx.frontends.torch.call.containers import results_of
from tonnx.frontends.torch.call.signature import ModelCall


class PlainModule(torch.nn.Module):
    """The model itself, by another ``forward``: it has the same parts, parameters and flags, not copies of them."""

    tonnx_model: torch.nn.Module
    tonnx_call: ModelCall

    def forward(self, *tensors: torch.Tensor) -> dict[str, Any]:
        args, kwargs = self.tonnx_call.with_tensors(tensors)
        # With the hooks of the model, which know its own arguments and results; below, nobody calls them again.
        result = _entry(type(self.tonnx_model))(self.tonnx_model, *args, **kwargs)
        return results_of(result, self.tonnx_call.names)

    def _call_impl(self, *tensors: torch.Tensor) -> dict[str, Any]:
        return self.forward(*tensors)

    def train(self, mode: bool = True) -> torch.nn.Module:
        return self.tonnx_model.train(mode)


def _entry(kind: type[torch.nn.Module]) -> Callable[..., Any]:
    """What a call of a module of this class runs: its own ``__call__``, where it has one, which may add arguments."""
    own = kind.__mro__[: kind.__mro__.index(torch.nn.Module)]
    return next((vars(part)["__call__"] for part in own if "__call__" in vars(part)), torch.nn.Module._call_impl)


def original_of(module: torch.nn.Module) -> torch.nn.Module:
    """The model that a plain module stands for; any other module itself."""
    return module.tonnx_model if isinstance(module, PlainModule) else module


def plain(model: torch.nn.Module, call: ModelCall) -> tuple[torch.nn.Module, ModelCall]:
    parameters = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in _identifiers([leaf.name for leaf in call.leaves])
    ]

    def forward(self: PlainModule, *tensors: torch.Tensor) -> dict[str, Any]:
        return PlainModule.forward(self, *tensors)

    bound = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *parameters]
    forward.__signature__ = inspect.Signature(bound)  # type: ignore[attr-defined]
    attributes = {"tonnx_model": model, "tonnx_call": call, "forward": forward}
    module: torch.nn.Module = object.__new__(type(type(model).__name__, (PlainModule,), attributes))
    object.__setattr__(module, "__dict__", vars(model))
    return module, ModelCall(tuple(leaf.tensor for leaf in call.leaves), {}, call.leaves, call.weights)


def _identifiers(names: list[str]) -> list[str]:
    """Different names that Python takes for parameters."""
    unique: list[str] = []
    for name in names:
        word = re.sub(r"\W", "_", name)
        word = word if word.isidentifier() else f"x_{word}"
        while word in unique or word == "self":
            word += "_"
        unique.append(word)
    return unique
