"""NumPy's functions on sizes: rows of places that a model computes with NumPy become tensors, computed in the file.

NumPy would take a dynamic size for the plain number that it is in the example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from tonnx.frontends.patching import Patch

_REASON = "it takes a size for the plain number that it is in the example"


def _is_size(value: Any) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat)) and value.node.maybe_as_int() is None


def _is_captured(value: Any) -> bool:
    return isinstance(value, FakeTensor) or _is_size(value)


def _dtype(dtype: Any) -> torch.dtype:
    return dtype if isinstance(dtype, torch.dtype) else torch.from_numpy(np.empty(0, dtype)).dtype


def _tensor(value: Any) -> torch.Tensor:
    """With NumPy's dtypes: Python's floats are float64."""
    if isinstance(value, torch.Tensor):
        return value
    if _is_captured(value):
        return torch.full((), value, dtype=torch.int64 if isinstance(value, torch.SymInt) else torch.float64)
    return torch.from_numpy(np.array(value))


def _arange(*bounds: Any, dtype: Any = None) -> torch.Tensor:
    whole = all(isinstance(bound, (int, torch.SymInt)) for bound in bounds)
    return torch.arange(*bounds, dtype=_dtype(dtype or ("int64" if whole else "float64")))


def _array(value: Any, dtype: Any = None, **options: Any) -> torch.Tensor:
    value = torch.stack([_tensor(each) for each in value]) if isinstance(value, (list, tuple)) else _tensor(value)
    return value if dtype is None else value.to(_dtype(dtype))


def _meshgrid(*rows: Any, indexing: str = "xy") -> list[torch.Tensor]:
    """Each with its own dtype, which PyTorch's does not allow."""
    tensors = [_tensor(row) for row in rows]
    whole = [tensor.shape[0] for tensor in tensors]
    grids = [
        tensor.reshape([-1 if place == i else 1 for place in range(len(tensors))]).expand(whole)
        for i, tensor in enumerate(tensors)
    ]
    return [grid.transpose(0, 1) for grid in grids] if indexing == "xy" and len(grids) > 1 else grids


_MADE: dict[str, Callable[..., Any]] = {
    "arange": _arange,
    "array": _array,
    "asarray": _array,
    "asanyarray": _array,
    "ascontiguousarray": _array,
    "meshgrid": _meshgrid,
}
_COMPUTED: dict[str, Callable[..., torch.Tensor]] = {
    "fmod": torch.fmod,
    "mod": torch.remainder,
    "where": torch.where,
    "abs": torch.abs,
    "floor": lambda x: x.double().floor(),
    "ceil": lambda x: x.double().ceil(),
}
"""Those that serve to make rows of places, and to compute with them; what any other is given is its own to refuse."""


def _made(function: Callable[..., Any], original: Any, *args: Any, **kwargs: Any) -> Any:
    takes = any(map(_is_captured, pytree.tree_leaves((args, kwargs))))
    return (function if takes else original)(*args, **kwargs)


def _computed(function: Callable[..., torch.Tensor], original: Any, *args: Any, **kwargs: Any) -> Any:
    """Of sizes alone it is a number, as NumPy's own is."""
    takes = any(isinstance(arg, FakeTensor) for arg in args)
    return function(*map(_tensor, args), **kwargs) if takes else original(*args, **kwargs)


def _from_numpy(original: Any, array: Any) -> torch.Tensor:
    result: torch.Tensor = array if isinstance(array, torch.Tensor) else original(array)
    return result


def numpy_sizes() -> Iterator[Patch]:
    for functions, way in ((_MADE, _made), (_COMPUTED, _computed)):
        for name, function in functions.items():
            yield Patch("numpy", name, partial(way, function), _REASON)
    yield Patch("torch", "from_numpy", _from_numpy, "what NumPy was to make is a tensor already")
