"""The proof of a package is its use: the tokens that it generates are those of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tonnx.errors import VerificationFailed
from tonnx.packages.decoder import model_runs
from tonnx.run.decoding import padded
from tonnx.run.package import Package

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

    def __str__(self) -> str:
        tied = f" ({self.ties} prompts up to a tie)" if self.ties else ""
        return (
            f"[✓] {self.tokens} greedy tokens{tied} as the model's at batch {', '.join(map(str, BATCHES))}, "
            f"also with padding; scores after a past of {', '.join(map(str, PASTS))} within {self.scores:.2g}"
        )


def prove_package(package: Package, model: Any, tokens: int) -> PackageProof:
    """Generate with both, from prompts of one length and of several. Raises VerificationFailed where they part."""
    ties, worst = 0, 0.0
    for batch in BATCHES:
        rows = _rows(model, batch)
        for past in PASTS:
            worst = max(worst, _compare_scores(package, model, rows, past))
        ties += _compare_tokens(package, model, rows, tokens)
        if batch > 1:
            shorter = [row[place:] for place, row in enumerate(rows)]  # padded in front
            ties += _compare_tokens(package, model, shorter, tokens)
    return PackageProof(tokens, ties, worst)


def _rows(model: Any, batch: int) -> list[list[int]]:
    top = int(model.config.get_text_config().vocab_size)
    special = {getattr(model.config, f"{kind}_token_id", None) for kind in ("bos", "eos", "pad")}
    rng = np.random.default_rng(batch)
    choices = [token for token in range(min(top, 50_000)) if token not in special]
    return [[int(token) for token in rng.choice(choices, LENGTH)] for _ in range(batch)]


def _compare_scores(package: Package, model: Any, rows: list[list[int]], past: int) -> float:
    ids, mask = padded(rows)
    state = package.decoder.start(len(rows))
    if past:
        _, state = package.decoder.step(ids[:, :past], mask[:, :past], state)
    scores, _ = package.decoder.step(ids[:, past:], mask, state)
    with torch.no_grad(), model_runs(model, f"{len(rows)} prompts without a past"):
        wanted = model(torch.from_numpy(ids)).logits[:, -1].float().numpy()
    difference = float(np.abs(scores - wanted).max() / max(np.abs(wanted).max(), 1e-9))
    if not difference <= _RTOL:  # NaN is not within anything
        raise VerificationFailed(
            f"the decoder's scores differ from the model's by {difference:.2g} of the largest",
            where=f"at batch {len(rows)}, after a past of {past}",
        )
    return difference


def _generated(model: Any, ids: torch.Tensor, mask: torch.Tensor, count: int) -> Any:
    """Greedy tokens of the model, and their scores; no end token ends them, and no setting of its own changes them."""
    plain: Any = type(model.generation_config)
    settings, model.generation_config = model.generation_config, plain(pad_token_id=0)
    try:
        with torch.no_grad(), model_runs(model, f"generate for {len(ids)} prompts"):
            return model.generate(
                ids, attention_mask=mask, do_sample=False, max_new_tokens=count, output_scores=True,
                return_dict_in_generate=True,
            )  # fmt: skip
    finally:
        model.generation_config = settings


def _compare_tokens(package: Package, model: Any, rows: list[list[int]], count: int) -> int:
    """How many prompts were compared up to a tie only."""
    ids, mask = (torch.from_numpy(array) for array in padded(rows))
    out = _generated(model, ids, mask, count)
    wanted = out.sequences[:, ids.shape[1] :].numpy()
    ends, package.settings = package.settings, {**package.settings, "eos_token_id": None}
    try:
        actual = np.array([generation.tokens for generation in package.generate(rows, max_new_tokens=count)])
    finally:
        package.settings = ends
    ties = 0
    for place in range(len(rows)):
        differs = np.flatnonzero(actual[place] != wanted[place])
        if not differs.size:
            continue
        step = int(differs[0])
        scores = out.scores[step][place].float().numpy()
        gap = abs(float(scores[actual[place][step]] - scores[wanted[place][step]]))
        if gap > _ATOL * max(1.0, float(np.abs(scores[np.isfinite(scores)]).max())):
            raise VerificationFailed(
                f"the package generates the token {actual[place][step]}, the model {wanted[place][step]}",
                where=f"prompt {place} of {len(rows)}, token {step}" + (", padded" if not mask.all() else ""),
                why=f"the model's scores of the two differ by {gap:.2g}",
            )
        ties += 1
    return ties
