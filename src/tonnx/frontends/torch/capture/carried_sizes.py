"""Where the sizes of a result can be told from those of the operands without algebra: views, and leading dimensions.

Most operators of a network give a dynamic size back where they found it. PyTorch reasons about each of them anew.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import sympy
import torch

aten = torch.ops.aten


class View(NamedTuple):
    """How a result looks at the memory of the operator's first argument."""

    shape: list[Any]
    stride: list[Any]
    offset: Any


class Seen(NamedTuple):
    """A tensor of a capture: its sizes, as they compute and as they compare, and how it looks at its memory."""

    shape: Sequence[Any]
    keys: Sequence[Any]
    stride: Sequence[Any]
    offset: Any
    dense: bool


def size_key(size: Any) -> Any:
    """A size as it can be compared."""
    return size if type(size) is int else size.node.expr


def dense_strides(shape: Sequence[Any]) -> list[Any]:
    """The strides of a tensor whose elements lie one behind the other."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(shape):
        strides.append(step)
        step = size if type(step) is int and step == 1 else step * size
    return strides[::-1]


# Views


def view_of(func: Any, seen: Seen, arguments: Sequence[Any]) -> View | None:
    """The result of an operator that is a view; None if that takes reasoning."""
    rule = _VIEWS.get(func)
    try:
        return None if rule is None else rule(seen, *arguments)
    except (TypeError, IndexError):  # arguments that PyTorch knows what to say of
        return None


def _whole(seen: Seen, *_: Any) -> View:
    return View(list(seen.shape), list(seen.stride), seen.offset)


def _unsqueeze(seen: Seen, dim: int) -> View | None:
    rank = len(seen.shape)
    axis = dim + rank + 1 if dim < 0 else dim
    if not 0 <= axis <= rank:
        return None
    view = _whole(seen)
    view.shape.insert(axis, 1)
    view.stride.insert(axis, seen.shape[axis] * seen.stride[axis] if axis < rank else 1)
    return view


def _permute(seen: Seen, dims: Sequence[int]) -> View | None:
    order = [range(len(seen.shape))[dim] for dim in dims]
    if sorted(order) != list(range(len(seen.shape))):
        return None
    return View([seen.shape[axis] for axis in order], [seen.stride[axis] for axis in order], seen.offset)


def _transpose(seen: Seen, first: int, second: int) -> View | None:
    order = list(range(len(seen.shape)))
    order[first], order[second] = order[second], order[first]
    return _permute(seen, order)


def _slice(seen: Seen, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> View | None:
    view, size = _whole(seen), seen.shape[dim]
    numbers = 0 if start is None else start, sys.maxsize if end is None else end, step
    if not all(type(number) is int for number in numbers):
        return None
    if numbers == (0, sys.maxsize, 1):
        return view
    if type(size) is not int or step < 1 or type(seen.stride[dim]) is not int or type(seen.offset) is not int:
        return None
    begin, stop, _ = slice(*numbers).indices(size)
    view.shape[dim], view.stride[dim] = len(range(begin, stop, step)), seen.stride[dim] * step
    return View(view.shape, view.stride, seen.offset + begin * seen.stride[dim])


def _expand(seen: Seen, sizes: Sequence[Any]) -> View | None:
    new = len(sizes) - len(seen.shape)
    if new < 0:
        return None
    shape, stride = list(sizes[:new]), [0] * new
    for size, key, step, wanted in zip(seen.shape, seen.keys, seen.stride, sizes[new:], strict=True):
        if (type(wanted) is int and wanted == -1) or size_key(wanted) == key:
            shape.append(size)
            stride.append(step)
        elif type(size) is int and size == 1 and _more_than_one(wanted):
            shape.append(wanted)
            stride.append(0)
        else:
            return None
    return View(shape, stride, seen.offset) if all(_more_than_one(size) for size in shape[:new]) else None


def _more_than_one(size: Any) -> bool:
    known = size if type(size) is int else size.node.hint
    return type(known) is int and known > 1


def _view(seen: Seen, sizes: Sequence[Any]) -> View | None:
    """Of what lies one behind the other; sizes that are not there any more take algebra."""
    if not seen.dense or not all(type(size) is int or isinstance(size, torch.SymInt) for size in sizes):
        return None
    left, number = _factors(seen.keys)
    taken, divisor = _factors([size_key(size) for size in sizes if not _is_open(size)])
    if taken - left or not divisor or number % divisor:
        return None
    left, number = left - taken, number // divisor
    opened = [axis for axis, size in enumerate(sizes) if _is_open(size)]
    shape = list(sizes)
    if opened:
        rest: Any = number
        for size, key in zip(seen.shape, seen.keys, strict=True):
            parts = _factors([key])
            if parts[0] and not parts[0] - left and parts[1] == 1:
                left, rest = left - parts[0], size if rest == 1 else rest * size
        shape[opened[0]] = rest
    elif number != 1:
        return None
    if left or len(opened) > 1:
        return None
    return View(shape, dense_strides(shape), seen.offset)


def _is_open(size: Any) -> bool:
    return type(size) is int and size == -1


def _factors(keys: Sequence[Any]) -> tuple[Counter[Any], int]:
    """The symbols, and other expressions, that a number of elements is the product of, and the number beside them."""
    symbols: Counter[Any] = Counter()
    number = 1
    for key in keys:
        for part in sympy.Mul.make_args(key) if isinstance(key, sympy.Mul) else (key,):
            if isinstance(part, (int, sympy.Integer)):
                number *= int(part)
            else:
                symbols[part] += 1
    return symbols, number


_VIEWS: dict[Any, Callable[..., View | None]] = {
    aten.alias.default: _whole,
    aten.detach.default: _whole,
    aten.expand.default: _expand,
    aten.permute.default: _permute,
    aten.reshape.default: _view,
    aten.slice.Tensor: _slice,
    aten.transpose.int: _transpose,
    aten.unsqueeze.default: _unsqueeze,
    aten.view.default: _view,
}


# Leading dimensions


def carried(func: Any, arguments: Sequence[Any]) -> tuple[int, int] | None:
    """Which argument's leading dimensions the result has, as they are, and how many; None if that is not known.

    What lies behind them is up to the others, which have no dynamic sizes.
    """
    rule = _LEADING.get(func.overloadpacket)
    return None if rule is None else rule(*arguments)


def _convolved(x: Any, weight: Any, *_: Any) -> tuple[int, int] | None:
    return (0, 1) if x.dim() == weight.dim() else None


def _reduced(x: Any, dims: Any = None, *_: Any) -> tuple[int, int] | None:
    return (0, min(range(x.dim())[dim] for dim in dims)) if dims and x.dim() else None


def _pooled(count: int) -> Callable[..., tuple[int, int]]:
    return lambda x, *_: (0, x.dim() - count)


_LEADING: dict[Any, Callable[..., tuple[int, int] | None]] = {
    aten.linear: lambda x, *_: (0, x.dim() - 1),
    aten.mm: lambda *_: (0, 1),
    aten.addmm: lambda *_: (1, 1),
    aten.embedding: lambda weight, places, *_: (1, places.dim()),
    aten.mean: _reduced,
    **dict.fromkeys((aten.conv1d, aten.conv2d, aten.conv3d), _convolved),
    **{getattr(aten, f"{kind}_pool{n}d"): _pooled(n) for kind in ("adaptive_avg", "avg", "max") for n in (1, 2, 3)},
}


# Broadcasting


def joint_shape(shapes: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> list[Any] | None:
    """What shapes broadcast to, each as it computes and as it compares; None if that takes reasoning."""
    rank = max(len(shape) for shape, _ in shapes)
    joint: list[Any] = [1] * rank
    known: list[Any] = [1] * rank
    for shape, keys in shapes:
        for place, (size, key) in enumerate(zip(shape, keys, strict=True), rank - len(shape)):
            if known[place] == 1:
                joint[place], known[place] = size, key
            elif key not in (1, known[place]):
                return None
    return joint
