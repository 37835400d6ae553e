"""NumPy on sizes and on the tensors of a capture: PyTorch's own NumPy, whose arrays are tensors, computes it.

NumPy itself would take a dynamic size for the plain number that it is in the example, and has no tensor without values.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from tonnx.frontends.patching import How, Patch
from tonnx.frontends.torch.capture.python_flow.values import is_array, unwrapped

_REASON = "it takes a size for the plain number that it is in the example, and no tensor without values"
_PROTOCOL = "what NumPy and PyTorch ask of an array that is none of theirs"


_MADE = """arange array asarray asanyarray ascontiguousarray meshgrid linspace ones zeros full empty eye identity
    tri""".split()
"""Functions that make arrays of sizes and tensors; those that are given arrays find PyTorch's own by the arrays."""

_COMPUTED = "fmod mod where abs absolute floor ceil".split()
"""Functions that tensors are given to as they are."""


def _is_captured(value: Any) -> bool:
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value.node.maybe_as_int() is None
    return isinstance(value, FakeTensor) or is_array(value)


def _arrays() -> Any:
    """PyTorch's own NumPy; what it computes as it is imported is no part of the capture."""
    with _disable_current_modes():
        return importlib.import_module("torch._numpy")


def _made(name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
    leaves = pytree.tree_leaves((args, kwargs))
    function = (_OWN.get(name) or getattr(_arrays(), name)) if any(map(_is_captured, leaves)) else original
    return function(*args, **kwargs)


def _computed(name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
    """Of sizes alone it is a number, as NumPy's own is."""
    takes = any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves((args, kwargs)))
    return (getattr(_arrays(), name) if takes else original)(*args, **kwargs)


def _array(value: Any, *args: Any, **kwargs: Any) -> Any:
    """``np.array``, also of a list of sizes or of arrays."""
    parts = list(value) if isinstance(value, (list, tuple)) else []
    if any(map(_is_captured, parts)) and not any(isinstance(part, (list, tuple)) for part in parts):
        value = torch.stack([_arrays().asarray(part).tensor for part in parts])
    return _arrays().array(value, *args, **{k: v for k, v in kwargs.items() if k in ("dtype", "copy", "ndmin")})


def _meshgrid(*rows: Any, indexing: str = "xy") -> list[Any]:
    """Each with its own dtype, which PyTorch's does not allow."""
    tensors = [_arrays().asarray(row).tensor for row in rows]
    whole = [tensor.shape[0] for tensor in tensors]
    grids = [
        tensor.reshape([-1 if place == i else 1 for place in range(len(tensors))]).expand(whole)
        for i, tensor in enumerate(tensors)
    ]
    turned = [grid.transpose(0, 1) for grid in grids] if indexing == "xy" and len(grids) > 1 else grids
    return [_arrays().ndarray(grid) for grid in turned]


_OWN: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("array", "asarray", "asanyarray", "ascontiguousarray"), _array),
    "meshgrid": _meshgrid,
}


# Between tensors and arrays


def _numpy(original: Any, tensor: torch.Tensor, **options: Any) -> Any:
    return _arrays().ndarray(tensor) if isinstance(tensor, FakeTensor) else original(tensor, **options)


def _as_tensor(original: Any, data: Any, *args: Any, **options: Any) -> Any:
    if not is_array(data):
        return original(data, *args, **options)
    dtype = options.get("dtype")
    return data.tensor if dtype is None else data.tensor.to(dtype)


def _plain(value: Any) -> Any:
    return pytree.tree_map(unwrapped, value)


# Arrays


def _torch_function(function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return function(*_plain(args), **_plain(kwargs or {}))


def _array_function(array: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    own = getattr(_arrays(), function.__name__, None) or getattr(_arrays().fft, function.__name__, None)
    return NotImplemented if own is None else own(*args, **kwargs)


def _array_ufunc(array: Any, function: Any, method: str, *args: Any, **kwargs: Any) -> Any:
    own = getattr(_arrays(), function.__name__, None) if method == "__call__" else None
    return NotImplemented if own is None else own(*args, **kwargs)


def _element(original: Any, array: Any, index: Any) -> Any:
    """A whole number is one of Python's, which may be a size."""
    part = original(array, index)
    tensor = part.tensor if is_array(part) else None
    whole = tensor is not None and not tensor.dim() and not tensor.is_floating_point() and tensor.dtype != torch.bool
    return tensor.item() if whole and tensor is not None and not tensor.is_complex() else part


def _elements(original: Any, array: Any) -> Iterator[Any]:
    return (array[place] for place in range(array.shape[0]))


def _scalar_type(original: Any, dtype: Any, given: Any) -> None:
    """PyTorch's NumPy knows NumPy's dtypes by their names only."""
    numpys = isinstance(given, np.dtype) or (isinstance(given, type) and issubclass(given, np.generic))
    original(dtype, np.dtype(given).name if numpys else given)


def numpy_sizes() -> Iterator[Patch]:
    for name in _MADE:
        yield Patch("numpy", name, partial(_made, name), _REASON)
    for name in _COMPUTED:
        yield Patch("numpy", name, partial(_computed, name), _REASON)
    yield Patch("torch.Tensor", "numpy", _numpy, "a tensor of a capture has no values yet")
    for name in ("from_numpy", "tensor", "as_tensor"):
        yield Patch("torch", name, _as_tensor, "what NumPy was to make is a tensor already")
    yield from (replace(patch, when_imported="torch._numpy") for patch in _OF_ARRAYS)


_ARRAY = "torch._numpy.ndarray"
_OF_ARRAYS = (
    Patch(_ARRAY, "__torch_function__", staticmethod(_torch_function), _PROTOCOL, How.VALUE),
    Patch(_ARRAY, "__array_function__", _array_function, _PROTOCOL, How.VALUE),
    Patch(_ARRAY, "__array_ufunc__", _array_ufunc, _PROTOCOL, How.VALUE),
    Patch(_ARRAY, "__getitem__", _element, "an element of an array is a number, and may be a size"),
    Patch(_ARRAY, "__iter__", _elements, "the same"),
    Patch("torch._numpy._dtypes.DType", "__init__", _scalar_type, "it does not know NumPy's own dtypes"),
)
