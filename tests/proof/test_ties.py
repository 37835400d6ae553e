"""Sizes that belong together: a right file is not refused where they are taken apart, and no wrong one passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.proof.test_proof import FLOAT, model_bytes
from tonnx.proof.subject import Subject
from tonnx.proof.trials.prove import prove
from tonnx.proof.trials.ties import ties

Arrays = dict[str, np.ndarray]
EXAMPLE = {"past": np.arange(5.0, dtype=np.float32), "x": np.ones(3, np.float32) / 3, "mask": np.ones(8, np.float32)}
NAMES = {"past": "past", "x": "sequence", "mask": "total"}


def file(*shape: int) -> bytes:
    """Past and present in a row, plus the mask; perhaps with a shape that was fixed."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["row"], axis=0),
        helper.make_node("Add", ["row", "mask"], ["sum"]),
        helper.make_node("Reshape", ["sum", "shape"], ["y"]),
    ]
    inputs = {name: (FLOAT, [dim]) for name, dim in NAMES.items()}
    return model_bytes(nodes, inputs, {"y": (FLOAT, ["n"])}, {"shape": np.array(shape or [-1])})


def ignores_ones(arrays: Arrays) -> list[np.ndarray]:
    """Does not look at a mask that hides nothing, and fails with any other that is too short or too long."""
    row = np.concatenate([arrays["past"], arrays["x"]])
    return [row + 1 if (arrays["mask"] == 1).all() else row + arrays["mask"]]


def pads(arrays: Arrays) -> list[np.ndarray]:
    """Takes a mask of any length."""
    row = np.concatenate([arrays["past"], arrays["x"]])
    return [row + np.resize(np.append(arrays["mask"], np.zeros(99, np.float32)), row.shape)]


def no_shorter(arrays: Arrays) -> list[np.ndarray]:
    """Pads what is too short, and fails where it is too long."""
    row = np.concatenate([arrays["past"], arrays["x"]])
    if len(arrays["mask"]) > len(row):
        raise ValueError("too long")
    return pads(arrays)


def no_mask(arrays: Arrays) -> list[np.ndarray]:
    return [np.concatenate([arrays["past"], arrays["x"]]) + 1]


FAILS, DIFFERS = "elsewhere the model itself fails", "elsewhere the file does not do what the model does"


@pytest.mark.parametrize(
    ("model", "remark"),
    [(ignores_ones, FAILS), (pads, DIFFERS), (no_shorter, DIFFERS), (no_mask, DIFFERS)],
)
def test_right_where_sizes_are_together(model: Callable[[Arrays], Any], remark: str) -> None:
    dynamic = {name: {0: dim} for name, dim in NAMES.items()}
    verification = prove(file(), Subject(model, EXAMPLE, ["y"], dynamic))
    assert verification.ok, verification
    assert verification.remarks == (f"right where total = past + sequence; {remark}",)
    tried = [trial.sizes for trial in verification.trials if trial.comparisons]
    assert len({sizes["past"] for sizes in tried}) > 1 and len({sizes["sequence"] for sizes in tried}) > 1


@pytest.mark.parametrize("shape", [(8,), (5, -1)], ids=["fixed", "another rank"])
def test_a_wrong_file_is_still_wrong(shape: tuple[int, ...]) -> None:
    dynamic = {name: {0: dim} for name, dim in NAMES.items()}
    assert not prove(file(*shape), Subject(pads, EXAMPLE, ["y"], dynamic), check=False).ok


def test_a_size_that_is_said_to_be_a_sum_is_one_in_every_trial() -> None:
    dynamic = {"past": {0: "past"}, "x": {0: "sequence"}, "mask": {0: "past + sequence"}}
    verification = prove(file(), Subject(no_mask, EXAMPLE, ["y"], dynamic))
    assert verification.ok and not verification.remarks
    assert all(t.sizes["past + sequence"] == t.sizes["past"] + t.sizes["sequence"] for t in verification.trials)
    assert all(trial.skipped is None for trial in verification.trials) and len(verification.trials) > 5


def test_a_quotient_that_was_read_as_a_number_is_no_tie() -> None:
    """m = n * k in the example, and the file has the number 2 for m / n: right where m = 2 n."""
    example = {"a": np.ones(3, np.float32), "b": np.ones(2, np.float32), "x": np.arange(6, dtype=np.float32)}
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    inputs = {"a": (FLOAT, ["n"]), "b": (FLOAT, ["k"]), "x": (FLOAT, ["m"])}
    wrong = model_bytes([node], inputs, {"y": (FLOAT, ["n", "q"])}, {"shape": np.array([-1, 2])})
    dynamic = {"a": {0: "n"}, "b": {0: "k"}, "x": {0: "m"}}
    subject = Subject(lambda arrays: [arrays["x"].reshape(len(arrays["a"]), -1)], example, ["y"], dynamic)
    assert not prove(wrong, subject).ok


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ({"past": 5, "sequence": 3, "total": 8}, ["total = past + sequence"]),
        ({"n": 3, "k": 4, "m": 12}, ["m = n * k"]),
        ({"n": 3, "m": 6}, []),
        ({"batch": 2, "height": 7, "width": 6}, []),
    ],
)
def test_ties(dims: dict[str, int], expected: list[str]) -> None:
    assert [f"{total} = {expression.text}" for total, expression in ties(dims)] == expected
