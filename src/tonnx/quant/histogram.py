"""What is known of the values of a tensor over any number of samples, in memory that does not grow; and the range that
integers should stand for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

METHODS = ("mse", "minmax", "percentile", "entropy")
"""Least square error of the values; all of them; all but a share of the largest; least loss of information."""

_HALF = 2048  # bins on either side of zero
_KEPT = 4096  # values that are kept as they are
_PARTS = 96
"""Ends of the range that are tried on each side, in equal parts of the largest value."""


@dataclass
class Histogram:
    """Counts of values in bins of equal width around zero. Where a value lies outside, bins are merged in pairs.

    Zeros are counted apart: integers stand for zero without an error, and after a ReLU it is half of all values.
    """

    width: float = 0.0
    """Of a bin, a power of two; 0: there was nothing but zeros."""
    counts: np.ndarray = field(default_factory=lambda: np.zeros(2 * _HALF))
    zeros: int = 0
    low: float = 0.0
    """The least value of all, and zero; ``high`` the largest. Of every value, not of those that are counted."""
    high: float = 0.0
    values: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    """Some values as they are."""

    def add(self, sample: np.ndarray, low: float, high: float) -> None:
        """Count some of the values of a tensor, the ends of which are ``low`` and ``high``."""
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._reach(max(-self.low, self.high))
        sample = sample.reshape(-1)
        some = sample[sample != 0]
        self.zeros += sample.size - some.size
        if not some.size:
            return
        places = np.floor(some / np.float32(self.width)).astype(np.int32) + _HALF
        self.counts += np.bincount(np.clip(places, 0, 2 * _HALF - 1), minlength=2 * _HALF)
        self.values = np.concatenate([self.values, some[:: max(1, some.size * 4 // _KEPT)]])
        if self.values.size > 2 * _KEPT:
            self.values = self.values[:: self.values.size // _KEPT]

    def _reach(self, bound: float) -> None:
        if not bound:
            return
        if not self.width:
            self.width = float(2.0 ** np.ceil(np.log2(bound / _HALF)))
        while bound > _HALF * self.width:
            self._widen()

    def _widen(self) -> None:
        merged = self.counts.reshape(-1, 2).sum(1)
        self.counts = np.zeros(2 * _HALF)
        self.counts[_HALF // 2 : _HALF // 2 + _HALF] = merged
        self.width *= 2

    def with_those_of(self, other: Histogram) -> Histogram:
        """The histogram of the values of both."""
        narrow, wide = (replace(one) for one in sorted((self, other), key=lambda one: one.width))
        while narrow.width and narrow.width < wide.width:
            narrow._widen()
        return Histogram(
            wide.width, narrow.counts + wide.counts, self.zeros + other.zeros, min(self.low, other.low),
            max(self.high, other.high), np.concatenate([self.values, other.values]),
        )  # fmt: skip

    @property
    def centres(self) -> np.ndarray:
        return (np.arange(2 * _HALF) - _HALF + 0.5) * self.width

    def range(self, method: str, levels: int = 256, percentile: float = 99.99) -> tuple[float, float]:
        """The ends of what ``levels`` integers should stand for; zero lies between them."""
        if not self.width or method == "minmax":
            return self.low, self.high
        if method == "percentile":
            return self._within(percentile / 100)
        if method == "entropy":
            return self._informative(levels // 2 if self.low < 0 else levels)
        return self._closest(levels)

    def _within(self, share: float) -> tuple[float, float]:
        """The range that holds this share of the values, as many of the rest below as above it."""
        counts = self.counts.copy()
        counts[_HALF] += self.zeros
        reached = np.cumsum(counts) / counts.sum()
        tail = (1 - share) / 2
        edges = (np.arange(2 * _HALF + 1) - _HALF) * self.width
        low, high = edges[np.searchsorted(reached, tail)], edges[np.searchsorted(reached, 1 - tail) + 1]
        return max(min(low, 0.0), self.low), min(max(high, 0.0), self.high)

    def _closest(self, levels: int) -> tuple[float, float]:
        """The range with the least square error: of rounding inside of it, and of cutting off what lies outside."""
        parts = np.linspace(1 / _PARTS, 1, _PARTS)
        lows, highs = np.unique(self.low * parts), np.unique(self.high * parts)
        tails = self._tails()
        below, above = _cut_off(-lows, *tails[0]), _cut_off(highs, *tails[1])
        step = (highs[None, :] - lows[:, None]) / (levels - 1)
        error = below[:, None] + above[None, :] + step**2 / 12 * self.counts.sum()
        i, j = np.unravel_index(np.argmin(error), error.shape)
        best = float(lows[i]), float(highs[j])
        # Values on a grid of their own, such as pixels, may meet the integers exactly.
        whole = self.low, self.high
        return whole if self.error(whole, levels, tails) <= self.error(best, levels, tails) else best

    def _tails(self) -> tuple[_Tail, _Tail]:
        """Below zero, and above it."""
        x = (np.arange(_HALF) + 0.5) * self.width
        powers = np.stack([np.ones(_HALF), x, x * x])
        sides = (self.counts[_HALF - 1 :: -1], self.counts[_HALF:])
        beyond = np.zeros((2, 3, _HALF + 1))
        for moments, side in zip(beyond, sides, strict=True):
            np.cumsum((side * powers)[:, ::-1], axis=1, out=moments[:, -2::-1])
        return (self.width, beyond[0]), (self.width, beyond[1])

    def error(self, ends: tuple[float, float], levels: int = 256, tails: tuple[_Tail, _Tail] | None = None) -> float:
        """The sum of the square errors of all values that were counted."""
        low, high = ends
        below, above = tails or self._tails()
        cut = _cut_off(np.array([-low]), *below) + _cut_off(np.array([high]), *above)
        inside = self.values[(self.values >= low) & (self.values <= high)].astype(np.float64)
        scale = (high - low) / (levels - 1) or 1.0
        rounded = np.rint(inside / scale) * scale - inside
        return float(cut[0]) + float(np.square(rounded).sum()) * self.counts.sum() / max(self.values.size, 1)

    def _informative(self, levels: int) -> tuple[float, float]:
        """The cut that loses the least information (Kullback and Leibler), the same on both sides of zero."""
        counts = self.counts[_HALF:] + (self.counts[_HALF - 1 :: -1])
        last = int(np.flatnonzero(counts)[-1]) + 1
        best, end = np.inf, last
        for stop in (*range(min(levels, last), last, max(1, last // 128)), last):
            lost = _divergence(counts, stop, levels)
            if lost <= best:
                best, end = lost, stop
        bound = end * self.width
        return max(-bound, self.low), min(bound, self.high)


_Tail = tuple[float, np.ndarray]
"""Of one side of zero: the width of a bin, and the sums of counts, values and squares from each bin on."""


def _cut_off(ends: np.ndarray, width: float, moments: np.ndarray) -> np.ndarray:
    """The square error of values beyond each of these magnitudes, on one side of zero."""
    count, total, squares = moments[:, np.minimum((ends / width).astype(np.int64) + 1, _HALF)]
    return np.maximum(squares - 2 * ends * total + ends**2 * count, 0)


def _divergence(counts: np.ndarray, stop: int, levels: int) -> float:
    """What is lost of a distribution that is cut off at a bin and kept in fewer levels."""
    wanted = counts[:stop].copy()
    wanted[-1] += counts[stop:].sum()
    levels = min(levels, stop)
    place = np.arange(stop) * levels // stop
    filled = counts[:stop] > 0
    sums = np.bincount(place, counts[:stop], minlength=levels)
    bins = np.bincount(place, filled, minlength=levels)
    kept = np.where(filled, sums[place] / np.maximum(bins[place], 1), 0)
    wanted, kept = wanted / max(wanted.sum(), 1), kept / max(kept.sum(), 1)
    seen = (wanted > 0) & (kept > 0)
    missing = wanted[(wanted > 0) & (kept == 0)].sum()
    return float((wanted[seen] * np.log(wanted[seen] / kept[seen])).sum() + missing * 10)
