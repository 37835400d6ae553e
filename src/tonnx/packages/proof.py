"""The proof of a package is its use: the tokens that it generates are those of the model."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from tonnx.errors import VerificationFailed
from tonnx.frontends.patching import Patch, patched
from tonnx.packages.decoder import WholeText, model_runs
from tonnx.packages.encoder import prove_encoder
from tonnx.packages.encoder_decoder import EncoderPart
from tonnx.packages.inputs import EXAMPLE, Preparation, call_of, takes_text
from tonnx.packages.pictures import Picture, decoder_of, generated
from tonnx.packages.pictures_ahead import PictureAhead, prove_ahead
from tonnx.packages.vision_language import prove_pictures, token_types
from tonnx.run.decoding import padded
from tonnx.run.package import Package
from tonnx.run.rules import RULES

PASTS = (0, 1, 7)
BATCHES = (1, 3)
LENGTH = 9
_RTOL, _ATOL = 1e-3, 1e-3
"""Scores are sums over the whole width: compared relative to the largest."""


@dataclass(frozen=True)
class PackageProof:
    """What was compared."""

    tokens: int
    """Greedy tokens for each prompt, all of them the model's."""
    ties: int
    """Places where two tokens are equally likely within rounding: what comes after is not compared."""
    scores: float
    """The largest difference of a score, as a part of the largest score."""
    encoder: float | None = None
    """The largest difference of what an encoder gives, as a part of the largest value."""
    apart: bool = False
    """Whether prompts were compared one by one: the model's own tokens depend on the other prompts, or on padding."""
    in_order: bool = False
    """Whether the model had to be asked to choose the first among equals, where PyTorch leaves open which it takes."""

    def __str__(self) -> str:
        tied = f" ({self.ties} prompts up to a tie)" if self.ties else ""
        encoder = "" if self.encoder is None else f"; encoder within {self.encoder:.2g}"
        encoder += "; prompts one by one, since in a batch the model's own tokens depend on the others" * self.apart
        encoder += "; where a top-k inside the model has equals, the first are taken" if self.in_order else ""
        return (
            f"[✓] {self.tokens} greedy tokens{tied} as the model's at batch {', '.join(map(str, BATCHES))}, "
            f"also with padding; scores after a past of {', '.join(map(str, PASTS))} within {self.scores:.2g}{encoder}"
        )


@dataclass(frozen=True)
class Question:
    """What both are asked: some tokens for the decoder, and what its encoder reads, if there is one."""

    rows: list[list[int]]
    read: Mapping[str, torch.Tensor] = field(default_factory=dict)
    picture: Picture | None = None
    """The same in every row."""
    kinds: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Of the rows' tokens, where the model is told which are of a picture."""

    def of(self, batch: int) -> Question:
        """The first of the rows, with what belongs to them."""
        if batch == len(self.rows):
            return self
        read, kinds = ({name: t[:batch] for name, t in part.items()} for part in (self.read, self.kinds))
        return Question(self.rows[:batch], read, self.picture, kinds)

    def only(self, place: int) -> Question:
        """One of the rows, with what belongs to it."""
        read, kinds = ({name: t[place : place + 1] for name, t in part.items()} for part in (self.read, self.kinds))
        row = self.rows[place]
        return Question([row], read, self.picture, {name: kind[:, -len(row) :] for name, kind in kinds.items()})

    @property
    def is_padded(self) -> bool:
        return len({*map(len, self.rows)}) > 1 or not bool(self.read.get("attention_mask", torch.ones(1)).all())

    def context(self, package: Package) -> dict[str, np.ndarray]:
        if self.picture is not None:
            return self.picture.context(package, len(self.rows))
        return package.context({name: tensor.numpy() for name, tensor in self.read.items()}) if self.read else {}


def prove_package(
    package: Package, model: Any, tokens: int, beside: Preparation | None = None, picture: Picture | None = None
) -> PackageProof:
    """Generate with both, from prompts of one length and of several. Raises VerificationFailed where they part.

    Of equals, PyTorch's topk gives any, ONNX's TopK the first. If they part, the model is asked again with the first.
    """
    beside = beside or Preparation()
    try:
        return _proven(package, model, tokens, beside, picture)
    except VerificationFailed as parted:
        reason = "which of equals it takes is left open"
        owners = ("torch", "torch.Tensor")
        try:
            with patched([Patch(owner, "topk", _first_of_equals, reason) for owner in owners]):
                return replace(_proven(package, model, tokens, beside, picture), in_order=True)
        except VerificationFailed:
            raise parted from None


def _first_of_equals(
    original: Any, x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, *_: Any, **__: Any
) -> Any:
    """The largest or smallest numbers in order, and of equal ones the first."""
    values, places = x.sort(dim=dim, descending=largest, stable=True)
    return torch.return_types.topk((values.narrow(dim, 0, k), places.narrow(dim, 0, k)))


def _proven(package: Package, model: Any, tokens: int, beside: Preparation, picture: Picture | None) -> PackageProof:
    has_encoder = not package.continues
    encoder = prove_encoder(package, call_of(EncoderPart(model), beside)) if has_encoder else None
    ahead = picture if isinstance(picture, PictureAhead) else None
    if picture is not None:
        encoder = prove_pictures(package, model, picture) if ahead is None else prove_ahead(package, model, ahead)
    question = _question(package, model, beside)
    if ahead is not None:
        question = _with_pictures(model, question, ahead)
    # Where prompts see later tokens, and what is generated does not, a part of a prompt is none.
    pasts = PASTS if picture is None or picture.types.get("text") == picture.types.get("new") else ()
    worst = max((_compare_scores(package, model, question.of(batch), pasts) for batch in BATCHES), default=0.0)
    several = question if has_encoder else Question(_padded_rows(question), picture=ahead)
    beginning = _told(model, _beginning(package, several, has_encoder), picture)
    asked: list[tuple[Question, dict[str, Any]]] = [(beginning, {})]
    if any(name in package.settings for name in RULES):
        asked.append((beginning, {name: package.settings.get(name) for name in RULES}))
    if picture is not None and ahead is None:
        asked.append((_with_pictures(model, question, picture), {}))
    compared = [_compare_tokens(package, model, each, tokens, rules) for each, rules in asked]
    return PackageProof(tokens, sum(ties for ties, _ in compared), worst, encoder, any(apart for _, apart in compared))


def _padded_rows(question: Question) -> list[list[int]]:
    """Prompts of several lengths, the first as it is: shorter ones are padded in front."""
    return [row[place:] for place, row in enumerate(question.rows)]


def _with_pictures(model: Any, question: Question, picture: Picture) -> Question:
    """The same with a picture in every prompt."""
    rows = [[*row[:2], *[picture.token] * picture.rows, *row[2:]] for row in question.rows]
    ids, _ = padded(rows)
    return Question(rows, picture=picture, kinds=token_types(model, picture, torch.from_numpy(ids)))


def _told(model: Any, question: Question, picture: Picture | None) -> Question:
    """The same, with the kinds of its tokens where masks depend on them."""
    if picture is None or not picture.types:
        return question
    ids, _ = padded(question.rows)
    return replace(question, kinds=token_types(model, picture, torch.from_numpy(ids)))


def _beginning(package: Package, question: Question, has_encoder: bool) -> Question:
    """What is generated from: of an encoder-decoder the token that it begins with."""
    start = [int(package.manifest["start"])] if has_encoder else None
    return question if start is None else Question([start for _ in question.rows], question.read)


def _question(package: Package, model: Any, beside: Preparation) -> Question:
    batch = max(BATCHES)
    rows = _rows(model, batch)
    if package.continues:
        return Question(rows)
    part = EncoderPart(model)
    if not takes_text(part):
        sizes = {**EXAMPLE, "batch": batch, "samples": EXAMPLE["samples"] * 4 // 5}
        return Question(rows, call_of(part, beside).make(sizes))
    texts = [row[: LENGTH - place] for place, row in enumerate(_rows(part, batch))]  # padded at the end
    ids, mask = (torch.from_numpy(array) for array in padded(texts, in_front=False))
    return Question(rows, {"input_ids": ids, "attention_mask": mask})


def _rows(model: Any, batch: int) -> list[list[int]]:
    top = int(model.config.get_text_config(decoder=True).vocab_size)
    special = {getattr(model.config, f"{kind}_token_id", None) for kind in ("bos", "eos", "pad", "image", "video")}
    rng = np.random.default_rng(batch)
    choices = [token for token in range(min(top, 50_000)) if token not in special]
    return [[int(token) for token in rng.choice(choices, LENGTH)] for _ in range(batch)]


def _compare_scores(package: Package, model: Any, question: Question, pasts: Sequence[int]) -> float:
    """The largest difference of the scores after the last token, the first of them given as a past."""
    if not pasts:
        return 0.0
    ids, mask = padded(question.rows)
    tokens = {"decoder_input_ids" if question.read else "input_ids": torch.from_numpy(ids)}
    asked = WholeText(model) if package.decoder.whole_text else decoder_of(model)
    if package.decoder.whole_text:
        tokens["attention_mask"] = torch.from_numpy(mask)
    elif "position_ids" in package.decoder.inputs:  # generate counts from 0, where some models by themselves do not
        tokens["position_ids"] = torch.from_numpy(package.decoder.positions(ids, mask))
    without = {} if "use_cache" not in inspect.signature(asked.forward).parameters else {"use_cache": False}
    with torch.no_grad(), model_runs(model, f"{len(ids)} prompts without a past"):
        if question.picture is not None:
            wanted = _generated(model, question, 1, {}, True).scores[0].float().numpy()
        else:
            wanted = asked(**question.read, **tokens, **without)["logits"][:, -1].float().numpy()
    start, worst = package.decoder.start(len(ids), question.context(package)), 0.0
    for past in pasts:
        state = package.decoder.step(ids[:, :past], mask[:, :past], start)[1] if past else start
        scores, _ = package.decoder.step(ids[:, past:], mask, state)
        difference = float(np.abs(scores - wanted).max() / max(np.abs(wanted).max(), 1e-9))
        if not difference <= _RTOL:  # NaN is not within anything
            raise VerificationFailed(
                f"the decoder's scores differ from the model's by {difference:.2g} of the largest",
                where=f"at batch {len(ids)}, after a past of {past}",
            )
        worst = max(worst, difference)
    return worst


def _generated(model: Any, question: Question, count: int, rules: Mapping[str, Any], use_cache: bool) -> Any:
    """Greedy tokens of the model, and their scores; no end token ends them, and of its own settings only the rules."""
    ids, mask = (torch.from_numpy(array) for array in padded(question.rows))
    decoder = decoder_of(model)
    plain: Any = type(decoder.generation_config)
    ruled = {name: rule for name, rule in rules.items() if rule is not None}
    settings, decoder.generation_config = decoder.generation_config, plain(pad_token_id=0, **ruled)
    pictures = question.picture.asked(model, ids) if question.picture is not None else {}
    asked: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, **pictures, **question.kinds}
    if question.read:
        decoder.generation_config.decoder_start_token_id = question.rows[0][0]
        asked = {**question.read, "decoder_input_ids": ids}
    try:
        with torch.no_grad(), model_runs(model, f"generate for {len(ids)} prompts"):
            return generated(
                model, **asked, do_sample=False, max_new_tokens=count, output_scores=True,
                return_dict_in_generate=True, use_cache=use_cache,
            )  # fmt: skip
    finally:
        decoder.generation_config = settings


def _compare_tokens(
    package: Package, model: Any, question: Question, count: int, rules: Mapping[str, Any]
) -> tuple[int, bool]:
    """How many prompts were compared up to a tie only, and whether apart. The first is generated from alone, too."""
    own, package.settings = package.settings, {**rules, "eos_token_id": None}
    try:
        actual = {batch: _package_generated(package, question.of(batch), count) for batch in BATCHES}
    finally:
        package.settings = own
    use_cache = not package.decoder.whole_text
    out = _generated(model, question, count, rules, use_cache)
    try:
        ties = _part(question, actual[max(BATCHES)], out, bool(rules))
    except VerificationFailed as parted:
        try:
            return _one_by_one(model, question, actual, out, rules, use_cache), True
        except VerificationFailed:
            plain = use_cache and question.picture is None
            if plain and not torch.equal(out.sequences, _generated(model, question, count, rules, False).sequences):
                parted.why = f"{parted.why}; the model itself generates other tokens without a cache"
            raise parted from None
    try:
        return ties + _part(question.of(1), actual[1], out, bool(rules)), False
    except VerificationFailed:  # what the model gives may depend on the other prompts
        alone = question.of(1)
        return ties + _part(alone, actual[1], _generated(model, alone, count, rules, use_cache), bool(rules)), False


def _one_by_one(
    model: Any, question: Question, actual: Mapping[int, np.ndarray], out: Any, rules: Mapping[str, Any],
    use_cache: bool,
) -> int:  # fmt: skip
    """As `_part`, of a model that gives other tokens where prompts come together, by each of them alone."""
    together, ties, mixed = actual[max(BATCHES)], 0, False
    for place in range(len(question.rows)):
        alone = question.only(place)
        own = _generated(model, alone, together.shape[1], rules, use_cache)
        for tokens in (together[place : place + 1], *([actual[1]] if place == 0 else [])):
            ties += _part(alone, tokens, own, bool(rules))
        start = [each.sequences.shape[1] - together.shape[1] for each in (own, out)]
        mixed |= not torch.equal(own.sequences[0, start[0] :], out.sequences[place, start[1] :])
    if not mixed:
        _part(question, together, out, bool(rules))  # it was the package that departed
    return ties


def _part(question: Question, actual: np.ndarray, out: Any, ruled: bool) -> int:
    """How many of some prompts part from what the model generated (its first rows), all of them at ties."""
    wanted, ties = out.sequences[:, max(map(len, question.rows)) :].numpy(), 0
    for place in range(len(question.rows)):
        differs = np.flatnonzero(actual[place] != wanted[place])
        if not differs.size:
            continue
        step = int(differs[0])
        scores = out.scores[step][place].float().numpy()
        gap = abs(float(scores[actual[place][step]] - scores[wanted[place][step]]))
        if not gap <= _ATOL * max(1.0, float(np.abs(scores[np.isfinite(scores)]).max())):
            raise VerificationFailed(
                f"the package generates the token {actual[place][step]}, the model {wanted[place][step]}",
                where=f"prompt {place} of {len(question.rows)}, token {step}"
                + (", padded" if question.is_padded else "")
                + (", with a picture, which the vision encoder reads right" if question.picture else "")
                + (", with the checkpoint's generation_config.json" if ruled else ""),
                why=f"the model's scores of the two differ by {gap:.2g}",
            )
        ties += 1
    return ties


def _package_generated(package: Package, question: Question, count: int) -> np.ndarray:
    prompts = package.prompts(question.rows, question.context(package))
    return np.array([generation.tokens for generation in package.generations(prompts, {"max_new_tokens": count})])
