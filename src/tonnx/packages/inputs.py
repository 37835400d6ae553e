"""What a model that takes its input whole is called with: texts, pictures, sounds, series, or several of them.

Which of them is read off its signature, how they look off what the checkpoint prepares them with, and in which form
they go together is tried on the model itself: a text for each picture or any number of them, pictures or films, all
that an image processor makes or the pixels alone.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tonnx.errors import TonnxError
from tonnx.packages.decoder import model_runs, random_array, random_tokens

Axes = dict[str, dict[int, str]]

ANY = 0
_SECOND = 16_000
"""Samples: what nearly every model of speech is made for."""
_BOXES = 1000
"""Boxes of words lie on a page of so many units: what nearly every model of documents is made for."""
EXAMPLE = {"batch": 2, "text_batch": 2, "sequence": 7, "choices": 3, "points": 3, "samples": _SECOND}
_OTHERS = (
    {"batch": 1, "text_batch": 1, "sequence": 9, "choices": 2, "points": 1, "samples": 6 * _SECOND // 10},
    {"batch": 3, "text_batch": 3, "sequence": 8, "choices": 4, "points": 4, "samples": 13 * _SECOND // 10},
)
"""Sizes of the example, and of what the package is tried with. Sounds are in samples of a sixteen thousandth second."""


@dataclass(frozen=True)
class Preparation:
    """What a checkpoint has for its inputs, each None where it says nothing of it; and what it is for."""

    extractor: Any = None
    processor: Any = None
    tokenizer: Any = None
    task: str = ""


@dataclass(frozen=True)
class Call:
    """A form in which a model takes its inputs."""

    model: Any
    beside: Preparation
    groups: tuple[str, ...]
    texts: int = 1
    """So many for each picture or sound; `ANY`: any number of them for all."""
    pixels: str = "alone"
    """Of what an image processor makes `alone`, or `all`; without one `drawn`, or as `film`."""

    def make(self, sizes: Mapping[str, int] = EXAMPLE) -> dict[str, Any]:
        """Inputs of some sizes, in the order of the signature."""
        if len(self.groups) > 1:
            batch = sizes["batch"]
            count = {1: batch, 2: 2 * sizes["text_batch"]}.get(self.texts, sizes["text_batch"] + 1)
            sizes = {**sizes, "text_batch": count}
        made = {name: value for group in self.groups for name, value in _GROUPS[group].make(self, sizes).items()}
        taken = [*inspect.signature(self.model.forward).parameters]
        if self.model.main_input_name not in taken:  # an encoder, called as `generate` calls it
            taken += [self.model.main_input_name, "attention_mask"]
        given = {name: made[name] for name in taken if name in made}
        return given | ({"use_cache": False} if "use_cache" in taken else {})

    def with_texts(self, ids: np.ndarray, mask: np.ndarray) -> dict[str, Any]:
        given = self.make({**EXAMPLE, "batch": EXAMPLE["batch"] if self.free_texts else len(ids)})
        texts = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return given | {name: torch.from_numpy(array) for name, array in texts.items() if name in given}

    @property
    def free_texts(self) -> bool:
        """Whether texts need not be as many as pictures or sounds."""
        return len(self.groups) > 1 and self.texts != 1

    @property
    def axes(self) -> Axes:
        """Which axes of the inputs are dynamic: those that move with a size."""
        larger, axes = {word: self.make(_larger(word)) for word in EXAMPLE}, Axes()
        for name, value in self.make().items():
            if not isinstance(value, torch.Tensor):
                continue
            moved = {
                axis: self._named(word, value, name)
                for word, others in larger.items()
                for axis, (size, other) in enumerate(zip(value.shape, others[name].shape, strict=True))
                if size != other
            }
            axes[name] = dict(sorted(moved.items()))
        return axes

    def _named(self, word: str, value: torch.Tensor, name: str) -> str:
        if word == "samples":
            return word if value.dim() == 2 else "frames"
        if word == "batch" and self.free_texts:
            return "image_batch" if "pictures" in self.groups else "audio_batch"
        return "batch" if word == "text_batch" and not self.free_texts else word

    @property
    def name(self) -> str | None:
        """Of the input that is no text; None if it takes texts alone."""
        given, main = self.make(), self.model.main_input_name
        names = [name for group in self.groups if group != "texts" for name in _GROUPS[group].names if name in given]
        own = main if main in given and main not in _GROUPS["texts"].names else None
        return own or next(iter(names), None)

    @property
    def is_plain_text(self) -> bool:
        """Whether it takes nothing but tokens and what says which of them count."""
        given, plain = self.make(), {"input_ids", "attention_mask", "token_type_ids", "use_cache"}
        return {*given} <= plain and given["input_ids"].dim() < 3

    @property
    def others(self) -> Iterator[dict[str, Any]]:
        return (self.make(sizes) for sizes in _OTHERS)


def _larger(word: str) -> dict[str, int]:
    return {**EXAMPLE, word: EXAMPLE[word] * 6 // 5 if word == "samples" else EXAMPLE[word] + 1}


def takes_text(model: Any) -> bool:
    """Whether it reads token ids; else it is pictures or sounds."""
    return bool(model.main_input_name == "input_ids")


def call_of(model: Any, beside: Preparation) -> Call:
    """The first form in which a model takes an example. Says why it takes none."""
    failure: Exception | None = None
    for call in _forms(model, beside):
        try:
            with torch.no_grad():
                model(**call.make())
            return call
        except Exception as error:  # noqa: BLE001 (the code of transformers, or of the checkpoint; raised below)
            failure = failure or (error if call.texts == 1 else None)
    with model_runs(model, "an example of what it takes"):
        raise failure or TonnxError(
            f"there is no package for a model that takes {model.main_input_name!r}",
            why=f"tonnx makes packages of models that take {', '.join(_known())}, and of those whose checkpoint has a "
            "preprocessor_config.json that makes their input of a sound",
            hint="tonnx.export takes the model itself, with an example of yours",
        )


def _known() -> list[str]:
    return [name for group in _GROUPS.values() for name in group.names]


def _forms(model: Any, beside: Preparation) -> Iterator[Call]:
    """Forms of a model's inputs, those that it is made for first."""
    names = [*inspect.signature(model.forward).parameters, model.main_input_name]
    if beside.extractor is None and model.main_input_name not in {*_known()} - {*_SOUNDS[1:]}:
        return  # there is no saying what it looks like
    every = tuple(kind for kind, group in _GROUPS.items() if any(name in names for name in group.names))
    if beside.extractor is None and _SOUNDS[0] not in names:
        every = tuple(kind for kind in every if kind != "sounds")
    main = tuple(kind for kind in every if model.main_input_name in _GROUPS[kind].names)
    if not main and beside.extractor is not None:
        main, every = ("sounds",), (*every, "sounds")
    ways = ("alone", "all") if beside.processor is not None else ()
    for groups in dict.fromkeys((every, main or every)):
        several = len(groups) > 1 and "texts" in groups
        for pixels in (*ways, "drawn", "film") if "pictures" in groups else ("",):
            for texts in (ANY, 2, 1) if several else (1,):
                yield Call(model, beside, groups, texts, pixels)


# What there is of each kind


@dataclass(frozen=True)
class _Group:
    names: tuple[str, ...]
    """Arguments that say that a model takes it."""
    make: Callable[[Call, Mapping[str, int]], dict[str, Any]]


def _texts(call: Call, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Token ids; at the end of the last text is padding."""
    model, length = call.model, sizes["sequence"]
    choices = [sizes["choices"]] if call.beside.task == "multiple-choice" else []
    shape = (sizes["text_batch"], *choices, length)
    ids = random_tokens(model, math.prod(shape[:-1]), length)
    mask = torch.ones_like(ids)
    mask[-1, -3:] = 0
    boxes = torch.from_numpy(np.random.default_rng(ids.numel()).integers(0, _BOXES, (*shape, 2, 2)))
    made = {"input_ids": ids.reshape(shape), "attention_mask": mask.reshape(shape)}
    made["bbox"] = boxes.sort(-2).values.reshape(*shape, 4)
    if getattr(model.config.get_text_config(), "type_vocab_size", 0) > 1:
        made["token_type_ids"] = torch.zeros(shape, dtype=torch.long)
    if len(call.groups) > 1 and "attention_mask" not in getattr(call.beside.tokenizer, "model_input_names", made):
        del made["attention_mask"]  # texts are filled up to one length, and nothing tells padding
    return made


def _pictures(call: Call, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Of the size that the image processor makes, or the model is made for."""
    batch, config = sizes["batch"], call.model.config
    if call.pixels in ("alone", "all"):
        from tonnx.packages.pictures import random_image

        images = [random_image(call.beside.processor, seed) for seed in range(batch)]
        made = dict(call.beside.processor(images=images, return_tensors="pt"))
        if any(len(array) != batch for array in made.values() if isinstance(array, torch.Tensor)):
            raise ValueError("several pictures are one input")  # the frames of a film
        return made if call.pixels == "all" else {name: made[name] for name in PICTURES if name in made}
    name = next((name for name in PICTURES if name == call.model.main_input_name), PICTURES[0])
    parts = [getattr(config, name, None) for name in ("vision_config", "backbone_config")]
    vision = next((part for part in (*parts, config) if getattr(part, "image_size", None)), config)
    frames = [getattr(vision, "num_frames", None) or vision.frames_per_clip] if call.pixels == "film" else []
    return {name: random_array(batch, *frames, *_picture_shape(vision))}


def _picture_shape(config: Any) -> tuple[int, int, int]:
    size = getattr(config, "image_size", None) or getattr(config, "crop_size", None) or 224
    height, width = (size, size) if isinstance(size, int) else size
    return getattr(config, "num_channels", None) or 3, height, width


def _sounds(call: Call, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Sounds of so many samples, as the extractor makes them."""
    model, batch, extractor = call.model, sizes["batch"], call.beside.extractor
    seconds = sizes["samples"] / _SECOND
    if extractor is not None:
        rate = int(extractor.sampling_rate)
        sounds = [np.random.default_rng(place).normal(0, 0.1, int(seconds * rate)) for place in range(batch)]
        prepared = extractor([sound.astype(np.float32) for sound in sounds], sampling_rate=rate, return_tensors="pt")
        for name in (model.main_input_name, *_SOUNDS):
            if name in prepared:
                return {name: prepared[name].float()}
    return {_SOUNDS[0]: random_array(batch, sizes["samples"])}


def _points(call: Call, sizes: Mapping[str, int]) -> dict[str, Any]:
    shape = (sizes["batch"], 1, sizes["points"])
    return {"input_points": random_array(*shape, 2).abs() * 9, "input_labels": torch.ones(shape, dtype=torch.long)}


def _series(call: Call, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Numbers of the past, of one or several channels."""
    config = call.model.config
    channels = getattr(config, "num_input_channels", None)
    return {"past_values": random_array(sizes["batch"], config.context_length, *([channels] if channels else []))}


PICTURES = ("pixel_values", "pixel_values_videos", "flattened_patches")
_SOUNDS = ("input_values", "input_features")
_GROUPS = {
    "texts": _Group(("input_ids",), _texts),
    "pictures": _Group(PICTURES, _pictures),
    "points": _Group(("input_points",), _points),
    "sounds": _Group(_SOUNDS, _sounds),
    "series": _Group(("past_values",), _series),
}
