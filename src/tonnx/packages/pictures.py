"""A picture as a model takes it: as arrays that the checkpoint's processor makes, and what writes of it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from tonnx.errors import InvalidModel, TonnxError
from tonnx.packages.decoder import model_runs
from tonnx.run.decoding import FEATURES, NO_TOKEN
from tonnx.run.package import Package


@dataclass(frozen=True)
class Picture:
    """A picture as the model takes it, and the token that stands for each of its rows."""

    arrays: dict[str, torch.Tensor]
    token: int
    name: str
    """Of the array with its pixels."""
    several: Callable[[int], dict[str, torch.Tensor]] = lambda count: {}
    """The arrays of the same picture so many times: how they lie is the processor's business."""
    rows: int = 0
    deep: int = 0
    """How many layers of the decoder take further rows."""
    types: dict[str, Any] = field(default_factory=dict)
    """Of what kind tokens are, where masks depend on it: the argument's name, and what those of pictures, texts and new
    ones are."""
    positions: dict[str, list[Any]] | None = None
    """How positions differ from places: in front of a picture, in it, and after it, for each axis."""

    @property
    def pixels(self) -> torch.Tensor:
        return self.arrays[self.name]

    @property
    def fixed(self) -> dict[str, torch.Tensor]:
        """All that is the same for every picture of this size."""
        return {name: array for name, array in self.arrays.items() if name != self.name}

    def context(self, package: Package, count: int) -> dict[str, np.ndarray]:
        """What the package's decoder is given of the same picture so many times."""
        return {FEATURES: np.stack([package.features(self.pixels.numpy())] * count)}

    def asked(self, model: Any, ids: torch.Tensor) -> dict[str, Any]:
        """What `generate` is asked with beside prompts that have it."""
        return self.several(len(ids))


def reader_of(model: Any) -> Any:
    """What makes rows of pictures: a method of the model, or of what is in it without a head."""
    return getattr(model, "get_image_features", getattr(model.base_model, "get_image_features", None))


def decoder_of(model: Any) -> Any:
    """What writes: the model itself, or a part of it, if it hands over to that when it is asked to generate."""
    from transformers import GenerationMixin

    if type(model).generate is GenerationMixin.generate:
        return model
    parts = (part for part in model.modules() if isinstance(part, GenerationMixin) and part is not model)
    return next(parts, model)


def random_picture(model: Any, processor: Any, seed: int = 0) -> Picture:
    """A picture, as the checkpoint's processor prepares it; nothing is known yet of what the model makes of it."""
    if processor is None:
        raise InvalidModel(
            "the checkpoint does not say how pictures are prepared", why="it has no preprocessor_config.json"
        )
    if not takes_pixels(model):
        raise no_package(model, "neither it nor its generate takes pixel_values")
    noise = random_image(processor, seed)
    with model_runs(processor, f"a picture of {noise.width} times {noise.height} pixels"):
        arrays = _prepared(model, processor, noise)
    name = next((name for name in arrays if name.startswith("pixel_values")), None)
    if name is None:
        raise no_package(model, "its image processor gives no pixels that the model takes")
    return Picture(arrays, picture_token(model), name, partial(_several, model, processor, noise, arrays))


def takes_pixels(model: Any) -> bool:
    takers = [each for each in (model.forward, type(model).generate, reader_of(model)) if each is not None]
    return any(name.startswith("pixel_values") for each in takers for name in inspect.signature(each).parameters)


def random_image(processor: Any, seed: int) -> Any:
    """Noise of a size that is near what the processor makes of any picture."""
    from PIL import Image

    side = _side(processor)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8))


def no_package(model: Any, why: str) -> TonnxError:
    return TonnxError(
        f"there is no package for a {type(model).__name__} yet", why=why, hint="tonnx.export takes its parts one by one"
    )


def picture_token(model: Any) -> int:
    """The token that stands for a picture, or for a part of it; NO_TOKEN: the config names none."""
    token = getattr(model.config, "image_token_id", getattr(model.config, "image_token_index", None))
    return token if isinstance(token, int) else NO_TOKEN


def needed(function: Any) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.default is inspect.Parameter.empty and each.kind in kinds]


def _prepared(model: Any, processor: Any, images: Any) -> dict[str, torch.Tensor]:
    """What of the processor's arrays the model takes."""
    prepared = processor(images=images, return_tensors="pt")
    if torch.is_tensor(prepared):  # the pictures of one text
        prepared = {"pixel_values": prepared[None]}
    readers = [each for each in (model.forward, reader_of(model)) if each is not None]
    taken = {name for each in readers for name in inspect.signature(each).parameters}
    arrays = {name: tensor for name, tensor in prepared.items() if name in taken and torch.is_tensor(tensor)}
    # As the model's weights are: some processors give half of that (Llama 4's).
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in arrays.items()}


def _several(
    model: Any, processor: Any, image: Any, one: Mapping[str, torch.Tensor], count: int
) -> dict[str, torch.Tensor]:
    """The arrays of so many texts with the same picture: one after the other, unless the processor has another way."""
    joined = {name: torch.cat([array] * count) for name, array in one.items()}
    ways: list[dict[str, torch.Tensor]] = []
    for images in ([image] * count, [[image]] * count):
        with contextlib.suppress(ValueError, TypeError, AttributeError, RuntimeError):  # it does not take them so
            ways.append(_prepared(model, processor, images))
    shapes = {name: array.shape for name, array in joined.items()}
    as_joined = not ways or any({name: array.shape for name, array in way.items()} == shapes for way in ways)
    return joined if as_joined else ways[0]


def generated(model: Any, **asked: Any) -> Any:
    """What transformers' `generate` gives, the common one, which models of speech hide behind their own.

    Of a model that hands over to a part of it, its own; without pictures, that of the part.
    """
    from transformers import GenerationMixin

    decoder = decoder_of(model)
    if decoder is not model and {*needed(type(model).generate)} - {"self"} <= asked.keys():
        return model.generate(**asked)
    return GenerationMixin.generate(decoder, **asked)


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
