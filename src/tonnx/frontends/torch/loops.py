"""Loops over a dynamic size, recorded during the capture: one pass between two operators of our own.

    index, *states = tonnx::loop_begin(trips, [h])      # of the pass that is recorded
    … the body, traced as everything else …
    h, y = tonnx::loop_end(index, trips, [h], [last], [output])

The rewritten functions (see `loop_source`) call what is public here. A loop is recorded in the graph that is being
traced anyway, so parameters, outer tensors and sizes need no care; `loop_lower` cuts it out again when it lowers.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, statically_known_true
from torch.fx.node import has_side_effect

from tonnx.frontends.torch.loop_list import Listed
from tonnx.frontends.torch.loop_names import Unsuitable
from tonnx.frontends.torch.loop_state import Differs, Kinds, Recording, Variables


@cache
def _operators() -> Any:
    library = torch.library.Library("tonnx", "FRAGMENT")
    library.define("loop_begin(SymInt trips, Tensor[] carried) -> Tensor[]")
    library.define(
        "loop_end(Tensor index, SymInt trips, Tensor[] carried, Tensor[] last, Tensor[] stacked) -> Tensor[]"
    )
    library.define("loop_drop(Tensor index) -> ()")  # what was recorded since loop_begin is not wanted after all

    def begin(trips: Any, carried: list[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.empty((), dtype=torch.int64), *[x.new_empty(x.shape) for x in carried]]

    def end(index: Any, trips: Any, carried: Any, last: Any, stacked: Any) -> list[torch.Tensor]:
        single = [x.new_empty(x.shape) for x in [*carried, *last]]
        return [*single, *[x.new_empty([trips, *x.shape]) for x in stacked]]

    torch.library.register_fake("tonnx::loop_begin", begin, lib=library)
    torch.library.register_fake("tonnx::loop_end", end, lib=library)
    torch.library.register_fake("tonnx::loop_drop", lambda index: None, lib=library)
    for name in ("loop_begin", "loop_end", "loop_drop"):
        has_side_effect(getattr(torch.ops.tonnx, name).default)  # its body may write to memory, and nothing else
    return torch.ops.tonnx, library  # unloading the library would take its operators along


# What a loop runs over


@dataclass
class Items:
    """Something to loop over whose length is known only at run time."""

    length: Any
    item: Callable[[Any], Any]

    def __iter__(self) -> Iterator[Any]:
        # Somebody else than a rewritten loop: as PyTorch does it, which fixes the length.
        return (self.item(k) for k in builtins.range(self.length))

    def after(self, first: int) -> Items:
        """Without the first few."""
        return Items(self.length - first, lambda k: self.item(k + first)) if first else self


def is_dynamic(found: Any) -> bool:
    """Whether a loop over it has to be recorded."""
    return isinstance(found, Items)


def items(found: Any) -> Any:
    """What a ``for`` runs over: `Items` if its length is dynamic, else as it is."""
    if isinstance(found, torch.Tensor) and found.dim() and _symbolic(found.shape[0]):
        found = Listed(found)
    return Items(found.size(), found.element) if isinstance(found, Listed) else found


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A function that would count something, called without fixing a dynamic length to a number."""
    first = args[0] if args else None
    if isinstance(first, Listed):
        if function is builtins.len:
            return first.size()
        if function in (builtins.list, builtins.tuple):
            return Listed(first.tensor)
        if function is builtins.sum:
            return first.tensor.sum(0) if len(args) == 1 else args[1] + first.tensor.sum(0)
    if function is builtins.len and isinstance(first, torch.Tensor):
        return first.shape[0]
    lazy: Any = None
    if function is builtins.range and any(map(_symbolic, args)):
        lazy = _range(*args)
    elif function is builtins.enumerate and is_dynamic(inner := items(first)):
        start = args[1] if len(args) > 1 else kwargs.get("start", 0)
        lazy = Items(inner.length, lambda k: (k + start, inner.item(k)))
    elif function is builtins.reversed and is_dynamic(inner := items(first)):
        lazy = Items(inner.length, lambda k: inner.item(inner.length - 1 - k))
    elif function is builtins.zip and args and all(is_dynamic(found) for found in map(items, args)):
        lazy = _zip([items(found) for found in args])
    elif (name := getattr(function, "__name__", "")) in ("unbind", "split"):
        owner = getattr(function, "__self__", None)
        lazy = _taken_apart(name, *([owner] if isinstance(owner, torch.Tensor) else []), *args, **kwargs)
    return lazy if lazy is not None else function(*args, **kwargs)


def _symbolic(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None


def _range(*bounds: Any) -> Items:
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1) if len(bounds) == 2 else bounds
    if _symbolic(step) or step == 0:
        raise Unsuitable("the step of its range is not a fixed number")
    distance = stop - start if step > 0 else start - stop
    trips = (distance + abs(step) - 1) // abs(step)
    if not statically_known_true(trips >= 0):
        trips = torch.sym_max(trips, 0)
    return Items(trips, lambda k: start + k * step)


def _zip(parts: Sequence[Items]) -> Items:
    length = parts[0].length
    for part in parts[1:]:
        if not statically_known_true(part.length == length):
            length = torch.sym_min(length, part.length)
    return Items(length, lambda k: tuple(part.item(k) for part in parts))


def _taken_apart(name: str, tensor: Any = None, *args: Any, dim: int = 0, **kwargs: Any) -> Listed | None:
    """``x.unbind(dim)`` and ``x.split(1, dim)`` of a dynamic axis."""
    tensor = kwargs.pop("input", kwargs.pop("tensor", tensor))
    given = list(args)
    size = given.pop(0) if name == "split" and given else kwargs.get("split_size", kwargs.get("split_size_or_sections"))
    dim = given.pop(0) if given else dim
    if not isinstance(tensor, torch.Tensor) or not tensor.dim() or not _symbolic(tensor.shape[dim]):
        return None
    dim %= tensor.dim()
    if name == "unbind":
        return Listed(tensor, dim)
    return Listed(tensor.unsqueeze(dim + 1), dim) if size == 1 else None


# Recording


def _record(found: Items, recording: Recording, body: Callable[[Any], None]) -> None:
    """One pass between ``loop_begin`` and ``loop_end``."""
    tonnx, _library = _operators()
    index, *inside = tonnx.loop_begin(found.length, recording.states)
    try:
        number = index.item()
        torch._check(number >= 0)
        torch._check(number < found.length)
        recording.open(number, inside)
        with _unchanged_modules():
            body(found.item(number))
        recording.close()
    except BaseException:
        tonnx.loop_drop(index)
        raise
    results = (recording.finals, recording.lasts, recording.stacked)
    recording.finish(tonnx.loop_end(index, found.length, *results))


@contextlib.contextmanager
def _unchanged_modules() -> Iterator[None]:
    """Refuse a body that keeps something in a module, by whatever it calls: the next pass would find it there."""
    own = torch.nn.Module.__setattr__

    def refuse(module: Any, name: str, value: Any) -> None:
        before = getattr(module, name, None)
        constant = isinstance(value, (bool, int, float, str, type(None)))
        tracer = type(module).__module__.startswith("torch.")  # it keeps the constants that it finds
        if value is not before and not (constant and value == before) and not tracer:
            raise Unsuitable(f"its body sets the attribute {name} of a {type(module).__name__}")
        own(module, name, value)

    torch.nn.Module.__setattr__ = refuse
    try:
        yield
    finally:
        torch.nn.Module.__setattr__ = own


def run(found: Items, body: Callable[[Any], None], **kinds: tuple[str, ...]) -> None:
    """A loop whose body is a closure over the variables of its function; sets those to what they are after it."""
    variables = Variables(body, Kinds(**kinds))
    before = variables.values()
    moving: set[tuple[str, int]] = set()  # the numbers that change from pass to pass
    first = 0
    while True:
        try:
            _record(found.after(first), Recording(variables, before, moving), body)
            return
        except (Differs, GuardOnDataDependentSymNode) as problem:
            variables.restore(before)
            if isinstance(problem, Differs) and problem.moving:
                moving |= problem.moving
                continue
            if first:
                raise Unsuitable(str(problem)) if isinstance(problem, Differs) else problem from None
        # The first pass may be another one than the rest: `h` is None before it, or the body asks for `i == 0`.
        torch._check(found.length >= 1)
        body(found.item(0))
        before, first, moving = variables.values(), 1, set()


def listed(found: Any, each: Callable[[Any], Any]) -> list[Any]:
    """A list comprehension: ``each`` is its element for an item."""
    if not is_dynamic(found):
        return [each(item) for item in found]
    results: list[Any] = []

    def body(item: Any) -> None:
        results.append(each(item))

    run(found, body, grown=("results",))
    return results


def put(target: Any, index: Any, value: Any, owned: bool) -> None:
    """``target[index] = value`` in a body. ``owned``: the target is a variable that the loop carries."""
    if not isinstance(target, torch.Tensor):
        if not owned:
            raise Unsuitable(f"its body changes an object from outside of it, a {type(target).__name__}")
        target[index] = value
        return
    parts = index if isinstance(index, tuple) else (index,)
    bounds = [bound for p in parts for bound in ((p.start, p.stop, p.step) if isinstance(p, slice) else (p,))]
    if not any(map(_symbolic, bounds)):
        target[index] = value
    elif isinstance(value, torch.Tensor):
        target[index].copy_(value)
    else:
        target[index].fill_(value)
