"""Whole branches and loops: what comes out of an If, what a loop carries, and how much of a loop may be unrolled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.ir.build import Builder
from tonnx.lowering.regions.emit import LoopBody, if_node
from tonnx.lowering.regions.forms import Form, Maker, Rules, Same, Snapshot, join, kinds, pack, unpack

UNROLLED = 600
"""Operators of a loop's body times its passes, up to which the passes are written one after the other."""
MOST_PASSES = 4096
"""A loop that has to be unrolled is refused beyond this."""

Key = TypeVar("Key", bound=Hashable)
"""What tells the values apart that a path leaves: variables by their place, or whatever a front end likes."""
Ends = Mapping[Key, Snapshot]
Carried = Mapping[Key, tuple[Snapshot, Form]]
"""What a loop carries: as it begins, and in which form."""
Thought = TypeVar("Thought")
Outcome = TypeVar("Outcome")


def choose(
    op: Builder,
    condition: ir.Value,
    sides: Sequence[tuple[Builder, Ends[Key]]],
    rules: Callable[[Key], Rules],
    make: Maker,
) -> dict[Key, tuple[Form, Any]]:
    """What an If over two graphs that were begun leaves of each value: its form, and what came across."""
    (_, one), (_, other) = sides
    forms = {key: join(Same(end), Same(other[key]), rules(key)) for key, end in one.items()}
    packed = [(inner, _packed(inner, ends, forms)) for inner, ends in sides]
    values = iter(if_node(op, condition, packed, [kind for form in forms.values() for kind in kinds(form)]))
    return {key: (f, unpack(f, values, make, [ends[key] for _, ends in sides])) for key, f in forms.items()}


def _packed(op: Builder, snapshots: Ends[Key], forms: Mapping[Key, Form]) -> list[ir.Value]:
    return [value for key, form in forms.items() for value in pack(op, snapshots[key], form)]


def settle(
    thought: Thought, attempt: Callable[[Thought], tuple[Thought, Builder, Outcome]], trials: int = 32
) -> tuple[Thought, Outcome]:
    """Lower a body until what it is thought to carry is what it carries; the graphs of all earlier trials go.

    ``attempt`` lowers the body for what it is thought to carry. It gives what holds for one more pass too, which is the
    same or something wider, the builder of the body's graph, and what it has found.
    """
    for _ in range(trials):
        wider, inner, outcome = attempt(thought)
        if wider == thought:
            return thought, outcome
        inner.discard()
        thought = wider
    raise LoweringError("what a loop carries does not settle")


def loop_body(op: Builder, carried: Carried[Key]) -> LoopBody:
    return LoopBody(op, [kind for _, form in carried.values() for kind in kinds(form)])


def at_start(loop: LoopBody, carried: Carried[Key], make: Maker) -> dict[Key, tuple[Form, Any]]:
    """What each value is in the body when a pass begins."""
    values = iter(loop.carried)
    return {key: (form, unpack(form, values, make, [start])) for key, (start, form) in carried.items()}


def close_loop(
    loop: LoopBody,
    carried: Carried[Key],
    ends: Ends[Key],
    course: tuple[Any, Any, Any],
    make: Maker,
    collected: Sequence[ir.Value] = (),
) -> tuple[dict[Key, tuple[Form, Any]], Iterator[ir.Value]]:
    """What each value is after the last pass, and what was collected of all of them.

    ``course``: how many passes there are at most (None: any number), whether there is a first one, and another one.
    """
    trips, condition, go_on = course
    forms = {key: form for key, (_, form) in carried.items()}
    starts = _packed(loop.outer, {key: start for key, (start, _) in carried.items()}, forms)
    last = _packed(loop.inner, ends, forms)
    values = iter(loop.close(trips, condition, starts, go_on, last, collected))
    after = {key: (form, unpack(form, values, make, [start, ends[key]])) for key, (start, form) in carried.items()}
    return after, values
