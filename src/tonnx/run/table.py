"""Pictures in, a table out: a row a picture, in order, as one Parquet file here or anywhere that fsspec reaches."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnx.errors import InvalidArgument, TonnxError, needed, told_as
from tonnx.io.staging import remote, replacing
from tonnx.run.pictures import MOST_PIXELS, SUFFIXES, open_picture
from tonnx.run.pipeline import batches, predict, recipe_of

if TYPE_CHECKING:
    from tonnx.run.model import Model

Columns = dict[str, np.ndarray]
"""Some rows: arrays with as many rows each; of dtype object where rows differ in shape."""


def find_pictures(text: str, local: Callable[[Sequence[str]], list[Path]]) -> list[str]:
    """The pictures that a path, a folder, a glob, or an address such as ``s3://bucket/*.jpg`` names, in order."""
    if "://" not in text:
        return [os.path.abspath(path) for path in local([text])]
    system, path = remote(text)
    with told_as(InvalidArgument, f"{text} cannot be listed", OSError):
        names = sorted(system.glob(path) if "*" in path else system.find(path) if system.isdir(path) else [path])
    pictures = [name for name in names if Path(name).suffix.lower() in SUFFIXES]
    if not pictures:
        raise InvalidArgument(f"there are no pictures in {text}")
    return [str(system.unstrip_protocol(name)) for name in pictures]


def answer_batches(model: Model, pictures: Sequence[str], batch: int | None, most_pixels: int) -> Iterator[Columns]:
    """The rows of pictures, in batches that the model takes."""
    recipe_of(model)
    for group in batches(model, pictures, batch):
        yield answer_columns(model, group, most_pixels)


def answer_columns(model: Model, pictures: Sequence[Any], most_pixels: int = MOST_PIXELS) -> Columns:
    """What the network gives for pictures: a column an output, and ``answer``, what the recipe says of it, in JSON."""
    try:
        answers = predict(model, [fetched(picture, most_pixels) for picture in pictures], most_pixels)
    except TonnxError as error:
        error.where = error.where or ", ".join(map(str, pictures[:3]))
        raise
    columns = {"input": np.array([str(picture) for picture in pictures], object)}
    for name in model.outputs:
        columns[name] = _stacked([answer.outputs[name] for answer in answers])
    columns["answer"] = np.array([json.dumps(answer.data, ensure_ascii=False) for answer in answers], object)
    return columns


def fetched(picture: Any, most_pixels: int) -> Any:
    """A picture, or the path of one; what lies elsewhere is brought here."""
    if not isinstance(picture, str) or "://" not in picture:
        return picture
    system, path = remote(picture)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / Path(path).name
        with told_as(InvalidArgument, f"{picture} cannot be read", OSError):
            system.get_file(path, str(file))
        return open_picture(file, most_pixels)


def write_table(path: str, rows: Iterable[Columns]) -> int:
    """Write rows as they come to one Parquet file, whole or not at all; gives their number."""
    if "://" in path:
        system, target = remote(path)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "table.parquet"
            count = _write(file, rows)
            system.put_file(str(file), target)
        return count
    with replacing(path) as file:
        return _write(file, rows)


def _write(file: Path, rows: Iterable[Columns]) -> int:
    pyarrow, parquet = (
        needed(name, "a Parquet table needs pyarrow", "pip install pyarrow") for name in ("pyarrow", "pyarrow.parquet")
    )
    writer, count = None, 0
    try:
        for columns in rows:
            batch = pyarrow.table({name: _arrow(pyarrow, array) for name, array in columns.items()})
            writer = writer or parquet.ParquetWriter(file, batch.schema)
            writer.write_table(batch)
            count += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise InvalidArgument("there are no rows to write")
    return count


def _arrow(pyarrow: Any, array: np.ndarray) -> Any:
    """Rows of arrays as lists of lists, which any reader of Parquet knows."""
    if array.dtype == object:
        return pyarrow.array([one.tolist() if isinstance(one, np.ndarray) else one for one in array])
    if array.dtype.kind == "V":  # bfloat16 and its like
        array = array.astype(np.float32)
    if array.ndim == 1:
        return pyarrow.array(array)
    offsets = np.arange(len(array) + 1, dtype=np.int32) * array.shape[1]
    return pyarrow.ListArray.from_arrays(offsets, _arrow(pyarrow, array.reshape(-1, *array.shape[2:])))


def _stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
    if len({array.shape for array in arrays}) == 1:
        return np.stack(arrays)
    ragged = np.empty(len(arrays), object)
    ragged[:] = arrays
    return ragged
