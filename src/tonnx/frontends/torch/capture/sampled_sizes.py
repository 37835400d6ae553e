"""One capture with dynamic sizes, made of several with fixed ones.

Some libraries take sizes as plain numbers only: they write a program for each shape (einx), or ask C how long
a transform should be. No symbol gets through those. So the model is recorded at several sizes. Where the programs are
the same but for their numbers, the first one is recorded once more, with symbols: each number that differs is found
among the sizes of the tensors before it, or as one of them times and plus constants, or as the product of two. What
comes of that has to do what the model does at sizes that played no part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, islice, product
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.fx import Node
from torch.utils import _pytree as pytree

from tonnx.frontends.torch.call.example import resized
from tonnx.frontends.torch.call.plain import PlainModule, original_of
from tonnx.frontends.torch.call.signature import ModelCall
from tonnx.frontends.torch.call.state import state_kept
from tonnx.frontends.torch.capture.record import Declined, Recording
from tonnx.frontends.torch.capture.tried_sizes import allowed_sizes, elements, example_sizes
from tonnx.frontends.torch.reference.mode import called
from tonnx.frontends.torch.source import replaying, source_of

Sizes = dict[str, int]

_EACH = 5
"""Sizes of one dimension that the model takes: the example's, three others that are recorded, one to judge by."""
_LARGER = 8
_ELEMENTS = 1 << 20
_DIVISORS = (2, 3, 4)
_MULTIPLES = (2, 3, 4, 8, 16, 32)


def sampled(model: torch.nn.Module, call: ModelCall, first: Sizes) -> tuple[list[Sizes], list[Sizes]]:
    """Sizes to record the model at, from these on, and sizes to judge by what comes of it."""
    allowed = allowed_sizes(call)

    def takes(sizes: Sizes) -> bool:
        return allowed(sizes) and elements(call, sizes) <= _ELEMENTS and _runs(model, call, sizes)

    taken = {}
    for name in sorted({d.name for leaf in call.leaves for d in leaf.dynamic.values() if d.expression is None}):
        n = first[name]
        near = dict.fromkeys((n + 1, n + 6, 2 * n + 1, n + 2, 2 * n, 3 * n, 4 * n, 5 * n, n + 3))
        taken[name] = list(islice((size for size in near if size > 1 and takes({**first, name: size})), _EACH - 1))
        if len(taken[name]) < _EACH - 1:
            raise Declined(f"the model itself takes few sizes of {name}")
    alone = [{**first, name: sizes[0]} for name, sizes in taken.items()]
    *together, last = [{**first, **{name: sizes[i] for name, sizes in taken.items()}} for i in range(1, _EACH - 1)]
    if not all(map(takes, [*together, last])):
        raise Declined("the model itself takes other sizes of one dimension only")
    large = [{**first, name: _LARGER * first[name]} for name in taken]
    return [first, *alone, *together], [last, *filter(takes, [example_sizes(call), *large])]


def _runs(model: torch.nn.Module, call: ModelCall, sizes: Sizes) -> bool:
    args, kwargs = call.with_tensors(resized(call, sizes))
    try:
        with torch.random.fork_rng(devices=[]), state_kept(model):
            called(model, args, kwargs)
    except Exception:  # noqa: BLE001 (the user's code, at a size that it may not be made for)
        return False
    return True


def sampled_note(sizes: Sequence[Sizes]) -> str:
    """What is told of a program that was made so."""
    at = {name: sorted({each[name] for each in sizes}) for name in sizes[0]}
    listed = ", ".join(f"{name} = {', '.join(map(str, numbers))}" for name, numbers in at.items())
    return f"[!] code that takes sizes as plain numbers was followed at {listed}: other sizes go on as these do"


def at_sizes(call: ModelCall, sizes: Sizes) -> ModelCall:
    """The call at these sizes, with nothing dynamic."""
    tensors = resized(call, sizes)
    leaves = [replace(leaf, tensor=t, dynamic={}) for leaf, t in zip(call.leaves, tensors, strict=True)]
    return replace(call, args=tuple(tensors), leaves=leaves)


def with_symbols(model: torch.nn.Module, recordings: Sequence[Recording]) -> torch.nn.Module:
    """The model by another ``forward``: what is recorded of it, with numbers that follow the sizes it is given."""

    def forward(self: torch.nn.Module, *tensors: torch.Tensor) -> Any:
        return _Replay(recordings).run(tensors)

    module: torch.nn.Module = object.__new__(type(type(original_of(model)).__name__, (PlainModule,), {
        "tonnx_model": original_of(model), "tonnx_call": getattr(model, "tonnx_call", None), "forward": forward,
    }))  # fmt: skip
    object.__setattr__(module, "__dict__", vars(model))
    return module


class _Replay:
    """Runs a recording, with symbols where others of the same model have other numbers."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self._recordings = recordings
        self._values: dict[Node, Any] = {}
        self._sizes: dict[tuple[int, ...], Any] = {}
        """The sizes of the tensors so far: what they are at each of the samples, and here."""
        self._constants: dict[Node, list[torch.Tensor]] = {}
        """Those of the samples that nothing has used yet: what they follow may be known only then."""

    def run(self, tensors: Sequence[torch.Tensor]) -> Any:
        lists = [list(recording.graph.nodes) for recording in self._recordings]
        if len({len(nodes) for nodes in lists}) > 1:
            raise Declined("the model has more steps at other sizes")
        inputs, weights = iter(tensors), [_weights(recording) for recording in self._recordings]
        for rows in zip(*lists, strict=True):
            node = rows[0]
            if len({(row.op, row.target if row.op == "call_function" else "") for row in rows}) > 1:
                raise Declined(f"the model takes other steps at other sizes ({source_of(node)})")
            with replaying(node):
                if node.op == "placeholder":
                    given = [of.get(row.name) for of, row in zip(weights, rows, strict=True)]
                    if given[0] is None:
                        self._values[node] = next(inputs)
                    else:
                        self._constants[node] = given
                        continue
                elif node.op == "call_function":
                    args, kwargs = self._at([(row.args, row.kwargs) for row in rows])
                    self._values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
                else:
                    results = self._at([row.args[0] for row in rows])
                    return pytree.tree_unflatten(list(results), self._recordings[0].call_spec.out_spec)
            self._note_sizes(rows, self._values[node])
        raise AssertionError("a graph ends with its output")

    def _weight(self, given: Sequence[Any]) -> torch.Tensor:
        """A weight, or a constant; one of sizes is made of what they are here."""
        first: torch.Tensor = given[0]
        if all(other is first for other in given):
            return first
        if any(other is None or other.dim() != first.dim() or other.dtype != first.dtype for other in given):
            raise Declined("a constant of the model has another rank at other sizes")
        if all(torch.equal(first, other) for other in given):
            return first
        if any(other.shape != first.shape for other in given) and first.dim() == 1 and not first.is_floating_point():
            return self._places([other.tolist() for other in given]).to(first.dtype)
        if any(other.shape != first.shape for other in given):
            raise Declined("a constant of the model has other shapes at other sizes")
        if first.numel() > 16 or first.dtype.is_complex:
            raise Declined("a constant of the model has other values at other sizes")
        return torch.tensor(self._at([other.tolist() for other in given]), dtype=first.dtype)

    def _places(self, rows: list[list[int]]) -> torch.Tensor:
        """Whole numbers in a row that go up and down in even steps, as those of padding by places do."""
        ramps = [_ramps(row) for row in rows]
        if len({len(each) for each in ramps}) > 1 or len(ramps[0]) > 16:
            raise Declined("a constant of the model has other values at other sizes")
        parts = []
        for samples in zip(*ramps, strict=True):
            steps = {step for _, step, count in samples if count > 1} or {0}
            if len(steps) > 1:
                raise Declined("a constant of the model has other steps at other sizes")
            start, count = self._at([start for start, _, _ in samples]), self._at([count for _, _, count in samples])
            parts.append(torch.arange(count) * steps.pop() + start)
        return torch.cat(parts)

    def _note_sizes(self, rows: Sequence[Node], here: Any) -> None:
        if not isinstance(here, torch.Tensor):
            return
        if any(row.meta["val"].dim() != here.dim() for row in rows):
            raise Declined("a tensor has another rank at other sizes")
        for axis, size in enumerate(here.shape):
            at = tuple([row.meta["val"].shape[axis] for row in rows])
            if isinstance(size, torch.SymInt) and all(type(n) is int for n in at) and len(set(at)) > 1:
                self._sizes.setdefault(at, size)

    def _at(self, samples: Sequence[Any]) -> Any:
        """An argument as it is here: of what it is at each of the samples."""
        first = samples[0]
        if isinstance(first, Node):
            if first in self._constants:
                self._values[first] = self._weight(self._constants.pop(first))
            return self._values[first]
        if isinstance(first, (list, tuple)):
            if len({len(sample) for sample in samples}) > 1:
                raise Declined("a list has other lengths at other sizes")
            return type(first)([self._at(parts) for parts in zip(*samples, strict=True)])
        if isinstance(first, dict):
            return {key: self._at([sample[key] for sample in samples]) for key in first}
        if all(type(sample) is type(first) and sample == first for sample in samples):
            return first
        if type(first) is int and (found := following(tuple(samples), self._sizes)) is not None:
            return found
        if type(first) is float and (found := _fraction(samples, self._sizes)) is not None:
            return found
        raise Declined(f"{', '.join(map(str, samples))} follow no size")


def _ramps(row: list[int]) -> list[tuple[int, int, int]]:
    """Numbers as ramps: where each starts, its step, and how many numbers it has."""
    ramps: list[tuple[int, int, int]] = []
    for number in row:
        start, step, count = ramps[-1] if ramps else (0, 0, 0)
        if count == 1:
            ramps[-1] = (start, number - start, 2)
        elif count and number == start + step * count:
            ramps[-1] = (start, step, count + 1)
        else:
            ramps.append((number, 0, 1))
    return ramps


def _weights(recording: Recording) -> dict[str, torch.Tensor]:
    of = {**recording.state_dict, **recording.constants}
    specs = (spec for spec in recording.graph_signature.input_specs if spec.kind is not InputKind.USER_INPUT)
    return {spec.arg.name: of[str(spec.target)] for spec in specs}


def following(numbers: tuple[int, ...], sizes: dict[tuple[int, ...], Any]) -> Any:
    """What gives these numbers at the samples, of the sizes there; None if nothing simple does."""
    if numbers in sizes:
        return sizes[numbers]
    products = ((tuple(m * n for m, n in zip(one, two, strict=True)), a * b) for (one, a), (two, b) in _pairs(sizes))
    for at, size in (*sizes.items(), *products):
        if (line := _line(numbers, at)) is not None:
            slope, start = line
            return (size * slope.numerator + int(start * slope.denominator)) // slope.denominator
    for divisor, (at, size) in product(_DIVISORS, sizes.items()):
        # What is added before the division: as much as the samples agree on, if that is one number.
        low = max(number * divisor - n for number, n in zip(numbers, at, strict=True))
        high = min(number * divisor - n + divisor - 1 for number, n in zip(numbers, at, strict=True))
        if low == high:
            return (size + low) // divisor
    for divisor, (at, size), sign in product(_MULTIPLES, reversed(sizes.items()), (1, -1)):
        more = {number - sign * n % divisor for number, n in zip(numbers, at, strict=True)}
        if len(more) == 1:  # what the latest size is above a multiple, or lacks to the next
            return more.pop() + sign * size % divisor
    return None


def _pairs(sizes: dict[tuple[int, ...], Any]) -> Iterator[Any]:
    return combinations_with_replacement(sizes.items(), 2)


def _line(numbers: Sequence[int], at: Sequence[int]) -> tuple[Fraction, Fraction] | None:
    """Slope and start of the line through all points, of which no two sizes are the same only."""
    other = next((i for i in range(1, len(at)) if at[i] != at[0]), None)
    if other is None or len(set(at)) < 3:
        return None
    slope = Fraction(numbers[other] - numbers[0], at[other] - at[0])
    start = numbers[0] - slope * at[0]
    fits = slope != 0 and all(slope * n + start == number for number, n in zip(numbers, at, strict=True))
    return (slope, start) if fits and (start * slope.denominator).denominator == 1 else None


_POWERS: dict[float, Callable[[Any], Any]] = {
    1.0: torch.sym_float,
    -1.0: lambda n: 1.0 / n,
    0.5: torch.sym_sqrt,
    -0.5: lambda n: 1.0 / torch.sym_sqrt(n),
}


def _fraction(numbers: Sequence[float], sizes: dict[tuple[int, ...], Any]) -> Any:
    """A factor times a power of a size."""
    for at, size in sizes.items():
        for power, function in _POWERS.items():
            factors = [number / n**power for number, n in zip(numbers, at, strict=True)]
            if len(set(at)) > 2 and all(abs(factor - factors[0]) <= 1e-12 * abs(factors[0]) for factor in factors):
                return function(size) * factors[0]
    return None
