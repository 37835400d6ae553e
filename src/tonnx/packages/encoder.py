"""A model that takes its input whole, texts, pictures, sounds or several of them, as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from tonnx.api.export import export
from tonnx.api.result import ExportResult
from tonnx.errors import VerificationFailed
from tonnx.frontends.torch.reference.rounded import TIMES, rounded
from tonnx.packages.decoder import Around, random_tokens
from tonnx.packages.inputs import Call
from tonnx.run.decoding import padded
from tonnx.run.package import PER_IMAGE, ZERO_SHOT, Package

_RTOL = 1e-3


class Results(Around):
    """A model without the results of its parts, which it gives beside its own."""

    def forward(self, **inputs: Any) -> dict[str, Any]:
        return {name: value for name, value in self.model(**inputs).items() if not hasattr(value, "items")}


def export_encoder(model: Any, path: Path, call: Call, **options: Any) -> ExportResult:
    """Write the file; ``options`` are those of `tonnx.export`."""
    kwargs = call.make()
    with torch.no_grad():
        result = model(**kwargs)
    has_parts = hasattr(result, "items") and any(hasattr(value, "items") for value in result.values())
    part = Results(model).eval() if has_parts else model
    return export(part, (), path, kwargs=kwargs, dynamic_axes=call.axes, **options)


def prove_encoder(package: Package, call: Call) -> float:
    """Several batches, of texts of several lengths: the largest difference, as a part of the largest value."""
    differences = _text_differences(package, call) if call.is_plain_text else _array_differences(package, call)
    return max([*differences, *(_label_differences(package, call) if package.task == ZERO_SHOT else ())])


def _text_differences(package: Package, call: Call) -> list[float]:
    differences = []
    for lengths in ((9,), (3, 8, 5)):
        rows = [random_tokens(call.model, 1, length)[0].tolist() for length in lengths]
        outputs, mask = package.outputs(rows)
        kwargs = call.with_texts(padded(rows, in_front=False)[0], mask)
        where = f"texts of {', '.join(map(str, lengths))} tokens"
        differences.append(_difference(call.model, kwargs, outputs, where, mask))
    return differences


def _array_differences(package: Package, call: Call) -> list[float]:
    differences = []
    for kwargs in call.others:
        tensors = {name: value for name, value in kwargs.items() if isinstance(value, torch.Tensor)}
        outputs = package.run({name: tensor.numpy() for name, tensor in tensors.items()})
        where = ", ".join(f"{name} {[*tensor.shape]}" for name, tensor in tensors.items())
        differences.append(_difference(call.model, kwargs, outputs, where))
    return differences


def _label_differences(package: Package, call: Call) -> list[float]:
    """Texts of several lengths together fit pictures as well as each of them alone."""
    if not call.free_texts:
        return []
    rows = [random_tokens(call.model, 1, length)[0].tolist() for length in (3, 6, 4)]
    alone = [call.with_texts(*package.label_ids([row])) for row in rows]
    expected = np.concatenate([_results(call.model, kwargs)[PER_IMAGE] for kwargs in alone], axis=1)
    pixels = {name: value.numpy() for name, value in alone[0].items() if torch.is_tensor(value)}
    difference = _largest(package.label_scores(pixels, rows), expected)
    if not difference <= _RTOL:
        raise VerificationFailed(
            f"scores of the package's labels differ from the model's by {difference:.2g} of the largest value"
        )
    return [difference]


def label_settings(call: Call) -> dict[str, Any]:
    """How labels are given to a model that says how well texts fit pictures, and what its scores are.

    Asked of the model: where padding behind a text changes its score, texts are filled up to the length that the model
    is made for. One that learnt from pairs by themselves has a bias beside its scale: a score is of one label alone.
    """
    model, text = call.model, call.model.config.get_text_config()
    has_bias = isinstance(getattr(model, "logit_bias", None), torch.nn.Parameter)
    settings: dict[str, Any] = {"scores": "sigmoid" if has_bias else "softmax"}
    said = (getattr(each, "pad_token_id", None) for each in (call.beside.tokenizer, text))
    token = next((each for each in said if isinstance(each, int) and 0 <= each < text.vocab_size), 0)
    ids = random_tokens(model, 1, 8).numpy()
    ids[:, 5:] = token
    mask = np.array([[1] * 5 + [0] * 3])
    short, long = (_results(model, call.with_texts(ids[:, :n], mask[:, :n]))[PER_IMAGE] for n in (5, 8))
    if _largest(long, short) > _RTOL:
        settings |= {"filled": {"length": int(text.max_position_embeddings), "token": token}}
    return settings


def _difference(
    model: Any, kwargs: dict[str, Any], outputs: dict[str, np.ndarray], where: str, mask: np.ndarray | None = None
) -> float:
    worst, wanted = 0.0, _results(model, kwargs)
    # Parts of a result that has several have other names; the proof of the file has compared them.
    names = [name for name in outputs if name in wanted]
    if not names:
        raise VerificationFailed("no output of the package has the name of one of the model's", where=where)
    for name in names:
        array, expected = outputs[name], wanted[name]
        is_padded = mask is not None and expected.shape[:2] == mask.shape
        real = mask.astype(bool) if mask is not None and is_padded else ...  # not what padding gives
        difference = _largest(array[real], expected[real])
        if difference <= _RTOL:
            worst = max(worst, difference)
        elif not _moves_itself(model, kwargs, name, expected):
            raise VerificationFailed(
                f"{name} of the package differs from the model's by {difference:.2g} of the largest value", where=where
            )
    return worst


def _results(model: Any, kwargs: dict[str, Any]) -> dict[str, np.ndarray]:
    with torch.no_grad():
        return {name: value.float().numpy() for name, value in model(**kwargs).items() if torch.is_tensor(value)}


def _moves_itself(model: Any, kwargs: dict[str, Any], name: str, expected: np.ndarray) -> bool:
    """Whether the model's own results move beyond the tolerance where its sums are rounded otherwise.

    Refuses a model that draws: nothing can be compared with that.
    """
    if _largest(_results(model, kwargs)[name], expected) > _RTOL:
        raise VerificationFailed(f"{type(model).__name__} gives another {name} whenever it is called", why="it draws")
    for number in range(TIMES):
        with rounded(number):
            moved = _results(model, kwargs)[name]
        if not _largest(moved, expected) <= _RTOL:
            return True
    return False


def _largest(actual: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, as a part of the largest value; infinite ones are equal or not."""
    if actual.shape != expected.shape:
        return float("inf")
    apart = actual != expected
    if not apart.any():
        return 0.0
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1e-9)
    return float(np.abs(actual[apart] - expected[apart]).max() / scale)
