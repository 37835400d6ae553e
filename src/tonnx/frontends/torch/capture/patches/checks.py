"""Checks that PyTorch's own code makes: of values, which a file does not make, and says so; of sizes, and of dtypes."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from tonnx.frontends.torch.capture.explain import calling_frame
from tonnx.frontends.torch.capture.python_flow.conditions import assumed


def all_true(original: Any, valid: torch.Tensor) -> Any:
    """What torch.distributions ask of their arguments and of samples."""
    return original(valid) if _is_known(valid) else _passes(original(valid))


def all_true_or_told(original: Any, valid: torch.Tensor, message: str) -> Any:
    return torch._is_all_true(valid)


def check_with(original: Any, error_type: Any, cond: Any, message: Any) -> None:
    """``torch._check`` and its like, of a condition that only the run knows."""
    if isinstance(cond, torch.Tensor) and not _is_known(cond):
        _passes(cond)
    else:
        original(error_type, bool(cond) if isinstance(cond, torch.Tensor) else cond, message)


def solved_if_possible(original: Any, constraints: Any) -> None:
    """torch.export's summary of what the sizes must satisfy; sympy solves no floor of a floor."""
    with contextlib.suppress(NotImplementedError):
        original(constraints)


def where(original: Any, condition: Any, *args: Any, **kwargs: Any) -> Any:
    return original(_as_bools(condition), *args, **kwargs)


def tensor_where(original: Any, chosen: Any, condition: Any, *args: Any, **kwargs: Any) -> Any:
    return original(chosen, _as_bools(condition), *args, **kwargs)


def _as_bools(condition: Any) -> Any:
    return condition.bool() if isinstance(condition, torch.Tensor) and condition.dtype == torch.uint8 else condition


def _is_known(value: torch.Tensor) -> bool:
    fake = isinstance(value, torch._subclasses.FakeTensor)
    return not fake or getattr(value, "constant", None) is not None


def _passes(test: torch.Tensor) -> bool:
    frame = calling_frame(sys._getframe(2)) or sys._getframe(2)
    return assumed(test, True, frame.f_lineno, frame)


def as_subclass(original: Any, x: torch.Tensor, kind: type) -> Any:
    """``x.as_subclass(torch.Tensor)``, of a tensor that is one of a capture: it would be taken out of that."""
    if kind is torch.Tensor and isinstance(x, (FakeTensor, FunctionalTensor)):
        return x.view_as(x)
    return original(x, kind)
