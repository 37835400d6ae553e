"""Many pictures or arrays through a model: prepared, batched, run, concluded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tonnx.errors import InvalidArgument
from tonnx.run.after import Answer, conclude
from tonnx.run.before import Prepared, prepare
from tonnx.run.pictures import MOST_PIXELS, open_picture, plain

if TYPE_CHECKING:
    from tonnx.run.model import Model
    from tonnx.run.recipe import Recipe

T = TypeVar("T")


def predict(model: Model, pictures: Sequence[Any], most_pixels: int = MOST_PIXELS) -> list[Answer]:
    """The answers for a batch of pictures, given by path or as Pillow's."""
    recipe = recipe_of(model)
    prepared = [prepare(_opened(picture, most_pixels), recipe) for picture in pictures]
    outputs = model.run(_feeds(model, recipe, prepared))
    return [conclude(one, state, recipe) for one, state in zip(_apart(model, outputs, prepared), prepared, strict=True)]


def prepared_feeds(model: Model, pictures: Sequence[Any]) -> dict[str, np.ndarray]:
    """What the model takes for a batch of pictures."""
    recipe = recipe_of(model)
    return _feeds(model, recipe, [prepare(_opened(picture, MOST_PIXELS), recipe) for picture in pictures])


def picture_batch(model: Model, pictures: Sequence[Any]) -> np.ndarray:
    recipe = recipe_of(model)
    return _stacked([prepare(_opened(picture, MOST_PIXELS), recipe) for picture in pictures])


def recipe_of(model: Model) -> Recipe:
    """The model's recipe, or an error that says how to give one."""
    if model.recipe is None:
        from tonnx.run.recipe import ready_recipes

        raise InvalidArgument(
            "the model has no recipe, so it is not known how a picture becomes its input",
            hint=f"give one with --recipe: {', '.join(ready_recipes())}, or a file of your own; recipe= in Python",
        )
    return model.recipe


def batches(model: Model, paths: Iterable[T], size: int | None) -> Iterator[list[T]]:
    """Paths in groups that the model takes at once."""
    fixed = _batch_of(model)
    if size is not None and isinstance(fixed, int) and size != fixed:
        raise InvalidArgument(
            f"the model takes batches of {fixed}, not of {size}", hint="export it with a dynamic first dimension"
        )
    count = size or (fixed if isinstance(fixed, int) else 1)
    if count < 1:
        raise InvalidArgument(f"a batch has at least one picture, not {count}")
    rest = iter(paths)
    while group := list(islice(rest, count)):
        yield group


def _batch_of(model: Model) -> int | str | None:
    return _picture_port(model).shape[0] if _picture_port(model).shape else None


def _picture_port(model: Model) -> Any:
    """The input that takes the picture: the one that the recipe names, or the first of rank 4."""
    by_role = {role: name for name, role in (model.recipe.inputs if model.recipe else {}).items()}
    if "picture" in by_role:
        name = by_role["picture"]
        if name not in model.inputs:
            raise InvalidArgument(f"the model has no input {name!r}", why=f"it has {', '.join(model.inputs)}")
        return model.inputs[name]
    pictures = [port for port in model.inputs.values() if len(port.shape) == 4]
    return (pictures or list(model.inputs.values()))[0]


def _opened(picture: Any, most_pixels: int) -> Any:
    if isinstance(picture, (str, os.PathLike)):
        return open_picture(picture, most_pixels)
    if isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.ndim in (2, 3):
        from PIL import Image

        if picture.ndim == 2 or picture.shape[2] == 3:
            return Image.fromarray(np.ascontiguousarray(picture))
    if not hasattr(picture, "getbands"):
        kind = f"{picture.dtype}{list(picture.shape)}" if isinstance(picture, np.ndarray) else type(picture).__name__
        raise InvalidArgument(f"a picture is a path, one of Pillow's, or an array uint8[height, width, 3], not {kind}")
    return plain(picture)


def _stacked(prepared: Sequence[Prepared]) -> np.ndarray:
    arrays = [state.pixels() for state in prepared]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise InvalidArgument(
            f"pictures of a batch differ in size: {' and '.join(map(str, sorted(shapes)[:2]))}",
            hint="let the recipe resize or pad them to one size, or run them one by one (--batch 1)",
        )
    return np.stack(arrays)


def _feeds(model: Model, recipe: Recipe, prepared: Sequence[Prepared]) -> dict[str, np.ndarray]:
    port = _picture_port(model)
    batch = _stacked(prepared)
    fixed = port.shape[0] if port.shape else None
    if isinstance(fixed, int) and 0 < len(batch) < fixed:  # the last batch of a model that takes only full ones
        batch = np.concatenate([batch] + [batch[-1:]] * (fixed - len(batch)))
    feeds = {port.name: batch}
    for name, role in recipe.inputs.items():
        if role != "picture":
            kind = model.inputs[name].dtype if name in model.inputs else None
            rows = [_fact(role, state) for state in prepared]
            feeds[name] = np.asarray(rows + rows[-1:] * (len(feeds[port.name]) - len(rows)), kind or np.float32)
    return feeds


def _fact(role: str, state: Prepared) -> list[float]:
    """What detectors ask of a picture besides its pixels; height first."""
    if role == "original_size":
        return [state.original.height, state.original.width]
    if role == "network_size":
        return list(state.network_size)
    return [state.scale[1], state.scale[0]]


def _apart(model: Model, outputs: dict[str, np.ndarray], prepared: Sequence[Prepared]) -> list[dict[str, np.ndarray]]:
    """The outputs of each picture. Those that have a batch dimension are cut; others belong to a batch of one."""
    batch = _batch_of(model)
    result: list[dict[str, np.ndarray]] = [{} for _ in prepared]
    for name, array in outputs.items():
        declared = model.outputs[name].shape
        batched = bool(declared) and declared[0] == batch and (batch is not None or len(array) == len(prepared))
        if not batched and len(prepared) > 1:
            raise InvalidArgument(
                f"the output {model.outputs[name]} does not tell the pictures of a batch apart", hint="use --batch 1"
            )
        for i, one in enumerate(result):
            one[name] = array[i] if batched else array
    return result
