"""What a case is: how a network is built, what it is called with, and which sizes are dynamic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

Sizes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """One network."""

    name: str
    """``library/network``."""
    make: Callable[[], Any]
    example: Callable[..., Any]
    """The inputs for some sizes, by name: a tuple of positional ones, or a dict of keywords."""
    sizes: Sizes
    """For each name: the example's size, then those at which a file is judged."""
    fixed: bool = False
    """Whether nothing is dynamic, since the network itself takes one size only."""
    rows: bool = False
    """Whether outputs are rows in any order, as those of a detector are."""
    grow: bool = field(default=True)
    """Whether constant weights get random values."""

    @property
    def library(self) -> str:
        return self.name.partition("/")[0]

    def at(self, place: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call at the example's sizes (0), or at one of those that are judged."""
        torch.manual_seed(7 + place)
        inputs = self.example(**{name: sizes[min(place, len(sizes) - 1)] for name, sizes in self.sizes.items()})
        return ((), inputs) if isinstance(inputs, dict) else (tuple(inputs), {})

    def dynamic(self) -> list[dict[int, str]]:
        """For each tensor among the inputs, which axes change with which size: its name, or one of its own."""
        base = {name: sizes[0] for name, sizes in self.sizes.items()}
        tensors = _tensors(self.example(**base))
        axes: list[dict[int, str]] = [{} for _ in tensors]
        for name, sizes in self.sizes.items():
            other = next((size for size in sizes if size != sizes[0]), None)
            if other is None:
                continue
            for i, (a, b) in enumerate(zip(tensors, _tensors(self.example(**{**base, name: other})), strict=True)):
                for axis, (one, two) in enumerate(zip(a.shape, b.shape, strict=True)):
                    if one != two:
                        axes[i][axis] = name if (one, two) == (sizes[0], other) else f"{name}_of_{i}"
        return axes


def _tensors(inputs: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]


def built(case: Case) -> torch.nn.Module:
    """The network with weights under which every layer matters: none is zero, statistics are those of its inputs."""
    torch.manual_seed(0)
    model: torch.nn.Module = case.make().eval()
    if not case.grow:
        return model
    norms = [
        m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.running_var is not None
    ]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.numel() > 1 and parameter.is_floating_point() and parameter.min() == parameter.max():
                centre = 1.0 if parameter.max() == 1 else 0.0
                parameter.copy_(centre + 0.1 * torch.randn_like(parameter))
        _statistics(model, norms, case)
    return model


def _statistics(model: torch.nn.Module, norms: list[Any], case: Case) -> None:
    """Batch statistics as training would leave them."""
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # the plain average of what it sees
        norm.train()
    try:
        if norms:
            args, kwargs = case.at(0)
            model(*args, **kwargs)
    except ValueError:  # one value for each channel has no variance
        pass
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.running_var.copy_(norm.running_var.maximum(0.2 * norm.running_var.mean()))
        norm.running_mean.add_(0.1 * norm.running_var.sqrt() * torch.randn_like(norm.running_mean))
        norm.eval()
