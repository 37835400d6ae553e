"""The example tensors at other sizes."""

from __future__ import annotations

from collections.abc import Mapping

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
    derived = {dim.name for leaf in call.leaves for dim in leaf.dynamic.values() if dim.expression is not None}
    small = [name for name, size in sizes.items() if size < 2 and name not in derived]
    # Different sizes for different dimensions, so that none is taken for another.
    return resized(call, {**sizes, **{name: 2 + i for i, name in enumerate(small)}})


def resized(call: ModelCall, sizes: Mapping[str, int]) -> list[torch.Tensor]:
    """The example tensors with these sizes of the dynamic dimensions, by name."""
    tensors: list[torch.Tensor] = []
    for leaf in call.leaves:
        tensor = leaf.tensor
        for axis, dim in leaf.dynamic.items():
            if (size := dim.size(sizes)) != tensor.shape[axis]:
                tensor = grow(tensor, axis, size, dim.maximum)
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
    for leaf in call.leaves:
        for axis, dim in leaf.dynamic.items():
            if dim.expression is None:
                sizes.setdefault(dim.name, leaf.tensor.shape[axis] + 1 + 2 * len(sizes) % 5)
    tensors = [tensor.detach() for tensor in resized(call, sizes)]
    return [tensor.flip(0) if tensor.dim() else tensor.clone() for tensor in tensors]
