"""Differences at invented values that prove nothing, and those that do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

from tonnx.proof.compare import compare
from tonnx.proof.subject import Subject
from tonnx.proof.trials.prove import prove
from tonnx.proof.trials.values import doubt, is_sensitive, rounding_decides

SCORES = np.array([[-1.0, -2.0]], np.float32)
TOKENS = np.arange(20).reshape(1, 20)


def changed(array: np.ndarray, count: int) -> np.ndarray:
    other = array.copy()
    other.reshape(-1)[:count] += 1
    return other


@pytest.mark.parametrize(
    "got, far, is_doubt",
    [
        ((changed(TOKENS, 2), SCORES), True, True),  # equal scores, ranked in another way
        ((changed(TOKENS, 2), SCORES), False, False),  # but not at values near the example's
        ((changed(TOKENS, 12), SCORES), True, False),  # most of the tokens
        ((changed(TOKENS, 2), SCORES + 1), True, False),  # and other scores
        ((TOKENS[:, :5], SCORES), True, False),  # and other shapes
    ],
)
def test_few_integers_beside_equal_floats(got: Sequence[np.ndarray], far: bool, is_doubt: bool) -> None:
    wanted = (TOKENS, SCORES)
    comparisons = [compare(f"y{i}", want, found) for i, (want, found) in enumerate(zip(wanted, got, strict=True))]
    inputs = {"x": np.ones((1, 3), np.float32)}
    found = doubt(lambda given: wanted, inputs, wanted, None, comparisons, far)
    assert (found is not None) == is_doubt, found


def test_a_model_that_fails_a_rounding_away_says_why() -> None:
    def brittle(given: dict[str, np.ndarray]) -> list[np.ndarray]:
        if not np.array_equal(given["x"], np.ones(3, np.float32)):
            raise ValueError("only ones are taken")
        return [given["x"]]

    ones = np.ones(3, np.float32)
    comparison = compare("y", ones, ones + 1)
    why = doubt(brittle, {"x": ones}, [ones], None, [comparison])
    assert why == "the model itself fails a rounding away from them (ValueError: only ones are taken)"


@pytest.mark.parametrize(
    "gain, error, sensitive",
    [
        (1e5, 1e-2, True),  # rounding its inputs changes the model's own results by as much
        (1e5, 1.0, False),  # but not by as much as the file's differ
        (1.0, 1e-2, False),  # and this model is calm
    ],
)
def test_the_example_is_excused_for_rounding_only(gain: float, error: float, sensitive: bool) -> None:
    def model(inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [np.append(np.float32(gain) * (inputs["x"] - 1), np.float32(100))]

    inputs = {"x": np.linspace(1, 1.0001, 20, dtype=np.float32)}
    wanted = model(inputs)
    got = wanted[0].copy()
    got[3] += error
    assert is_sensitive(model, inputs, wanted, [compare("y", wanted[0], got)]) is sensitive


@pytest.mark.parametrize(("asked", "is_right"), [(None, True), (0.0, False)])
def test_rounding_excuses_nothing_beyond_a_tolerance_of_the_users(asked: float | None, is_right: bool) -> None:
    """A front end has tolerances of its own: those are no reason to refuse a file for a sensitive model."""
    file = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]> m (float[20] x) => (float[20] y)
        <float one = {1.0}, float gain = {100000.0}, float error = {0.01}>
        { near = Sub(x, one)
          large = Mul(near, gain)
          y = Add(large, error) }""")
    x = np.append(np.linspace(1, 1.0001, 19, dtype=np.float32), np.float32(1.001))
    subject = Subject(lambda arrays: [np.float32(1e5) * (arrays["x"] - 1)], {"x": x}, ["y"], rtol=0.0)
    assert prove(file.SerializeToString(), subject.within(asked, None)).ok is is_right


@pytest.mark.parametrize(
    "moves, wide, file, places, decides",
    [
        (0.02, None, 0.03, 1, True),  # rounding moves the model's own results as far
        (0.012, 0.02, 0.03, 1, True),  # or float64 does, and rounding shows that it may
        (0.02, None, 0.2, 1, False),  # but here the file is much farther
        (0.02, 0.02, 0.03, 20, False),  # and here in many more places
        (0.0, 0.02, 0.03, 1, False),  # rounding decides nothing: float64 takes another way
        (0.0, None, 0.03, 1, False),
        (2.0, 2.0, 2.0, 1, False),  # too much to be told from another result
    ],
)
def test_a_file_may_be_as_far_from_the_model_as_its_roundings_are(
    moves: float, wide: float | None, file: float, places: int, decides: bool
) -> None:
    model = np.full(100, 10, np.float32)

    def moved(by: float, count: int = 1) -> np.ndarray:
        other = model.copy()
        other[:count] += by
        return other

    in_float64 = None if wide is None else [moved(wide).astype(np.float64)]
    comparison = compare("y", model, moved(file, places))
    assert rounding_decides([[model], [moved(moves)]], in_float64, [model], [comparison]) is decides
