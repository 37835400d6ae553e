"""Lists that recorded code fills with as many tensors as the run makes, of one shape or of one but for an axis."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

from tonnx.frontends.torch.capture.python_flow.scope_analysis import Unsuitable
from tonnx.frontends.torch.capture.python_flow.values import DTYPES, as_tensor, is_symbolic


class _Element:
    """What PyTorch's C++ code finds in the list. It asks for ``__torch_function__``, and so comes to us."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        positional = list(args)
        options = dict(kwargs or {})
        tensors = positional.pop(0) if positional else options.pop("tensors", None)
        rule = tensors.functions.get(function) if isinstance(tensors, RecordedList) else None
        if rule is None:
            name = getattr(function, "__name__", function)
            raise Unsuitable(f"{name} is called with the list that it fills; torch.stack and torch.cat are understood")
        return rule(tensors, *positional, **options)


class RecordedList(list):  # type: ignore[type-arg]
    """A list of tensors whose length is known only at run time."""

    functions: dict[Any, Callable[..., torch.Tensor]]
    """What PyTorch's functions make of the whole list."""

    def __init__(self) -> None:
        super().__init__([_Element()])  # a list for C++, which does not ask `__iter__`

    def size(self) -> Any:
        raise NotImplementedError

    def element(self, index: Any) -> Any:
        raise NotImplementedError

    def copied(self) -> RecordedList:
        other = RecordedList()
        other.become(self)
        return other

    def become(self, other: RecordedList) -> None:
        """Hold what another one holds, and as it does: places for anything become a list of what is put there."""
        self.__class__, self.__dict__ = type(other), dict(vars(other))

    def is_as(self, other: RecordedList) -> bool:
        return type(self) is type(other) and all(map(operator.is_, vars(self).values(), vars(other).values()))

    def padded(self, value: float, side: str) -> torch.Tensor:
        """The elements along a new axis 0, with a value where the axis 0 of one is shorter than the longest."""
        raise NotImplementedError

    def __len__(self) -> int:
        return int(self.size())  # fixes the length; rewritten functions ask `size` instead

    def __bool__(self) -> bool:
        return bool(self.size() > 0)

    def __iter__(self) -> Iterator[Any]:
        return (self.element(k) for k in range(self.size()))


class Listed(RecordedList):
    """Tensors of one shape, held as one tensor, stacked along an axis."""

    def __init__(self, tensor: torch.Tensor, axis: int = 0) -> None:
        super().__init__()
        self._held, self._axis = tensor, axis

    @property
    def tensor(self) -> torch.Tensor:
        """The elements, stacked along axis 0."""
        return self._held.movedim(self._axis, 0) if self._axis else self._held

    @tensor.setter
    def tensor(self, tensor: torch.Tensor) -> None:
        self._held, self._axis = tensor, 0

    def size(self) -> Any:
        return self._held.shape[self._axis]

    def element(self, index: Any) -> Any:
        return self._held.select(self._axis, index)

    def like(self, tensor: torch.Tensor) -> Listed:
        """A list of the same kind that holds something else."""
        return type(self)(tensor)

    def padded(self, value: float, side: str) -> torch.Tensor:
        return self.tensor

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self.element(index)
        if index == slice(None, None, -1):
            return self.like(self.tensor.flip(0))
        return self.like(self.tensor[index])

    def __add__(self, other: Any) -> Listed:
        return self.like(_together(self, other)) if isinstance(other, list) else NotImplemented

    def __radd__(self, other: Any) -> Listed:
        return self.like(_together(other, self))

    def __iadd__(self, other: Any) -> Any:
        self.tensor = _together(self, other)
        return self

    def __setitem__(self, index: Any, element: Any) -> None:
        if isinstance(index, slice):
            raise Unsuitable("a part of the list that it fills is replaced")
        if not self.takes(element):
            self.become(self.made_for(element))
        value = stacked([element]).to(self.tensor.dtype)
        self.tensor = self.tensor.index_put((as_tensor(index).reshape(1),), value)

    def takes(self, element: Any) -> bool:
        one = stacked([element])
        same_rank = one.dim() == self.tensor.dim() and one.dtype == self.tensor.dtype
        return same_rank and statically_known_true(sym_eq(one.shape[1:], self.tensor.shape[1:]))

    def made_for(self, element: Any) -> Listed:
        """As many elements of another kind: places of no kind yet, or numbers, that are to be set one by one."""
        raise Unsuitable("the list that it fills has tensors of different shapes or dtypes")

    def append(self, element: Any) -> None:
        self.tensor = _together(self, [element])

    def extend(self, other: Any) -> None:
        self.tensor = _together(self, other)

    def insert(self, index: Any, element: Any) -> None:
        if index != 0:
            raise Unsuitable("an element is inserted into the list that it fills, not at its beginning")
        self.tensor = _together([element], self)

    def reverse(self) -> None:
        self.tensor = self.tensor.flip(0)


class Ragged(RecordedList):
    """Tensors that differ in their size along one axis, held joined along it, and those sizes."""

    def __init__(self, joined: torch.Tensor, sizes: torch.Tensor, axis: int) -> None:
        super().__init__()
        self.joined, self.sizes, self.axis = joined, sizes, axis

    @property
    def held(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.joined, self.sizes

    def size(self) -> Any:
        return self.sizes.shape[0]

    def element(self, index: Any) -> Any:
        ends = self.sizes.cumsum(0)
        length = self.sizes.select(0, index).item()
        start = ends.select(0, index).item() - length
        for known in (length >= 0, start >= 0, start + length <= self.joined.shape[self.axis]):
            torch._check(known)
        return self.joined.narrow(self.axis, start, length)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise Unsuitable("a part of a list of tensors of different sizes cannot be expressed")
        return self.element(index)

    def append(self, element: Any) -> None:
        self.joined = torch.cat([self.joined, *tensors([self.joined, element])[1:]], self.axis)
        self.sizes = torch.cat([self.sizes, torch.full((1,), element.shape[self.axis], dtype=torch.int64)])

    def extend(self, other: Any) -> None:
        if isinstance(other, RecordedList):
            raise Unsuitable("two lists of tensors of different sizes are joined")
        for element in other:
            self.append(element)

    def __iadd__(self, other: Any) -> Any:  # type: ignore[misc]
        self.extend(other)
        return self

    def padded(self, value: float, side: str) -> torch.Tensor:
        if self.axis or side != "right":
            raise Unsuitable("tensors of different sizes are padded along another axis than the first, or at the left")
        longest = self.sizes.max().item()
        torch._check(longest >= 0)
        places = torch.arange(longest)
        starts = (self.sizes.cumsum(0) - self.sizes)[:, None]
        rows = self.joined[torch.clamp(starts + places, max=self.joined.shape[0] - 1)]
        beyond = places >= self.sizes[:, None]
        return rows.masked_fill(beyond.reshape([*beyond.shape, *[1] * (rows.dim() - 2)]), value)


class NumbersListed(Listed):
    """A list of numbers, held as a vector."""

    def element(self, index: Any) -> Any:
        return self._held.select(self._axis, index).item()

    def takes(self, element: Any) -> bool:
        return type(element) in DTYPES and super().takes(element)

    def made_for(self, element: Any) -> Listed:
        one = stacked([element])
        if one.dim() > 1:
            return Places(self.tensor).made_for(element)
        dtype = torch.promote_types(self.tensor.dtype, one.dtype) if type(element) in DTYPES else one.dtype
        return listed([element], self.tensor.to(dtype))


class Places(Listed):
    """``[None] * n``: a list of nothing yet."""

    def element(self, index: Any) -> Any:
        if is_symbolic(index):
            raise LookupError("a place is read before any is set")  # in the first pass, perhaps, in which it is not
        return None

    def takes(self, element: Any) -> bool:
        return element is None

    def made_for(self, element: Any) -> Listed:
        one = stacked([element])
        return listed([element], torch.zeros([self.size(), *one.shape[1:]], dtype=one.dtype))


class TuplesListed(Listed):
    """A list of tuples or lists, of numbers or of tensors of one shape; each is held as one tensor."""

    def __init__(self, tensor: torch.Tensor, kind: type, numbers: bool) -> None:
        super().__init__(tensor)
        self._kind, self.numbers = kind, numbers

    def element(self, index: Any) -> Any:
        parts = self._held.select(self._axis, index).unbind()
        return self._kind(part.item() if self.numbers else part for part in parts)

    def like(self, tensor: torch.Tensor) -> TuplesListed:
        return TuplesListed(tensor, self._kind, self.numbers)


def _refusing(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        raise Unsuitable(f"{name} of the list that it fills cannot be expressed")

    return method


_OTHERS = (
    "insert pop remove sort index count clear copy reverse "
    "__contains__ __setitem__ __delitem__ __add__ __radd__ __mul__ __rmul__"
)
for _name in _OTHERS.split():
    setattr(RecordedList, _name, _refusing(_name))


def listed(elements: list[Any], tensor: torch.Tensor) -> Listed:
    """A list like ``elements``, held as one tensor."""
    if isinstance(elements, TuplesListed):
        return elements.like(tensor)
    if not isinstance(elements, Listed) and _is_short(elements[0]):
        kind = list if type(elements[0]) is list else tuple
        return TuplesListed(tensor, kind, type(elements[0][0]) in DTYPES)
    if isinstance(elements, Places) or (not isinstance(elements, Listed) and elements[0] is None):
        return Places(tensor)
    numbers = isinstance(elements, NumbersListed) or (not isinstance(elements, Listed) and type(elements[0]) in DTYPES)
    return NumbersListed(tensor) if numbers else Listed(tensor)


def stacked(elements: list[Any]) -> torch.Tensor:
    """The elements of a list as one tensor, stacked along axis 0."""
    return elements.tensor if isinstance(elements, Listed) else torch.stack(tensors(elements))


def tensors(elements: list[Any]) -> list[torch.Tensor]:
    """The elements of a list, which must be tensors or numbers of one kind, or tuples or lists of those."""
    converted = []
    if {DTYPES.get(type(element)) for element in elements} == {torch.int64, torch.float64}:
        elements = [torch.sym_float(element) for element in elements]
    for element in elements:
        if _is_short(element):
            element = torch.stack(tensors(list(element)))
        if element is None:
            element = torch.zeros(0)
        if not isinstance(element, torch.Tensor) and type(element) not in DTYPES:
            raise Unsuitable(f"it appends a {type(element).__name__} to a list, which is not a tensor")
        converted.append(as_tensor(element))
        if converted[-1].dtype != converted[0].dtype or converted[-1].dim() != converted[0].dim():
            raise Unsuitable("the list that it fills has tensors of different shapes or dtypes")
    return converted


def _is_short(element: Any) -> bool:
    """Whether it is a tuple or list of a fixed number of elements."""
    return (type(element) is list or isinstance(element, tuple)) and bool(element)


def _together(one: Any, other: Any) -> torch.Tensor:
    parts = [stacked(part) for part in (one, other) if isinstance(part, Listed) or part]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def ragged(elements: list[torch.Tensor], like: torch.Tensor, axis: int) -> Ragged:
    """The elements, which may be none, as a list of tensors ``like`` one but for their size along an axis."""
    nothing = torch.zeros([*like.shape[:axis], 0, *like.shape[axis + 1 :]], dtype=like.dtype)
    result = Ragged(nothing, torch.zeros([0], dtype=torch.int64), axis)
    result.extend(elements)
    return result


def _stack(elements: Listed, dim: int = 0) -> torch.Tensor:
    return elements.tensor.movedim(0, dim)


def _cat(elements: Listed, dim: int = 0) -> torch.Tensor:
    dim %= elements.tensor.dim() - 1
    return elements.tensor.movedim(0, dim).flatten(dim, dim + 1)


def _cat_ragged(elements: Ragged, dim: int = 0) -> torch.Tensor:
    if dim % elements.joined.dim() != elements.axis:
        raise Unsuitable("tensors of different sizes are joined along an axis along which they are of one size")
    return elements.joined


def _stack_ragged(elements: Ragged, dim: int = 0) -> torch.Tensor:
    """Torch itself wants them to be of one shape."""
    count, width = elements.size(), elements.sizes.max().item()
    torch._check(width >= 0)
    torch._check(elements.joined.shape[elements.axis] == count * width)
    return elements.joined.unflatten(elements.axis, (count, width)).movedim(elements.axis, dim)


_CONCATENATIONS = (torch.cat, torch.concat, torch.concatenate)
Listed.functions = {torch.stack: _stack, **dict.fromkeys(_CONCATENATIONS, _cat)}
Ragged.functions = {torch.stack: _stack_ragged, **dict.fromkeys(_CONCATENATIONS, _cat_ragged)}
