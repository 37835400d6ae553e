"""Draw inputs of other sizes that a model is likely to accept.

Nothing is known about the model here, only the example the user gave: its values say what is plausible.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from tonnx.errors import InvalidArgument
from tonnx.ir.size_expressions import SizeExpression, derived_sizes

Sizes = dict[str, int]
Ranges = Mapping[str, tuple[int, int | None]]

SMALL = 8  # examples up to this size are tried at 1, 2 and 3 as well
CHEAP = 512  # above it, a dimension is halved rather than doubled
GROWTH = 4  # a joint assignment never has more than this many times the elements of the example
SAMPLE = 1 << 16  # elements looked at to learn what an example holds
COLUMNS = 16  # a table has at most so many
FEW = 4  # an example with at most this many values, repeated, is a mask or a flag


def symbol_sizes(example: Mapping[str, np.ndarray], dynamic: Mapping[str, Mapping[int, str]]) -> Sizes:
    """The size that the example gives to each symbol; one symbol has one size."""
    sizes: Sizes = {}
    for name, axes in dynamic.items():
        if name not in example:
            raise InvalidArgument(f"there is no input {name!r}", why=f"the inputs are {', '.join(example)}")
        shape = np.shape(example[name])
        for axis, symbol in axes.items():
            if not 0 <= axis < len(shape):
                raise InvalidArgument(f"input {name!r} has no axis {axis}", why=f"its shape is {shape}")
            if sizes.setdefault(symbol, shape[axis]) != shape[axis]:
                raise InvalidArgument(
                    f"dimension {symbol!r} has two sizes in the example: {sizes[symbol]} and {shape[axis]}",
                    where=f"axis {axis} of input {name!r}",
                    hint="give the dimensions different names, or the example equal sizes",
                )
    return sizes


def draw(
    example: Mapping[str, np.ndarray],
    dynamic: Mapping[str, Mapping[int, str]],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """The example with every dynamic axis at the size of its symbol."""
    inputs = {}
    for name, array in example.items():
        shape = list(array.shape)
        for axis, symbol in dynamic.get(name, {}).items():
            shape[axis] = sizes[symbol]
        inputs[name] = resize(array, tuple(shape), rng)
    return inputs


def resize(example: np.ndarray, new_shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """An input of another shape that is plausible where the example is. Never outside its range of values."""
    if len(new_shape) != example.ndim:
        raise ValueError(f"cannot resize {example.shape} to {new_shape}: the rank differs")
    return example if tuple(new_shape) == example.shape else redraw(example, rng, new_shape)


def redraw(example: np.ndarray, rng: np.random.Generator, new_shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Other values in the range of the example's, in its shape or another one; patterns stay patterns."""
    new_shape = example.shape if new_shape is None else new_shape
    if 0 in new_shape:
        return np.zeros(new_shape, example.dtype)
    if example.size == 0:
        return _without_example(example.dtype, new_shape, rng)
    if example.dtype.kind in "bOSUT" or _is_pattern(example):
        return _tile(example, new_shape)
    if example.dtype.kind == "c":
        real, imaginary = (_normal(part, new_shape, rng) for part in (example.real, example.imag))
        return (real + 1j * imaginary).astype(example.dtype)
    if _is_integer(example.dtype):
        # The range of the example is the only bound we know: token ids must stay below the vocabulary size.
        values, dtype = _sample(example), example.dtype if example.dtype.kind in "iu" else np.dtype(np.int64)
        drawn = rng.integers(values.min(), values.max(), new_shape, dtype, endpoint=True)
        return drawn.astype(example.dtype, copy=False)
    return _normal(example, new_shape, rng).astype(example.dtype, copy=False)


def _is_integer(dtype: np.dtype) -> bool:
    return dtype.kind in "iu" or dtype.name.startswith(("int", "uint"))  # int4 and its like are of kind V


def _without_example(dtype: np.dtype, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """The example was empty, such as a cache of length 0: take what hurts least."""
    if dtype.kind in "OSUT":
        return np.full(shape, "", dtype)
    if dtype.kind == "b" or _is_integer(dtype):  # a mask that hides nothing; the id that every vocabulary has
        return np.full(shape, dtype.kind == "b").astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _sample(example: np.ndarray) -> np.ndarray:
    """About SAMPLE elements, in a dtype numpy can count with. The odd step avoids seeing one column."""
    values = example.reshape(-1)[:: (example.size // SAMPLE) | 1]
    if values.dtype.kind == "c" or values.dtype.isbuiltin == 1:
        return values
    return values.astype(np.int64 if _is_integer(values.dtype) else np.float64)


def _is_pattern(example: np.ndarray) -> bool:
    """True if the example is more than its range: a mask, a flag, positions. Random values break those."""
    values = _sample(example)
    distinct = np.unique(values).size
    if distinct == 1 or (distinct <= FEW and distinct * 2 <= values.size):
        return True
    return is_ordered(example) or (not _is_integer(example.dtype) and not np.isfinite(values).all())


def is_ordered(example: np.ndarray) -> bool:
    """Whether values rise or fall along an axis, as positions and the bounds of intervals do."""
    return example.dtype.kind not in "bOSUTc" and any(_is_monotonic(example, axis) for axis in range(example.ndim))


def _is_monotonic(example: np.ndarray, axis: int) -> bool:
    """Positions rise along an axis. Two elements always do, so they say nothing."""
    if example.shape[axis] < 3:
        return False
    lines = np.moveaxis(example, axis, 0)
    rises, falls = (lines[1:] > lines[:-1]), (lines[1:] < lines[:-1])
    return bool(rises.any() != falls.any())  # with equal neighbours or without, but never both ways


def _tile(example: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Repeat or cut the example along each axis. What is in order and no mask stays in order."""
    values = np.unique(_sample(example)) if example.dtype.kind not in "OSUT" else np.empty(0)
    bounds = example.dtype.kind == "f" and values.size > 2 and np.isfinite(values).all()  # of intervals
    offsets = _is_integer(example.dtype) and not np.isin(values, (0, 1)).all()  # of bags, or ends of sequences
    for axis, size in enumerate(shape):
        if size == example.shape[axis]:
            continue
        if bounds and _is_monotonic(example, axis):
            places = np.linspace(0, example.shape[axis] - 1, size)
            low = np.take(example, np.floor(places).astype(np.int64), axis)
            high = np.take(example, np.ceil(places).astype(np.int64), axis)
            part = (places % 1).reshape([-1] + [1] * (example.ndim - axis - 1))
            example = (low + (high - low) * part).astype(example.dtype)
        else:
            places, count = np.arange(size), example.shape[axis]
            go_on = offsets and _is_monotonic(example, axis)  # with the last one: a start over would be no order
            example = np.take(example, np.minimum(places, count - 1) if go_on else places % count, axis)
    return example


def _is_table(example: np.ndarray, shape: tuple[int, ...]) -> bool:
    """True if a column holds ids, as that of the image does in a list of regions: what fits the others breaks it."""
    if example.ndim != 2 or not 1 < example.shape[1] <= COLUMNS or shape[1] != example.shape[1]:
        return False
    if len(example) < 2:  # one row says nothing of its columns
        return False
    low, high = example.min(axis=0).astype(np.float64), example.max(axis=0).astype(np.float64)
    whole = (example == np.rint(example)).all(axis=0)
    return bool((whole & (low >= 0) & (high - low <= (high.max() - low.min()) / FEW)).any())


def _normal(example: np.ndarray, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Normal values with the example's mean and deviation, inside its range."""
    if _is_table(example, shape):
        columns = [_normal(example[:, i], shape[:1], rng) for i in range(shape[1])]
        return np.stack(columns, axis=1)
    values = _sample(example).astype(np.float64)
    wide: Any = np.float64 if example.dtype.itemsize >= 8 else np.float32
    drawn = rng.standard_normal(shape, dtype=wide)
    drawn *= wide(values.std())
    drawn += wide(values.mean())
    # Values beyond the example's range may be outside the model's domain (log, sqrt, pixels). They are drawn
    # anew rather than clipped: equal extremes would make the order of topk and argmax ambiguous.
    low, high = values.min(), values.max()
    outside = ~((drawn >= low) & (drawn <= high))
    drawn[outside] = rng.uniform(low, high, int(outside.sum()))
    if np.array_equal(values, np.rint(values)):  # ids, pixels or sizes that are stored as floats
        np.rint(drawn, out=drawn)
    return drawn


def other_sizes(
    dims: Mapping[str, int],
    ranges: Ranges | None = None,
    limit: int = 16,
    batch: Collection[str] = (),
) -> list[Sizes]:
    """The assignments to try beyond the example: each symbol on its own, then all at once; at most ``limit``.

    ``batch`` names the symbols that are tried at 1, 2 and 3 whatever their example size.
    """
    derived = derived_sizes(list(dims))
    if derived:  # sizes that are computed of others follow them
        free = {symbol: size for symbol, size in dims.items() if symbol not in derived}
        return following(other_sizes(free, ranges, limit, batch), derived, ranges)
    bounds = {symbol: (ranges or {}).get(symbol, (1, None)) for symbol in dims}
    choices = {symbol: _choices(size, bounds[symbol], symbol in batch) for symbol, size in dims.items()}
    alone = [[{**dims, symbol: size} for size in sizes] for symbol, sizes in choices.items()]
    joint = [_capped(dims, sizes) for sizes in _joint(dims, choices, bounds)]
    natural = _unique([sizes for group in alone for sizes in group] + joint, without=dict(dims))
    # When the limit cuts, every symbol keeps its first size, and the joint ones stay.
    by_rank = [sizes for rank in zip_longest(*alone) for sizes in rank if sizes is not None]
    kept = _unique(joint + by_rank, without=dict(dims))[:limit]
    return [sizes for sizes in natural if sizes in kept]


def following(
    assignments: Iterable[Sizes], derived: Mapping[str, SizeExpression], ranges: Ranges | None = None
) -> list[Sizes]:
    """The assignments with the sizes that are computed of others; without those where one would be out of its range."""
    complete = [
        {**sizes, **{symbol: int(expression.of(sizes)) for symbol, expression in derived.items()}}
        for sizes in assignments
    ]

    def is_within(symbol: str, size: int) -> bool:
        low, high = (ranges or {}).get(symbol, (0, None))
        return size >= low and (high is None or size <= high)

    return [sizes for sizes in complete if all(is_within(symbol, sizes[symbol]) for symbol in derived)]


def _choices(size: int, bounds: tuple[int, int | None], is_batch: bool) -> list[int]:
    """The sizes to try for one symbol, the most telling first."""
    if size <= SMALL or is_batch:
        wanted = [2, 3, 1] + [size + 1] * (size >= 3)
    else:
        wanted = [size + 1, size * 2 if size <= CHEAP else size // 2]
    usable = _within(wanted, bounds, size)
    if len(usable) < 2:  # a narrow range: whatever it leaves
        rest = [size + 1, size * 2, size // 2, size - 1, bounds[0], bounds[1] or size]
        usable = _within([*usable, *(other for other in rest if other <= 2 * size)], bounds, size)[:2]
    return usable


def _within(sizes: list[int], bounds: tuple[int, int | None], example: int) -> list[int]:
    low, high = max(bounds[0], 1), bounds[1]  # empty tensors are a case of their own, not a size to try
    unique = dict.fromkeys(sizes)
    return [size for size in unique if size != example and size >= low and (high is None or size <= high)]


def _joint(
    dims: Mapping[str, int], choices: Mapping[str, list[int]], bounds: Mapping[str, tuple[int, int | None]]
) -> list[Sizes]:
    """All symbols one larger, and all of them at another, mostly smaller size. Equal sizes stay equal."""
    varied = [symbol for symbol in dims if choices[symbol]]
    if len(varied) < 2:
        return []
    larger, smaller = dict(dims), dict(dims)
    for symbol in varied:
        size, usable = dims[symbol], choices[symbol]
        larger[symbol] = size + 1 if size + 1 in usable else usable[0]
        small = [3, 2, 1] if usable[0] <= 3 else [size // 2]
        wanted = [other for other in _within(small, bounds[symbol], size) if other != size + 1]
        smaller[symbol] = wanted[0] if wanted else usable[-1]
    return [larger, smaller]


def _capped(dims: Mapping[str, int], sizes: Sizes) -> Sizes:
    """Put symbols back to the example, the last first, until the inputs are not much larger than it."""
    capped = dict(sizes)
    for symbol in reversed(capped):
        if prod(capped.values()) <= GROWTH * max(1, prod(max(1, size) for size in dims.values())):
            break
        capped[symbol] = dims[symbol]
    return capped


def _unique(assignments: list[Sizes], *, without: Sizes) -> list[Sizes]:
    kept: list[Sizes] = []
    for sizes in assignments:
        if sizes != without and sizes not in kept:
            kept.append(sizes)
    return kept
