"""A model that reads pictures among the tokens of a text: as vision encoder, embedding and decoder.

How a picture becomes arrays is asked of the checkpoint's image processor, what the network makes of it of
`get_image_features`. One picture of the size that the processor gives goes through the encoder at a time; what else the
processor says of it (grids, sizes, masks) is fixed in the file. Its rows take the places of the picture's tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
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
        fixed = {name: getattr(self, name) for name in self._names}
        result = self.model.get_image_features(pixel_values=pixel_values, **fixed)
        rows = getattr(result, "pooler_output", result)
        rows = torch.cat(list(rows), 0) if isinstance(rows, (list, tuple)) else rows
        return {FEATURES: rows.reshape(-1, rows.shape[-1])}


class EmbeddingPart(torch.nn.Module):
    """Tokens as the vectors that the decoder reads."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embedding = model.get_input_embeddings()

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {EMBEDDINGS: self.embedding(input_ids)}


@dataclass(frozen=True)
class Picture:
    """A picture as the model takes it, and the token that stands for each of its rows."""

    arrays: dict[str, torch.Tensor]
    token: int
    rows: int

    @property
    def pixels(self) -> torch.Tensor:
        return self.arrays["pixel_values"]

    @property
    def fixed(self) -> dict[str, torch.Tensor]:
        """All that is the same for every picture of this size."""
        return {name: array for name, array in self.arrays.items() if name != "pixel_values"}


def is_vision_language(model: Any) -> bool:
    """Whether it reads pictures among the tokens of a text."""
    return hasattr(model, "get_image_features") and "inputs_embeds" in inspect.signature(model.forward).parameters


def read_picture(model: Any, processor: Any, seed: int = 0) -> Picture:
    """A random picture, as the checkpoint's processor prepares it."""
    from PIL import Image

    if processor is None:
        raise InvalidModel(
            "the checkpoint does not say how pictures are prepared", why="it has no preprocessor_config.json"
        )
    if "token_type_ids" in inspect.signature(model.forward).parameters:
        raise TonnxError(
            f"there is no package for a {type(model).__name__} yet",
            why="its tokens of a picture, or of a prompt, see those that come after them (token_type_ids)",
            hint="tonnx.export takes its parts one by one",
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
        rows = VisionPart(model, fixed)(arrays["pixel_values"])[FEATURES]
    return Picture(arrays, token, len(rows))


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
    step = _step(model, embedding)
    results[decoder] = export(model, (), files[decoder], kwargs=step.kwargs, dynamic_axes=step.axes, **options)
    check_state(results[decoder], step)
    return results, step


def _step(model: Any, embedding: EmbeddingPart) -> Step:
    """The step of a decoder, with vectors in the place of tokens."""
    step = decoder_step(model)
    if step.whole_text or step.one_token:
        raise TonnxError(f"there is no package for a {type(model).__name__}", why="it has no cache that grows")
    with torch.no_grad():
        vectors = embedding(step.kwargs.pop("input_ids"))[EMBEDDINGS]
    step.kwargs = {EMBEDDINGS: vectors, **step.kwargs}
    step.axes = {EMBEDDINGS: step.axes.pop("input_ids"), **step.axes}
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
