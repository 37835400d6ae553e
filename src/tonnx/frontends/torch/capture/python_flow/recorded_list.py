"""The list that recorded code fills: tensors of one shape, as many as the run makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tonnx.frontends.torch.capture.python_flow.scope_analysis import Unsuitable
from tonnx.frontends.torch.capture.python_flow.values import DTYPES, as_tensor


class _Element:
    """What PyTorch's C++ code finds in the list. It asks for ``__torch_function__``, and so comes to us."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = _FUNCTIONS.get(function)
        positional = list(args)
        options = dict(kwargs or {})
        tensors = positional.pop(0) if positional else options.pop("tensors", None)
        if rule is None or not isinstance(tensors, Listed):
            name = getattr(function, "__name__", function)
            raise Unsuitable(f"{name} is called with the list that it fills; torch.stack and torch.cat are understood")
        return rule(tensors.tensor, *positional, **options)


class Listed(list):  # type: ignore[type-arg]
    """A list of tensors whose length is known only at run time, held as one tensor, stacked along an axis."""

    def __init__(self, tensor: torch.Tensor, axis: int = 0) -> None:
        super().__init__([_Element()])  # a list for C++, which does not ask `__iter__`
        self._held, self._axis = tensor, axis

    @property
    def tensor(self) -> torch.Tensor:
        """The elements, stacked along axis 0."""
        return self._held.movedim(self._axis, 0) if self._axis else self._held

    @tensor.setter
    def tensor(self, tensor: torch.Tensor) -> None:
        self._held, self._axis = tensor, 0

    def size(self) -> Any:
        """The length, symbolic."""
        return self._held.shape[self._axis]

    def element(self, index: Any) -> Any:
        """One of them."""
        return self._held.select(self._axis, index)

    def like(self, tensor: torch.Tensor) -> Listed:
        """A list of the same kind."""
        return type(self)(tensor)

    def __len__(self) -> int:
        return int(self.size())  # fixes the length; rewritten functions ask `size` instead

    def __bool__(self) -> bool:
        return bool(self.size() > 0)

    def __iter__(self) -> Iterator[Any]:
        return (self.element(k) for k in range(self.size()))

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

    def append(self, element: Any) -> None:
        """Add one at the end."""
        self.tensor = _together(self, [element])

    def extend(self, other: Any) -> None:
        """Add several at the end."""
        self.tensor = _together(self, other)

    def reverse(self) -> None:
        """Turn the order round."""
        self.tensor = self.tensor.flip(0)


class NumbersListed(Listed):
    """A list of numbers, held as a vector."""

    def element(self, index: Any) -> Any:
        """One of them."""
        return self._held.select(self._axis, index).item()


def _refusing(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        raise Unsuitable(f"{name} of the list that it fills cannot be expressed")

    return method


_OTHERS = "insert pop remove sort index count clear copy __contains__ __setitem__ __delitem__ __mul__ __rmul__"
for _name in _OTHERS.split():
    setattr(Listed, _name, _refusing(_name))


def listed(elements: list[Any], tensor: torch.Tensor) -> Listed:
    """A list like ``elements``, held as one tensor."""
    numbers = isinstance(elements, NumbersListed) or (not isinstance(elements, Listed) and type(elements[0]) in DTYPES)
    return NumbersListed(tensor) if numbers else Listed(tensor)


def stacked(elements: list[Any]) -> torch.Tensor:
    """The elements of a list as one tensor, stacked along axis 0."""
    return elements.tensor if isinstance(elements, Listed) else torch.stack(tensors(elements))


def tensors(elements: list[Any]) -> list[torch.Tensor]:
    """The elements of a list, which must be tensors or numbers of one kind."""
    converted = []
    for element in elements:
        if not isinstance(element, torch.Tensor) and type(element) not in DTYPES:
            raise Unsuitable(f"it appends a {type(element).__name__} to a list, which is not a tensor")
        converted.append(as_tensor(element))
        if converted[-1].dtype != converted[0].dtype or converted[-1].dim() != converted[0].dim():
            raise Unsuitable("the list that it fills has tensors of different shapes or dtypes")
    return converted


def _together(one: Any, other: Any) -> torch.Tensor:
    parts = [stacked(part) for part in (one, other) if isinstance(part, Listed) or part]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _stack(tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
    return tensor.movedim(0, dim)


def _cat(tensor: torch.Tensor, dim: int = 0) -> torch.Tensor:
    dim %= tensor.dim() - 1
    return tensor.movedim(0, dim).flatten(dim, dim + 1)


_FUNCTIONS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.stack: _stack,
    torch.cat: _cat,
    torch.concat: _cat,
    torch.concatenate: _cat,
}
