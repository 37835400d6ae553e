"""What a loop carries, found by trial; and how much of a loop may be written down pass by pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tonnx.errors import LoweringError
from tonnx.ir.build import Builder

UNROLLED = 600
"""Operators of a loop's body times its passes, up to which the passes are written one after the other."""
MOST_PASSES = 4096
"""A loop that has to be unrolled is refused beyond this."""

Carried = TypeVar("Carried")
Outcome = TypeVar("Outcome")


def settle(
    carried: Carried, attempt: Callable[[Carried], tuple[Carried, Builder, Outcome]], trials: int = 32
) -> tuple[Carried, Outcome]:
    """Lower a body until what it is thought to carry is what it carries; the graphs of all earlier trials go.

    ``attempt`` lowers the body for what it is thought to carry. It gives what holds for one more pass too, which is the
    same or something wider, the builder of the body's graph, and what it has found.
    """
    for _ in range(trials):
        wider, inner, outcome = attempt(carried)
        if wider == carried:
            return carried, outcome
        inner.discard()
        carried = wider
    raise LoweringError("what a loop carries does not settle")
