"""A model that reads a picture before a text and not among its tokens: as vision encoder and decoder.

It may lie in front of the text (GIT), or be looked at by cross-attention (BLIP, Mllama, Idefics). What it leaves is the
same whatever the text says: parts of the decoder's state, and arguments that every further call has. The vision encoder
gives these, by the names of the decoder's inputs. All of it is asked of what `generate` does.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tonnx.api.export import export
from tonnx.api.result import ExportResult
from tonnx.frontends.torch.call.containers import PAST, named_leaves, tree_of
from tonnx.packages.decoder import Step, compared, export_step, handed_on, model_runs, moving_axes, random_tokens
from tonnx.packages.pictures import Picture, decoder_of, no_package, random_picture
from tonnx.packages.vision_language import VISION, Reached
from tonnx.run.decoding import NO_TOKEN
from tonnx.run.package import Package

_BATCH, _LENGTH, _NEW, _FURTHER = 2, 5, 3, 13
_PLAIN = ("input_ids", "attention_mask", "position_ids", "cache_position")
"""What every decoder is told of its tokens."""
_SEEING = ("cross_attention_mask", "image_attention_mask")
"""What a model is told by of which tokens see which parts of a picture: those from the picture's token on."""
_RTOL = 1e-3
_FORMS = (
    "it is no encoder with a decoder, has no get_image_features that gives rows for tokens, "
    "and does not read a picture before a text"
)


@dataclass(frozen=True)
class PictureAhead(Picture):
    """A picture that is read before the text."""

    parts: dict[str, int | None] = field(default_factory=dict)
    """Inputs of the decoder that the picture decides, and how many places in front are its; None: all of it."""
    seeing: dict[str, list[Any]] = field(default_factory=dict)
    """By the name of an argument: what of the picture a token sees that comes after it."""
    prompt: dict[str, Any] = field(default_factory=dict)
    """How the model changes a prompt: what its first token becomes, and how many of its last it drops."""
    settings: dict[str, Any] = field(default_factory=dict)
    """With what it asks its decoder to generate."""

    def context(self, package: Package, count: int) -> dict[str, np.ndarray]:
        return package.read_ahead([self.pixels.numpy()] * count)

    def asked(self, model: Any, ids: torch.Tensor) -> dict[str, Any]:
        arrays = {name: torch.cat([array] * len(ids)) for name, array in self.arrays.items()}
        return {**_handed_over(model, arrays, ids)[0], **self.seen(ids)}

    def seen(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Which tokens of a prompt see the picture, as the model is told."""
        after = torch.ones_like(ids) if self.token == NO_TOKEN else (ids == self.token).long().cumsum(-1).clamp(max=1)
        patterns = {name: torch.tensor(pattern) for name, pattern in self.seeing.items()}
        return {n: after.reshape(*ids.shape, *[1] * pattern.dim()) * pattern for n, pattern in patterns.items()}


class AheadPart(torch.nn.Module):
    """What reads a picture, up to where the decoder goes on with a text."""

    def __init__(self, model: Any, picture: PictureAhead) -> None:
        super().__init__()
        self.model, self._picture, self._names = model, picture, tuple(picture.fixed)
        self.register_buffer("first", torch.tensor([[1 if picture.token == NO_TOKEN else picture.token]]))
        for name, tensor in picture.fixed.items():  # buffers: what they decide is decided when the file is written
            self.register_buffer(name, tensor)

    def forward(self, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
        arrays = {self._picture.name: pixels} | {name: getattr(self, name) for name in self._names}
        asked = _handed_over(self.model, arrays, self.first)[0] | self._picture.seen(self.first)
        leaves = _tensors(_second_call(decoder_of(self.model), self.first, asked))
        return {
            name: leaves[name] if length is None else leaves[name].narrow(-2, 0, length)
            for name, length in self._picture.parts.items()
        }


def _second_call(writer: Any, ids: torch.Tensor, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the second call in a `generate`: the state after some tokens, and what else goes on."""
    from transformers import DynamicCache

    kept = {"attention_mask": torch.ones_like(ids), "use_cache": True, **asked}
    first = writer.prepare_inputs_for_generation(ids, past_key_values=DynamicCache(), is_first_iteration=True, **kept)
    result = writer(**first, return_dict=True)
    kept = writer._update_model_kwargs_for_generation(result, kept, is_encoder_decoder=False)
    after = torch.cat([ids, ids[:, -1:]], 1)
    second = writer.prepare_inputs_for_generation(after, next_sequence_length=1, is_first_iteration=False, **kept)
    return {name: value for name, value in second.items() if value is not None}


def _tensors(call: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Those among the arguments of a call, and in them, by the names that a file has for them."""
    leaves = [leaf for name, value in call.items() for leaf in named_leaves(name, tree_of(value))]
    return {name: value for name, value in leaves if torch.is_tensor(value)}


def _handed_over(
    model: Any, arrays: Mapping[str, torch.Tensor], ids: torch.Tensor
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors of a picture that the decoder's `generate` is asked with, and all that it is asked with."""
    writer = decoder_of(model)
    if writer is model:
        return dict(arrays), {}
    with _stopped(writer):
        try:
            model.generate(**arrays, input_ids=ids.clone(), attention_mask=torch.ones_like(ids))
        except Reached as reached:
            others = {name: value for name, value in reached.given.items() if name not in _PLAIN}
            return {name: value for name, value in others.items() if torch.is_tensor(value)}, reached.given
    return {}, {}


@contextlib.contextmanager
def _stopped(writer: Any) -> Iterator[None]:
    """Its `generate` raises what it is asked with."""

    def generate(*_: Any, **given: Any) -> None:
        raise Reached(given)

    writer.generate = generate
    try:
        yield
    finally:
        del writer.generate


def read_ahead(model: Any, processor: Any) -> PictureAhead:
    """A random picture, and what it leaves in the decoder. Refuses a model that does not read pictures so."""
    plain = random_picture(model, processor)
    parameters = inspect.signature(decoder_of(model).forward).parameters
    masks = [array[0] for each, array in plain.arrays.items() if each.endswith("_mask")]
    pattern = masks[0] if masks else torch.ones(plain.pixels.shape[1], dtype=torch.long)
    seeing = {each: pattern.tolist() for each in _SEEING if each in parameters}
    picture = PictureAhead(plain.arrays, plain.token if seeing else NO_TOKEN, plain.name, seeing=seeing)
    probe = torch.tensor([[5, 6, 7, 8]])
    try:
        with torch.no_grad():
            near, other, far = (_tensors(_after(model, picture, 1, *text)) for text in _TEXTS)
            asked = _handed_over(model, picture.arrays, probe)[1]
    except (AttributeError, ValueError, IndexError, TypeError, RuntimeError) as error:  # it does not take one so
        said = next(iter(str(error).splitlines()), "")
        raise no_package(model, f"{_FORMS}: {type(error).__name__}: {said}"[:300]) from error
    parts: dict[str, int | None] = {}
    for leaf, value in near.items():
        moved = value.shape != far[leaf].shape
        length = value.shape[-2] - _LENGTH if moved and value.dim() > 2 else None
        if leaf in (*_PLAIN, *seeing) or length == 0:
            continue
        one, two = (each if length is None else each.narrow(-2, 0, length) for each in (value, other[leaf]))
        if not torch.allclose(one.float(), two.float(), rtol=_RTOL, atol=1e-5):
            raise no_package(model, f"{_FORMS}: what it keeps in {leaf} depends on the text")
        parts[leaf] = length
    given = asked.get("input_ids", probe)
    first = int(given[0, 0])
    prompt = {} if first == probe[0, 0] else {"first": first, "dropped": probe.shape[1] - given.shape[1]}
    settings = {"eos_token_id": asked["eos_token_id"]} if asked.get("eos_token_id") is not None else {}
    rows = 0 if picture.token == NO_TOKEN else 1
    if not parts:
        raise no_package(model, f"{_FORMS}: it keeps nothing of it")
    return replace(picture, rows=rows, parts=parts, prompt=prompt, settings=settings)


_TEXTS = ((_LENGTH, 1), (_LENGTH, 2), (_LENGTH + _FURTHER, 1))
"""Two texts of a length, and a longer one."""


def _after(model: Any, picture: PictureAhead, batch: int, length: int, which: int = 1) -> dict[str, Any]:
    """The arguments of the decoder's call after a text with a picture."""
    ids = random_tokens(model, batch, length * which)[:, -length:]
    if picture.token != NO_TOKEN:
        ids[:, 0] = picture.token
    return _second_call(decoder_of(model), ids, picture.asked(model, ids))


def export_ahead(
    model: Any, picture: PictureAhead, files: Mapping[str, Path], decoder: str, **options: Any
) -> tuple[dict[str, ExportResult], Step]:
    """Write the two files; ``decoder`` is the name of the last one."""
    vision, writer = AheadPart(model, picture).eval(), decoder_of(model)
    results = {VISION: export(vision, (picture.pixels,), files[VISION], input_names=[picture.name], **options)}
    with model_runs(model, "a picture and a text"), torch.no_grad():
        step = _step(model, writer, picture)
    results[decoder] = export_step(writer, files[decoder], step, **options)
    return results, step


def _step(model: Any, writer: Any, picture: PictureAhead) -> Step:
    """The call that the decoder is exported with: more tokens after a picture and a past."""
    call = _after(model, picture, _BATCH, _LENGTH)
    larger = _after(model, picture, _BATCH + 1, _LENGTH + _FURTHER)
    ahead = max((length or 0 for length in picture.parts.values()), default=0)
    past = _LENGTH + ahead
    sizes = {"batch": (_BATCH, _BATCH + 1), "past": (past, past + _FURTHER)}
    total = "past + sequence" + (f" - {ahead}" if ahead else "")
    kwargs: dict[str, Any] = {"input_ids": random_tokens(writer, _BATCH, _NEW)}
    axes: dict[str, dict[int, str]] = {"input_ids": {0: "batch", 1: "sequence"}}
    parameters = inspect.signature(writer.forward).parameters
    if "attention_mask" in parameters:
        kwargs["attention_mask"] = torch.ones(_BATCH, _LENGTH + _NEW, dtype=torch.long)
        axes["attention_mask"] = {0: "batch", 1: total}
    if "position_ids" in parameters:
        kwargs["position_ids"] = torch.arange(_LENGTH, _LENGTH + _NEW).repeat(_BATCH, 1)
        axes["position_ids"] = {0: "batch", 1: "sequence"}
    for name, value in call.items():
        if name in picture.seeing:
            kwargs[name] = torch.cat([value] * _NEW, 1)
            axes[name] = {0: "batch", 1: "sequence"}
        elif name == PAST or name in picture.parts:
            kwargs[name] = value
            axes |= moving_axes(name, value, larger[name], sizes)
    kwargs["use_cache"] = True
    return Step(kwargs, axes, handed_on(writer, PAST, call[PAST]))


def prove_ahead(package: Package, model: Any, picture: PictureAhead) -> float:
    """What the package makes of a picture, before its decoder: the largest difference."""
    with torch.no_grad():
        wanted = AheadPart(model, picture)(picture.pixels)
    actual = picture.context(package, 1)
    return max(compared("the vision encoder", wanted[name], actual[name]) for name in wanted)
