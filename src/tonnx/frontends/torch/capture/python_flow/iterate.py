"""What a recorded ``for`` runs over, and the functions that would count it."""

from __future__ import annotations

import builtins
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_false, statically_known_true, sym_eq

from tonnx.frontends.torch.capture.patches.multiples import rounded_quotient
from tonnx.frontends.torch.capture.patches.plain_sizes import is_dynamic
from tonnx.frontends.torch.capture.patches.size_questions import varies
from tonnx.frontends.torch.capture.python_flow.conditions import assumed
from tonnx.frontends.torch.capture.python_flow.recorded_list import (
    Listed,
    NumbersListed,
    Ragged,
    RecordedList,
    listed,
    stacked,
)
from tonnx.frontends.torch.capture.python_flow.scope_analysis import Unsuitable
from tonnx.frontends.torch.capture.python_flow.short_circuit import joined
from tonnx.frontends.torch.capture.python_flow.values import SYMBOLIC, as_tensor, is_symbolic, shape_env, unwrapped
from tonnx.frontends.torch.capture.python_flow.variables import is_watched
from tonnx.frontends.torch.versions import example_of, set_example_of


@dataclass
class Items:
    """Something to loop over whose length is known only at run time."""

    length: Any
    item: Callable[[Any], Any]
    is_arithmetic: bool = False
    """Whether items are numbers that are computed of their places, as those of a range: so all can be at once."""

    def __iter__(self) -> Iterator[Any]:
        # Somebody else than a rewritten loop: as PyTorch does it, which fixes the length.
        return (self.item(k) for k in builtins.range(self.length))

    def after(self, first: int) -> Items:
        """Without the first few."""
        return Items(self.length - first, lambda k: self.item(k + first), self.is_arithmetic) if first else self

    def numbers(self) -> NumbersListed:
        return NumbersListed(self.item(torch.arange(self.length)))


def items(iterable: Any) -> Any:
    """What a ``for`` runs over: `Items` if its length is dynamic, else as it is."""
    tensor = unwrapped(iterable)
    if isinstance(tensor, torch.Tensor) and tensor.dim() and is_dynamic(tensor.shape[0]):
        numbers = tensor is not iterable and tensor.dim() == 1
        iterable = NumbersListed(tensor) if numbers else Listed(tensor)
    return Items(iterable.size(), iterable.element) if isinstance(iterable, RecordedList) else iterable


def uniform(iterable: Any) -> Items | None:
    """What has a fixed length, but could be run over by a recorded loop; None if its items are of different kinds."""
    if isinstance(iterable, builtins.range):
        return Items(len(iterable), lambda k: iterable.start + k * iterable.step)
    if isinstance(iterable, torch.Tensor) and iterable.dim():
        return Items(iterable.shape[0], lambda k: iterable.select(0, k))
    return None


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A function that would ask for a plain number, called without fixing what is dynamic."""
    first = args[0] if args else None
    if isinstance(first, Items) and first.is_arithmetic and _takes_list(function):
        first = first.numbers()
        args = (first, *args[1:])
    if isinstance(first, RecordedList) and (result := _of_list(function, *args, **kwargs)) is not None:
        return result
    if function is torch.autograd.grad:
        return _gradients(*args, **kwargs)
    plain = not kwargs or function is torch.allclose
    rule = _NUMBERS.get(getattr(function, "__wrapped__", function))  # some are patched meanwhile
    if args and (rule is not None or function is builtins.len):
        first = unwrapped(first)
        args = (first, *args[1:])
    if isinstance(first, (torch.Tensor, *SYMBOLIC)) and plain and rule is not None:
        return rule(*args, **kwargs)
    if isinstance(owner := getattr(function, "__self__", None), torch.Tensor):
        rule = _NUMBERS.get(getattr(torch, getattr(function, "__name__", ""), None))
        if rule is not None and not kwargs:
            return rule(owner, *args)
    if isinstance(owner, torch.Size) and getattr(function, "__name__", "") == "numel":
        return math.prod(owner)
    if function in _CLASSES and isinstance(first, (list, tuple)) and len(args) == 1 and not kwargs:
        return torch.tensor(first, dtype=_CLASSES[function] or torch.get_default_dtype())
    if function is torch._assert:
        frame = sys._getframe(1)
        return function(assumed(first, True, frame.f_lineno, frame), *args[1:], **kwargs)
    if function is builtins.len and isinstance(first, torch.Tensor):
        return first.shape[0]
    if function in (builtins.max, builtins.min, builtins.any, builtins.all):
        return _reduced(function, *args, **kwargs)
    lazy: Any = None
    if function is builtins.range and any(map(is_dynamic, bounds := [_bound(bound) for bound in args])):
        lazy = _one_step(*bounds) or _range(*bounds)
    elif function is builtins.enumerate and isinstance(inner := items(first), Items):
        start = args[1] if len(args) > 1 else kwargs.get("start", 0)
        lazy = Items(inner.length, lambda k: (k + start, inner.item(k)))
    elif function is builtins.reversed and isinstance(inner := items(first), Items):
        lazy = Items(inner.length, lambda k: inner.item(inner.length - 1 - k), inner.is_arithmetic)
    elif function is builtins.zip and args and any(isinstance(inner_items, Items) for inner_items in map(items, args)):
        parts = [items(argument) for argument in args]
        lazy = _zip(parts) if all(isinstance(part, Items) for part in parts) else None
    elif function is itertools.product and any(isinstance(part, Items) for part in map(items, args)):
        lazy = _product(args * kwargs.get("repeat", 1))
    elif (name := getattr(function, "__name__", "")) in ("unbind", "split", "chunk"):
        lazy = _taken_apart(name, *([owner] if isinstance(owner, torch.Tensor) else []), *args, **kwargs)
    elif name == "tolist" and isinstance(owner := unwrapped(owner), torch.Tensor):
        lazy = NumbersListed(owner) if owner.dim() == 1 and is_dynamic(owner.shape[0]) else None
    return lazy if lazy is not None else function(*args, **kwargs)


_CLASSES: dict[Any, torch.dtype | None] = {
    torch.Tensor: None,
    torch.FloatTensor: torch.float32,
    torch.LongTensor: torch.int64,
}
"""Classes that make tensors of plain numbers only."""


def _takes_list(function: Any) -> bool:
    lists = (builtins.len, builtins.list, builtins.tuple, builtins.sum)
    return function in (*lists, torch.tensor, torch.as_tensor, *_CLASSES)  # as they are now: some are patched


def _of_list(function: Any, first: RecordedList, *args: Any, **kwargs: Any) -> Any:
    if function is builtins.len:
        return first.size()
    if function in (builtins.list, builtins.tuple):
        return first.copied()
    if not isinstance(first, Listed):
        return None
    if isinstance(first, NumbersListed) and function in (builtins.max, builtins.min) and not (args or kwargs):
        return (first.tensor.amax() if function is builtins.max else first.tensor.amin()).item()
    if function is builtins.sum:
        return first.tensor.sum(0) if not args else args[0] + first.tensor.sum(0)
    if function in (torch.tensor, torch.as_tensor):
        dtype = args[0] if args else kwargs.get("dtype")
        numbers = isinstance(first, NumbersListed) or getattr(first, "numbers", False)
        if dtype is None and numbers and first.tensor.is_floating_point():
            dtype = torch.get_default_dtype()
        return first.tensor if dtype is None else first.tensor.to(dtype)
    if function in _CLASSES:
        return first.tensor.to(_CLASSES[function] or torch.get_default_dtype())
    return None


def _gradients(outputs: Any, inputs: Any, grad_outputs: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Those of ``x.unbind()`` are added up, as those of any several numbers are."""
    if isinstance(outputs, Listed) and outputs.tensor.dim() == 1 and grad_outputs is None:
        outputs = outputs.tensor.sum()
    return torch.autograd.grad(outputs, inputs, grad_outputs, *args, **kwargs)


def repeated(one: Any, other: Any) -> Any:
    """``[a, b] * n``, of which one side is written as a list."""
    elements, count = (one, other) if isinstance(one, list) else (other, one)
    if not is_dynamic(count) or not isinstance(elements, list) or not elements:
        return one * other
    tensor = stacked(elements)
    return listed(elements, tensor.repeat(count, *[1] * (tensor.dim() - 1)))


# Numbers


def _int(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value if _constant(value) else value.reshape(()).to(torch.int64).item()
    return torch.sym_int(value)


def _float(value: Any) -> Any:
    return value.reshape(()).to(torch.float64).item() if isinstance(value, torch.Tensor) else torch.sym_float(value)


def _constant(value: Any) -> bool:
    return getattr(value, "constant", None) is not None


def _plain(function: Any, otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def rule(value: Any, *rest: Any) -> Any:
        is_plain = _constant(value) or (isinstance(value, SYMBOLIC) and not is_symbolic(value))
        if is_plain or rest:
            return function(value, *rest)
        if rounding := _ROUNDINGS.get(function):
            number = value.node.expr if isinstance(value, torch.SymFloat) else None
            if number is not None and (rounded_quotient(rounding, number) is not None or _is_logarithm(number)):
                return getattr(math, rounding)(value)
        result = otherwise(value)
        if isinstance(value, SYMBOLIC) and isinstance(result, SYMBOLIC):
            _note_example(result, function, value)
        return result

    return rule


def _is_logarithm(number: Any) -> bool:
    """Of a size: what is computed of that, such as the next power of 2, torch has names for."""
    return type(number).__name__ == "OpaqueUnaryFn_log2"


_ROUNDINGS = {math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc", builtins.int: "trunc"}


def _note_example(result: Any, function: Any, value: Any) -> None:
    """Tell torch what a number comes to in the example, where it depends on sizes alone: its layers may ask for it.

    The number stays one of its own. In terms of sizes, those of all layers after it would grow too long to work with.
    """
    env, symbol = shape_env(), result.node.expr
    example = example_of(env, value.node.expr)
    if example is not None and symbol.is_Symbol:
        set_example_of(env, symbol, function(example))


def _equal(a: torch.Tensor, b: torch.Tensor) -> Any:
    if a.dim() != b.dim() or statically_known_false(sym_eq(a.shape, b.shape)):
        return False
    same_sizes = []
    for axis, (p, q) in enumerate(zip(a.shape, b.shape, strict=True)):
        if not statically_known_true(p == q):  # what both have is compared
            same_sizes.append(as_tensor(p == q))
            # A number of its own: of the sizes themselves, torch would conclude that they are those of the example.
            length = as_tensor(torch.sym_min(p, q), torch.int64).item()
            torch._check(length >= 0)
            a, b = (x.narrow(axis, 0, length) for x in (a, b))
    return reduce(torch.logical_and, same_sizes, (a == b).all())


def _allclose(a: torch.Tensor, b: torch.Tensor, *rest: Any, **options: Any) -> Any:
    return torch.isclose(a, b, *rest, **options).all()


def _nonzero(a: torch.Tensor) -> Any:
    return a.reshape(()) != 0


_RULES: dict[Any, Callable[..., Any]] = {
    builtins.int: _plain(builtins.int, _int),
    builtins.float: _plain(builtins.float, _float),
    builtins.round: _plain(builtins.round, lambda x: _int(_float_tensor(x).round())),
    math.floor: _plain(math.floor, lambda x: _int(_float_tensor(x).floor())),
    math.ceil: _plain(math.ceil, lambda x: _int(_float_tensor(x).ceil())),
    math.trunc: _plain(math.trunc, _int),
    math.sqrt: _plain(math.sqrt, lambda x: _float(_float_tensor(x).sqrt())),
    math.exp: _plain(math.exp, lambda x: _float(_float_tensor(x).exp())),
    math.log: _plain(math.log, lambda x: _float(_float_tensor(x).log())),
    math.log2: lambda x: torch._sym_log2(x) if isinstance(x, SYMBOLIC) else math.log2(x),  # type: ignore[attr-defined]
    math.log10: _plain(math.log10, lambda x: _float(_float_tensor(x).log10())),
    torch.equal: _equal,
    torch.allclose: _allclose,
    torch.is_nonzero: _nonzero,
}
_NUMBERS = {getattr(function, "__wrapped__", function): rule for function, rule in _RULES.items()}
"""By the function itself: this is imported while a capture runs, for which some of `math` are replaced."""


def _float_tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.reshape(()).to(torch.float64)
    return torch.full((), torch.sym_float(value), dtype=torch.float64)


def _reduced(function: Any, *args: Any, **kwargs: Any) -> Any:
    """max, min, any and all of what is known only at run time."""
    operands: Any = args[0] if len(args) == 1 else args
    if kwargs or isinstance(operands, (torch.Tensor, str)):
        return function(*args, **kwargs)
    values = list(operands)
    if not any(isinstance(value, torch.Tensor) or is_symbolic(value) for value in values):
        return function(values)
    if function in (builtins.any, builtins.all):
        thunks = tuple((lambda value=value: value) for value in values)
        return joined("or" if function is builtins.any else "and", True, *thunks)
    result = values[0]
    for value in values[1:]:
        result = _larger(function, result, value)
    return result


def _larger(function: Any, a: Any, b: Any) -> Any:
    if not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor):
        return torch.sym_max(a, b) if function is builtins.max else torch.sym_min(a, b)
    better = b > a if function is builtins.max else b < a
    return torch.where(better, b, a)


def _bound(bound: Any) -> Any:
    return call(builtins.int, bound) if isinstance(bound, torch.Tensor) else bound


def _one_step(start: Any, stop: Any = None, step: Any = 1) -> list[Any] | None:
    """``range(0, n, n)``, which has one number; None for all others."""
    return [start] if is_dynamic(step) and stop is not None and statically_known_true(stop - start == step) else None


def _range(*bounds: Any) -> Items:
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1) if len(bounds) == 2 else bounds
    if is_dynamic(step):
        trips = -((start - stop) // step)  # rounded up, whichever sign it has
    else:
        distance = stop - start if step > 0 else start - stop
        trips = (distance + abs(step) - 1) // abs(step)
    if not statically_known_true(trips >= 0):
        trips = torch.sym_max(trips, 0)
    return Items(trips, lambda k: start + k * step, is_arithmetic=True)


def _zip(parts: Sequence[Items]) -> Items:
    length = parts[0].length
    for part in parts[1:]:
        if not statically_known_true(part.length == length):
            length = torch.sym_min(length, part.length)
    return Items(length, lambda k: tuple(part.item(k) for part in parts))


def _product(parts: Sequence[Any]) -> Items | None:
    """Every choice of one of each, of which the last changes first; None of those whose items only Python can pick."""
    product = Items(1, lambda k: ())
    for part in parts:
        each = each if isinstance(each := items(part), Items) else uniform(part)
        if each is None:
            return None
        product = _with_each_of(product, each)
    return product


def _with_each_of(choices: Items, last: Items) -> Items:
    length = last.length
    return Items(choices.length * length, lambda k: (*choices.item(k // length), last.item(k % length)))


def _taken_apart(name: str, tensor: Any = None, *args: Any, dim: int = 0, **kwargs: Any) -> list[Any] | None:
    """``x.unbind(dim)``, ``x.split(8, dim)`` and ``x.chunk(8, dim)`` of a dynamic axis; ``x.split(n.tolist())``."""
    tensor = kwargs.pop("input", kwargs.pop("tensor", tensor))
    rest = list(args)
    size = rest.pop(0) if name != "unbind" and rest else None
    for keyword in ("split_size", "split_size_or_sections", "chunks"):
        size = kwargs.get(keyword, size)
    dim = rest.pop(0) if rest else dim
    if not isinstance(tensor, torch.Tensor) or not tensor.dim():
        return None
    dim %= tensor.dim()
    if isinstance(size, NumbersListed):
        return Ragged(tensor, size.tensor, dim)
    if name == "split" and is_dynamic(size):  # one that moves with the axis may have a fixed number of parts
        count = (tensor.shape[dim] + size - 1) // size
        fixed = not is_dynamic(count) or not varies(sym_eq(count, int(example_of(shape_env(), count.node.expr) or 0)))
        return None if fixed else _parts(tensor, dim, size, name)
    if not is_dynamic(tensor.shape[dim]):
        return None
    if name == "unbind":
        return Listed(tensor, dim)
    if name == "chunk" and is_dynamic(size):
        return _parts(tensor, dim, size, name)
    if type(size) is not int or size < 1:
        return None
    if size == 1 and name == "split":
        return Listed(tensor.unsqueeze(dim + 1), dim)
    return _parts(tensor, dim, size, name)


def _parts(tensor: torch.Tensor, dim: int, size: Any, name: str) -> Ragged | list[torch.Tensor] | None:
    """Parts of one size, of which the last may be shorter; None if torch itself knows how many chunks there are."""
    length = tensor.shape[dim]
    if name == "chunk":
        chunks, size = size, (length + size - 1) // size
        if not is_dynamic((length + size - 1) // size):
            return None
        if not is_dynamic(chunks) and statically_known_true(length % chunks == 0):  # of an axis of none, too
            return list(tensor.split([length // chunks] * chunks, dim))
    # A number of its own: of the size itself, torch would conclude that there is more than one part.
    count = as_tensor((length + size - 1) // size).item()
    torch._check(count >= 0)
    starts = torch.arange(count) * size
    return Ragged(tensor, torch.clamp(length - starts, max=size), dim)


def spread(as_tuple: bool, *parts: Any) -> Any:
    """``[*a, *b]`` or ``(*a, *b)``."""
    elements: Any = []
    for part in parts:
        if isinstance(part, RecordedList) and not isinstance(elements, RecordedList) and not elements:
            elements = part.copied()
        else:
            elements = elements + (part if isinstance(part, list) else list(part))
    return tuple(elements) if as_tuple and not isinstance(elements, RecordedList) else elements


def with_numbers(index: Any) -> Any:
    """An index whose slices begin and end at numbers, where they do at tensors of one element. Lists are tensors."""
    if isinstance(index, tuple):
        return tuple(map(with_numbers, index))
    index = unwrapped(index)
    if isinstance(index, NumbersListed):
        return index.tensor
    if isinstance(index, list) and any(map(is_dynamic, index)):
        return torch.tensor(index)
    if not isinstance(index, slice):
        return index
    return slice(*map(_bound, (index.start, index.stop, index.step)))


def selected(tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, Any]:
    """What is left of a tensor and an index. Beside tensors PyTorch takes plain numbers only: others select first."""
    parts = index if isinstance(index, tuple) else (index,)
    if not any(isinstance(part, torch.Tensor) for part in parts) or not any(map(is_symbolic, parts)):
        return tensor, index
    if not all(isinstance(part, (int, torch.SymInt, slice)) or _is_places(part) for part in parts):
        return tensor, index
    kept: list[Any] = []
    for part in parts:
        if isinstance(part, (int, torch.SymInt)):
            tensor = tensor.select(len(kept), part)
        else:
            kept.append(part)
    return tensor, tuple(kept)


def _is_places(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and part.dtype not in (torch.bool, torch.uint8)


def put(target: Any, index: Any, value: Any, owned: bool) -> None:
    """``target[index] = value`` in recorded code. ``owned``: the target is a variable of the function."""
    if not isinstance(target, torch.Tensor):
        if not owned and is_watched():
            raise Unsuitable(f"it changes an object from outside of it, a {type(target).__name__}")
        target[index] = value
        return
    value = unwrapped(value)
    target, index = selected(target, with_numbers(index))
    if isinstance(index, torch.Tensor) and not index.dim() and index.dtype not in (torch.bool, torch.uint8):
        index = _bound(index)
    parts = index if isinstance(index, tuple) else (index,)
    bounds = [bound for p in parts for bound in ((p.start, p.stop, p.step) if isinstance(p, slice) else (p,))]
    if not any(map(is_dynamic, bounds)):
        target[index] = value
    elif isinstance(value, torch.Tensor):
        target[index].copy_(value)
    else:
        target[index].fill_(value)
