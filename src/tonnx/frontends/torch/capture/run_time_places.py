"""Places that only the run knows, in an index: ``x[n]``, ``x[:, :lengths.max()]``.

Python's indexing reads them as plain numbers. Selections and slices, which take symbols, say the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tonnx.frontends.torch.versions import promise_bound

_SELECTIONS = (torch.select, torch.Tensor.select)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class RunTimePlaces(TorchFunctionMode):
    """Calls of torch's functions, with indices as the selections and slices that they mean."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            return _indexed(*args)
        if func in _SELECTIONS and len(args) == 3:
            promise_bound(*args)
        return func(*args, **(kwargs or {}))


def _indexed(x: torch.Tensor, index: Any) -> Any:
    items = list(index) if isinstance(index, tuple) else [index]
    parts = [part for item in items for part in (_parts(item) if isinstance(item, slice) else [item])]
    if not any(isinstance(part, torch.SymInt) or _is_number(part) for part in parts):
        return x[index]
    axes = sum(item is not None and item is not Ellipsis for item in items)
    items = [part for item in items for part in ([slice(None)] * (x.ndim - axes) if item is Ellipsis else [item])]
    if not all(item is None or isinstance(item, slice) or _is_place(item) for item in items):
        return x[index]  # with tensors of places or masks, for which PyTorch has an operator
    axis = 0
    for item in items:
        if _is_place(item):
            place = _number(item)
            promise_bound(x, axis, place)
            x = torch.select(x, axis, place)
            continue
        if item is None:
            x = torch.unsqueeze(x, axis)
        elif any(part is not None for part in _parts(item)):
            start, stop, step = map(_number, _parts(item))
            x = torch.ops.aten.slice(x, axis, start, stop, 1 if step is None else step)
        axis += 1
    return x


def _parts(item: slice) -> tuple[Any, Any, Any]:
    return item.start, item.stop, item.step


def _is_place(item: Any) -> bool:
    return (isinstance(item, (int, torch.SymInt)) and not isinstance(item, bool)) or _is_number(item)


def _is_number(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.ndim == 0 and item.dtype in _INTEGERS


def _number(item: Any) -> Any:
    return item.item() if _is_number(item) else item
