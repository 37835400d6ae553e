"""One value from the two that a variable has on the sides of a branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq
from torch.utils import _pytree as pytree

from tonnx.frontends.torch.capture.patches.short_sizes import define
from tonnx.frontends.torch.capture.python_flow.recorded_list import Listed, Places, Ragged, RecordedList, listed
from tonnx.frontends.torch.capture.python_flow.scope_analysis import Unsuitable
from tonnx.frontends.torch.capture.python_flow.values import (
    DTYPES,
    SYMBOLIC,
    UNBOUND,
    as_number,
    as_tensor,
    describe,
    fits,
    is_symbolic,
    same_kind,
    shape_env,
    within,
)
from tonnx.frontends.torch.versions import example_of, set_example_of

Made = Callable[[Sequence[torch.Tensor]], Any]
"""A value, from the results of the branch."""


_FARTHEST = 2**63 - 1
"""As the end of a slice, that of the axis."""

Line = tuple[str, int]
"""A file and a line of it."""


UNSPLIT: ContextVar[frozenset[Line | None]] = ContextVar("UNSPLIT", default=frozenset([None]))
"""Branches for which it was tried to move what comes after them into their sides."""

NUMBERS: ContextVar[dict[Any, Line | None] | None] = ContextVar("NUMBERS", default=None)
"""The branches that numbers come from, by torch's symbol of the number."""


def _is_compared(value: Any) -> bool:
    """Whether somebody may ask ``value is …``, which no object of ours can answer: not in code that stays as it is."""
    return value is None or isinstance(value, (Enum, type, FunctionType, BuiltinFunctionType))


class Unmerged:
    """What a variable is after a branch whose sides leave it too different. Whoever uses it hears of it."""

    latest = ""
    """Why the last one of them is one: of a result of the model, torch says only that it is of an unknown class."""

    def __init__(self, reason: str, branch: Line | None) -> None:
        self.__dict__["reason"] = Unmerged.latest = reason
        self.__dict__["branch"] = branch

    def refusal(self) -> Unsuitable:
        return Unsuitable(self.__dict__["reason"], self.__dict__["branch"])

    def __getattr__(self, name: str) -> Any:
        raise self.refusal()

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in pytree.tree_leaves((args, kwargs)):
            if isinstance(leaf, Unmerged):
                raise leaf.refusal()
        raise Unsuitable("a variable differs on the two sides")


def _refuse(self: Unmerged, *args: Any, **kwargs: Any) -> Any:
    raise self.refusal()


for (
    _name
) in "bool call len iter getitem setitem index int float eq ne lt le gt ge neg invert contains hash str format".split():
    setattr(Unmerged, f"__{_name}__", _refuse)
for _name in "add sub mul truediv floordiv mod pow matmul and or xor".split():
    setattr(Unmerged, f"__{_name}__", _refuse)
    setattr(Unmerged, f"__r{_name}__", _refuse)


@dataclass
class Side:
    """What one side of a branch leaves behind."""

    values: dict[Any, Any]
    """By a variable's name, an attribute's or a list's key."""
    objects: dict[str, Any] = field(default_factory=dict)
    """The variables of before, with what this side has left in their lists and dicts."""
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)
    """Numbers and lists as tensors, by their id: made while the side is recorded, in case they are needed."""

    def prepare(self) -> None:
        for value in (*self.values.values(), *self.objects.values()):
            for leaf in pytree.tree_leaves(value):
                if isinstance(leaf, SYMBOLIC):
                    self.tensors[id(leaf)] = as_tensor(leaf)
            if type(value) is list and value and _uniform(value):
                self.tensors[id(value)] = torch.stack([as_tensor(element) for element in value])


def _uniform(elements: list[Any]) -> bool:
    """Whether the elements of a list are tensors or numbers of one dtype and shape."""
    kinds = {e.dtype if isinstance(e, torch.Tensor) else DTYPES.get(type(e)) for e in elements}
    if len(kinds) > 1 or None in kinds:
        return False
    first, *others = [tuple(e.shape) if isinstance(e, torch.Tensor) else () for e in elements]
    return all(len(shape) == len(first) and statically_known_true(sym_eq(shape, first)) for shape in others)


class Merge:
    """Collects the pairs of tensors that become results of a branch."""

    def __init__(self, one: Side, other: Side, outer_symbols: set[Any], branch: Line | None = None) -> None:
        self._sides, self._outer_symbols, self._branch = (one, other), outer_symbols, branch
        self.one: list[torch.Tensor] = []
        self.other: list[torch.Tensor] = []

    def __call__(self, name: str, a: Any, b: Any) -> Made:
        """How the value is made from the branch's results."""
        if a is b:
            return lambda results: a
        if a is UNBOUND or b is UNBOUND:
            return self._half(a if b is UNBOUND else b, a is UNBOUND)
        if isinstance(a, list) and isinstance(b, list) and self._lengths_differ(a, b):
            return self._lists(name, a, b)
        (leaves, spec), (others, other_spec) = pytree.tree_flatten(a), pytree.tree_flatten(b)
        if spec != other_spec:
            return self._unmerged(name, a, b)
        parts = [self._leaf(name, x, y) for x, y in zip(leaves, others, strict=True)]
        return lambda results: pytree.tree_unflatten([part(results) for part in parts], spec)

    def define_sizes(self, results: Sequence[torch.Tensor], condition: Any) -> None:
        """Let torch know what new sizes come to, of a branch that sizes alone decide: the layers after it may ask."""
        env = shape_env()
        for result, one, other in zip(results, self.one, self.other, strict=True):
            for size, a, b in zip(result.shape, one.shape, other.shape, strict=True):
                symbol = size.node.expr if isinstance(size, torch.SymInt) else None
                new = symbol is not None and symbol.is_Symbol and symbol not in self._outer_symbols
                if not new or not within([a, b], self._outer_symbols):
                    continue
                a, b = (n.node.expr if isinstance(n, torch.SymInt) else sympy.Integer(n) for n in (a, b))
                chosen = sympy.Piecewise((a, condition), (b, True), evaluate=False)
                define(env, symbol, chosen)
                example = example_of(env, chosen)
                if example is not None:
                    set_example_of(env, symbol, example)

    def _unmerged(self, name: str, a: Any, b: Any, why: str = "") -> Made:
        """First it is tried whether what comes after the branch can go into its sides; see `split`."""
        reason = _difference(name, a, b) + why
        if self._branch not in UNSPLIT.get() or any(map(_is_compared, (a, b))):
            raise Unsuitable(reason, self._branch)
        return lambda results: Unmerged(reason, self._branch)

    def _pair(self, a: torch.Tensor, b: torch.Tensor) -> int:
        self.one.append(a)
        self.other.append(b)
        return len(self.one) - 1

    def _leaf(self, name: str, a: Any, b: Any) -> Made:
        if a is b:
            return lambda results: a
        if isinstance(a, slice) and isinstance(b, slice) and a != b:
            return self._slices(name, a, b)
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            if not same_kind(a, b):
                return self._unmerged(name, a, b)
            place = self._pair(a, b)
            return lambda results: results[place]
        kinds = DTYPES.get(type(a)), DTYPES.get(type(b))
        if None not in kinds:
            return self._numbers(name, a, b)
        for number, tensor in ((a, b), (b, a)):
            if fits(number, tensor):
                promoted = self._made(number, int(number is b), tensor.dtype)
                place = self._pair(promoted, tensor) if number is a else self._pair(tensor, promoted)
                return lambda results: results[place]
        for value in (a, b):
            if isinstance(value, Unmerged):
                return lambda results, value=value: value  # type: ignore[misc]
        try:
            same, why = type(a) is type(b) and bool(a == b), ""
        except Exception as error:  # noqa: BLE001 (whatever the comparison of the user's own objects does; told)
            same, why = False, f", and comparing them raises {type(error).__name__}: {error}"
        return (lambda results: a) if same else self._unmerged(name, a, b, why)

    def _made(self, number: Any, side: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """A number as a tensor: a plain one is the same everywhere, a symbolic one was made on its side."""
        recorded = self._sides[side].tensors.get(id(number))
        return as_tensor(number, dtype) if recorded is None else recorded

    def _numbers(self, name: str, a: Any, b: Any) -> Made:
        outside = within([a, b], self._outer_symbols)
        if outside and type(a) is type(b) and statically_known_true(a == b):
            return lambda results: a
        kind = {DTYPES[type(a)], DTYPES[type(b)]}
        if torch.bool in kind and len(kind) > 1:
            return self._unmerged(name, a, b)
        dtype = torch.float64 if torch.float64 in kind else kind.pop()
        place = self._pair(self._made(a, 0, dtype), self._made(b, 1, dtype))
        like = a if DTYPES[type(a)] == dtype else b
        least = next((k for k in (1, 0) if all(statically_known_true(n >= k) for n in (a, b))), None)
        most = None if is_symbolic(a) or is_symbolic(b) else max(a, b)

        def number(results: Sequence[torch.Tensor]) -> Any:
            merged = as_number(results[place], like)
            if (numbers := NUMBERS.get()) is not None and isinstance(merged, (torch.SymInt, torch.SymFloat)):
                numbers.update(dict.fromkeys(merged.node.expr.free_symbols, self._branch))
            if dtype == torch.int64 and least is not None:
                torch._check(merged >= least)
                if most is not None:
                    torch._check(merged <= most)
            return merged

        return number

    def _slices(self, name: str, a: slice, b: slice) -> Made:
        """``x[2:-1]`` or ``x[:]``: an end that is not said is the farthest one."""
        if a.step != b.step or a.step not in (None, 1):
            return self._unmerged(name, a, b)
        start = self(name, *(0 if one.start is None else one.start for one in (a, b)))
        stop = self(name, *(_FARTHEST if one.stop is None else one.stop for one in (a, b)))
        return lambda results: slice(start(results), stop(results))

    def _half(self, value: Any, first: bool) -> Made:
        """A variable that has a value on one side only. Nobody reads the other: Python itself would fail."""
        leaves, spec = pytree.tree_flatten(value)
        parts: list[Made] = []
        for leaf in leaves:
            if not isinstance(leaf, (torch.Tensor, *SYMBOLIC)):
                parts.append(lambda results, leaf=leaf: leaf)  # type: ignore[misc]
                continue
            tensor = self._made(leaf, int(first))
            nothing = zeros_like(tensor, self._outer_symbols)
            place = self._pair(nothing, tensor) if first else self._pair(tensor, nothing)
            if isinstance(leaf, torch.Tensor):
                parts.append(lambda results, place=place: results[place])  # type: ignore[misc]
            else:
                parts.append(lambda results, place=place, leaf=leaf: as_number(results[place], leaf))  # type: ignore[misc]
        return lambda results: pytree.tree_unflatten([part(results) for part in parts], spec)

    def _lengths_differ(self, a: list[Any], b: list[Any]) -> bool:
        return isinstance(a, RecordedList) or isinstance(b, RecordedList) or len(a) != len(b)

    def _lists(self, name: str, a: list[Any], b: list[Any]) -> Made:
        """Lists of different lengths become one list whose length is known at run time."""
        if isinstance(a, Ragged) or isinstance(b, Ragged):
            return self._ragged(name, a, b)
        if isinstance(a, Places) and isinstance(b, Listed):
            a = b if isinstance(b, Places) else a.made_for(b.element(0))
        elif isinstance(b, Places) and isinstance(a, Listed):
            b = b.made_for(a.element(0))
        stacked = [self._as_one(elements, side) for side, elements in enumerate((a, b))]
        like = next((tensor for tensor in stacked if tensor is not None), None)
        if like is None:
            return self._unmerged(name, a, b)
        if any(tensor is None and len(side) for tensor, side in zip(stacked, (a, b), strict=True)):
            return self._unmerged(name, a, b)
        empty = [t if t is not None else zeros_like(like, self._outer_symbols, length=0) for t in stacked]
        if not same_kind(*empty):
            return self._unmerged(name, a, b)
        place = self._pair(*empty)
        like_list = a if isinstance(a, Listed) or a else b
        return lambda results: listed(like_list, results[place])

    def _ragged(self, name: str, a: list[Any], b: list[Any]) -> Made:
        if not (isinstance(a, Ragged) and isinstance(b, Ragged)) or a.axis != b.axis:
            return self._unmerged(name, a, b)
        joined, sizes = (self._pair(x, y) for x, y in zip(a.held, b.held, strict=True))
        return lambda results: Ragged(results[joined], results[sizes], a.axis)

    def _as_one(self, elements: list[Any], side: int) -> torch.Tensor | None:
        if isinstance(elements, Listed):
            return elements.tensor
        stacked = self._sides[side].tensors.get(id(elements))
        if stacked is None and elements and _uniform(elements):  # the side has not changed it: it comes from outside
            return torch.stack([as_tensor(element) for element in elements])
        return stacked


def zeros_like(tensor: torch.Tensor, outer_symbols: set[Any], length: int | None = None) -> torch.Tensor:
    """A tensor of the same kind from outside: sizes that are not known there are 0."""
    sizes = [size if within([size], outer_symbols) else 0 for size in tensor.shape]
    return torch.zeros(
        [*([] if length is None else [length]), *sizes[0 if length is None else 1 :]], dtype=tensor.dtype
    )


def _difference(name: str, a: Any, b: Any) -> str:
    return f"{name} is {describe(a)} on one side and {describe(b)} on the other"
