"""The example tensors at other sizes."""

from __future__ import annotations

import torch

from tonnx.errors import InvalidArgument
from tonnx.frontends.torch.call.signature import ModelCall


def grown_example(call: ModelCall) -> list[torch.Tensor]:
    """The example tensors for the capture: a dynamic dimension of size 0 or 1 grows, or torch.export would freeze it.

    Dimensions of the same name grow together. The new rows repeat the old ones, so that the values stay plausible.
    """
    sizes: dict[str, int] = {}
    for leaf in call.leaves:
        for axis, dim in leaf.dynamic.items():
            size = leaf.tensor.shape[axis]
            if sizes.setdefault(dim.name, size) != size:
                raise InvalidArgument(
                    f"the dimension {dim.name!r} has size {sizes[dim.name]} in one input and {size} in {leaf.name!r}",
                    hint="give different names to dimensions that may differ",
                )
    grown = {name: size for name, size in sizes.items() if size < 2}
    for i, name in enumerate(grown):
        grown[name] = 2 + i  # different sizes for different dimensions, so that none is taken for another
    tensors: list[torch.Tensor] = []
    for leaf in call.leaves:
        tensor = leaf.tensor
        for axis, dim in leaf.dynamic.items():
            if dim.name in grown:
                tensor = grow(tensor, axis, grown[dim.name], dim.maximum)
        # One tensor given for two inputs: the file has two, so the model must not see (`query is key`) that it is one.
        tensors.append(tensor.clone() if any(tensor is other for other in tensors) else tensor)
    return tensors


def grow(tensor: torch.Tensor, axis: int, size: int, maximum: int | None) -> torch.Tensor:
    """A tensor with another size of an axis: its rows repeated, or cut."""
    size = min(size, maximum) if maximum is not None else size
    if tensor.shape[axis] == 0:
        shape = list(tensor.shape)
        shape[axis] = size
        return tensor.new_zeros(shape)
    index = torch.arange(size, device=tensor.device) % tensor.shape[axis]
    return tensor.detach().index_select(axis, index)


def other_example(call: ModelCall) -> list[torch.Tensor]:
    """The example with every dynamic dimension one larger, and other values in the same range."""
    sizes: dict[str, int] = {}
    tensors = []
    for leaf in call.leaves:
        tensor = leaf.tensor.detach()
        for axis, dim in leaf.dynamic.items():
            size = sizes.setdefault(dim.name, tensor.shape[axis] + 1 + 2 * len(sizes) % 5)
            tensor = grow(tensor, axis, size, dim.maximum)
        tensors.append(tensor.flip(0) if tensor.dim() else tensor.clone())
    return tensors
