"""ONNX files in Ray Data: ``tonnx.ray.Predictor`` is an actor class for ``Dataset.map_batches``.

Example::

    import ray, tonnx.ray

    ds = ray.data.read_parquet("features.parquet")            # columns called as the model's inputs
    ds = ds.map_batches(
        tonnx.ray.Predictor,
        fn_constructor_args=("net.onnx",),
        fn_constructor_kwargs={"threads": 2},
        num_cpus=2,                                           # the same budget, for Ray
        compute=ray.data.ActorPoolStrategy(size=4),
        batch_size=64,
    )
    ds.write_parquet("scores/")

``import ray`` here is Ray itself: imports are absolute.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tonnx import errors
from tonnx.errors import InvalidArgument, TonnxError
from tonnx.run.model import Model, load
from tonnx.run.pictures import MOST_PIXELS
from tonnx.run.pipeline import batches, recipe_of
from tonnx.run.table import Columns, answer_columns
from tonnx.zoo.engines import enter_ray

__all__ = ["Predictor"]


class Predictor:
    """A model that takes batches of columns, and gives them with a column more for each of its outputs.

    Args:
        model: the path of an ONNX file, or what ``tonnx.load`` gave for it.
        threads: for one operator, of this actor: its budget. Ray is told the same with ``num_cpus``.
        pictures: the column of pictures (paths, addresses, or arrays of uint8), which go through the recipe; without
            it, columns called as the model's inputs are the inputs.
        recipe, providers: as ``tonnx.load`` takes them.
        most_pixels: larger pictures are refused.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Model,
        *,
        threads: int = 1,
        pictures: str | None = None,
        recipe: Any = None,
        providers: str | Sequence[str] | None = None,
        most_pixels: int = MOST_PIXELS,
    ) -> None:
        if isinstance(model, Model):
            if model.path is None:
                raise InvalidArgument("the model was not loaded from a file")
            recipe = model.recipe if recipe is None else recipe
            model = model.path
        self.model: Model = load(model, recipe=recipe, providers=providers, threads=threads)
        if not isinstance(self.model, Model):
            raise InvalidArgument(
                f"{model} is a package, not an ONNX file", hint="tonnx.load(…).generate continues texts"
            )
        self._pictures, self._most_pixels = pictures, most_pixels
        if pictures is not None:
            recipe_of(self.model)

    def __call__(self, batch: Mapping[str, np.ndarray]) -> Columns:
        """The batch, with what the model says of it."""
        if self._pictures is not None:
            return self._of_pictures(batch, self._pictures)
        missing = [str(port) for name, port in self.model.inputs.items() if name not in batch]
        if missing:
            why = f"the columns are {', '.join(batch)}"
            raise InvalidArgument(f"there is no column for {', '.join(missing)}", why=why, hint="rename the columns")
        outputs = self.model.run({name: _whole(batch[name]) for name in self.model.inputs})
        return {**batch, **outputs}

    def _of_pictures(self, batch: Mapping[str, np.ndarray], column: str) -> Columns:
        if column not in batch:
            raise InvalidArgument(f"there is no column {column!r}", why=f"there are {', '.join(batch)}")
        parts = [
            answer_columns(self.model, group, self._most_pixels)
            for group in batches(self.model, list(batch[column]), _fitting(self.model, len(batch[column])))
        ]
        answers = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "input"}
        return {**{name: values for name, values in batch.items() if values.ndim == 1}, **answers}


def _fitting(model: Model, count: int) -> int | None:
    """All rows at once, unless the file fixes how many it takes."""
    fixed = [port.shape[0] for port in model.inputs.values() if len(port.shape) == 4]
    return None if fixed and isinstance(fixed[0], int) else max(1, count)


def _whole(column: np.ndarray) -> np.ndarray:
    """Ray gives rows that are arrays as one array, or, where they differ, as an array of arrays."""
    if column.dtype == object:
        return np.stack([np.asarray(one) for one in column])
    return np.ascontiguousarray(column)


def picture_batches(
    model: str,
    pictures: Sequence[str],
    *,
    batch: int | None = None,
    actors: int | None = None,
    threads: int = 1,
    address: str | None = None,
    most_pixels: int = MOST_PIXELS,
    recipe: Any = None,
    providers: Sequence[str] | None = None,
) -> Iterator[Columns]:
    """The rows of pictures as ``tonnx run --engine ray`` writes them: computed by actors, given in order."""
    first = load(model, recipe=recipe, providers=providers, threads=1)
    recipe_of(first)  # what is wrong with the model is said here, and once
    size = next(iter(map(len, batches(first, list(pictures), batch))), 1)
    ray = enter_ray(address)
    from ray.data import ActorPoolStrategy, DataContext

    context = DataContext.get_current()
    before = context.execution_options.preserve_order, context.enable_progress_bars
    context.execution_options.preserve_order, context.enable_progress_bars = True, False
    count = actors or max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
    try:
        rows = ray.data.from_items([{"input": picture} for picture in pictures], override_num_blocks=4 * count)
        answers = rows.map_batches(
            Predictor,
            fn_constructor_args=(os.path.abspath(model),),
            fn_constructor_kwargs={
                "threads": threads, "pictures": "input", "recipe": first.recipe, "providers": providers,
                "most_pixels": most_pixels,
            },
            batch_size=size,
            num_cpus=threads,
            compute=ActorPoolStrategy(size=count),
        )  # fmt: skip
        yield from _told(ray, answers)
    finally:
        context.execution_options.preserve_order, context.enable_progress_bars = before


def _told(ray: Any, answers: Any) -> Iterator[Columns]:
    """Rows as they come. What a picture did to an actor is said as it was said there."""
    try:
        yield from answers.iter_batches(batch_size=None, batch_format="numpy")
    except ray.exceptions.RayError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, TonnxError):
            cause = getattr(cause, "cause", None) or cause.__cause__
        raise (cause or _read_off(str(error))) from error


def _read_off(text: str) -> TonnxError:
    """What was raised on a worker, where Ray kept only its text."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    ours = re.search(r"^tonnx\.errors\.(\w+): (.*)((?:\n +\w+: .*)*)", text, re.MULTILINE)
    if ours is None:
        root = text.split("\n\n")[0].strip().splitlines()  # of errors that led to each other, the first
        return InvalidArgument("Ray could not run the model", why=root[-1] if root else None)
    told = dict(re.findall(r"^ +(where|why|do): +(.*)", ours[3], re.MULTILINE))
    kind = getattr(errors, ours[1], InvalidArgument)
    where, why, hint = told.get("where"), told.get("why"), told.get("do")
    try:
        return kind(ours[2], where=where, why=why, hint=hint)  # type: ignore[no-any-return]
    except TypeError:  # one that is made of other things
        return InvalidArgument(ours[2], where=where, why=why, hint=hint)
