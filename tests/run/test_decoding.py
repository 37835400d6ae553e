"""Tokens from scores: a decoder whose next scores depend on the last two tokens, and what must come of it."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tonnx.errors import InvalidArgument
from tonnx.run.decoding import Asked, Decoder, Prompts, decode, padded

VOCABULARY = 6
TABLE = np.random.default_rng(3).standard_normal((VOCABULARY, VOCABULARY, VOCABULARY)) * 2
END = 5


class Pairs:
    """Scores by the last two tokens; its state is the last one. Padding does not count."""

    def start(self, batch: int, context: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"last": np.zeros(batch, np.int64)}

    def reordered(self, state: dict[str, np.ndarray], order: Any) -> dict[str, np.ndarray]:
        return {"last": state["last"][order]}

    def step(self, ids: np.ndarray, mask: np.ndarray, state: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        last, before = state["last"], state["last"]
        for place, column in enumerate(ids.T):
            here = mask[:, mask.shape[1] - ids.shape[1] + place] > 0
            before, last = np.where(here, last, before), np.where(here, column, last)
        return TABLE[before, last], {"last": last}


def scores_of(row: list[int]) -> np.ndarray:
    padded_row = [0, *row]
    return TABLE[padded_row[-2], padded_row[-1]]


def log_probability(row: list[int], tokens: tuple[int, ...]) -> float:
    total, so_far = 0.0, list(row)
    for token in tokens:
        scores = scores_of(so_far)
        total += scores[token] - np.log(np.exp(scores).sum())
        so_far.append(token)
    return float(total)


def test_greedy_with_prompts_of_several_lengths() -> None:
    rows = [[1, 2, 3], [4], [2, 2]]
    results = decode(Pairs(), Prompts(rows, [END]), Asked(max_new_tokens=8))  # type: ignore[arg-type]
    for row, result in zip(rows, results, strict=True):
        so_far = list(row)
        for token in result:
            assert token == scores_of(so_far).argmax()
            so_far.append(token)
        assert len(result) == 8 or (result[-1] == END and END not in result[:-1])


@pytest.mark.parametrize("row", [[1, 2], [3, 4], [0]])
def test_enough_beams_find_the_likeliest(row: list[int]) -> None:
    asked = Asked(max_new_tokens=3, num_beams=VOCABULARY**2)
    (result,) = decode(Pairs(), Prompts([row]), asked)  # type: ignore[arg-type]
    best = max(product(range(VOCABULARY), repeat=3), key=lambda tokens: log_probability(row, tokens))
    assert tuple(result) == best


def test_beams_end_at_an_end_token() -> None:
    asked = Asked(max_new_tokens=6, num_beams=4, length_penalty=0.0)
    (result,) = decode(Pairs(), Prompts([[1]], range(VOCABULARY)), asked)  # type: ignore[arg-type]
    assert result == [int(scores_of([1]).argmax())]


@pytest.mark.parametrize(
    ("options", "allowed"),
    [({"top_k": 2}, 2), ({"top_p": 1e-6}, 1), ({"temperature": 1e-3}, 1), ({}, VOCABULARY)],
    ids=["top_k", "top_p", "cold", "all"],
)
def test_drawn_tokens_are_among_the_likeliest(options: dict[str, Any], allowed: int) -> None:
    likeliest = set(np.argsort(-scores_of([2, 3]))[:allowed].tolist())
    drawn = set()
    for seed in range(200):
        asked = Asked(max_new_tokens=1, do_sample=True, seed=seed, **options)
        drawn |= set(decode(Pairs(), Prompts([[2, 3]]), asked)[0])  # type: ignore[arg-type]
    assert drawn <= likeliest and (len(drawn) > 1 or allowed == 1)


def test_a_seed_repeats_the_draws() -> None:
    one, other = (
        decode(Pairs(), Prompts([[1], [2, 3]]), Asked(max_new_tokens=9, do_sample=True, seed=4))
        for _ in range(2)  # type: ignore[arg-type]
    )
    assert one == other


@pytest.mark.parametrize(
    "options",
    [{"max_new_tokens": 0}, {"temperature": 0.0}, {"top_k": -1}, {"top_p": 0.0}, {"num_beams": 0},
     {"num_beams": 2, "do_sample": True}],
)  # fmt: skip
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Asked(**options)


def test_padding_is_in_front() -> None:
    ids, mask = padded([[7, 8, 9], [5]])
    assert ids.tolist() == [[7, 8, 9], [0, 0, 5]] and mask.tolist() == [[1, 1, 1], [0, 0, 1]]


class Counting:
    """A session with sums of tokens for each text, along an axis that is not the first, and a count of all steps."""

    inputs = dict.fromkeys(("input_ids", "sums", "count"), "tensor(int64)")
    shapes = {"input_ids": ["batch", 1], "sums": [1, "batch"], "count": [1]}  # noqa: RUF012

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        sums = feeds["sums"] + feeds["input_ids"].T
        scores = np.zeros((sums.shape[1], 1, VOCABULARY))
        return {"logits": scores, "sums_after": sums, "count_after": feeds["count"] + 1}


def test_parts_of_a_state_that_all_texts_share() -> None:
    manifest = {"one_token": True, "state": {"sums": "sums_after", "count": "count_after"}}
    decoder = Decoder(Counting(), manifest)  # type: ignore[arg-type]
    ids, mask = np.array([[1, 2], [9, 4], [9, 5]]), np.array([[1, 1], [0, 1], [0, 1]])
    _, state = decoder.step(ids, mask, decoder.start(3))
    assert state["sums"].tolist() == [[3, 4, 5]] and state["count"].tolist() == [2]
    moved = decoder.reordered(state, [2, 2])
    assert moved["sums"].tolist() == [[5, 5]] and moved["count"].tolist() == [2]
