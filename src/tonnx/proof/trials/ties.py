"""Sizes that belong together although nobody said so: the length of a mask is that of the past and the present.

The proof tries every size on its own. A model may run at sizes that it is not made for, as long as the values do not
show it: a mask that hides nothing is not looked at. What the file does there is not held against it, if there is
evidence that the model does not support it, or if the file is right wherever the sizes are together as in the example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from tonnx.errors import cause_of
from tonnx.ir.size_expressions import SizeExpression, size_expression
from tonnx.proof.subject import Arrays, Reference, copies
from tonnx.proof.trials.inputs import Ranges, Sizes, following, other_sizes

if TYPE_CHECKING:
    from tonnx.proof.trials.verification import Trial

Tie = tuple[str, SizeExpression]
"""A size, and what it is computed of."""

_TIED = 8  # trials of sizes that keep a tie
_VARIED = 4  # inputs whose values are varied; each costs two runs of the model


def unsupported(reference: Reference, example: Arrays, inputs: Arrays) -> str | None:
    """What the model says to other values at sizes that were invented, if it fails there and not on the example.

    Where it fails for some values of an input and not for others, it is not made for these sizes.
    """
    for name in [name for name, array in inputs.items() if _is_constant(array) and _is_constant(example[name])][
        :_VARIED
    ]:
        if _failure(reference, {**example, name: _varied(example[name])}) is None:
            failure = _failure(reference, {**inputs, name: _varied(inputs[name])})
            if failure is not None:
                return f"with other values of {name}: {failure}"
    return None


def _is_constant(array: np.ndarray) -> bool:
    return array.size > 1 and array.dtype.kind in "biuf" and bool((array == array.flat[0]).all())


def _varied(array: np.ndarray) -> np.ndarray:
    """A mask that hides something, of one that hides nothing: its first element is another one."""
    varied = array.copy()
    varied.flat[0] = not array.flat[0]
    return varied


def _failure(reference: Reference, inputs: Arrays) -> str | None:
    try:
        reference(copies(inputs))
    except Exception as error:  # noqa: BLE001 (the user's code, on values that were invented; told)
        return cause_of(error)[:160]
    return None


def ties(dims: Mapping[str, int]) -> Iterator[Tie]:
    """What could be no accident in the example: a size that is the sum or the product of two others.

    Multiples are not among them: a number that was read as 2 where it is a quotient of sizes would look the same.
    """
    names = [name for name in dims if name.isidentifier()]
    for total in names:
        for one, other in combinations([name for name in names if name != total], 2):
            for sign in "+*":
                expression = size_expression(f"{one} {sign} {other}", names)
                if expression is not None and dims[total] > 1 and expression.of(dims) == dims[total]:
                    yield total, expression


def _side(tie: Tie, sizes: Mapping[str, int]) -> int:
    """Where sizes are beside a tie: 0 where it holds, else 1 above it and -1 below."""
    total, expression = tie
    return int(np.sign(sizes[total] - expression.of(sizes)))


def settle(
    trials: Sequence[Trial], dims: Mapping[str, int], limits: Ranges, judge: Callable[[list[Sizes]], list[Trial]]
) -> tuple[list[Trial], list[str]]:
    """The trials, with those of sizes that belong together; and where the file is right, if that is not everywhere.

    A tie may hold as an equation, or one way only: a mask may be longer, but not shorter. A side at which the file was
    right is supported. With any other, sizes are tried that keep the tie. Then trials on that side do not count, if
    every size of the tie was varied, and all of them agree.
    """
    settled, remarks = list(trials), []
    for tie in ties(dims):
        total, expression = tie
        # What is 1 may broadcast: that says nothing of other sizes.
        agreed = [trial for trial in settled if trial.comparisons and trial.ok and trial.sizes[total] > 1]
        right = {_side(tie, trial.sizes) for trial in agreed}
        open_sides = {_side(tie, trial.sizes) for trial in settled} - right - {0}
        if not open_sides:
            continue
        together = judge(_keeping(tie, dims, limits, settled))
        settled += together
        agreeing = [trial for trial in together if trial.comparisons and trial.ok]
        varied = all(any(trial.sizes[name] != dims[name] for trial in agreeing) for name in expression.names)
        if not varied or not all(trial.ok for trial in together):
            continue
        sign = {1: ">=", -1: "<="}.get(next(iter(right - {0}), 0), "=")
        where = f"right where {total} {sign} {expression.text}"
        failed = [trial for trial in settled if not trial.ok]
        if not failed:
            remarks.append(f"{where}; elsewhere the model itself fails")
        elif all(_side(tie, trial.sizes) in open_sides for trial in failed):
            settled = [replace(trial, doubt=where, comparisons=()) if trial in failed else trial for trial in settled]
            remarks.append(f"{where}; elsewhere the file does not do what the model does")
    return settled, remarks


def _keeping(tie: Tie, dims: Mapping[str, int], limits: Ranges, trials: Sequence[Trial]) -> list[Sizes]:
    """Sizes at which a tie holds, as it does in the example, and that were not tried."""
    total, expression = tie
    free = {name: size for name, size in dims.items() if name != total}
    wanted = following(other_sizes(free, limits, _TIED), {total: expression}, limits)
    tried = [dict(trial.sizes) for trial in trials]
    return [sizes for sizes in wanted if sizes[total] != dims[total] and sizes not in tried]
