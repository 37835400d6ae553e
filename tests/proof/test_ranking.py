"""Rows of equal scores: neither refused for their order, nor passed for wrong rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import tonnx
from tonnx.proof.compare import Comparison, compare
from tonnx.proof.trials.ranking import Ranked, _matched, in_order

BOXES = np.arange(20, dtype=np.float32).reshape(5, 4)
SCORES = np.array([0.9, 0.7, 0.7, 0.7, 0.2], np.float32)
SWAPPED = [0, 3, 1, 2, 4]  # among those of equal scores
CLASSES = np.array([3, 1, 4, 1, 5])
MASKED = np.array([0.9, -np.inf, -np.inf, -np.inf, -np.inf], np.float32)


def judged(wanted: Sequence[np.ndarray], got: Sequence[np.ndarray], reorders: bool = False) -> list[Comparison]:
    pairs = [compare(f"y{i}", want, have) for i, (want, have) in enumerate(zip(wanted, got, strict=True))]
    return in_order(
        wanted, got, pairs, range(len(wanted)), lambda i, rows: compare(f"y{i}", wanted[i], rows), lambda _: reorders
    )


@pytest.mark.parametrize(
    "wanted, got, reorders, ok",
    [
        pytest.param([BOXES, SCORES], [BOXES[SWAPPED], SCORES], False, True, id="equal scores, another order"),
        pytest.param([BOXES, SCORES, CLASSES], [BOXES[SWAPPED], SCORES, CLASSES[SWAPPED]], False, True, id="three"),
        pytest.param([BOXES, SCORES, CLASSES], [BOXES[SWAPPED], SCORES, CLASSES], False, False, id="classes of others"),
        pytest.param([BOXES, SCORES], [BOXES[[0, 1, 1, 2, 4]], SCORES], False, False, id="a box twice, one missing"),
        pytest.param([BOXES, SCORES], [BOXES[[4, 1, 2, 3, 0]], SCORES], False, False, id="boxes without their scores"),
        pytest.param([BOXES, SCORES], [BOXES[[1, 0, 2, 3, 4]] + 0.5, SCORES], False, False, id="other boxes"),
        pytest.param([BOXES, MASKED], [BOXES[SWAPPED], MASKED], False, True, id="equal scores of minus infinity"),
        pytest.param([BOXES], [BOXES[SWAPPED]], False, False, id="no scores to see"),
        pytest.param([BOXES], [BOXES[SWAPPED]], True, True, id="no scores, and the model itself reorders them"),
        pytest.param(
            [np.stack([BOXES, BOXES + 9]), np.stack([SCORES, SCORES])],
            [np.stack([BOXES[SWAPPED], BOXES + 9]), np.stack([SCORES, SCORES])],
            False,
            True,
            id="of a batch",
        ),
        pytest.param(
            [np.stack([BOXES, BOXES + 9]), np.stack([SCORES, SCORES])],
            [np.stack([BOXES + 9, BOXES]), np.stack([SCORES, SCORES])],
            False,
            False,
            id="pictures exchanged",
        ),
        pytest.param(
            [np.concatenate([BOXES, SCORES[:, None]], 1)],
            [np.concatenate([BOXES[SWAPPED], SCORES[:, None]], 1)],
            False,
            True,
            id="scores as a column",
        ),
    ],
)
def test_rows_of_equal_scores(
    wanted: Sequence[np.ndarray], got: Sequence[np.ndarray], reorders: bool, ok: bool
) -> None:
    settled = judged(wanted, got, reorders)
    assert all(one.ok for one in settled) is ok
    assert any(one.reordered for one in settled) is ok


def chooser() -> bytes:
    """The places of the three largest of x, and x itself."""
    graph = helper.make_graph(
        [
            helper.make_node("TopK", ["x", "k"], ["values", "places"]),
            helper.make_node("Identity", ["x"], ["y"]),
        ],
        "chooser",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [
            helper.make_tensor_value_info("places", TensorProto.INT64, [3]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"]),
        ],
        [helper.make_tensor("k", TensorProto.INT64, [1], [3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    "scores, name, hangs",
    [
        pytest.param(np.ones(50, np.float32), "places", True, id="equal scores"),
        pytest.param(np.arange(50, dtype=np.float32), "places", False, id="scores that differ"),
        pytest.param(np.ones(50, np.float32), "y", False, id="an output that is not ranked"),
        pytest.param(np.float32([3, 2, *[0] * 48]), "places", True, id="any of several zeros"),
        pytest.param(np.float32([3, 2, 1, *[0] * 47]), "places", False, id="a place that no zero comes to"),
    ],
)
def test_rows_that_hang_on_the_last_bits_of_scores(scores: np.ndarray, name: str, hangs: bool) -> None:
    ranked = Ranked(chooser())
    assert ranked.outputs == {"places"}
    want, have = np.array([0, 1, 9]), np.array([0, 1, 2])
    failed = [(compare(name, want, have), want)]
    assert ranked.hangs_on_last_bits({"x": scores}, failed, {name: have}) is hangs


def test_more_rows_than_python_recurses() -> None:
    partner = _matched([list(range(1100))] * 1100)
    assert partner is not None and sorted(partner) == list(range(1100))
    assert _matched([[0], [0]]) is None


def test_scores_of_half_precision() -> None:
    """Of two that are one step of theirs apart, either may be the larger one for another way of adding up."""
    chosen = onnx.load_from_string(chooser())
    for value in (chosen.graph.input[0], chosen.graph.output[1]):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    ranked, have = Ranked(chosen.SerializeToString()), np.array([0, 1, 2])
    want = np.array([0, 1, 3])
    failed = [(compare("places", want, have), want)]
    for third, hangs in ((1.001, True), (1.25, False)):
        scores = np.array([4, 3, third, 1, *[0] * 46], np.float16)
        assert ranked.hangs_on_last_bits({"x": scores}, failed, {"places": have}) is hangs


def test_fewer_peaks_than_places() -> None:
    """Of the zeros of a map, any may be among the best: the framework and the file choose others."""

    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores, places = torch.topk(torch.relu(x).flatten(1), 8)
        return scores, torch.stack([places % x.shape[2], places // x.shape[2]], -1).float()

    x = -torch.rand(2, 6, 7)
    x[:, 2, 3], x[:, 4, 1] = 2.0, 1.0
    result = tonnx.export(model, (x,), dynamic_axes={"x": {0: "b", 2: "w"}})
    assert result.verification is not None and result.verification.ok and not result.verification.only_example
