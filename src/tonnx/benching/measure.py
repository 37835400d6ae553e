"""``tonnx.bench``: ONNX files side by side, and beside the model they came from, in one interleaved run.

Machines are shared and clocks drift, so contenders take turns: each round runs every one of them once, in another
order. What is compared is then measured under the same conditions, and ratios mean something.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from tonnx.errors import InvalidArgument, InvalidModel, TonnxError
from tonnx.proof.session import Session, one_line
from tonnx.run.model import Model, Port

Feeds = dict[str, np.ndarray]

_MOST_ROUNDS = 5000
_FEWEST_ROUNDS = 5


@dataclass(frozen=True)
class Timing:
    """One contender at one batch size and thread count. Seconds for one run."""

    contender: str
    batch: int
    threads: int | None
    runs: int
    p50: float
    p90: float
    p99: float
    ratio: float
    """The median in relation to the first contender's."""

    @property
    def throughput(self) -> float:
        """Items a second."""
        return self.batch / self.p50


@dataclass
class Bench:
    """What was measured. ``print`` it for a table; ``svg()`` draws it."""

    timings: list[Timing] = field(default_factory=list)
    memory: dict[str, int | None] = field(default_factory=dict)
    """Peak bytes of a process that loads the contender and runs it a few times, less those of an empty one."""
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        head = ("", "batch", "threads", "p50 ms", "p90 ms", "p99 ms", "items/s", "ratio", "peak MB")
        rows = [head, *(self._row(timing) for timing in self.timings)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines = ["  ".join([row[0].ljust(widths[0]), *(map(str.rjust, row[1:], widths[1:]))]) for row in rows]
        return "\n".join([*(line.rstrip() for line in lines), *(f"  {note}" for note in self.notes)])

    def _row(self, timing: Timing) -> tuple[str, ...]:
        peak = self.memory.get(timing.contender)
        return (
            timing.contender,
            str(timing.batch),
            "all" if timing.threads is None else str(timing.threads),
            *(f"{seconds * 1e3:.3f}" for seconds in (timing.p50, timing.p90, timing.p99)),
            f"{timing.throughput:.1f}",
            f"{timing.ratio:.2f}",
            "–" if peak is None else f"{peak / 1e6:.0f}",
        )

    def data(self) -> dict[str, Any]:
        """For programs."""
        timings = [{**asdict(timing), "throughput": timing.throughput} for timing in self.timings]
        return {"timings": timings, "memory": self.memory, "notes": self.notes}

    def svg(self) -> str:
        """Bars of the medians with a line to the 99th percentile, one group for each batch size and thread count."""
        from tonnx.benching.measure import plot

        return plot(self)


@dataclass
class _Contender:
    name: str
    make: Callable[[int | None], Callable[[Feeds], Any]]
    """Gives a function that runs it with so many threads."""
    fixed_batch: int | None = None
    child: list[str] | None = None
    """What a process of its own needs to load it; None if it cannot."""


def bench(
    *files: str | os.PathLike[str],
    against: Any = None,
    batches: Sequence[int] | None = None,
    threads: Sequence[int] | None = None,
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    seconds: float = 2.0,
    warmup: int = 3,
    providers: Sequence[str] | None = None,
    memory: bool = True,
    progress: Callable[[str], None] | None = None,
) -> Bench:
    """Time ONNX files, and the model they came from, in one interleaved run.

    Example::

        print(tonnx.bench("net.onnx", "net-int8.onnx", against=model, batches=[1, 8]))

    Args:
        files: ONNX files with the same inputs; ratios are to the first.
        against: a ``torch.nn.Module``, a ``paddle.nn.Layer``, any function on arrays; by ``"file.py:name"`` or the
            path of a saved one, too.
        batches: sizes of the first dimension, where the files leave it open; what a file fixes, or 1, if not given.
        threads: thread counts for one operator; all cores if not given.
        sizes: other dynamic dimensions by name, ``{"height": 224}``; ``{"x.2": 224}`` where one has no name.
        inputs: real values by input name instead of random ones; their first dimension is repeated to the batch size.
        seconds: how long each contender is measured, for each batch size and thread count.
        warmup: runs before the clock starts.
        providers: ONNX Runtime's execution providers; the CPU's if not given.
        memory: measure the peak memory of each file too, in processes of their own.
        progress: called with what is measured next.
    """
    if not files:
        raise InvalidArgument("there is nothing to measure", hint="give at least one ONNX file")
    if not seconds > 0 or warmup < 0 or any(n < 1 for n in [*(batches or [1]), *(threads or [1])]):
        raise InvalidArgument("seconds, batches and threads must be above 0")
    say = progress or (lambda stage: None)
    contenders, first = _contenders(files, against, providers)
    feeds_of = partial(make_inputs, first, sizes=sizes or {}, values=inputs or {})
    result = Bench()
    batch_sizes = list(batches or [c.fixed_batch for c in contenders if c.fixed_batch is not None][:1] or [1])
    for batch in batch_sizes:
        feeds = feeds_of(batch)
        fitting = [c for c in contenders if c.fixed_batch in (None, batch)]
        notes = [f"{c.name} takes batches of {c.fixed_batch} only" for c in contenders if c not in fitting]
        result.notes += [note for note in notes if note not in result.notes]
        for count in threads or [None]:  # type: ignore[list-item]
            say(f"batch {batch}" + ("" if count is None else f", {count} thread{'s' * (count > 1)}"))
            result.timings += _interleaved(fitting, feeds, batch, count, seconds, warmup)
    if not result.timings:
        raise InvalidArgument("there is nothing to measure", why="; ".join(result.notes))
    if memory:
        say("memory")
        result.memory = _memory(contenders, lambda fixed: feeds_of(fixed or batch_sizes[0]))
    return result


def _contenders(
    files: Sequence[str | os.PathLike[str]], against: Any, providers: Sequence[str] | None
) -> tuple[list[_Contender], Model]:
    """All that take part, and the first file, whose inputs the others have."""
    models = {name: load_file(path, providers) for name, path in zip(_labels(files), files, strict=True)}
    first = next(iter(models.values()))
    _check_alike(models)
    contenders = [_file(name, path, models[name], providers) for name, path in zip(models, files, strict=True)]
    contenders += [_framework(against, list(first.inputs))] if against is not None else []
    return contenders, first


def make_inputs(model: Model, batch: int, sizes: Mapping[str, int], values: Mapping[str, np.ndarray]) -> Feeds:
    """Inputs of this batch size: the given ones repeated or cut, random ones otherwise."""
    random = np.random.default_rng(0)
    check_given(model, sizes, values)
    feeds = {}
    for name, port in model.inputs.items():
        if name in values:
            array = values[name]
            if port.shape and array.ndim and not isinstance(port.shape[0], int) and 0 < len(array) != batch:
                array = array[np.arange(batch) % len(array)]
            feeds[name] = array
        else:
            feeds[name] = _random(port, batch, sizes, random)
    return feeds


def size_key(port: Port, axis: int) -> str:
    """How the size of a dynamic dimension is given: by its name, or as ``x.2`` where it has none."""
    return str(port.shape[axis] or f"{port.name}.{axis}")


def check_given(model: Model, sizes: Mapping[str, int], values: Mapping[str, np.ndarray]) -> None:
    """What the user says of the inputs has to be about this model."""
    for name, array in values.items():
        if name not in model.inputs:
            raise InvalidArgument(f"the model has no input {name!r}", why=f"it has {', '.join(model.inputs)}")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise InvalidArgument(f"the array for {name} has NaN", why="every output would be NaN too")
    ports = model.inputs.values()
    keys = [size_key(port, i) for port in ports for i, dim in enumerate(port.shape) if not isinstance(dim, int)]
    for name in sizes:
        if name not in keys:
            why = f"it has {', '.join(dict.fromkeys(keys))}" if keys else "all its dimensions are fixed"
            raise InvalidArgument(f"the model has no dynamic dimension {name!r}", why=why)


def _check_alike(models: Mapping[str, Model]) -> None:
    """All files take the same inputs, under the same names or in the same order."""
    (one, first), *others = models.items()
    for other, model in others:
        here, there = list(first.inputs.values()), list(model.inputs.values())
        if set(first.inputs) == set(model.inputs):
            there = [model.inputs[port.name] for port in here]
        if [port.dtype for port in here] != [port.dtype for port in there]:
            takes = [f"{name} takes {'; '.join(map(str, ports))}" for name, ports in ((one, here), (other, there))]
            raise InvalidArgument(f"{one} and {other} do not take the same inputs", why=", ".join(takes))


def _random(port: Port, batch: int, sizes: Mapping[str, int], random: np.random.Generator) -> np.ndarray:
    if port.dtype is None:
        raise InvalidArgument(f"the input {port} is not of numbers", hint="give its values with inputs")
    if not port.ranked:
        raise InvalidArgument(f"how many dimensions has {port}?", hint="give its values: --inputs FILE.npy")
    shape = []
    for axis, dim in enumerate(port.shape):
        size = dim if isinstance(dim, int) else sizes.get(size_key(port, axis), batch if axis == 0 else None)
        if size is None:
            raise InvalidArgument(
                f"how large is {dim or f'axis {axis}'} of {port}?", hint=f"say it: --size {size_key(port, axis)}=224"
            )
        shape.append(size)
    if port.dtype.kind in "iu":
        return random.integers(0, 2, shape).astype(port.dtype)
    if port.dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    return random.standard_normal(shape).astype(port.dtype)


def _interleaved(
    contenders: Sequence[_Contender], feeds: Feeds, batch: int, threads: int | None, seconds: float, warmup: int
) -> list[Timing]:
    if not contenders:
        return []
    runs = [contender.make(threads) for contender in contenders]
    for contender, run in zip(contenders, runs, strict=True):
        _first_run(contender, run, feeds)
        for _ in range(warmup - 1):
            run(feeds)
    taken: list[list[float]] = [[] for _ in runs]
    for order in _orders(len(runs)):
        for i in order:
            start = time.perf_counter()
            runs[i](feeds)
            taken[i].append(time.perf_counter() - start)
        rounds = len(taken[0])
        spent = max(map(sum, taken))
        if (spent >= seconds and rounds >= _FEWEST_ROUNDS) or rounds >= _MOST_ROUNDS:
            break
    first = float(np.median(taken[0]))
    timings = []
    for contender, times in zip(contenders, taken, strict=True):
        p50, p90, p99 = np.percentile(times, (50, 90, 99)).tolist()
        timings.append(Timing(contender.name, batch, threads, len(times), p50, p90, p99, p50 / first))
    return timings


def _first_run(contender: _Contender, run: Callable[[Feeds], Any], feeds: Feeds) -> None:
    """It shows whether a contender takes these inputs at all."""
    try:
        run(feeds)
    except TonnxError as error:
        error.where = error.where or contender.name
        raise
    except Exception as error:  # a model of the user's, which may raise anything
        raise InvalidArgument(
            f"{contender.name} does not run on the file's inputs", why=f"{type(error).__name__}: {one_line(error)}"
        ) from error


def _orders(count: int) -> Iterator[list[int]]:
    """Endless rounds, each beginning with another contender: none always runs after the same one."""
    start = 0
    while True:
        yield [(start + i) % count for i in range(count)]
        start += 1


def _labels(files: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Short names: the file's own, with its folder where two are called the same, with a number for the same file."""
    paths = [Path(os.fspath(file)) for file in files]
    names = [path.name for path in paths]
    labels: list[str] = []
    for path in paths:
        number = 1
        wish = label = str(path) if names.count(path.name) > 1 else path.name
        while label in labels:
            number += 1
            label = f"{wish} #{number}"
        labels.append(label)
    return labels


def load_file(path: str | os.PathLike[str], providers: Sequence[str] | None, threads: int | None = None) -> Model:
    """Without spinning: threads that wait actively after a run would take the next contender's time."""
    if not Path(path).is_file():
        raise InvalidModel(f"there is no file {os.fspath(path)}")
    return Model(Session(path, providers, threads, spin=False), path=path)


def _file(name: str, path: str | os.PathLike[str], model: Model, providers: Sequence[str] | None) -> _Contender:
    sizes = {port.shape[0] for port in model.inputs.values() if port.shape}
    fixed = next((size for size in sizes if isinstance(size, int)), None) if len(sizes) == 1 else None

    def make(threads: int | None) -> Callable[[Feeds], Any]:
        loaded = model if threads is None else load_file(path, providers, threads)
        ordered = list(loaded.inputs)

        def run(feeds: Feeds) -> Any:
            return loaded.run(feeds if set(feeds) == set(ordered) else dict(zip(ordered, feeds.values(), strict=True)))

        return run

    return _Contender(name, make, fixed, ["onnx", os.fspath(path)])


def _framework(against: Any, inputs: Sequence[str]) -> _Contender:
    from tonnx.benching.models import framework

    name, make, child = framework(against, inputs)
    return _Contender(name, make, None, child)


def _memory(contenders: Sequence[_Contender], inputs: Callable[[int | None], Feeds]) -> dict[str, int | None]:
    from tonnx.benching.memory import peak

    empty = peak(["nothing"], inputs(None))
    peaks: dict[str, int | None] = {}
    for contender in contenders:
        measured = None if contender.child is None else peak(contender.child, inputs(contender.fixed_batch))
        peaks[contender.name] = None if measured is None or empty is None else max(0, measured - empty)
    return peaks


# As a picture


_BAR, _GAP, _LEFT, _WIDTH = 18, 14, 190, 760
_COLOURS = ("#3b7dd8", "#e08a2b", "#3aa76d", "#b0529b", "#7a7a7a", "#c94f4f")


def plot(bench: Bench) -> str:
    """An SVG that takes its text colour from the page around it."""
    groups: dict[tuple[int, int | None], list[Timing]] = {}
    for timing in bench.timings:
        groups.setdefault((timing.batch, timing.threads), []).append(timing)
    names = list(dict.fromkeys(timing.contender for timing in bench.timings))
    parts: list[str] = []
    y = 8
    for (batch, threads), timings in groups.items():
        longest = max(timing.p99 for timing in timings) or 1.0
        title = f"batch {batch}, " + ("all threads" if threads is None else f"{threads} thread{'s' * (threads > 1)}")
        parts.append(f'<text x="0" y="{y + 12}" font-weight="600">{title}</text>')
        y += 20
        for timing in timings:
            parts += _bar(timing, y, (_WIDTH - _LEFT - 150) / longest, _COLOURS[names.index(timing.contender) % 6])
            y += _BAR + 4
        y += _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="100%" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">{"".join(parts)}</svg>'
    )


def _bar(timing: Timing, y: int, scale: float, colour: str) -> list[str]:
    middle, end = y + _BAR / 2, _LEFT + timing.p99 * scale
    width = max(1.0, timing.p50 * scale)
    name = timing.contender if len(timing.contender) <= 28 else "…" + timing.contender[-27:]
    figures = f"{timing.p50 * 1e3:.2f} ms  ×{timing.ratio:.2f}"
    return [
        f'<text x="{_LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>',
        f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}" rx="2"/>',
        f'<line x1="{_LEFT}" x2="{end:.1f}" y1="{middle}" y2="{middle}" stroke="currentColor" stroke-opacity=".5"/>',
        f'<text x="{end + 6:.1f}" y="{middle + 4}">{figures}</text>',
    ]
