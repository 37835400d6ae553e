"""What generation_config.json says of tokens that must, may not or should not come. Plain numpy on scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Rules:
    """The settings that change scores before a token is chosen; their names and meanings are those of transformers."""

    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    bad_words_ids: Sequence[Sequence[int]] = ()
    min_length: int = 0
    min_new_tokens: int = 0
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | Sequence[int] | None = None
    suppress_tokens: Sequence[int] = ()
    begin_suppress_tokens: Sequence[int] = ()

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Rules:
        """Those of some settings; what is None there is not set."""
        return cls(**{name: settings[name] for name in RULES if settings.get(name) is not None})

    def applied(
        self, scores: np.ndarray, rows: Sequence[Sequence[int]], given: int, new: int, most: int, ends: Sequence[int]
    ) -> np.ndarray:
        """The scores of the next token of each row.

        ``rows`` are all tokens of the decoder so far. The longest prompt had ``given``, and ``new`` of at most ``most``
        came after it.
        """
        scores, length = np.array(scores), given + new
        for row, tokens in zip(scores, rows, strict=True):
            self._discourage(row, list(tokens))
        if length < self.min_length or new < self.min_new_tokens:
            _ban(scores, ends)
        if self.forced_bos_token_id is not None and length == 1:
            _force(scores, [self.forced_bos_token_id])
        if self.forced_eos_token_id is not None and new == most - 1:
            forced = self.forced_eos_token_id
            _force(scores, [forced] if isinstance(forced, int) else list(forced))
        _ban(scores, self.suppress_tokens)
        begins = given + 1 if self.forced_bos_token_id is not None and given == 1 else given
        if length == begins:
            _ban(scores, self.begin_suppress_tokens)
        return scores

    def _discourage(self, row: np.ndarray, tokens: list[int]) -> None:
        if self.repetition_penalty != 1.0:
            used = sorted(set(tokens))
            penalty = self.repetition_penalty
            row[used] = np.where(row[used] < 0, row[used] * penalty, row[used] / penalty)
        if (size := self.no_repeat_ngram_size) and len(tokens) + 1 >= size:
            tail = tokens[len(tokens) - size + 1 :]
            starts = range(len(tokens) - size + 1)
            row[[tokens[i + size - 1] for i in starts if tokens[i : i + size - 1] == tail]] = -np.inf
        for word in self.bad_words_ids:
            if len(word) - 1 <= len(tokens) and tokens[len(tokens) - len(word) + 1 :] == list(word[:-1]):
                row[word[-1]] = -np.inf


RULES = tuple(each.name for each in fields(Rules))


def _ban(scores: np.ndarray, tokens: Sequence[int]) -> None:
    scores[:, [token for token in tokens if token < scores.shape[1]]] = -np.inf  # settings may know larger vocabularies


def _force(scores: np.ndarray, tokens: list[int]) -> None:
    scores[:] = -np.inf
    scores[:, tokens] = 0.0
