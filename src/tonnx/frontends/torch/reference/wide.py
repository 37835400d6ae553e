"""The model computed in float64 where it computes in float32: how far its own results are from what they mean."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree


class Wide(TorchFunctionMode):
    """Functions get float64 for float32, and give float64 for float32; nothing of the module is changed.

    It holds for this thread only, unlike PyTorch's default dtype.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func = torch.Tensor.double if func is torch.Tensor.float else func
        written = args[:1] if _writes(func) else ()  # a copy would take what was meant for the tensor itself
        wide_args, wide_kwargs = pytree.tree_map(_wide, (args[len(written) :], kwargs or {}))
        return pytree.tree_map(_wide, func(*written, *wide_args, **wide_kwargs))


def _wide(value: Any) -> Any:
    """Also the dtype itself: what is cast to float32 would be rounded."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype == torch.float32 else value
    return torch.float64 if value is torch.float32 else value


def _writes(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    return name in ("__setitem__", "__set__") or (name.endswith("_") and not name.endswith("__")) or name[:3] == "__i"
