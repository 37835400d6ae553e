"""A model that reads pictures among the tokens of a text: as vision encoder, embedding and decoder.

How a picture becomes arrays is asked of the checkpoint's image processor, what the network makes of it of
`get_image_features`. One picture of the size that the processor gives goes through the encoder at a time; what else the
processor says of it (grids, sizes, masks) is fixed in the file. Its rows take the places of the picture's tokens.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tonnx.api.export import export
from tonnx.api.result import ExportResult
from tonnx.errors import InvalidModel, TonnxError
from tonnx.packages.decoder import Step, compared, decoder_step, export_step, model_runs, random_tokens
from tonnx.packages.pictures import Picture, decoder_of, generated, needed, no_package, random_picture, reader_of
from tonnx.run.decoding import DEEP, EMBEDDINGS, FEATURES, NO_TOKEN, PLACES
from tonnx.run.package import Package

VISION, EMBEDDING = "vision_encoder.onnx", "embed_tokens.onnx"
"""As transformers.js calls them."""

_RTOL = 1e-3


class VisionPart(torch.nn.Module):
    """What reads one picture: a row for each of its tokens, also for layers of the decoder that take more of it."""

    def __init__(self, model: Any, picture: Picture) -> None:
        super().__init__()
        self.model, self._names = model, tuple(picture.fixed)
        for name, tensor in picture.fixed.items():  # buffers: what they decide is decided when the file is written
            self.register_buffer(name, tensor)

    def forward(self, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
        fixed = {name: getattr(self, name) for name in self._names}
        result = reader_of(self.model)(pixels, **fixed)
        deep = getattr(result, "deepstack_features", None) or ()
        parts = {FEATURES: getattr(result, "pooler_output", result)}
        parts |= {f"{DEEP}{layer}": rows for layer, rows in enumerate(deep)}
        return {name: _joined(rows) for name, rows in parts.items()}


def _joined(rows: Any) -> torch.Tensor:
    joined: torch.Tensor = torch.cat(list(rows), 0) if isinstance(rows, (list, tuple)) else rows
    return joined.reshape(-1, joined.shape[-1])


class EmbeddingPart(torch.nn.Module):
    """Tokens as the vectors that the decoder reads, and what else it is given for each of them.

    That is the table of vectors, unless the model shows its decoder something else: another vector for the token of a
    picture, or vectors for every layer.
    """

    def __init__(self, model: Any, token: int) -> None:
        super().__init__()
        self.model, self.embedding, self._decoder = model, model.get_input_embeddings(), _shown(model)
        if self._decoder is not None:
            ids = random_tokens(model, 2, 5)
            ids[1, 1] = token
            with torch.no_grad(), contextlib.suppress(Exception):  # then it takes no tokens alone
                shown = self._reached(ids)
                if len(shown) > 1 or not torch.equal(shown[EMBEDDINGS], self.embedding(ids)):
                    return
        self._decoder = None

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {EMBEDDINGS: self.embedding(input_ids)} if self._decoder is None else self._reached(input_ids)

    def _reached(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """What the decoder is given for each token, where the model takes that for an argument."""

        def stop(_: Any, __: Any, given: dict[str, Any]) -> None:
            raise Reached(given)

        taken = inspect.signature(self.model.forward).parameters
        hook = self._decoder.register_forward_pre_hook(stop, with_kwargs=True)
        try:
            self.model(input_ids=ids, use_cache=False)
        except Reached as reached:
            return {
                name: value
                for name, value in reached.given.items()
                if name in taken and torch.is_tensor(value) and value.is_floating_point() and value.dim() > 2
                and value.shape[:2] == ids.shape
            }  # fmt: skip
        finally:
            hook.remove()
        return {EMBEDDINGS: self.embedding(ids)}


class Reached(Exception):
    """A part of a model was called."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self.given = given


def _shown(model: Any) -> Any:
    """The part of a model that is given vectors in the place of tokens; None if it does not say."""
    part: Any = model.get_decoder() if hasattr(model, "get_decoder") else None
    is_part = part is not None and part is not model
    return part if is_part and "inputs_embeds" in inspect.signature(part.forward).parameters else None


class SeeingDecoder(torch.nn.Module):
    """A decoder that is told more of pictures than their rows.

    It shows tokens of a picture, or of a prompt, those after them: masked as the model is asked to for `generate`, or
    by itself of what kinds the tokens are. Or layers of it add further rows to those of a picture.
    """

    def __init__(self, model: Any, picture: Picture, masks_itself: bool = False) -> None:
        super().__init__()
        self.model, self._typed, self._deep = model, bool(picture.types), picture.deep
        self._masks_itself = masks_itself
        self._layers = deep_part(model) if picture.deep else None
        self._of_tokens = {*inspect.signature(model.forward).parameters} - {*TYPES}

    def forward(
        self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor, past_key_values: Any, use_cache: bool = True,
        position_ids: torch.Tensor | None = None, **told: torch.Tensor,
    ) -> dict[str, Any]:  # fmt: skip
        of_tokens = {name: value for name, value in told.items() if name in self._of_tokens}
        others = {"past_key_values": past_key_values, "position_ids": position_ids}
        types = {name: kinds for name, kinds in told.items() if name in TYPES}
        masks, told_types = attention_mask, types if self._masks_itself else {}
        if self._typed and not self._masks_itself:
            masks = masks_of(self.model, inputs_embeds, attention_mask, types, **others)
        rows = [told[f"{DEEP}{layer}"] for layer in range(self._deep)]
        with _given(self._layers, {"visual_pos_masks": told.get(PLACES), "deepstack_visual_embeds": rows}):
            result = self.model(
                inputs_embeds=inputs_embeds, attention_mask=masks, **others, **of_tokens, **told_types,
                use_cache=use_cache, return_dict=True,
            )  # fmt: skip
        return {"logits": result.logits, "past_key_values": result.past_key_values}


def _given(part: Any, arguments: dict[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """Calls of a part of a model have these arguments as well."""
    if part is None:
        return contextlib.nullcontext()
    return part.register_forward_pre_hook(  # type: ignore[no-any-return]
        lambda _, args, kwargs: (args, kwargs | arguments), with_kwargs=True
    )


def deep_part(model: Any) -> Any:
    """The part of a model whose layers take further rows of pictures; None if there is none."""
    wanted = {"visual_pos_masks", "deepstack_visual_embeds"}
    return next((part for part in model.modules() if wanted <= {*inspect.signature(part.forward).parameters}), None)


def masks_of(model: Any, vectors: torch.Tensor, mask: torch.Tensor, types: Mapping[str, Any], **others: Any) -> Any:
    """What each token may see, as transformers' `generate` asks the model."""
    return model.create_masks_for_generate(
        config=model.config, inputs_embeds=vectors, attention_mask=mask, is_first_iteration=True, **types, **others
    )


def is_vision_language(model: Any) -> bool:
    """Whether it reads pictures among the tokens of a text."""
    return reader_of(model) is not None and "inputs_embeds" in inspect.signature(model.forward).parameters


def read_picture(model: Any, processor: Any, seed: int = 0) -> Picture:
    """A random picture, and what the model makes of it."""
    picture = random_picture(model, processor, seed)
    if picture.token == NO_TOKEN:
        raise InvalidModel(f"{type(model).__name__} does not say which token stands for a picture")
    with model_runs(model, f"a picture as an array of {[*picture.pixels.shape]}"), torch.no_grad():
        if missing := [word for word in needed(reader_of(model))[1:] if word not in picture.arrays]:
            raise no_package(model, f"it reads pictures together with {', '.join(missing)}")
        results = VisionPart(model, picture)(picture.pixels)
    deep = len(results) - 1
    if deep and deep_part(model) is None:
        raise no_package(model, "its pictures go into several layers of the decoder, in a way of its own")
    return _asked_of_generate(model, replace(picture, rows=len(results[FEATURES]), deep=deep, types=_types(model)))


TYPES = ("token_type_ids", "mm_token_type_ids")


def _types(model: Any) -> dict[str, Any]:
    """Which number makes tokens of a picture see each other, asked of the masks; nothing, if none does."""
    make = getattr(type(model), "create_masks_for_generate", None)
    taken = inspect.signature(make).parameters if make is not None else {}
    for name in (name for name in TYPES if name in taken):
        for kind in (1, 0):
            ids = torch.full((1, 4), kind)
            masks = masks_of(
                model, torch.zeros(1, 4, 8), torch.ones_like(ids), {name: ids}, past_key_values=None,
                position_ids=torch.arange(4)[None],
            )  # fmt: skip
            parts = masks.values() if isinstance(masks, dict) else [masks]
            if any(mask is not None and bool(mask[0, 0, 0, -1] == mask[0, 0, -1, 0]) for mask in parts):
                return {"name": name, "picture": kind, "text": 0, "new": 0}
    return {}


def token_types(model: Any, picture: Picture, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """The kinds of a prompt's tokens, by the name that the model has for them."""
    if not picture.types:  # some ask it to know where pictures are
        named = [name for name in TYPES[1:] if name in inspect.signature(model.forward).parameters]
        return {name: (ids == picture.token).long() for name in named}
    of_picture = torch.full_like(ids, picture.types["picture"])
    return {picture.types["name"]: torch.where(ids == picture.token, of_picture, picture.types["text"])}


def _asked_of_generate(model: Any, picture: Picture) -> Picture:
    """With what `generate` tells the model of tokens' positions and kinds: for a prompt, and for the token after it."""
    nearer, further = (_around(picture, before) for before in _BEFORE)
    calls = _calls(model, picture, nearer)
    types = dict(picture.types)
    if types and (new := calls[-1].get(types["name"])) is not None:
        types["new"] = int(new[0, -1])
    given = calls[0].get("position_ids")
    if given is None:
        return replace(picture, types=types)
    axes, moved = given.reshape(-1, len(nearer)), _calls(model, picture, further)[0]["position_ids"]
    start, end = _BEFORE[0], _BEFORE[0] + picture.rows
    here, there = axes[:, start:end], moved.reshape(-1, len(further))[:, _BEFORE[1] : _BEFORE[1] + picture.rows]
    moving = (there - here) // (_BEFORE[1] - start)  # 1 where a place in the picture counts from its beginning, else 0
    said = {
        "first": axes[:, 0].tolist(),
        "picture": (here - moving * start).tolist(),
        "moving": moving.tolist(),
        "after": (axes[:, end] - end).tolist(),
    }
    plain = {"first": [0], "picture": [[*range(picture.rows)]], "moving": [[1] * picture.rows], "after": [0]}
    return replace(picture, types=types, positions=None if said == plain else said)


_BEFORE = (3, 5)
"""So many tokens in front of a picture tell which of its positions count from where it begins."""


def _around(picture: Picture, before: int) -> list[int]:
    """A prompt with a picture, and so many tokens in front of it."""
    return [*[1] * before, *[picture.token] * picture.rows, 1, 1]


def _calls(model: Any, picture: Picture, row: list[int]) -> list[dict[str, Any]]:
    """The arguments that `generate` gives the decoder, step by step."""
    ids, calls = torch.tensor([row]), list[dict[str, Any]]()
    hook = decoder_of(model).register_forward_pre_hook(
        lambda module, args, kwargs: calls.append(dict(kwargs)), with_kwargs=True
    )
    with hook, torch.no_grad(), model_runs(model, "generate for a prompt with a picture"):
        generated(
            model, input_ids=ids, attention_mask=torch.ones_like(ids), **picture.arrays,
            **token_types(model, picture, ids), do_sample=False, max_new_tokens=2, pad_token_id=0,
        )  # fmt: skip
    return calls


def export_parts(
    model: Any, picture: Picture, files: Mapping[str, Path], decoder: str, **options: Any
) -> tuple[dict[str, ExportResult], Step]:
    """Write the three files; ``decoder`` is the name of the last one."""
    vision, embedding = VisionPart(model, picture).eval(), EmbeddingPart(model, picture.token).eval()
    ids = random_tokens(model, 2, 5)
    results = {
        VISION: export(vision, (picture.pixels,), files[VISION], input_names=[picture.name], **options),
        EMBEDDING: export(
            embedding, (ids,), files[EMBEDDING], input_names=["input_ids"],
            dynamic_axes={"input_ids": {0: "batch", 1: "sequence"}}, **options,
        ),
    }  # fmt: skip
    writer = decoder_of(model)
    step = _step(writer, embedding, picture)
    part = seeing_decoder(model, embedding, picture).eval() if picture.types or picture.deep else writer
    results[decoder] = export_step(part, files[decoder], step, **options)
    return results, step


def seeing_decoder(model: Any, embedding: EmbeddingPart, picture: Picture) -> SeeingDecoder:
    """The decoder that masks a prompt with a picture as `generate` does: some mask otherwise than they say."""
    from transformers import DynamicCache

    usual = SeeingDecoder(decoder_of(model), picture)
    if not picture.types or picture.deep:
        return usual
    ids = torch.tensor([_around(picture, _BEFORE[0])])
    types = token_types(model, picture, ids)
    given = _calls(model, picture, ids[0].tolist())[0]
    with torch.no_grad(), model_runs(model, "a prompt with a picture"):
        told = {**embedding(ids), **types, "attention_mask": torch.ones_like(ids)}
        told[EMBEDDINGS][ids == picture.token] = VisionPart(model, picture)(picture.pixels)[FEATURES]
        told["position_ids"] = given.get("position_ids")
        wanted = usual.model(**given | {"past_key_values": DynamicCache()}).logits[:, -1]
        for part in (usual, SeeingDecoder(usual.model, picture, masks_itself=True)):
            scores = part(**told, past_key_values=DynamicCache())["logits"][:, -1]
            if torch.allclose(scores, wanted, rtol=_RTOL, atol=_RTOL * float(wanted.abs().max())):
                return part
    return usual  # the proof says what comes of it


def _step(model: Any, embedding: EmbeddingPart, picture: Picture) -> Step:
    """The step of a decoder, with vectors in the place of tokens."""
    step = decoder_step(model)
    if step.whole_text:
        raise TonnxError(f"there is no package for a {type(model).__name__}", why="it has no cache that serves")
    ids, dynamic = step.kwargs.pop("input_ids"), step.axes.pop("input_ids")
    with torch.no_grad():
        of_tokens = embedding(ids)
    vectors = of_tokens[EMBEDDINGS]
    step.kwargs = {EMBEDDINGS: vectors, **step.kwargs, **of_tokens}
    step.axes = {EMBEDDINGS: dynamic, **step.axes, **dict.fromkeys(of_tokens, dynamic)}
    if picture.types:
        name = picture.types["name"]
        step.kwargs[name], step.axes[name] = torch.full_like(ids, picture.types["new"]), dynamic
    if picture.deep:
        step.kwargs[PLACES], step.axes[PLACES] = torch.zeros_like(ids, dtype=torch.bool), dynamic
        step.kwargs[PLACES][1, :2] = True
        for layer in range(picture.deep):
            step.kwargs[f"{DEEP}{layer}"] = vectors[1, :2] / (layer + 2)
            step.axes[f"{DEEP}{layer}"] = {0: "picture_rows"}
    axes = len(picture.positions["first"]) if picture.positions else 1
    if axes > 1 and "position_ids" in step.kwargs:
        step.kwargs["position_ids"] = step.kwargs["position_ids"].repeat(axes, 1, 1)
        step.axes["position_ids"] = {axis + 1: word for axis, word in dynamic.items()}
    return step


def prove_pictures(package: Package, model: Any, picture: Picture) -> float:
    """What the package makes of a picture and of tokens, before its decoder: the largest difference."""
    ids = random_tokens(model, 3, 7)
    with torch.no_grad():
        rows = torch.cat([*VisionPart(model, picture)(picture.pixels).values()], dim=-1)
        of_tokens = EmbeddingPart(model, picture.token)(ids)
    actual_tokens = package.decoder.embedded(ids.numpy())
    pairs = [("the vision encoder", rows, package.features(picture.pixels.numpy()))]
    pairs += [("the embedding", wanted, actual_tokens[name]) for name, wanted in of_tokens.items()]
    return max(compared(stage, wanted, actual) for stage, wanted, actual in pairs)
