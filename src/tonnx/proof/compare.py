"""Compare one output of the model with the same output of the file.

Two arrays are equal when dtype and shape agree exactly and every element is within the tolerance of its
dtype. NaN equals NaN and infinity equals infinity of the same sign, at the same place: a model that computes
them must see them computed in ONNX too. Integers, booleans and strings have no tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tonnx.errors import InvalidArgument

# Elements widened to float64 at a time: a few MB of temporaries, whatever the size of the output.
BLOCK = 1 << 18

EDGES = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Bounds of `Comparison.histogram`, which has one bin more at each end: equal to the bit, and 10 or more."""

RTOL, ATOL = 1e-3, 1e-5
"""What tutorials give ``np.testing.assert_allclose``."""
CLOSE = 1e-5
"""The other usual verdict: the largest difference is below this, or below this part of the largest value."""


@dataclass(frozen=True)
class Tolerance:
    """An element is close when ``|actual - expected| <= atol + rtol * |expected|``."""

    rtol: float = 0.0
    atol: float = 0.0

    def __post_init__(self) -> None:
        if not (self.rtol >= 0 and self.atol >= 0):  # written so that NaN is refused as well
            raise InvalidArgument(f"a tolerance is at least 0: rtol {self.rtol}, atol {self.atol}")

    def __str__(self) -> str:
        return f"rtol {self.rtol:g}, atol {self.atol:g}" if self.rtol or self.atol else "must be equal"


EXACT = Tolerance()

# By dtype name, because bfloat16 and the 8-bit floats are not numpy's own.
_TOLERANCES = {
    # Attributes of ONNX operators are float32: a scale of 0.3 has 8 digits, whatever it is multiplied with.
    "float64": Tolerance(1e-7, 1e-7),
    "float32": Tolerance(1e-3, 1e-5),
    "complex128": Tolerance(1e-7, 1e-7),
    "complex64": Tolerance(1e-3, 1e-5),
    # About ten and five times epsilon: runtimes accumulate these in float32 but round between the layers at
    # other places than the framework does, and values near zero carry the error of the large ones near them.
    "float16": Tolerance(1e-2, 5e-3),
    "bfloat16": Tolerance(8e-2, 4e-2),
    # One step of the format: a value that lies between two steps may be rounded either way.
    "float8_e4m3fn": Tolerance(0.13, 4e-3),
    "float8_e4m3fnuz": Tolerance(0.13, 4e-3),
    "float8_e5m2": Tolerance(0.26, 1e-4),
    "float8_e5m2fnuz": Tolerance(0.26, 1e-4),
    "float4_e2m1fn": Tolerance(0.5, 0.5),
}


def dtype_name(dtype: Any) -> str:
    """The name of a dtype; every way in which numpy holds text is one dtype for ONNX."""
    dtype = np.dtype(dtype)
    return "string" if dtype.kind in "OSUT" else dtype.name


def default_tolerance(dtype: Any) -> Tolerance:
    """The tolerance for outputs of this dtype: exact unless it is a float or complex dtype.

    >>> default_tolerance("float32")
    Tolerance(rtol=0.001, atol=1e-05)
    """
    return _TOLERANCES.get(dtype_name(dtype), EXACT)


@dataclass(frozen=True)
class Comparison:
    """One output, the model's beside the file's. Shape and dtype are those of the model.

    ``max_rel`` is taken over the elements that are not zero in the model. ``excess`` is the largest
    difference in units of what is allowed at that element: above 1 is out of tolerance. ``nans`` counts the
    elements that are NaN on both sides, which are equal but prove little.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    max_abs: float
    max_rel: float
    mismatched: int
    total: int
    ok: bool
    reason: str | None = None
    tolerance: Tolerance = EXACT
    excess: float = 0.0
    nans: int = 0
    largest: float = 0.0  # the largest finite magnitude in the model's output
    drawn: bool = False  # random numbers in the model and in the file: only shape and dtype were compared
    rounded: bool = False  # out of tolerance by less than quantisation changes the output, see `rounding`
    saturated: bool = False  # ONNX Runtime's kernels cut sums off: the file as it stands was compared, see `saturation`
    reordered: bool = False  # rows of equal scores stand in another order: compared as a set, see `ranking`
    sensitive: bool = False  # out of tolerance by no more than rounding its inputs changes the model's own results
    measured: bool = True  # False: there was nothing to measure, the figures stand for "entirely different"
    mean_abs: float = 0.0
    cosine: float = 1.0  # of the angle between the two as vectors, over what is finite in both
    histogram: tuple[int, ...] = ()  # elements by the size of their difference, see `EDGES`
    allclose: bool = True  # what np.testing.assert_allclose says with rtol 1e-3 and atol 1e-5

    @property
    def share(self) -> float:
        """The share of the elements that is out of tolerance."""
        return self.mismatched / self.total if self.total else float(not self.ok)

    @property
    def relative(self) -> float:
        """The largest difference as a part of the model's largest value."""
        return self.max_abs / self.largest if self.largest else float("inf") if self.max_abs else 0.0

    @property
    def close(self) -> bool:
        """Whether the largest difference is below 1e-5, or below that part of the model's largest value."""
        return self.measured and (self.max_abs < CLOSE or self.relative < CLOSE)


def compare(
    name: str,
    expected: Any,
    actual: Any,
    rtol: float | None = None,
    atol: float | None = None,
    *,
    lowered: str | None = None,
) -> Comparison:
    """Compare the file's ``actual`` with the model's ``expected``.

    ``rtol`` and ``atol`` replace the default of the dtype; for exact dtypes they mean nothing. ``lowered``: the
    dtype of fewest digits that has its part in the output, which is not asked for more than that has.
    """
    expected, actual = np.asarray(expected), np.asarray(actual)
    reason = _structure(expected, actual)
    if reason is not None:
        return incomparable(name, expected, reason)
    flat_expected, flat_actual = expected.reshape(-1), actual.reshape(-1)
    tolerance = _tolerance(flat_expected, rtol, atol, lowered)
    figures = _Figures()
    measure = _exact_block if tolerance is EXACT else _float_block
    for start in range(0, expected.size, BLOCK):
        block = slice(start, start + BLOCK)
        measure(figures, start, flat_expected[block], flat_actual[block], tolerance)
    return Comparison(
        name=name,
        shape=expected.shape,
        dtype=dtype_name(expected.dtype),
        max_abs=figures.max_abs,
        max_rel=figures.max_rel,
        mismatched=figures.mismatched,
        total=expected.size,
        ok=figures.mismatched == 0,
        reason=_reason(figures, expected, actual, tolerance) if figures.mismatched else None,
        tolerance=tolerance,
        excess=figures.excess,
        nans=figures.nans,
        largest=figures.largest,
        mean_abs=figures.sum_abs / expected.size if expected.size else 0.0,
        cosine=figures.cosine,
        histogram=tuple(figures.histogram),
        allclose=figures.not_allclose == 0,
    )


def incomparable(name: str, expected: Any, reason: str) -> Comparison:
    """A failed comparison where there is nothing to measure: another shape or dtype, or no output at all."""
    expected = np.asarray(expected)
    return Comparison(
        name=name,
        shape=expected.shape,
        dtype=dtype_name(expected.dtype),
        max_abs=float("inf"),
        max_rel=float("inf"),
        mismatched=expected.size,
        total=expected.size,
        ok=False,
        reason=reason,
        excess=float("inf"),
        measured=False,
        mean_abs=float("inf"),
        cosine=0.0,
        allclose=False,
    )


def _structure(expected: np.ndarray, actual: np.ndarray) -> str | None:
    """What keeps the two from being compared element by element."""
    reasons = []
    model, file = dtype_name(expected.dtype), dtype_name(actual.dtype)
    if model != file:
        reasons.append(f"dtype: {model} in the model, {file} in the file")
    if expected.shape != actual.shape:
        reasons.append(f"shape: {expected.shape} in the model, {actual.shape} in the file")
    return "; ".join(reasons) or None


def _tolerance(expected: np.ndarray, rtol: float | None, atol: float | None, lowered: str | None) -> Tolerance:
    """The tolerance that was asked for, or the dtype's own.

    The dtype's absolute tolerance is meant for values of about 1. Among values of up to 50, rounding alone moves the
    ones near zero by 50 times as much, so it grows with the largest value.
    """
    default = default_tolerance(expected.dtype)
    if default is EXACT:
        return EXACT
    if lowered is not None:
        default = max(default, default_tolerance(lowered), key=lambda tolerance: tolerance.rtol)
    if atol is None:
        atol = default.atol * max(1.0, _largest(expected))
    return Tolerance(default.rtol if rtol is None else rtol, atol)


def _largest(values: np.ndarray) -> float:
    largest = 0.0
    for start in range(0, values.size, BLOCK):
        size = np.abs(values[start : start + BLOCK].astype(np.complex128 if values.dtype.kind == "c" else np.float64))
        largest = max(largest, float(size.max(initial=0.0, where=np.isfinite(size))))
    return largest


@dataclass
class _Figures:
    """What is known after the blocks seen so far."""

    max_abs: float = 0.0
    max_rel: float = 0.0
    excess: float = 0.0
    mismatched: int = 0
    nans: int = 0
    largest: float = 0.0
    worst: int = 0  # flat index
    sum_abs: float = 0.0
    not_allclose: int = 0
    dots: tuple[float, float, float] = (0.0, 0.0, 0.0)  # expected · actual, and each with itself
    histogram: list[int] = field(default_factory=lambda: [0] * (len(EDGES) + 2))

    @property
    def cosine(self) -> float:
        both, one, other = self.dots
        if not one or not other:
            return float(one == other)
        return max(-1.0, min(1.0, both / (one**0.5 * other**0.5)))

    def count(self, difference: np.ndarray, equal: int) -> None:
        """Add to the histogram: differences, and how many further elements are equal."""
        self.histogram[0] += equal + int(np.count_nonzero(difference == 0))
        before = int(np.count_nonzero(difference == 0))
        for place, edge in enumerate(EDGES, 1):
            below = int(np.count_nonzero(difference < edge))
            self.histogram[place] += below - before
            before = below
        self.histogram[-1] += difference.size - before

    def turn(self, left: np.ndarray, right: np.ndarray) -> None:
        """Add to what the cosine is made of."""
        finite = np.isfinite(left) & np.isfinite(right)
        if not finite.all():
            left, right = left[finite], right[finite]
        parts = (np.vdot(left, right), np.vdot(left, left), np.vdot(right, right))
        self.dots = tuple(a + float(b.real) for a, b in zip(self.dots, parts, strict=True))  # type: ignore[assignment]


def _float_block(figures: _Figures, start: int, expected: np.ndarray, actual: np.ndarray, tolerance: Tolerance) -> None:
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    # Casting to float64 overflows nowhere, but inf - inf, 1e308 + 1e308 and 0 / 0 would warn.
    with np.errstate(all="ignore"):
        left, right = expected.astype(wide), actual.astype(wide)
        both_nan = np.isnan(left) & np.isnan(right)
        difference = np.abs(right - left)
        difference[(left == right) | both_nan] = 0.0
        # What is left of NaN here is a number against NaN or infinity: no tolerance covers that.
        difference[np.isnan(difference)] = np.inf
        infinite = np.isinf(difference)
        size = np.abs(left)
        relative = np.divide(difference, size, out=np.zeros_like(difference), where=size > 0)
        relative[infinite] = np.inf
        excess = np.where(difference > 0, difference / (tolerance.atol + tolerance.rtol * size), 0.0)
        excess[infinite] = np.inf
    worst = int(excess.argmax())
    if excess[worst] > figures.excess:
        figures.excess, figures.worst = float(excess[worst]), start + worst
    figures.max_abs = max(figures.max_abs, float(difference.max()))
    figures.max_rel = max(figures.max_rel, float(relative.max()))
    figures.mismatched += int(np.count_nonzero(excess > 1))
    figures.nans += int(np.count_nonzero(both_nan))
    figures.largest = max(figures.largest, float(size.max(initial=0.0, where=np.isfinite(size))))
    figures.sum_abs += float(difference.sum())
    finite = np.where(np.isfinite(size) & ~infinite, size, 0.0)
    figures.not_allclose += int(np.count_nonzero(difference > ATOL + RTOL * finite))
    figures.count(difference, 0)
    with np.errstate(all="ignore"):
        figures.turn(left, right)


def _exact_block(figures: _Figures, start: int, expected: np.ndarray, actual: np.ndarray, tolerance: Tolerance) -> None:
    if dtype_name(expected.dtype) == "string":
        expected, actual = expected.astype(object), actual.astype(object)
    # Compared in the dtype itself: float64 cannot tell large int64 values apart.
    places = np.flatnonzero(expected != actual)
    if expected.dtype.kind != "O":
        wide = expected.astype(np.float64)
        figures.largest = max(figures.largest, float(np.abs(wide).max(initial=0.0)))
        figures.turn(wide, actual.astype(np.float64))
    if not places.size:
        figures.count(np.empty(0), expected.size)
        return
    left, right = expected[places], actual[places]
    if left.dtype.kind == "O":
        difference = relative = np.full(places.size, np.inf)
    else:
        difference, size = _integer_distance(left, right), np.abs(left.astype(np.float64))
        relative = np.divide(difference, size, out=np.zeros_like(difference), where=size > 0)
    figures.sum_abs += float(difference.sum())
    figures.not_allclose += int(np.count_nonzero(difference > ATOL + RTOL * np.abs(_wide(left))))
    figures.count(difference, expected.size - places.size)
    worst = int(difference.argmax())
    if difference[worst] > figures.max_abs:
        figures.max_abs, figures.worst = float(difference[worst]), start + int(places[worst])
    figures.max_rel = max(figures.max_rel, float(relative.max()))
    figures.excess = float("inf")
    figures.mismatched += places.size


def _wide(values: np.ndarray) -> np.ndarray:
    """Numbers as float64; texts have no size."""
    return np.zeros(values.size) if values.dtype.kind == "O" else values.astype(np.float64)


def _integer_distance(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``|left - right|`` without overflow: as unsigned numbers the difference always fits."""
    if left.dtype != np.uint64:
        left, right = left.astype(np.int64), right.astype(np.int64)
    high, low = np.maximum(left, right).astype(np.uint64), np.minimum(left, right).astype(np.uint64)
    distance: np.ndarray = (high - low).astype(np.float64)
    return distance


def _reason(figures: _Figures, expected: np.ndarray, actual: np.ndarray, tolerance: Tolerance) -> str:
    place = tuple(int(i) for i in np.unravel_index(figures.worst, expected.shape))
    verb = "differ" if tolerance is EXACT else "are out of tolerance"
    return (
        f"{figures.mismatched} of {expected.size} elements {verb} ({tolerance}); "
        f"worst at {list(place)}: {_show(expected[place])} in the model, {_show(actual[place])} in the file"
    )


def _show(value: Any) -> str:
    """A number short enough for one line, with enough digits to see a small difference."""
    if isinstance(value, str | bytes):
        return repr(value)[:60]
    if np.iscomplexobj(value) or np.asarray(value).dtype.kind in "biu":
        return str(value)
    return f"{float(value):.6g}"
