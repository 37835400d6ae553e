"""Functions of Python and torch on sizes that are dynamic, without asking for a plain number, which would fix it.

``min(96 / h, 160 / w)``, ``2 ** math.ceil(math.log2(n))``. `int` and `float` are classes, which cannot be replaced:
where a model calls them, its function is rewritten (`python_flow.iterate`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any

import torch

from tonnx.frontends.patching import How, Patch

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)
_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_REASON = "it would compare dynamic sizes, or read them as plain numbers"


def _extreme(choose: Callable[[Any, Any], Any], original: Any, *args: Any, **kwargs: Any) -> Any:
    """``max`` or ``min`` of numbers of which some are dynamic."""
    numbers = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
    if kwargs or len(numbers) < 2 or not any(isinstance(number, _SYMBOLIC) for number in numbers):
        return original(*args, **kwargs)
    if not all(isinstance(number, _NUMBERS) for number in numbers):
        return original(*args, **kwargs)
    return reduce(choose, numbers)


def _of_one(symbolic: Callable[[Any], Any], original: Any, *args: Any) -> Any:
    return symbolic(args[0]) if len(args) == 1 and isinstance(args[0], _SYMBOLIC) else original(*args)


def _log(original: Any, x: Any, *base: Any) -> Any:
    if not isinstance(x, _SYMBOLIC):
        return original(x, *base)
    return _natural(x) / original(*base) if base else _natural(x)


def _divmod(original: Any, a: Any, b: Any) -> Any:
    return (a // b, a % b) if isinstance(a, _SYMBOLIC) or isinstance(b, _SYMBOLIC) else original(a, b)


def _natural(x: Any) -> Any:
    return torch._sym_log2(x) * math.log(2.0)  # type: ignore[attr-defined]


_METHODS: dict[str, Callable[[Any], Any]] = {
    "sqrt": torch.sym_sqrt,
    "log": _natural,
    "log2": torch._sym_log2,  # type: ignore[attr-defined]
    "log10": lambda x: _natural(x) / math.log(10.0),
}
"""What numpy's functions ask of a number that is none of numpy's."""


def _tensor(original: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
    """``torch.tensor`` of numbers of which some are dynamic."""
    device = kwargs.get("device")
    if args or not set(kwargs) <= {"dtype", "device", "requires_grad"} or not _has_size(data):
        return original(data, *args, **kwargs)
    numbers = _flat(data)
    fraction = any(isinstance(number, (float, torch.SymFloat)) for number in numbers)
    dtype = kwargs.get("dtype") or (torch.get_default_dtype() if fraction else torch.int64)
    if not isinstance(data, (list, tuple)):
        return torch.full((), data, dtype=dtype, device=device)
    parts = [_tensor(original, part, dtype=dtype, device=device) for part in data]
    return torch.stack([part if isinstance(part, torch.Tensor) else original(part, dtype=dtype) for part in parts])


def _new_tensor(original: Any, like: torch.Tensor, data: Any, *args: Any, **kwargs: Any) -> Any:
    """``x.new_tensor([h, w])``."""
    if not _has_size(data):
        return original(like, data, *args, **kwargs)
    return torch.tensor(data, *args, **{"dtype": like.dtype, "device": like.device, **kwargs})


def _flat(data: Any) -> list[Any]:
    return [number for part in data for number in _flat(part)] if isinstance(data, (list, tuple)) else [data]


def _has_size(data: Any) -> bool:
    """Whether these are numbers, and one of them is a dynamic size."""
    numbers = _flat(data) if isinstance(data, (list, tuple, *_SYMBOLIC)) else []
    return any(isinstance(n, _SYMBOLIC) for n in numbers) and all(isinstance(n, _NUMBERS) for n in numbers)


def python_numbers() -> Iterator[Patch]:
    """The functions that sizes meet in models."""
    yield Patch("builtins", "max", partial(_extreme, torch.sym_max), _REASON)
    yield Patch("builtins", "min", partial(_extreme, torch.sym_min), _REASON)
    yield Patch("math", "sqrt", partial(_of_one, torch.sym_sqrt), _REASON)
    yield Patch("math", "log2", partial(_of_one, torch._sym_log2), _REASON)  # type: ignore[attr-defined]
    yield Patch("math", "log", _log, _REASON)
    yield Patch("math", "isqrt", partial(_of_one, lambda n: math.floor(torch.sym_sqrt(n))), _REASON)
    yield Patch("builtins", "divmod", _divmod, _REASON)
    yield Patch(torch.SymInt, "bit_length", lambda n: math.ceil(torch._sym_log2(n + 1)), _REASON, How.VALUE)  # type: ignore[attr-defined]
    yield Patch(torch.SymFloat, "is_integer", lambda x: x == math.floor(x), _REASON, How.VALUE)
    for name, method in _METHODS.items():
        for number in _SYMBOLIC:
            yield Patch(number, name, method, _REASON, How.VALUE)
    yield Patch("torch", "tensor", _tensor, _REASON)
    yield Patch("torch", "as_tensor", _tensor, _REASON)
    yield Patch("torch.Tensor", "new_tensor", _new_tensor, _REASON)
