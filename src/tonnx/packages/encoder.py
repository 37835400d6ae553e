"""A model that takes its input whole, a text, pictures or sounds, as one file."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tonnx.api.export import export
from tonnx.api.result import ExportResult
from tonnx.errors import TonnxError, VerificationFailed
from tonnx.packages.decoder import random_array, random_tokens
from tonnx.run.package import Package

Axes = dict[str, dict[int, str]]

_RTOL = 1e-3
_SECOND = 16_000
"""Samples: what nearly every model of speech is made for."""


def export_encoder(model: Any, path: Path, extractor: Any = None, **options: Any) -> ExportResult:
    """Write the file; ``options`` are those of `tonnx.export`, ``extractor`` makes the model's input of sounds."""
    kwargs, axes = example_of(model, extractor)
    return export(model, (), path, kwargs=kwargs, dynamic_axes=axes, **options)


def example_of(model: Any, extractor: Any = None) -> tuple[dict[str, Any], Axes]:
    """What a model is exported with, and what is dynamic in it."""
    return _text_example(model) if takes_text(model) else _array_example(model, extractor)


def takes_text(model: Any) -> bool:
    """Whether it reads token ids; else it is pictures or sounds."""
    return bool(model.main_input_name == "input_ids")


def prove_encoder(package: Package, model: Any, extractor: Any = None) -> float:
    """Several batches, of texts of several lengths: the largest difference, as a part of the largest value."""
    return max(
        _text_differences(package, model) if takes_text(model) else _array_differences(package, model, extractor)
    )


# Texts: batch and sequence are dynamic, padding is masked


def _text_example(model: Any) -> tuple[dict[str, Any], Axes]:
    kwargs = _text_inputs(model, random_tokens(model, 2, 7), torch.tensor([[1] * 7, [1] * 4 + [0] * 3]))
    axes = {name: {0: "batch", 1: "sequence"} for name, value in kwargs.items() if isinstance(value, torch.Tensor)}
    return kwargs, axes


def _text_inputs(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
    parameters = inspect.signature(model.forward).parameters
    kwargs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
    if "token_type_ids" in parameters and getattr(model.config, "type_vocab_size", 0) > 1:
        kwargs["token_type_ids"] = torch.zeros_like(ids)
    if "use_cache" in parameters:
        kwargs["use_cache"] = False
    return kwargs


def _text_differences(package: Package, model: Any) -> list[float]:
    differences = []
    for lengths in ((9,), (3, 8, 5)):
        rows = [random_tokens(model, 1, length)[0].tolist() for length in lengths]
        outputs, mask = package.outputs(rows)
        ids = torch.zeros(mask.shape, dtype=torch.long)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = torch.tensor(row)
        where = f"texts of {', '.join(map(str, lengths))} tokens"
        differences.append(_difference(model, _text_inputs(model, ids, torch.from_numpy(mask)), outputs, where, mask))
    return differences


# Pictures, of the size that the model is made for, and sounds of any length


def _array_example(model: Any, extractor: Any) -> tuple[dict[str, Any], Axes]:
    name = model.main_input_name
    kwargs = arrays(model, extractor, 2, 1.0)
    longer = arrays(model, extractor, 2, 1.2)[name].shape
    word = "samples" if len(longer) == 2 else "frames"
    moving = {axis: word for axis, size in enumerate(kwargs[name].shape) if size != longer[axis]}
    return kwargs, {name: {0: "batch", **moving}}


def arrays(model: Any, extractor: Any, batch: int, seconds: float) -> dict[str, torch.Tensor]:
    """Pictures, or sounds of so many seconds, as the model takes them."""
    name = model.main_input_name
    if name == "pixel_values":
        return {name: random_array(batch, *_picture_shape(model.config))}
    if extractor is not None:
        rate = int(extractor.sampling_rate)
        sounds = [np.random.default_rng(place).normal(0, 0.1, int(seconds * rate)) for place in range(batch)]
        prepared = extractor([sound.astype(np.float32) for sound in sounds], sampling_rate=rate, return_tensors="pt")
        if name in prepared:
            return {name: prepared[name].float()}
    if name == "input_values":
        return {name: random_array(batch, int(seconds * _SECOND))}
    raise TonnxError(
        f"there is no package for a model that takes {name!r}",
        why="tonnx makes packages of models that take input_ids, pixel_values or input_values, and of those whose "
        "checkpoint has a preprocessor_config.json that makes their input of a sound",
        hint="tonnx.export takes the model itself, with an example of yours",
    )


def _picture_shape(config: Any) -> tuple[int, int, int]:
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or 224
    height, width = (size, size) if isinstance(size, int) else size
    return getattr(vision, "num_channels", None) or 3, height, width


def _array_differences(package: Package, model: Any, extractor: Any) -> list[float]:
    differences = []
    for batch, seconds in ((1, 0.6), (3, 1.3)):
        kwargs = arrays(model, extractor, batch, seconds)
        outputs = package.run({name: tensor.numpy() for name, tensor in kwargs.items()})
        differences.append(_difference(model, kwargs, outputs, f"a batch of {batch}"))
    return differences


def _difference(
    model: Any, kwargs: dict[str, Any], outputs: dict[str, np.ndarray], where: str, mask: np.ndarray | None = None
) -> float:
    worst = 0.0
    with torch.no_grad():
        wanted = model(**kwargs)
    # Parts of a result that has several have other names; the proof of the file has compared them.
    names = [name for name in outputs if name in wanted]
    if not names:
        raise VerificationFailed("no output of the package has the name of one of the model's", where=where)
    for name in names:
        array, expected = outputs[name], wanted[name].float().numpy()
        is_padded = mask is not None and expected.shape[:2] == mask.shape
        real = mask.astype(bool) if mask is not None and is_padded else slice(None)  # not what padding gives
        difference = float(np.abs(array[real] - expected[real]).max() / max(np.abs(expected[real]).max(), 1e-9))
        if not difference <= _RTOL:
            raise VerificationFailed(
                f"{name} of the package differs from the model's by {difference:.2g} of the largest value", where=where
            )
        worst = max(worst, difference)
    return worst
