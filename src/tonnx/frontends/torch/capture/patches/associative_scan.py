"""``associative_scan`` for the length of a capture: as one operator, which PyTorch does only for the graphics card.

Its other way, ``combine_mode="generic"``, unrolls the scan in a depth that depends on the length, which fixes that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def associative_scan(
    original: Any,
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """The scan as one operator, over axis 0."""
    from torch._higher_order_ops.associative_scan import associative_scan_op
    from torch._higher_order_ops.utils import _maybe_compile_and_run_fn

    leaves, spec = pytree.tree_flatten(xs)
    moved = [leaf.movedim(dim, 0) for leaf in leaves]
    if reverse:
        moved = [leaf.flip([0]) for leaf in moved]

    def flat(*values: torch.Tensor) -> list[torch.Tensor]:
        one, other = (pytree.tree_unflatten(part, spec) for part in (values[: len(leaves)], values[len(leaves) :]))
        return pytree.tree_leaves(combine_fn(one, other))

    def run(function: Callable[..., Any], tensors: list[torch.Tensor]) -> Any:
        return associative_scan_op(function, tensors, additional_inputs=())

    results = _maybe_compile_and_run_fn(run, flat, moved)
    if reverse:
        results = [result.flip([0]) for result in results]
    return pytree.tree_unflatten([result.movedim(0, dim) for result in results], spec)
