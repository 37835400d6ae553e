"""A model that reads pictures among the tokens of a text: as vision encoder, embedding and decoder.

How a picture becomes arrays is asked of the checkpoint's image processor, what the network makes of it of
`get_image_features`. One picture of the size that the processor gives goes through the encoder at a time; what else the
processor says of it (grids, sizes, masks) is fixed in the file. Its rows take the places of the picture's tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tonnx.api.export import export
from tonnx.api.result import ExportResult
from tonnx.errors import InvalidModel, TonnxError, VerificationFailed
from tonnx.packages.decoder import Step, check_state, decoder_step, model_runs, random_tokens
from tonnx.run.decoding import EMBEDDINGS, FEATURES
from tonnx.run.package import Package

VISION, EMBEDDING = "vision_encoder.onnx", "embed_tokens.onnx"
"""As transformers.js calls them."""

_RTOL = 1e-3


class VisionPart(torch.nn.Module):
    """What reads one picture: a row for each of its tokens."""

    def __init__(self, model: Any, fixed: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.model, self._names = model, tuple(fixed)
        for name, tensor in fixed.items():  # buffers: what they decide is decided when the file is written
            self.register_buffer(name, tensor)

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        result = self.read(pixel_values)
        rows = getattr(result, "pooler_output", result)
        rows = torch.cat(list(rows), 0) if isinstance(rows, (list, tuple)) else rows
        return {FEATURES: rows.reshape(-1, rows.shape[-1])}

    def read(self, pixel_values: torch.Tensor) -> Any:
        """What the model makes of a picture, as it gives it."""
        return _reader(self.model)(pixel_values=pixel_values, **{name: getattr(self, name) for name in self._names})


class EmbeddingPart(torch.nn.Module):
    """Tokens as the vectors that the decoder reads."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embedding = model.get_input_embeddings()

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {EMBEDDINGS: self.embedding(input_ids)}


class TypedDecoder(torch.nn.Module):
    """A decoder that shows tokens of a picture, or of a prompt, those after them: masked as `generate` masks it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, inputs_embeds: torch.Tensor, attention_mask: torch.Tensor, past_key_values: Any, use_cache: bool = True,
        position_ids: torch.Tensor | None = None, **types: torch.Tensor,
    ) -> dict[str, Any]:  # fmt: skip
        others = {"past_key_values": past_key_values, "position_ids": position_ids}
        masks = masks_of(self.model, inputs_embeds, attention_mask, types, **others)
        result = self.model(
            inputs_embeds=inputs_embeds, attention_mask=masks, **others, use_cache=use_cache, return_dict=True
        )
        return {"logits": result.logits, "past_key_values": result.past_key_values}


def masks_of(model: Any, vectors: torch.Tensor, mask: torch.Tensor, types: Mapping[str, Any], **others: Any) -> Any:
    """What each token may see, as transformers' `generate` asks the model."""
    return model.create_masks_for_generate(
        config=model.config, inputs_embeds=vectors, attention_mask=mask, is_first_iteration=True, **types, **others
    )


@dataclass(frozen=True)
class Picture:
    """A picture as the model takes it, and the token that stands for each of its rows."""

    arrays: dict[str, torch.Tensor]
    token: int
    rows: int
    types: dict[str, Any] = field(default_factory=dict)
    """Of what kind tokens are, where masks depend on it: the argument's name, and what those of pictures, texts and new
    ones are."""
    positions: dict[str, list[Any]] | None = None
    """How positions differ from places: in front of a picture, in it, and after it, for each axis."""

    @property
    def pixels(self) -> torch.Tensor:
        return self.arrays["pixel_values"]

    @property
    def fixed(self) -> dict[str, torch.Tensor]:
        """All that is the same for every picture of this size."""
        return {name: array for name, array in self.arrays.items() if name != "pixel_values"}


def is_vision_language(model: Any) -> bool:
    """Whether it reads pictures among the tokens of a text."""
    return _reader(model) is not None and "inputs_embeds" in inspect.signature(model.forward).parameters


def _reader(model: Any) -> Any:
    """What makes rows of pictures: a method of the model, or of what is in it without a head."""
    return getattr(model, "get_image_features", getattr(model.base_model, "get_image_features", None))


def read_picture(model: Any, processor: Any, seed: int = 0) -> Picture:
    """A random picture, as the checkpoint's processor prepares it."""
    from PIL import Image

    if processor is None:
        raise InvalidModel(
            "the checkpoint does not say how pictures are prepared", why="it has no preprocessor_config.json"
        )
    config = model.config
    token = getattr(config, "image_token_id", getattr(config, "image_token_index", None))
    if not isinstance(token, int):
        raise InvalidModel(f"{type(model).__name__} does not say which token stands for a picture")
    side = _side(processor)
    noise = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    with model_runs(model, f"a picture of {side} times {side} pixels"), torch.no_grad():
        prepared = processor(images=Image.fromarray(noise), return_tensors="pt")
        taken = inspect.signature(model.forward).parameters
        arrays = {name: tensor for name, tensor in prepared.items() if name in taken and torch.is_tensor(tensor)}
        fixed = {name: tensor for name, tensor in arrays.items() if name != "pixel_values"}
        part = VisionPart(model, fixed)
        rows, deep = part(arrays["pixel_values"])[FEATURES], part.read(arrays["pixel_values"])
    if getattr(deep, "deepstack_features", None):
        raise TonnxError(
            f"there is no package for a {type(model).__name__} yet",
            why="its pictures go into several layers of the decoder (deepstack_features), not among the tokens alone",
            hint="tonnx.export takes its parts one by one",
        )
    return _asked_of_generate(model, Picture(arrays, token, len(rows), _types(model)))


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
    from transformers import GenerationMixin

    before, end = 3, 3 + picture.rows
    row = [*[1] * before, *[picture.token] * picture.rows, 1, 1]
    ids, calls = torch.tensor([row]), list[dict[str, Any]]()
    hook = model.register_forward_pre_hook(lambda module, args, kwargs: calls.append(dict(kwargs)), with_kwargs=True)
    try:
        with torch.no_grad(), model_runs(model, "generate for a prompt with a picture"):
            GenerationMixin.generate(
                model, input_ids=ids, attention_mask=torch.ones_like(ids), **picture.arrays,
                **token_types(model, picture, ids), do_sample=False, max_new_tokens=2, pad_token_id=0,
            )  # fmt: skip
    finally:
        hook.remove()
    types = dict(picture.types)
    if types and (new := calls[-1].get(types["name"])) is not None:
        types["new"] = int(new[0, -1])
    given = calls[0].get("position_ids")
    if given is None:
        return replace(picture, types=types)
    axes = given.reshape(-1, len(row))  # one, or several for each place
    said = {
        "first": axes[:, 0].tolist(),
        "picture": (axes[:, before:end] - before).tolist(),
        "after": (axes[:, end] - end).tolist(),
    }
    plain = {"first": [0], "picture": [[*range(picture.rows)]], "after": [0]}
    return replace(picture, types=types, positions=None if said == plain else said)


def _side(processor: Any) -> int:
    """The side of a square picture that is near what the processor makes of any."""
    sizes = [getattr(processor, name, None) for name in ("crop_size", "size")]
    numbers = [
        int(size)
        for each in sizes
        for name in ("height", "shortest_edge", "longest_edge")
        if isinstance(size := (each or {}).get(name) if hasattr(each, "get") else None, int)
    ]
    return min([number for number in numbers if number < 4096], default=224)


def export_parts(
    model: Any, picture: Picture, files: Mapping[str, Path], decoder: str, **options: Any
) -> tuple[dict[str, ExportResult], Step]:
    """Write the three files; ``decoder`` is the name of the last one."""
    vision, embedding = VisionPart(model, picture.fixed).eval(), EmbeddingPart(model).eval()
    ids = random_tokens(model, 2, 5)
    results = {
        VISION: export(vision, (picture.pixels,), files[VISION], input_names=["pixel_values"], **options),
        EMBEDDING: export(
            embedding, (ids,), files[EMBEDDING], input_names=["input_ids"],
            dynamic_axes={"input_ids": {0: "batch", 1: "sequence"}}, **options,
        ),
    }  # fmt: skip
    step = _step(model, embedding, picture)
    part = TypedDecoder(model).eval() if picture.types else model
    results[decoder] = export(part, (), files[decoder], kwargs=step.kwargs, dynamic_axes=step.axes, **options)
    check_state(results[decoder], step)
    return results, step


def _step(model: Any, embedding: EmbeddingPart, picture: Picture) -> Step:
    """The step of a decoder, with vectors in the place of tokens."""
    step = decoder_step(model)
    if step.whole_text:
        raise TonnxError(f"there is no package for a {type(model).__name__}", why="it has no cache that serves")
    ids, dynamic = step.kwargs.pop("input_ids"), step.axes.pop("input_ids")
    with torch.no_grad():
        vectors = embedding(ids)[EMBEDDINGS]
    step.kwargs = {EMBEDDINGS: vectors, **step.kwargs}
    step.axes = {EMBEDDINGS: dynamic, **step.axes}
    if picture.types:
        name = picture.types["name"]
        step.kwargs[name], step.axes[name] = torch.full_like(ids, picture.types["new"]), dynamic
    axes = len(picture.positions["first"]) if picture.positions else 1
    if axes > 1 and "position_ids" in step.kwargs:
        step.kwargs["position_ids"] = step.kwargs["position_ids"].repeat(axes, 1, 1)
        step.axes["position_ids"] = {axis + 1: word for axis, word in dynamic.items()}
    return step


def prove_pictures(package: Package, model: Any, picture: Picture) -> float:
    """What the package makes of a picture and of tokens, before its decoder: the largest difference."""
    ids = random_tokens(model, 3, 7)
    with torch.no_grad():
        pairs = [
            ("vision encoder", VisionPart(model, picture.fixed)(picture.pixels)[FEATURES],
             package.features(picture.pixels.numpy())),
            ("embedding", EmbeddingPart(model)(ids)[EMBEDDINGS], package.decoder.embedded(ids.numpy())),
        ]  # fmt: skip
    worst = 0.0
    for stage, wanted, actual in pairs:
        expected = wanted.float().numpy()
        difference = float(np.abs(actual - expected).max() / max(np.abs(expected).max(), 1e-9))
        if not difference <= _RTOL:
            raise VerificationFailed(f"the {stage} differs from the model's by {difference:.2g} of the largest value")
        worst = max(worst, difference)
    return worst
