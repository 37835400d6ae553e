"""What `tonnx.quantize` gives: what is stored how, what that costs, and the proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tonnx.api.calibrated import Calibrated
from tonnx.api.halved import Halved
from tonnx.api.result import Result, format_size
from tonnx.proof.signature import signature_lines
from tonnx.quant.weights import Layer


@dataclass(frozen=True)
class Loss:
    """How far an output is from what the original gives, on one example."""

    name: str
    max_abs: float
    largest: float
    """The largest magnitude of the original's."""
    signal_to_noise: float
    """In decibels; infinite where both are equal."""

    def is_worse_than(self, other: Loss) -> bool:
        """By a decibel or more."""
        return self.signal_to_noise < other.signal_to_noise - 1

    def __str__(self) -> str:
        told = f"max abs {self.max_abs:.2g} of {self.largest:.2g}"
        return f"{self.name}: {told}, signal to noise {self.signal_to_noise:.1f} dB"


@dataclass
class QuantizeResult(Result):
    """A model with smaller weights: what is stored how, what that costs, and the proof."""

    to: str = ""
    layers: list[Layer] = field(default_factory=list)
    """The weights that were looked at."""
    before: int = 0
    """Bytes of all weights in the original."""
    after: int = 0
    losses: list[Loss] = field(default_factory=list)
    """The outputs beside the original's; what the proof compares with is the original with rounded weights."""
    calibrated: Calibrated | None = None
    """What is known of layers that multiply integers: ranges, what was measured, which stay floats."""
    halved: Halved | None = None
    """What is known of a network in half precision: which nodes stay in float32, and why."""

    def __str__(self) -> str:
        stored = [layer for layer in self.layers if layer.stored is not None]
        smaller = f"{len(stored)} weights" if self.halved is None else f"{self.halved.nodes} nodes"
        how = "" if self.calibrated is None else f" ({self.calibrated.method}, {self.calibrated.bits} bits)"
        lines = [
            f"{self.path or 'model'}: {smaller} as {self.to}{how}, opset {self.opset}"
            + (f", {format_size(self.size)}" if self.size else ""),
            f"  weights: {format_size(self.before)} → {format_size(self.after)} "
            f"({self.after / max(self.before, 1):.2f})",
        ]
        lines += signature_lines(self.model)
        lines += [f"  stays a float: {layer.name}: {layer.why}" for layer in self.layers if layer.stored is None]
        lines += [] if self.halved is None else [f"  stays float32: {n}: {w}" for n, w in self.halved.floats.items()]
        lines += [] if self.calibrated is None else [f"  {line}" for line in self.calibrated.lines()]
        lines += [f"  beside the original: {loss}" for loss in self.losses]
        lines += [f"  {note}" for note in self.notes]
        if self.verification is not None:
            if self.halved is None:
                same = "original with the same rounded weights" if self.calibrated is None else "same steps in floats"
                lines.append(f"  beside the {same}:")
            lines += [f"  {line}" for line in str(self.verification).splitlines()]
        return "\n".join(lines)

    def data(self) -> dict[str, Any]:
        """The same as JSON data."""
        return {
            "path": str(self.path) if self.path else None,
            "to": self.to,
            "weights": {"before": self.before, "after": self.after},
            "layers": [
                {
                    "name": layer.name,
                    "nodes": [node.name for node in layer.nodes],
                    "stored": None if layer.stored is None else str(layer.stored.integers.dtype),
                    "block": None if layer.stored is None else layer.stored.block,
                    "why": layer.why or None,
                }
                for layer in self.layers
            ],
            "losses": [vars(loss) for loss in self.losses],
            "float32": None if self.halved is None else self.halved.floats,
            "calibration": None if self.calibrated is None else self.calibrated.data(),
            **self._common_data(),
        }


def joined(outputs: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The outputs of all samples as one array each."""
    return {name: np.concatenate([one[name].reshape(-1) for one in outputs]) for name in outputs[0]}


def losses_between(wanted: Mapping[str, np.ndarray], results: Mapping[str, np.ndarray]) -> list[Loss]:
    """How far each output of floats is from what is wanted, where both have the same shape."""
    losses = []
    for name, array in wanted.items():
        if array.dtype.kind != "f" or name not in results or array.shape != results[name].shape or not array.size:
            continue
        original = array.astype(np.float64)
        error = results[name].astype(np.float64) - original
        noise, signal = float(np.square(error).sum()), float(np.square(original).sum())
        decibels = 10 * np.log10(signal / noise) if noise and signal else float("inf")
        losses.append(Loss(name, float(np.abs(error).max()), float(np.abs(original).max()), float(decibels)))
    return losses
