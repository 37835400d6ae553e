"""Which inputs a file is tried on, group by group: sizes where it is suspected, other sizes, other values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from tonnx.ir.size_expressions import derived_sizes
from tonnx.proof.subject import Subject
from tonnx.proof.trials.inputs import CHEAP, SMALL, Sizes, draw, following, other_sizes, symbol_sizes
from tonnx.proof.trials.thresholds import around
from tonnx.proof.trials.values import WIDE, drawn_values, other_values, wide_values
from tonnx.proof.trials.verification import BEYOND, Trial

_SIZES = 16
"""Other sizes that are tried unless somebody says how many."""
_FLAT = 3
"""Axes of a sequence, of sounds or tables: their batch, length and features."""
_APART = 1000
"""From here on trials at suspected sizes are numbered: their values are not those of other trials."""


class Inputs(NamedTuple):
    """A set of inputs: what it is called, the sizes of its dynamic dimensions, the arrays."""

    label: str
    sizes: Sizes
    arrays: dict[str, np.ndarray]
    is_extreme: bool = False
    """Whether many models do not take these, so that it is not worth a word."""


@dataclass
class Plan:
    """What can be tried with a subject; whoever goes through it decides how far."""

    subject: Subject
    seed: int
    dims: Sizes = field(init=False)
    """The sizes of the example."""

    def __post_init__(self) -> None:
        self.dims = symbol_sizes(self.subject.example, self.subject.dynamic)

    def suspected_sizes(self) -> Iterator[Inputs]:
        """Where the capture knows that the model may go another way."""
        for index, (sizes, where) in enumerate(self.subject.suspected):
            for permitted in self._permitted([dict(sizes)]):
                label = f"{self._label(permitted)}, where the model may go another way: {where}"
                yield Inputs(label, permitted, self.drawn(permitted, _APART + index))

    def other_sizes(self, count: bool | int) -> Iterator[Inputs]:
        """Other sizes of every dynamic dimension, and those just outside of what the capture assumes."""
        subject, limit = self.subject, _SIZES if count is True else count
        batch = {symbol for axes in subject.dynamic.values() for axis, symbol in axes.items() if axis == 0}
        assignments = self._permitted(other_sizes(self.dims, subject.ranges(self.dims), limit, batch))
        # Those that change most dimensions come first: one of them may be all that there is time for.
        assignments.sort(key=lambda sizes: -sum(sizes[symbol] != size for symbol, size in self.dims.items()))
        outside = following(subject.beyond(self.dims), derived_sizes(list(self.dims)), subject.limits)
        beyond = self._permitted([sizes for sizes in outside if sizes != self.dims]) if limit else []
        for index, sizes in enumerate([*assignments, *beyond]):
            label = self._label(sizes) + (BEYOND if sizes in beyond else "")
            yield Inputs(label, sizes, self.drawn(sizes, index))

    def single_sizes(self) -> Iterator[Inputs]:
        """One element where the example has many: a capture may take for granted that there are two.

        Not of what has a height and a width: no picture has one row, and models that happen to take it fill it up.
        """
        ranges, dynamic = self.subject.ranges(self.dims), self.subject.dynamic
        flat = {name for name, array in self.subject.example.items() if array.ndim <= _FLAT}
        spread = {symbol for name, axes in dynamic.items() if name not in flat for symbol in axes.values()}
        free = {symbol: size for symbol, size in self.dims.items() if symbol not in derived_sizes(list(self.dims))}
        many = [symbol for symbol, n in free.items() if SMALL < n <= CHEAP and symbol not in spread]
        many = [symbol for symbol in many if ranges.get(symbol, (1, None))[0] <= 1]
        single = following([{**free, symbol: 1} for symbol in many], derived_sizes(list(self.dims)), ranges)
        for index, sizes in enumerate(self._permitted(single), 2 * _APART):
            yield Inputs(self._label(sizes), sizes, self.drawn(sizes, index), is_extreme=True)

    def at(self, assignments: list[Sizes], number: int) -> Iterator[Inputs]:
        """Inputs of given sizes; ``number`` trials were drawn before."""
        for index, sizes in enumerate(self._permitted(assignments), number):
            yield Inputs(self._label(sizes), sizes, self.drawn(sizes, index))

    def other_values(self, count: bool | int) -> Iterator[Inputs]:
        """Other draws, zeros, negative and large numbers at the sizes of the example."""
        if not count or self.subject.reference is None:
            return
        drawn = other_values(self._free(), self.seed, bold=count is True)
        for label, arrays in islice(drawn, None if count is True else int(count)):
            yield self._with_weights(label, arrays)

    def more_values(self, thresholds: Sequence[float], count: int) -> Iterator[Inputs]:
        """Draws of other scales; then values around what the file compares with, and other draws, in turns."""
        if self.subject.reference is None:
            return
        free, seed = self._free(), self.seed
        for number in range(min(count, len(WIDE))):
            for label, arrays in wide_values(free, seed, 3 + number):
                yield self._with_weights(label, arrays)
        for number in range(count if thresholds else count // 8):  # where nothing is decided, they show little more
            near = around(free, thresholds, (seed, number)) if thresholds else None
            if near is not None:
                yield self._with_weights(f"around constants {number + 1}", near)
            for label, arrays in drawn_values(free, seed, 3 + number):
                yield self._with_weights(label, arrays)

    def lacks_a_size(self, trials: Sequence[Trial]) -> bool:
        """Whether some dynamic dimension was compared at the example's size alone."""
        compared = _compared(trials)
        return not all(any(trial.sizes[symbol] != size for trial in compared) for symbol, size in self.dims.items())

    def lacks_a_draw(self, trials: Sequence[Trial]) -> bool:
        """Whether at the example's sizes no other values were compared."""
        return not any(trial.sizes == self.dims for trial in _compared(trials))

    def _permitted(self, assignments: list[Sizes]) -> list[Sizes]:
        """The sizes that the file's operators take; of others, what comes nearest."""
        restriction = self.subject.restriction
        if restriction is None:
            return assignments
        nearest = [each for sizes in assignments for each in restriction.nearest(sizes)]
        return [sizes for place, sizes in enumerate(nearest) if sizes not in nearest[:place]]

    def _label(self, sizes: Sizes) -> str:
        """What is other than in the example."""
        return ", ".join(f"{symbol}={size}" for symbol, size in sizes.items() if size != self.dims[symbol])

    def drawn(self, sizes: Sizes, index: int) -> dict[str, np.ndarray]:
        """Inputs of other sizes, seeded by trial, so that one trial can be repeated without those before it."""
        return draw(self.subject.example, self.subject.dynamic, sizes, np.random.default_rng([self.seed, index]))

    def _free(self) -> dict[str, np.ndarray]:
        """The inputs that are no weights."""
        return {name: array for name, array in self.subject.example.items() if name not in self.subject.weights}

    def _with_weights(self, label: str, arrays: dict[str, np.ndarray]) -> Inputs:
        return Inputs(label, self.dims, {**self.subject.example, **arrays})


def _compared(trials: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in trials[1:] if trial.skipped is None]
