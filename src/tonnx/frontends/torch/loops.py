"""Loops over a dynamic size, recorded during the capture: one pass between two operators of our own.

    index, *states = tonnx::loop_begin(trips, [h])      # of the pass that is recorded
    … the body, traced as everything else …
    h, y = tonnx::loop_end(index, trips, [h], [last], [output])

The rewritten functions (see `loop_source`) call what is public here. A loop is recorded in the graph that is being
traced anyway, so parameters, outer tensors and sizes need no care; `ops.loop` cuts it out again when it lowers.
"""

from __future__ import annotations

import builtins
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
    if isinstance(found, Listed):
        found = found.tensor
    if isinstance(found, torch.Tensor) and found.dim() and _symbolic(found.shape[0]):
        tensor = found
        return Items(tensor.shape[0], lambda k: tensor[k])
    return found


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A function that a loop's header calls, without fixing a dynamic size to a number."""
    lazy = None
    if function is builtins.len and isinstance(args[0], (Listed, torch.Tensor)):
        return args[0].size() if isinstance(args[0], Listed) else args[0].shape[0]
    if function is builtins.range and any(map(_symbolic, args)):
        lazy = _range(*args)
    elif function is builtins.enumerate and is_dynamic(inner := items(args[0])):
        start = args[1] if len(args) > 1 else kwargs.get("start", 0)
        lazy = Items(inner.length, lambda k: (k + start, inner.item(k)))
    elif function is builtins.reversed and is_dynamic(inner := items(args[0])):
        lazy = Items(inner.length, lambda k: inner.item(inner.length - 1 - k))
    elif function is builtins.zip and args and all(is_dynamic(found) for found in map(items, args)):
        lazy = _zip([items(found) for found in args])
    elif getattr(function, "__name__", "") == "unbind":
        lazy = _unbind(function, args, kwargs)
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


def _unbind(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Items | None:
    owner = getattr(function, "__self__", None)
    given = ([owner] if isinstance(owner, torch.Tensor) else []) + [*args]
    tensor = given[0] if given else kwargs.get("input")
    dim = given[1] if len(given) > 1 else kwargs.get("dim", 0)
    if not isinstance(tensor, torch.Tensor) or not _symbolic(tensor.shape[dim]):
        return None
    return Items(tensor.shape[dim], lambda k: tensor.select(dim, k))


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
        body(found.item(number))
        recording.close()
    except BaseException:
        tonnx.loop_drop(index)
        raise
    results = (recording.finals, recording.lasts, recording.stacked)
    recording.finish(tonnx.loop_end(index, found.length, *results))


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
