"""``and``, ``or`` and ``in`` of what only the run decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tonnx.frontends.torch.capture.python_flow.branch import choose
from tonnx.frontends.torch.capture.python_flow.conditions import truth
from tonnx.frontends.torch.capture.python_flow.recorded_list import Listed


def joined(word: str, harmless: bool, *parts: Callable[[], Any]) -> Any:
    """``a and b``, ``a or b``. ``harmless``: what comes after the first can be computed whether or not it counts."""
    value = parts[0]()
    if len(parts) == 1:
        return value
    condition, decisive = truth(value), word == "or"
    if isinstance(condition, bool):
        return value if condition is decisive else joined(word, harmless, *parts[1:])
    is_bool = isinstance(value, torch.SymBool) or (isinstance(value, torch.Tensor) and value.dtype == torch.bool)
    if harmless and is_bool:
        rest = joined(word, harmless, *parts[1:])
        if isinstance(rest, (bool, torch.SymBool)) or (isinstance(rest, torch.Tensor) and rest.dtype == torch.bool):
            return _both(word, value, condition, rest)
        later: Callable[[], Any] = lambda: rest  # noqa: E731
    else:
        later = lambda: joined(word, harmless, *parts[1:])  # noqa: E731

    first = (lambda: condition) if is_bool else (lambda: value)
    return choose(condition, first, later) if decisive else choose(condition, later, first)


def _both(word: str, value: Any, condition: torch.Tensor, rest: Any) -> Any:
    other = truth(rest)
    if isinstance(other, bool):
        return condition if other is (word == "and") else other
    if isinstance(value, torch.Tensor) and isinstance(rest, torch.Tensor) and value.shape == rest.shape:
        condition, other = value, rest  # [1] stays [1]
    return torch.logical_and(condition, other) if word == "and" else torch.logical_or(condition, other)


def contained(item: Any, container: Any) -> Any:
    """``item in container``."""
    dynamic = isinstance(item, (torch.Tensor, torch.SymInt, torch.SymFloat))
    if isinstance(container, torch.Tensor) and not isinstance(container, Listed):
        return (container == item).any()
    if not dynamic or not isinstance(container, (list, tuple, set, frozenset, range)):
        return item in container
    if isinstance(container, Listed):
        return (container.tensor == item).any()
    return joined("or", True, *((lambda value=value: item == value) for value in container), lambda: False)
