"""From a decoder's scores to tokens: greedy, drawn, or by beams. Plain numpy around one ONNX file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tonnx.errors import InvalidArgument
from tonnx.proof.session import Session, numpy_dtype
from tonnx.run.rules import Rules

State = dict[str, np.ndarray]
EMBEDDINGS, FEATURES = "inputs_embeds", "image_features"
"""What a decoder reads in the place of tokens, and the rows of pictures that take the places of some."""
NO_TOKEN = -1
"""In the place of the token for pictures, where a model has none."""
PLACES, DEEP = "visual_pos_masks", "deepstack_features_"
"""Which tokens are of pictures, and the rows that a layer of the decoder adds to theirs; its number comes after it."""


@dataclass(frozen=True)
class Asked:
    """How tokens are chosen, and how many."""

    max_new_tokens: int = 64
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    num_beams: int = 1
    length_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        wrong = [
            ("max_new_tokens", self.max_new_tokens >= 1, "at least 1"),
            ("temperature", self.temperature > 0, "above 0"),
            ("top_k", self.top_k >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("num_beams", self.num_beams >= 1, "at least 1"),
        ]
        for name, is_right, wanted in wrong:
            if not is_right:
                raise InvalidArgument(f"{name} must be {wanted}, not {getattr(self, name)}")
        if self.do_sample and self.num_beams > 1:
            raise InvalidArgument("beams are not drawn", hint="give do_sample or num_beams")


@dataclass(frozen=True)
class Prompts:
    """What a decoder is given, and what is known of the tokens to come."""

    rows: Sequence[Sequence[int]]
    ends: Sequence[int] = ()
    rules: Rules = field(default_factory=Rules)
    context: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What an encoder made, by the names of the decoder's inputs: a row for each prompt."""

    def one(self, place: int, copies: int) -> Prompts:
        """One of the prompts, several times."""
        context = {name: np.repeat(array[place : place + 1], copies, axis=0) for name, array in self.context.items()}
        return Prompts([self.rows[place]] * copies, self.ends, self.rules, context)


class Decoder:
    """A file that takes tokens and a state, and gives scores and the next state."""

    def __init__(self, session: Session, manifest: Mapping[str, Any], embedding: Session | None = None) -> None:
        self._session, self._embedding = session, embedding
        self._picture_token = manifest.get("image_token")
        self._deep = sum(name.startswith(DEEP) for name in session.inputs)
        self._offsets: dict[str, Any] | None = manifest.get("positions")
        self._types: dict[str, Any] = manifest.get("token_types", {})
        self._seeing: dict[str, Any] = manifest.get("seeing", {})
        self._handed_on: dict[str, str] = dict(manifest.get("state", {}))
        self._one_token = bool(manifest.get("one_token"))
        self._one_text_after_past = bool(manifest.get("one_text_after_past"))
        self._first_position = int(manifest.get("first_position", 0))
        self.whole_text = bool(manifest.get("whole_text"))
        """Whether the file has no state, and is given all tokens at every step."""

    @property
    def inputs(self) -> Mapping[str, str]:
        return self._session.inputs

    def start(self, batch: int, context: Mapping[str, np.ndarray] | None = None) -> State:
        """The state before the first token, and what stays the same in every step."""
        kept = ["input_ids"] if self.whole_text else self._handed_on
        return {**{name: self._empty(name, batch) for name in kept}, **(context or {})}

    def reordered(self, state: State, order: Sequence[int]) -> State:
        """The state of other rows: each is one of these."""
        axes = {name: self._axis_of_texts(name) for name in state}
        return {
            name: array if (axis := axes[name]) is None else np.take(array, order, axis)
            for name, array in state.items()
        }

    def _axis_of_texts(self, name: str) -> int | None:
        """Along which axis a part of the state has one of each text; None: it is the same for all, as a count is."""
        shape = list(self._session.shapes.get(name, ["batch"]))
        return shape.index("batch") if "batch" in shape else None

    def _empty(self, name: str, batch: int) -> np.ndarray:
        sizes = {"batch": batch, "past": 0, "encoder_past": 0, "sequence": 0}
        named = self._session.shapes[name]
        shape = [sizes.get(dim, 1) if isinstance(dim, str) else 1 if dim is None else dim for dim in named]
        return np.zeros(shape, numpy_dtype(self._session.inputs[name]) or np.float32)

    def embedded(self, ids: np.ndarray, features: np.ndarray | None = None) -> State:
        """Tokens as vectors, and what else is looked up of them; pictures have the next rows of ``features``."""
        assert self._embedding is not None
        found = self._embedding.run({"input_ids": ids.astype(np.int64)})
        if features is not None:
            vectors = found[EMBEDDINGS]
            for vector, place, rows in zip(vectors, self._places(ids, features), features, strict=True):
                vector[place] = rows[: place.sum(), : vectors.shape[-1]]
        return found

    def _places(self, ids: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Which tokens are of pictures: one that was generated stands for none."""
        of_pictures = ids == self._picture_token
        return of_pictures & (np.cumsum(of_pictures, axis=1) <= features.shape[1])

    def _deep_rows(self, ids: np.ndarray, width: int, features: np.ndarray | None) -> State:
        """What layers of the decoder add to each token: the further columns of a picture's rows."""
        if features is None:
            features = np.zeros((len(ids), 0, width * (1 + self._deep)), np.float32)
        places = self._places(ids, features)
        added = np.zeros((*ids.shape, width * self._deep), features.dtype)
        for new, place, rows in zip(added, places, features, strict=True):
            new[place] = rows[: place.sum(), width:]
        layers = np.split(added, self._deep, axis=-1)
        return {PLACES: places, **{f"{DEEP}{layer}": part for layer, part in enumerate(layers)}}

    def step(self, ids: np.ndarray, mask: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        """Scores after the last of some more tokens, and the state. ``mask`` is of all tokens up to them."""
        is_split = self._one_token or (self._one_text_after_past and len(ids) > 1 and mask.shape[1] > ids.shape[1])
        feeds = self._feeds(ids, mask, state)
        if FEATURES in state:  # every text has as many pictures
            state = state | {FEATURES: state[FEATURES][:, int((ids[0] == self._picture_token).sum()) :]}
        if not is_split or ids.shape[1] == 1:
            return self._run(feeds, state)
        scores, first = np.empty(0), mask.shape[1] - ids.shape[1]
        for place in range(ids.shape[1]):
            here = mask[:, first + place] > 0
            new_scores, after = self._run(_part(feeds, place, first), state)
            # A recurrent state does not move with padding; one that grows has the mask.
            state = {
                name: _chosen(here, after[name], array, axis)
                if after[name].shape == array.shape != (0,) and (axis := self._axis_of_texts(name)) is not None
                else after[name]
                for name, array in state.items()
            }
            scores = new_scores if not scores.size else _chosen(here, new_scores, scores)
        return scores, state

    def _feeds(self, ids: np.ndarray, mask: np.ndarray, state: State) -> State:
        """What the file is given beside the state."""
        if self.whole_text:
            ids = np.concatenate([state["input_ids"], ids], axis=1)
        length, new = mask.shape[1], ids.shape[1]
        known = {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": self.positions(ids, mask, FEATURES in state),
            "cache_position": np.arange(length - new, length) + self._first_position,
        }
        if self._types:
            of_pictures = (ids == self._picture_token) & (FEATURES in state)
            prompt = np.where(of_pictures, self._types["picture"], self._types["text"])
            known[self._types["name"]] = prompt if length == new else np.full_like(ids, self._types["new"])
        for name, pattern in self._seeing.items():
            part = np.asarray(pattern)
            known[name] = self._sees(ids, length > new).reshape(*ids.shape, *[1] * part.ndim) * part
        feeds = {name: known[name].astype(np.int64) for name in known if name in self._session.inputs}
        if self._embedding is not None:
            feeds |= self.embedded(ids, state.get(FEATURES))
            if self._deep:
                feeds |= self._deep_rows(ids, feeds[EMBEDDINGS].shape[-1], state.get(FEATURES))
        return feeds

    def _sees(self, ids: np.ndarray, has_past: bool) -> np.ndarray:
        """Which tokens see a picture that is read before the text: those from its token on."""
        if self._picture_token == NO_TOKEN:
            return np.ones_like(ids)
        after = np.cumsum(ids == self._picture_token, axis=1) > 0
        return after | (~after.any(axis=1, keepdims=True) if has_past else False)

    def positions(self, ids: np.ndarray, mask: np.ndarray, sees: bool = False) -> np.ndarray:
        """The positions of tokens: those of a picture may lie on a grid, and those after it be nearer than they are."""
        counted = np.maximum(np.cumsum(mask, axis=1) - 1, 0)[:, mask.shape[1] - ids.shape[1] :]
        if self._offsets is None:
            return counted
        first, grid, after = (np.asarray(self._offsets[name]) for name in ("first", "picture", "after"))
        moving = np.asarray(self._offsets.get("moving", 1))  # where 0, a position does not depend on where it begins
        result = counted[None] + (after if sees else first)[:, None, None]
        for row, places in enumerate(map(np.flatnonzero, ids == self._picture_token) if sees else ()):
            if len(places) >= grid.shape[1]:
                start, end = places[0], places[0] + grid.shape[1]
                result[:, row, :start] = counted[row, :start] + first[:, None]
                result[:, row, start:end] = counted[row, start] * moving + grid
        return result if len(self._session.shapes["position_ids"]) > 2 else result[0]

    def _run(self, feeds: State, state: State) -> tuple[np.ndarray, State]:
        feeds = {name: array[feeds[PLACES]] if name.startswith(DEEP) else array for name, array in feeds.items()}
        outputs = self._session.run({n: array for n, array in state.items() if n in self._session.inputs} | feeds)
        handed_on = {name: outputs[after] for name, after in self._handed_on.items()}
        if self.whole_text:
            handed_on["input_ids"] = feeds["input_ids"]
        return outputs["logits"][:, -1], state | handed_on


def _part(feeds: State, place: int, first: int) -> State:
    """What of it is for one of the tokens; ``first`` came before all of them."""
    part = {}
    for name, array in feeds.items():
        axis = 1 if array.dtype.kind == "f" else array.ndim - 1  # vectors, or numbers of tokens
        which = np.arange(first + place + 1) if name == "attention_mask" else np.array([place])
        part[name] = np.take(array, which, axis)
    return part


def _chosen(here: np.ndarray, new: np.ndarray, old: np.ndarray, axis: int = 0) -> np.ndarray:
    """The new values of some texts, the old ones of the others; ``axis`` is that of texts."""
    return np.where(np.expand_dims(here, [other for other in range(new.ndim) if other != axis]), new, old)


def decode(decoder: Decoder, prompts: Prompts, asked: Asked) -> list[list[int]]:
    """The tokens after each of some prompts, up to an end token."""
    if asked.num_beams > 1:
        return [_beams(decoder, prompts.one(place, asked.num_beams), asked) for place in range(len(prompts.rows))]
    results: list[list[int]] = [[] for _ in prompts.rows]
    for tokens in token_steps(decoder, prompts, asked):
        for result, token in zip(results, tokens, strict=True):
            result += [] if token is None else [token]
    return results


def token_steps(decoder: Decoder, prompts: Prompts, asked: Asked) -> Iterator[list[int | None]]:
    """One token for each prompt at a time; None after its end. Shorter prompts are padded in front."""
    rows, ends = [list(row) for row in prompts.rows], list(prompts.ends)
    ids, mask = padded(rows)
    rng = np.random.default_rng(asked.seed)
    scores, state = decoder.step(ids, mask, decoder.start(len(rows), prompts.context))
    running = np.ones(len(rows), bool)
    for count in range(asked.max_new_tokens):
        scores = prompts.rules.applied(scores, rows, ids.shape[1], count, asked.max_new_tokens, ends)
        tokens = _drawn(scores, asked, rng) if asked.do_sample else scores.argmax(-1)
        yield [int(token) if runs else None for token, runs in zip(tokens, running, strict=True)]
        running &= ~np.isin(tokens, ends)
        if not running.any() or count + 1 == asked.max_new_tokens:
            return
        rows = [[*row, int(token)] for row, token in zip(rows, tokens, strict=True)]
        mask = np.concatenate([mask, np.ones((len(rows), 1), np.int64)], axis=1)
        scores, state = decoder.step(tokens[:, None], mask, state)


def padded(
    rows: Sequence[Sequence[int]], *, in_front: bool = True, length: int = 0, token: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Texts of different lengths in one array, padded in front or at the end, and what of it are tokens."""
    longest = length or max(map(len, rows))
    ids, mask = np.full((len(rows), longest), token, np.int64), np.zeros((len(rows), longest), np.int64)
    for place, row in enumerate(rows):
        first = longest - len(row) if in_front else 0
        ids[place, first : first + len(row)] = row
        mask[place, first : first + len(row)] = 1
    return ids, mask


def _drawn(scores: np.ndarray, asked: Asked, rng: np.random.Generator) -> np.ndarray:
    logits = scores.astype(np.float64) / asked.temperature
    if 0 < asked.top_k < logits.shape[1]:
        lowest = np.partition(logits, -asked.top_k, axis=1)[:, -asked.top_k]
        logits[logits < lowest[:, None]] = -np.inf
    probabilities = np.exp(_log_softmax(logits))
    if asked.top_p < 1:
        order = np.argsort(-probabilities, axis=1, kind="stable")
        before = np.cumsum(np.take_along_axis(probabilities, order, 1), axis=1)
        before = np.concatenate([np.zeros((len(before), 1)), before[:, :-1]], axis=1)
        dropped = np.zeros_like(probabilities, bool)
        np.put_along_axis(dropped, order, before >= asked.top_p, axis=1)
        probabilities[dropped] = 0
        probabilities /= probabilities.sum(axis=1, keepdims=True)
    return np.array([rng.choice(len(row), p=row) for row in probabilities])


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def _beams(decoder: Decoder, prompts: Prompts, asked: Asked) -> list[int]:
    """One prompt by beams: candidates are ended by an end token, and ranked by their probability for their length."""
    count, ends, given = asked.num_beams, list(prompts.ends), list(prompts.rows[0])
    ids, mask = padded(prompts.rows)
    scores, state = decoder.step(ids, mask, decoder.start(count, prompts.context))
    totals = np.full(count, -1e9)
    totals[0] = 0.0  # all beams are the same at first
    beams: list[list[int]] = [[] for _ in range(count)]
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, asked.max_new_tokens + 1):
        rows = [given + beam for beam in beams]
        chances = _log_softmax(scores.astype(np.float64))
        chances = prompts.rules.applied(chances, rows, len(given), length - 1, asked.max_new_tokens, ends)
        candidates = (totals[:, None] + chances).reshape(-1)
        vocabulary = scores.shape[1]
        best = np.argsort(-candidates, kind="stable")[: count * (1 + max(1, len(ends)))]
        kept: list[tuple[int, int]] = []
        for rank, place in enumerate(best):
            beam, token = divmod(int(place), vocabulary)
            if token in ends:
                if rank < count:
                    finished.append((candidates[place] / length**asked.length_penalty, [*beams[beam], token]))
            elif len(kept) < count:
                kept.append((beam, token))
        if not kept:
            break
        totals = np.array([candidates[beam * vocabulary + token] for beam, token in kept])
        beams = [[*beams[beam], token] for beam, token in kept]
        finished = sorted(finished, key=lambda item: -item[0])[:count]
        if len(finished) == count and finished[-1][0] >= totals.max() / length**asked.length_penalty:
            break
        if length < asked.max_new_tokens:
            order = [beam for beam, _ in kept]
            state = decoder.reordered(state, order)
            mask = np.concatenate([mask[order], np.ones((len(kept), 1), np.int64)], axis=1)
            scores, state = decoder.step(np.array([[token] for _, token in kept]), mask, state)
    else:
        finished += [(total / length**asked.length_penalty, beam) for total, beam in zip(totals, beams, strict=True)]
    return max(finished, key=lambda item: item[0])[1]
