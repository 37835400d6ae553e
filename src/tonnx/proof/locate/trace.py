"""What a framework tells of the values inside a model: which there are, and what they hold in one run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

Take = Callable[[str, np.ndarray], None]


@dataclass(frozen=True)
class Step:
    """One value that the model computes, and where in the user's code."""

    name: str
    operator: str = ""
    module: str = ""
    source: str = ""
    inputs: tuple[str, ...] = ()
    """The values and inputs that it is computed from; no weights, so that what has none is constant."""


class Trace(Protocol):
    """A model whose inner values can be looked at while it runs."""

    framework: str

    def steps(self) -> Sequence[Step]:
        """All values, in the order in which they are computed."""

    def run(self, feeds: dict[str, np.ndarray], wanted: Collection[str], take: Take) -> None:
        """Run once, and hand over each wanted value as soon as it is there. What the model raises is a CaptureError."""


@dataclass(frozen=True)
class Opened:
    """A trace that also shows what is inside of some of its steps, one step for each pass of a branch or loop.

    Traces that can show it have a method ``opened(feeds, steps)``, which gives this, or None if it is not known.
    """

    trace: Trace
    passes: dict[str, int]
    """How often each of those runs; 1 for a branch."""
