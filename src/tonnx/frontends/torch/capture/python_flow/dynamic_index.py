"""Elements that are picked by a number that only the run knows: a choice among all of them."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from tonnx.frontends.torch.capture.except_blocks import handler_of
from tonnx.frontends.torch.capture.explain import line_of
from tonnx.frontends.torch.capture.python_flow.branch import choose
from tonnx.frontends.torch.capture.python_flow.iterate import call, selected, with_numbers
from tonnx.frontends.torch.capture.python_flow.recorded_list import RecordedList
from tonnx.frontends.torch.capture.python_flow.scope_analysis import Unsuitable
from tonnx.frontends.torch.capture.python_flow.short_circuit import joined
from tonnx.frontends.torch.capture.python_flow.values import is_symbolic

_MOST = 64  # elements: each is one more branch inside the last
_SEQUENCES = (list, tuple, torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ParameterList)


def picked(owner: Any, index: Any) -> Any:
    """``owner[index]``."""
    if isinstance(owner, torch.Tensor):
        tensor, index = selected(owner, with_numbers(index))
        return tensor[index]
    dynamic = isinstance(index, (torch.Tensor, torch.SymInt))
    if not dynamic or not isinstance(owner, (dict, *_SEQUENCES)) or isinstance(owner, RecordedList):
        return owner[index]
    if isinstance(index, torch.Tensor):
        index = call(builtins.int, index)
    places = list(owner) if isinstance(owner, dict) else list(range(len(owner)))
    if not is_symbolic(index) or not 1 <= len(places) <= _MOST or not all(type(place) is int for place in places):
        return owner[index]
    if (handler := handler_of(sys._getframe(1))) is not None:
        raise Unsuitable(f"whether there is such an element is caught ({line_of(*handler)})")
    elements = [owner[place] for place in places]
    back = 0 if isinstance(owner, dict) or statically_known_true(index >= 0) else len(places)

    def tests(place: int) -> Any:
        if not back:
            return index == place
        return joined("or", True, lambda: index == place, lambda: index == place - back)

    if all(isinstance(element, torch.nn.Module) or _is_function(element) for element in elements):
        return OneOf(places, elements, tests)
    return _choice(places, elements, tests, lambda element: element)


def _is_function(thing: Any) -> bool:
    return callable(thing) and not isinstance(thing, (type, torch.Tensor))


def _choice(
    places: Sequence[int], elements: Sequence[Any], tests: Callable[[int], Any], use: Callable[[Any], Any]
) -> Any:
    """What is made of the element whose place it is; of the last one, if it is none of the others."""
    first, rest = elements[0], elements[1:]
    if not rest:
        return use(first)
    return choose(tests(places[0]), lambda: use(first), lambda: _choice(places[1:], rest, tests, use))


class OneOf:
    """A module or function of which only the run tells which one it is: calling it calls one of them."""

    def __init__(self, places: Sequence[int], elements: Sequence[Any], tests: Callable[[int], Any]) -> None:
        self.__dict__["parts"] = places, elements, tests

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        places, elements, tests = self.__dict__["parts"]
        return _choice(places, elements, tests, lambda element: element(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python and decorators look for, and take for missing
            raise AttributeError(name)
        raise Unsuitable(f"the attribute {name} is read of a module or function that only the run chooses")
