"""Inputs with other values than the example's: what a file does there, its example does not tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tonnx.proof.compare import Comparison, compare
from tonnx.proof.session import one_line
from tonnx.proof.subject import Reference, copies
from tonnx.proof.trials.inputs import is_ordered, redraw

LARGE, HUGE = 10.0, 1000.0
"""How many times larger than the example's the large values are."""
WIDE = (4.0, 0.25, 16.0)
"""The same of draws that are made where there is time: what a bias hides shows there."""
MARGIN = 30.0
"""A difference is put down to rounding if rounding the inputs once makes one that is at most this much smaller."""
NARROW, RELATIVE = 3.0, 1e-3
"""The same for the example: at most so much smaller, and the difference is at most this part of the largest value."""
MOST = 1e-2
"""More than this part of the largest value is not put down to rounding in the example, whatever the model does."""
FAR = "huge values"
LOUD = ("large values", FAR)
"""The labels of what is beyond the example's range."""
WIDE_DRAW = ", wide"
"""How the label of a draw ends that `wide_values` has changed."""
ZEROS = "zeros"
"""The label of the trial in which all floats are zero: equal values have no order, so sorting is arbitrary there."""


def other_values(
    example: Mapping[str, np.ndarray], seed: int = 0, bold: bool = False
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """The example's shapes with other values, the most telling first: other draws; floats of other signs and scales.

    Integers and booleans are drawn from the example's range or stay what they are: they are ids, lengths and masks.
    ``bold``: floats that are all equal are taken for a place holder, not for a mask, and drawn too.
    """
    base = _mapped(example, lambda array: _varied(array, seed)) if bold else dict(example)
    real = any(is_float(array) for array in example.values())
    if any(base[name] is not array for name, array in example.items()):
        yield "random values", base
    yield from drawn_values(example, seed, 1)
    if real:
        yield "negative values", _mapped(base, _negative)
        if any((array < 0).any() for array in base.values() if is_float(array)):
            yield "positive values", _mapped(base, _positive)
        yield "large values", _mapped(base, lambda array: _scaled(array, LARGE))
        yield ZEROS, _mapped(base, lambda array: np.zeros_like(array))
    yield from drawn_values(example, seed, 2)
    if real:
        yield FAR, _mapped(base, lambda array: _scaled(array, HUGE))
        yield "small values", _mapped(base, lambda array: _scaled(array, 1 / HUGE))


def _varied(array: np.ndarray, seed: int) -> np.ndarray:
    """Normal values for an array whose values are all equal."""
    if array.size < 2 or not (array == array.reshape(-1)[0]).all():
        return array
    return np.random.default_rng([seed, array.size]).standard_normal(array.shape).astype(array.dtype)


def drawn_values(
    example: Mapping[str, np.ndarray], seed: int, number: int
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """The example's shapes with the draw of this number; nothing if that changes nothing."""
    drawn = {
        name: redraw(array, np.random.default_rng([seed, number, place]))
        for place, (name, array) in enumerate(example.items())
    }
    if any(not np.array_equal(drawn[name], array) for name, array in example.items()):
        yield f"seed {number}", drawn


def wide_values(
    example: Mapping[str, np.ndarray], seed: int, number: int
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """A draw with floats of another scale, and a row of zeros among whole numbers: where those are ids, it is padding.

    What is not drawn, such as positions, stays what it is.
    """

    def widened(array: np.ndarray, drawn: np.ndarray) -> np.ndarray:
        if np.array_equal(array, drawn):
            return drawn
        if is_float(drawn):
            return _scaled(drawn, WIDE[number % len(WIDE)])
        if drawn.dtype.kind in "iu" and drawn.ndim > 1 and array.min() == 0:  # else 0 may be none of its values
            drawn[number % len(drawn)] = 0
        return drawn

    for label, inputs in drawn_values(example, seed, number):
        yield f"{label}{WIDE_DRAW}", {name: widened(example[name], array) for name, array in inputs.items()}


def nudged(inputs: Mapping[str, np.ndarray], seed: int, finest: int = 22) -> dict[str, np.ndarray]:
    """The inputs with every float moved by about one rounding: by odd seeds the other way than by those before.

    ``finest`` are the bits of the finest rounding: float64 may be computed in float32.
    """
    rng, way = np.random.default_rng(seed // 2), -1.0 if seed % 2 else 1.0  # a branch has two sides

    def nudge(array: np.ndarray) -> np.ndarray:
        signs = rng.choice([-1.0, 1.0], array.shape) * way
        step = 2.0 ** -min(finest, {8: 51, 4: 22}.get(array.dtype.itemsize, 10))
        return np.asarray(array.astype(np.float64) * (1 + signs * step)).astype(array.dtype)

    return _mapped(inputs, nudge)


def doubt(
    reference: Reference,
    inputs: Mapping[str, np.ndarray],
    expected: Sequence[np.ndarray],
    usual: Sequence[np.ndarray] | None,
    comparisons: Sequence[Comparison],
    far: bool = False,
    rounded: Sequence[Reference] = (),
) -> str | None:
    """Why a failed comparison at invented values proves nothing; None if it does.

    The values may be far from those that the model is made for. Its results may not be finite there, or hang on the
    last bit of its inputs, or of sums inside it: a file that rounds elsewhere cannot give the same. ``usual`` are those
    on the example; ``far`` says that the values are very far from the example's; ``rounded`` is the model with its sums
    rounded otherwise.
    """
    for i, want in enumerate(expected):
        if not comparisons[i].ok and _overflows(want) and (usual is None or not _overflows(usual[i])):
            return "the model's own results overflow there, or nearly so"
    if far and _reordered(expected, comparisons):
        return "only a few integers differ there, and all floats agree: equal scores may be ranked in any way"
    open_ = {i for i, comparison in enumerate(comparisons) if not comparison.ok}
    try:
        for moved in own_results(reference, inputs, rounded=rounded):
            open_ = {i for i in open_ if not _explains(expected[i], moved[i], comparisons[i])}
            if not open_:
                return "rounding alone changes the model's own results there"
    except Exception as error:  # noqa: BLE001 (the user's own code, which took the values themselves)
        return f"the model itself fails a rounding away from them ({type(error).__name__}: {one_line(error, 80)})"
    return None


def own_results(
    reference: Reference, inputs: Mapping[str, np.ndarray], finest: int = 22, rounded: Sequence[Reference] = ()
) -> Iterator[Sequence[np.ndarray]]:
    """The model's results on inputs that are a rounding away, some times; then those with its sums rounded otherwise.

    Both are asked: zeros are the same a rounding away, but what a layer adds to them is not.
    """
    yield from (reference(nudged(inputs, number, finest)) for number in range(4))
    yield from rounded_results(rounded, inputs)


def rounded_results(rounded: Sequence[Reference], inputs: Mapping[str, np.ndarray]) -> list[Sequence[np.ndarray]]:
    """The model's results with its sums rounded otherwise; none where the way to do that does not serve for it."""
    try:
        return [model(copies(inputs)) for model in rounded]
    except Exception:  # noqa: BLE001 (the user's own code ran on these inputs: what fails is what watches its sums)
        return []


def _explains(expected: np.ndarray, moved: np.ndarray, here: Comparison) -> bool:
    """Whether the model's own results move by so much, if its inputs are rounded, that the file's may, too."""
    if moved.shape != expected.shape:
        return True
    own = compare(here.name, expected, moved, here.tolerance.rtol, here.tolerance.atol)
    return here.measured and (not own.ok or own.excess * MARGIN >= here.excess)


def is_sensitive(
    reference: Reference,
    inputs: Mapping[str, np.ndarray],
    expected: Sequence[np.ndarray],
    comparisons: Sequence[Comparison],
    rounded: Sequence[Reference] = (),
) -> bool:
    """Whether all that differs are floats, by a small part of the largest, and no more than rounding does.

    For the example, of which the user knows that the model is made for it: more is asked than in `doubt`.
    """
    failed = {i: comparison for i, comparison in enumerate(comparisons) if not comparison.ok}
    if not all(c.measured and is_float(expected[i]) and c.relative < RELATIVE for i, c in failed.items()):
        return False
    for moved in own_results(reference, inputs, finest=51, rounded=rounded):
        failed = {i: c for i, c in failed.items() if not _moves_as_much(expected[i], moved[i], c)}
    return not failed


def rounding_decides(
    rounded: Sequence[Sequence[np.ndarray]],
    wide: Sequence[np.ndarray] | None,
    expected: Sequence[np.ndarray],
    comparisons: Sequence[Comparison],
) -> bool:
    """Whether the model's own results are as far from each other, and in as many places, as the file's are from them.

    ``rounded`` are its results with its sums rounded otherwise, ``wide`` those in float64. Some of the first have to be
    beyond the tolerance: float64 alone could take another way through the model.
    """
    for i, here in enumerate(comparisons):
        if here.ok:
            continue
        if not here.measured or not is_float(expected[i]) or here.relative > MOST:
            return False
        tolerance = here.tolerance
        others = [results[i].astype(expected[i].dtype) for results in (*rounded, *([] if wide is None else [wide]))]
        own = [compare(here.name, expected[i], other, tolerance.rtol, tolerance.atol) for other in others]
        if all(each.ok for each in own[: len(rounded)]) or not any(
            each.excess * NARROW >= here.excess and each.mismatched * NARROW >= here.mismatched for each in own
        ):
            return False
    return True


def _moves_as_much(expected: np.ndarray, moved: np.ndarray, here: Comparison) -> bool:
    own = compare(here.name, expected, moved, here.tolerance.rtol, here.tolerance.atol)
    return own.measured and own.excess * NARROW >= here.excess


def _reordered(expected: Sequence[np.ndarray], comparisons: Sequence[Comparison]) -> bool:
    """Whether only a few integers differ, as positions and tokens do, beside floats that all agree.

    Values far from the example's saturate a network: beams and candidates with equal scores have no order.
    """
    if not any(is_float(want) and want.size for want in expected):
        return False
    failed = [(c, want) for c, want in zip(comparisons, expected, strict=True) if not c.ok]
    return all(c.measured and not is_float(want) and c.mismatched * 4 <= c.total for c, want in failed)


def _overflows(array: np.ndarray) -> bool:
    """Whether a result is beyond the range in which float32 can do anything with it."""
    if not is_float(array):
        return False
    wide = np.abs(array.astype(np.float64))
    return bool(array.size) and not bool((wide < 1e30).all())


def _mapped(example: Mapping[str, np.ndarray], change: object) -> dict[str, np.ndarray]:
    return {name: change(array) if is_float(array) else array for name, array in example.items()}  # type: ignore[operator]


def _negative(array: np.ndarray) -> np.ndarray:
    """Without negative zeros, which few models mean."""
    return array if is_ordered(array) else (-np.abs(array) + 0).astype(array.dtype)


def _positive(array: np.ndarray) -> np.ndarray:
    return array if is_ordered(array) else np.abs(array)


def _scaled(array: np.ndarray, factor: float) -> np.ndarray:
    if array.dtype.itemsize <= 2:  # halves overflow inside a network long before its outputs do
        factor = min(factor, 4.0)
    with np.errstate(over="ignore"):
        grown = (array.astype(np.float64) * factor).astype(array.dtype)
    return grown if np.isfinite(grown.astype(np.float64)).all() else array


def is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))
