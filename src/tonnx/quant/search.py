"""Which ranges and which layers: decided by what the whole network loses, measured on samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tonnx.quant.observe import Feeds, Run


@dataclass(frozen=True)
class Point:
    """One way to quantise a network: how many layers stay floats, and what comes of it."""

    floats: tuple[str, ...]
    loss: float
    size: int = 0
    """Bytes of the weights."""
    seconds: float = 0.0
    """One run, the fastest of a few."""


Loss = Callable[[Run], float]
"""What a network loses, given a function that runs it."""


def output_loss(wanted: Sequence[Mapping[str, np.ndarray]], samples: Sequence[Feeds]) -> Loss:
    """The error of the outputs by their magnitude (root of mean squares), of the output where that is largest."""

    def loss(run: Run) -> float:
        noise: dict[str, float] = {}
        signal: dict[str, float] = {}
        for feeds, expected in zip(samples, wanted, strict=True):
            results = run(feeds)
            for name, array in expected.items():
                if array.dtype.kind != "f" or not array.size:
                    continue
                if results[name].shape != array.shape:  # how many there are depends on the numbers themselves
                    noise[name], signal[name] = np.inf, 1.0
                    continue
                error = results[name].astype(np.float64) - array
                noise[name] = noise.get(name, 0.0) + float(np.square(error).sum())
                signal[name] = signal.get(name, 0.0) + float(np.square(array.astype(np.float64)).sum())
        ratios = [noise[name] / signal[name] for name in noise if signal[name]]
        return float(np.sqrt(max(ratios, default=0.0)))

    return loss


def until_met(
    order: Sequence[str], measure: Callable[[tuple[str, ...]], Point], limit: float
) -> tuple[Point | None, list[Point]]:
    """The point with the fewest layers left as floats that loses no more than ``limit``, and all that were measured.

    ``order``: layers, those first that cost most. The number is doubled until the loss is met, then halved in on.
    """
    curve = [measure(())]
    if curve[0].loss <= limit:
        return curve[0], curve
    least, count = 0, 1
    while True:
        count = min(count, len(order))
        curve.append(measure(tuple(order[:count])))
        if curve[-1].loss <= limit:
            break
        if count == len(order):
            return None, curve
        least, count = count, 2 * count
    best = curve[-1]
    while count - least > 1:
        middle = (least + count) // 2
        curve.append(measure(tuple(order[:middle])))
        if curve[-1].loss <= limit:
            best, count = curve[-1], middle
        else:
            least = middle
    return best, sorted(curve, key=lambda point: len(point.floats))
