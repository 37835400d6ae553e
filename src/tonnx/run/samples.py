"""Samples to calibrate with, as what the model takes: pictures through a recipe, arrays from files, an iterator."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tonnx.errors import InvalidArgument, first_line, told_as
from tonnx.run.pictures import SUFFIXES

if TYPE_CHECKING:
    from tonnx.run.model import Model

_ARRAYS = (".npy", ".npz")
_AT_ONCE = 1 << 19  # bytes of inputs; more samples at once would only need more memory
_MOST = 32

Arrays = dict[str, np.ndarray]


def samples(model: Model, data: Any, limit: int | None = None) -> Iterator[Arrays]:
    """Feeds for the model, each of one batch. ``data``: paths of pictures or arrays, folders of them, or an iterable.

    An array with more rows than the model takes at once is cut along its first axis. ``limit`` counts rows.
    """
    count, rows = 0, 0
    for origin, arrays in _feeds(model, data):
        for feeds in _cut(model, origin, arrays, None if limit is None else max(limit - rows, 1)):
            _check(model, origin, feeds)
            yield feeds
            count += 1
            rows += count_rows(feeds)
        if limit is not None and rows >= limit:
            return
    if not count:
        raise InvalidArgument("there are no samples in the data", hint="give some that the network was trained for")


def _feeds(model: Model, data: Any) -> Iterator[tuple[str, Arrays]]:
    """Arrays by input, and where they come from."""
    if isinstance(data, (str, os.PathLike, np.ndarray, Mapping)):
        data = [data]
    if not isinstance(data, Iterable):
        raise InvalidArgument(
            f"data cannot be {type(data).__name__}",
            hint="give a path, or an iterable of arrays, dicts or tuples of arrays",
        )
    for number, item in enumerate(data):
        if isinstance(item, (str, os.PathLike)):
            yield from _from_files(model, Path(item))
        else:
            place = item if isinstance(item, (tuple, list)) else (item,)
            yield f"sample {number} of the data", model.arrays(*place)


def _from_files(model: Model, path: Path) -> Iterator[tuple[str, Arrays]]:
    if path.is_dir():
        inside = sorted(file for file in path.iterdir() if file.suffix.lower() in (*SUFFIXES, *_ARRAYS))
        if not inside:
            raise InvalidArgument(f"there are no pictures or arrays in {path}", hint="such as .jpg, .png, .npy, .npz")
    elif path.exists():
        inside = [path]
    else:
        raise InvalidArgument(f"there is no file or folder {path}")
    arrays = [file for file in inside if file.suffix.lower() in _ARRAYS]
    for file in arrays:
        yield str(file), _read(model, file)
    yield from _pictures(model, [file for file in inside if file not in set(arrays)])


def _pictures(model: Model, paths: Sequence[Path]) -> Iterator[tuple[str, Arrays]]:
    from tonnx.run.pipeline import batches, prepared_feeds

    if paths:
        for group in batches(model, paths, None):
            yield str(group[0]), prepared_feeds(model, group)


def _read(model: Model, file: Path) -> Arrays:
    with told_as(InvalidArgument, f"cannot read {file}", OSError, ValueError, EOFError, why=first_line):
        content = np.load(file, allow_pickle=False)
        arrays = content if isinstance(content, np.ndarray) else dict(content.items())
    if isinstance(arrays, dict) and not set(arrays) & set(model.inputs) and len(arrays) == len(model.inputs):
        arrays = dict(zip(model.inputs, arrays.values(), strict=True))
    return model.arrays(arrays)


def _cut(model: Model, origin: str, arrays: Arrays, limit: int | None) -> Iterator[Arrays]:
    """Batches along the first axis, where every input has it; else the arrays as they are."""
    ports = [port for port in model.inputs.values() if port.name in arrays]
    first = {port.shape[0] if port.shape else 0 for port in ports}
    lengths = {len(array) if array.ndim else 0 for array in arrays.values()}
    declared = next(iter(first)) if len(first) == 1 else 0
    if len(lengths) != 1 or declared == 0 or 0 in lengths or (declared is None and len(ports) > 1):
        yield arrays
        return
    length = next(iter(lengths))
    each = sum(array.nbytes for array in arrays.values()) // length
    size = declared if isinstance(declared, int) else max(1, min(_MOST, _AT_ONCE // max(each, 1)))
    if isinstance(declared, int) and length % declared:
        raise InvalidArgument(
            f"{origin} has {length} rows, which is no multiple of {declared}", why=f"the model takes {declared} at once"
        )
    wanted = length if limit is None else min(length, -(-limit // size) * size)
    for start in range(0, wanted, size):
        yield {name: array[start : start + size] for name, array in arrays.items()}


def count_rows(feeds: Arrays) -> int:
    """The samples in one batch."""
    return max((len(array) if array.ndim else 1 for array in feeds.values()), default=1)


def _check(model: Model, origin: str, feeds: Arrays) -> None:
    try:
        model.check(feeds)
    except InvalidArgument as error:
        error.where = error.where or origin
        raise
    for name, array in feeds.items():
        if not array.size:
            raise InvalidArgument(f"the data has no numbers for {name}", where=origin)
        if array.dtype.kind == "f" and np.isnan(array).any():  # masks may be infinite
            raise InvalidArgument(f"the data has NaN for {name}", where=origin)
