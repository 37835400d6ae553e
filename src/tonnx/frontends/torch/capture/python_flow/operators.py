"""The operators between which loops and branches are recorded.

    index, *states = tonnx::loop_begin(trips, go_on, [h], varying)      # of the pass that is recorded
    … the body, traced as everything else …
    h, y = tonnx::loop_end(index, trips, again, [h], [last], [output], varying)

    token = tonnx::if_begin(test)
    … one side …
    tonnx::if_else(token)
    … the other side …
    tonnx::if_join(token)
    … what both results need, computed outside …
    y, = tonnx::if_end(token, [y of one side], [y of the other])

Parameters, outer tensors and sizes need no care: they are in the same graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import has_side_effect

from tonnx.frontends.torch.capture.patches.library import operator

_SCHEMAS = (
    "loop_begin(SymInt? trips, Tensor go_on, Tensor[] carried, int[] varying) -> Tensor[]",
    "loop_end(Tensor index, SymInt? trips, Tensor? again, Tensor[] carried, Tensor[] last, Tensor[] stacked, "
    "int[] varying) -> Tensor[]",
    "if_begin(Tensor test) -> Tensor",
    "if_else(Tensor token) -> ()",
    "if_join(Tensor token) -> ()",
    "if_end(Tensor token, Tensor[] one, Tensor[] other) -> Tensor[]",
    "try_begin() -> Tensor",  # a pass of a loop, to see whether its end is known
    "keep(Tensor token) -> ()",  # it was, so what was recorded stays
    "drop(Tensor token) -> ()",  # what was recorded since the beginning is not wanted after all
)


def _empty(like: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
    # Not like.new_empty: of a tensor that torch takes for a constant, it gives one with whatever is in memory.
    return torch.empty(list(sizes), dtype=like.dtype, device=like.device)


def _fresh(shape: Sequence[Any], axes: set[int]) -> list[Any]:
    return [torch.library.get_ctx().new_dynamic_size() if i in axes else size for i, size in enumerate(shape)]


def _states(carried: list[torch.Tensor], varying: list[int]) -> list[torch.Tensor]:
    """``varying`` are pairs: a tensor's place and an axis of it whose size differs from pass to pass."""
    pairs = list(zip(varying[::2], varying[1::2], strict=True))
    states = []
    for i, x in enumerate(carried):
        states.append(_empty(x, _fresh(x.shape, {axis for place, axis in pairs if place == i})))
    return states


def _loop_begin(trips: Any, go_on: Any, carried: list[torch.Tensor], varying: list[int]) -> list[torch.Tensor]:
    return [torch.empty((), dtype=torch.int64), *_states(carried, varying)]


def _loop_end(
    index: Any, trips: Any, again: Any, carried: Any, last: Any, stacked: Any, varying: list[int]
) -> list[torch.Tensor]:
    single = [*_states(carried, varying), *[_empty(x, x.shape) for x in last]]
    if not stacked:
        return single
    length = trips if again is None and trips is not None else torch.library.get_ctx().new_dynamic_size()
    return [*single, *[_empty(x, [length, *x.shape]) for x in stacked]]


def _if_end(token: Any, one: list[torch.Tensor], other: list[torch.Tensor]) -> list[torch.Tensor]:
    results = []
    for a, b in zip(one, other, strict=True):
        differ = {i for i, (p, q) in enumerate(zip(a.shape, b.shape, strict=True)) if not statically_known_true(p == q)}
        results.append(_empty(a, _fresh(a.shape, differ)))
    return results


_FAKES: dict[str, Callable[..., Any]] = {
    "loop_begin": _loop_begin,
    "loop_end": _loop_end,
    "if_begin": lambda test: torch.empty((), dtype=torch.bool),
    "if_end": _if_end,
    "try_begin": lambda: torch.empty((), dtype=torch.bool),
}


def operators() -> Any:
    """The namespace of the operators, which this registers."""
    for schema in _SCHEMAS:
        registered = operator(schema, _FAKES.get(schema.split("(")[0], lambda token: None))
        has_side_effect(registered)  # what is inside may write to memory, and nothing else
    return torch.ops.tonnx


MARKERS = frozenset(schema.split("(")[0] for schema in _SCHEMAS)
