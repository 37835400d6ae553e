"""``associative_scan`` for the length of a capture: as one operator, which PyTorch does only for the graphics card.

Its other way, ``combine_mode="generic"``, unrolls the scan in a depth that depends on the length, which fixes that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree


def _instead(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):  # type: ignore[no-untyped-def]
    from tonnx.frontends.torch.capture.patches.associative_scan import scanned

    return scanned(combine_fn, xs, dim, reverse)


@contextlib.contextmanager
def scans() -> Iterator[None]:
    """Replace the function's code: models have imported the function itself."""
    from torch._higher_order_ops.associative_scan import associative_scan

    code = associative_scan.__code__
    if code.co_varnames[:5] != _instead.__code__.co_varnames[:5]:  # another version of PyTorch
        yield
        return
    associative_scan.__code__ = _instead.__code__
    try:
        yield
    finally:
        associative_scan.__code__ = code


def scanned(combine: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool) -> Any:
    """The scan as one operator, over axis 0."""
    from torch._higher_order_ops.associative_scan import associative_scan_op
    from torch._higher_order_ops.utils import _maybe_compile_and_run_fn

    leaves, spec = pytree.tree_flatten(xs)
    moved = [leaf.movedim(dim, 0) for leaf in leaves]
    if reverse:
        moved = [leaf.flip([0]) for leaf in moved]

    def flat(*values: torch.Tensor) -> list[torch.Tensor]:
        one, other = (pytree.tree_unflatten(part, spec) for part in (values[: len(leaves)], values[len(leaves) :]))
        return pytree.tree_leaves(combine(one, other))

    def run(function: Callable[..., Any], tensors: list[torch.Tensor]) -> Any:
        return associative_scan_op(function, tensors, additional_inputs=())

    results = _maybe_compile_and_run_fn(run, flat, moved)
    if reverse:
        results = [result.flip([0]) for result in results]
    return pytree.tree_unflatten([result.movedim(0, dim) for result in results], spec)
