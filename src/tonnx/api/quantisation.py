"""How much of the difference between a quantised file and its float original is quantisation, and what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tonnx.api.quantize_result import Loss, losses_between
from tonnx.errors import TonnxError
from tonnx.io import read as reading
from tonnx.proof.compare import compare
from tonnx.proof.quantisation import float_weights, inspected, weights_of_state
from tonnx.proof.session import Session
from tonnx.proof.subject import Subject
from tonnx.quant.inspection import Original, Row, is_quantised

_SHOWN = 3
_NEARER = 6.0
"""Decibels by which a file is nearer to a model that rounds as it does than to one that does not."""


@dataclass(frozen=True)
class Quantisation:
    """The two parts of a difference, on the example."""

    rounding: list[Loss]
    """The file beside itself with nothing rounded."""
    rest: list[Loss]
    """The file with nothing rounded beside the original."""
    only: bool
    """Whether that rest is within the usual tolerances: nothing but quantisation makes the difference."""
    rows: list[Row]
    """Layers, those first that cost most."""
    unknown: Sequence[str]
    """Weights whose floats were not found in the original: what their rounding costs is in the rest."""

    def lines(self) -> list[str]:
        """For people."""
        lines = [f"quantisation: {loss}" for loss in self.rounding]
        lines += [f"something else: {loss}{', within tolerance' if self.only else ''}" for loss in self.rest]
        if self.unknown:
            some = ", ".join(self.unknown[:_SHOWN])
            count = len(self.unknown)
            what = f"{count} weights and biases are" if count != 1 else "one weight or bias is"
            lines.append(f"  {what} not the original's, rounded: {some}")
        costly = [row for row in self.rows[:_SHOWN] if row.loss]
        lines += [f"  {row.operator} {row.name} alone costs {row.loss:.2%} of the outputs' magnitude" for row in costly]
        return lines

    def data(self) -> dict[str, Any]:
        """The same as JSON data."""
        return {
            "only": self.only,
            "rounding": [vars(loss) for loss in self.rounding],
            "rest": [vars(loss) for loss in self.rest],
            "unknown": list(self.unknown),
            "layers": [{"name": row.name, "operator": row.operator, "loss": row.loss} for row in self.rows],
        }


def quantisation_of(path: Path, subject: Subject, original: Any) -> Quantisation | None:
    """None if the file is not quantised, or its original is as well: then the integers of both are the same."""
    if not is_quantised(reading.reader(path)()):
        return None
    weights = _originals(subject, original)
    if weights is None:
        return None
    feeds = [subject.example]
    try:
        found = inspected(reading.reader(path)(), weights, feeds, rows=False)
        rounded = Session(str(path)).run(dict(subject.example))
    except TonnxError:  # what was compared before stands without it
        return None
    wanted, clean = subject.expected(subject.example), found.clean[0]
    rest, whole = losses_between(wanted, clean), losses_between(wanted, rounded)
    pairs = list(zip(whole, rest, strict=False))
    if len(rest) != len(whole) or all(a.signal_to_noise > b.signal_to_noise + _NEARER for a, b in pairs):
        return None  # the original rounds as the file does
    only = all(compare(name, wanted[name], clean[name], rtol=subject.rtol, atol=subject.atol).ok for name in wanted)
    rows = inspected(reading.reader(path)(), weights, feeds).rows
    return Quantisation(losses_between(clean, rounded), rest, only, rows, found.unknown)


def _originals(subject: Subject, original: Any) -> list[Original] | None:
    if isinstance(original, (str, Path)) and str(original).endswith(".onnx"):
        model = reading.reader(original)()
        return None if is_quantised(model) else float_weights(model)
    state = {} if subject.state is None else {name: np.asarray(array) for name, array in subject.state().items()}
    return weights_of_state(state) or None
