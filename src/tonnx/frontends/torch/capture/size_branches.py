"""Branches on sizes that the example decided: does the captured program still do what the model does at other sizes?

torch.export takes the side that the example takes. Often one side serves for all sizes: it is the general one, and the
other a special case for speed (nothing to pad, nothing to crop, a table that fits). If the example takes the special
one, other sizes are captured. Where no side serves, the function has to be rewritten so that both are in the file.
"""

from __future__ import annotations

import contextlib
import linecache
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import sympy
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tonnx.errors import CaptureError, TonnxError
from tonnx.frontends.torch.call.example import grow, resized
from tonnx.frontends.torch.call.signature import ModelCall
from tonnx.frontends.torch.call.state import state_kept
from tonnx.frontends.torch.capture.explain import Frozen, Spot
from tonnx.frontends.torch.capture.patches.short_sizes import Definitions, evaluated, roots, written_out
from tonnx.frontends.torch.capture.program import Captured, describe
from tonnx.frontends.torch.capture.said_shapes import Misnamed, forget_sizes, is_shape, said_shapes
from tonnx.frontends.torch.capture.tried_sizes import (
    ELEMENTS,
    LARGEST,
    allowed_sizes,
    beyond_the_edge,
    elements,
    example_sizes,
    otherwise,
)
from tonnx.frontends.torch.reference.eager import to_numpy
from tonnx.frontends.torch.reference.mode import called
from tonnx.frontends.torch.source import shorten
from tonnx.proof.locate.trace import Take, Trace

Shaped = Callable[[str, tuple[int, ...]], None]
"""Gets the name and shape of a tensor, which costs nothing; values are copied."""


class ShapedTrace(Trace, Protocol):
    """A trace that hands over shapes, too."""

    def run(
        self, feeds: dict[str, np.ndarray], wanted: Collection[str], take: Take, shaped: Shaped | None = None
    ) -> None:
        """Run the program; ``take`` gets the values that are wanted."""


Tracer = Callable[[Captured], ShapedTrace]
"""Runs a captured program: what knows its nodes stands above the capture."""

_TRIED = 4  # conditions that are looked at in any case; every one costs a run of the model
_SECONDS = 2.0  # for more of them
_FAILING = 2  # runs that fail; from then on only multiples of the example's sizes are tried
_FACTORS = (2, 3, 4, 6, 8, 16, 64, 256)  # by how much sizes are grown so that none is 1 inside of the model
_RTOL, _ATOL = 1e-3, 1e-4  # the proof looks closer; the same kernels of PyTorch run both


@dataclass(frozen=True)
class OneSided:
    """A condition on sizes of which the captured program has one side, and sizes that go the other way."""

    spot: Spot
    sizes: dict[str, int]
    why: str = "other sizes take another side than the example, and the results differ"

    @property
    def is_empty(self) -> bool:
        """Whether it is about tensors without elements, which nobody promised to take."""
        return 0 in self.sizes.values()


def empty_notes(branches: list[OneSided]) -> list[str]:
    """What is told of branches that only tensors without elements decide otherwise."""
    where = dict.fromkeys(_line(branch.spot) for branch in branches if branch.is_empty)
    return [f"[!] empty tensors take another side, which is not in the file: {line}" for line in where]


def refusal(branches: list[OneSided], call: ModelCall) -> CaptureError:
    """The error about a program that is known to be wrong at some of the sizes that were asked for."""
    example = example_sizes(call)
    sizes = "; ".join(dict.fromkeys(_changes(branch.sizes, example) for branch in branches))
    return CaptureError(
        f"the model goes another way at other sizes ({sizes}), which cannot be captured beside that of the example",
        where="\n         ".join(dict.fromkeys(_line(branch.spot) for branch in branches)),
        why="; ".join(dict.fromkeys(branch.why for branch in branches)),
        hint="limit the dimension to sizes of one side: dynamic_shapes with torch.export.Dim(name, min=..., max=...); "
        "take an example of the other side; or leave this dimension out of the dynamic ones",
    )


def without_optional(branches: list[OneSided], call: ModelCall) -> list[str]:
    """Forget the Dim.AUTO dimensions by which those sizes differ, if they are enough. Returns notes, if so."""
    example = example_sizes(call)
    changed = {name for branch in branches for name, n in branch.sizes.items() if n != example[name]}
    axes = [(leaf, axis) for leaf in call.leaves for axis, dim in leaf.dynamic.items() if dim.name in changed]
    if not all(leaf.dynamic[axis].optional for leaf, axis in axes):
        return []
    for leaf, axis in axes:
        del leaf.dynamic[axis]
    lines = ", ".join(dict.fromkeys(_line(branch.spot) for branch in branches))
    return [f"fixed, since the model goes another way at other sizes: axis {axis} of {leaf.name} ({lines})"
            for leaf, axis in axes]  # fmt: skip


def unsettled(
    model: torch.nn.Module, call: ModelCall, program: ExportedProgram, froze: Frozen, notes: list[str], trace: Tracer
) -> list[OneSided]:
    """The conditions that other sizes decide otherwise, with other results than the captured program's.

    What could not be looked at, since the model itself fails at such sizes, is told in ``notes``.
    """
    ranges = program.range_constraints.values()
    if not (froze.decided or froze.assumed or froze.ones or any(map(_is_limited, ranges))):
        return []
    try:
        captured = describe(program, call)
    except TonnxError:  # a dimension is fixed, which is reported soon
        return []
    defined = {symbol: size.xreplace(captured.tied) for symbol, size in froze.definitions.items()}
    looks = _Looks(model, call, captured, defined, trace)
    for condition in _conditions(froze, captured):
        looks.at(condition)
    looks.beyond_limits()
    notes += looks.notes
    ones = {size.xreplace(captured.tied): spot for size, spot in froze.ones.items()}
    return [*looks.guilty(), *_single(model, call, captured, ones, defined, trace)]


def _is_limited(bounds: Any) -> bool:
    return any(bound.is_Integer and 2 < bound < 2**31 for bound in (bounds.lower, bounds.upper))


@dataclass(frozen=True)
class _Condition:
    """What the example decided about sizes, and where."""

    expression: Any
    outcome: bool
    spot: Spot
    number: Any = None
    """Of an expression that the model reads as a plain number, which stands in the program: this one."""


def _conditions(froze: Frozen, captured: Captured) -> Iterator[_Condition]:
    decided = [_Condition(asked.xreplace(captured.tied), outcome, spot) for asked, outcome, spot in froze.decided]
    assumed = [
        _Condition(sympy.Eq(expression.xreplace(captured.tied), number, evaluate=False), True, spot, number)
        for expression, number, spot in froze.assumed
    ]
    yield from dict.fromkeys([*decided, *assumed])


@dataclass
class _Looks:
    """Runs of the model and of the captured program at sizes that decide conditions otherwise."""

    model: torch.nn.Module
    call: ModelCall
    captured: Captured
    defined: Definitions
    trace: Tracer
    branches: list[OneSided] = field(default_factory=list)
    _flips: list[Callable[[dict[str, int]], bool]] = field(default_factory=list)
    """For each of them: whether the condition is otherwise at some sizes."""
    notes: list[str] = field(default_factory=list)
    _looked: list[tuple[dict[str, int], bool]] = field(default_factory=list)
    """Sizes, and whether the results differ there."""
    _failing: int = 0
    _until: float = field(default_factory=lambda: time.perf_counter() + _SECONDS)

    def at(self, condition: _Condition) -> None:
        symbols, names = roots(self.defined, condition.expression), self.captured.names
        if not symbols or not names.keys() >= symbols:
            if condition.number is not None and names.keys() & symbols:
                self._note(f"[!] {self._why(condition)}: {_line(condition.spot)}")
            return

        def flips(sizes: dict[str, int]) -> bool:
            try:
                numbers = {symbol: sympy.Integer(sizes[names[symbol]]) for symbol in symbols}
                answer = evaluated(self.defined, condition.expression, numbers)
            except (TypeError, ArithmeticError, ValueError, AssertionError):  # torch's functions take not every number
                return False
            return answer in (sympy.true, sympy.false) and bool(answer) != condition.outcome

        example, involved = example_sizes(self.call), sorted({names[symbol] for symbol in symbols})
        # What is 1 broadcasts: that both do the same there says nothing about other sizes.
        telling = [sizes for sizes, differ in self._looked if not differ and _is_telling(sizes, example)]
        here = [branch.sizes for branch in self.branches if branch.spot == condition.spot]
        # A number may have been read on a side of a branch that few of the sizes take at which it is another.
        once = condition.number is None
        if any(map(flips, here)) or (once and any(beyond_the_edge(flips, sizes, involved) for sizes in telling)):
            return
        if len(self._looked) >= _TRIED and time.perf_counter() > self._until:
            self._note(f"{_place(condition.spot)}: whether other sizes go another way here was not looked at")
            return
        failures: list[str] = []
        for sizes in otherwise(condition.expression, involved, flips, self.call, self._failing < _FAILING):
            try:
                if differ := self._differ(sizes):
                    self.branches.append(OneSided(condition.spot, sizes, self._why(condition)))
                    self._flips.append(flips)
                if differ or once:
                    return
            except ModelFails as error:
                self._failing += 1
                at = _changes(sizes, example)
                failures.append(f"the other side, at {at}, is not in the file: the model itself fails there ({error})")
        if failures and len(self.notes) < _TRIED:
            self._note(f"{_place(condition.spot)}: {failures[0]}")

    def beyond_limits(self) -> None:
        """What torch made a limit of, since it holds in the example, may be no more than the shape of a slice there."""
        example = example_sizes(self.call)
        asked = {dim.name: dim.limits for leaf in self.call.leaves for dim in leaf.dynamic.values()}
        for name, (low, high) in self.captured.limits.items():
            next_ones = [low - 1] * (low > asked[name][0]) + ([] if high in (None, asked[name][1]) else [high + 1])
            for n in next_ones:
                with contextlib.suppress(ModelFails):  # most often; and a program that is wrong there, the proof finds
                    self._differ({**example, name: n})

    def guilty(self) -> list[OneSided]:
        """Without those at whose sizes others are otherwise, too, that make a difference without them.

        Once those are in the program, what is left is looked at again. All, if each is explained by another one; and
        what only empty tensors show, which is no reason to refuse, explains nothing.
        """
        judged = list(zip(self.branches, self._flips, strict=True))
        reasons = [(other, others) for other, others in judged if not other.is_empty]
        certain = [
            branch
            for branch, flips in judged
            if not any(others(branch.sizes) and not flips(other.sizes) for other, others in reasons)
        ]
        return certain or self.branches

    def _differ(self, sizes: dict[str, int]) -> bool:
        for looked, differ in self._looked:
            if looked == sizes:
                return differ
        symbols = {symbol: sympy.Integer(sizes[name]) for symbol, name in self.captured.names.items()}
        misnamed: Misnamed = {}
        differ = differs(self.model, self.call, self.trace(self.captured), self.captured, sizes, symbols, misnamed)
        self._looked.append((sizes, differ))
        if not differ and misnamed:
            forget_sizes(self.captured.program, misnamed)
        return differ

    def _why(self, condition: _Condition) -> str:
        if condition.number is None:
            return OneSided.why
        named = {symbol: sympy.Symbol(name) for symbol, name in self.captured.names.items()}
        text = written_out(self.defined, condition.expression.args[0]).xreplace(named)
        return f"only right where {text} is {condition.number}, which the model reads as a plain number"

    def _note(self, text: str) -> None:
        self.notes += [] if text in self.notes else [text]


def _is_telling(sizes: dict[str, int], example: dict[str, int]) -> bool:
    return all(n > 1 or n == example[name] for name, n in sizes.items())


def _place(spot: Spot) -> str:
    return f"{shorten(spot[0])}:{spot[1]}"


def _line(spot: Spot) -> str:
    text = linecache.getline(spot[0], spot[1]).strip()
    return f"{_place(spot)}: {text}" if text else _place(spot)


def _changes(sizes: dict[str, int], example: dict[str, int]) -> str:
    return ", ".join(f"{name}={sizes[name]}" for name in sorted(sizes) if sizes[name] != example[name])


def _single(
    model: torch.nn.Module,
    call: ModelCall,
    captured: Captured,
    ones: dict[Any, Spot],
    defined: Definitions,
    trace: Tracer,
) -> list[OneSided]:
    """Whether the program is wrong where sizes are not 1 that are in the example: of windows, or of small pictures."""
    known = captured.names.keys()
    ones = {size: spot for size, spot in ones.items() if (of := roots(defined, size)) and of <= known}
    involved = {captured.names[symbol] for size in ones for symbol in roots(defined, size)}
    example, allowed = example_sizes(call), allowed_sizes(call)
    for factor in _FACTORS if ones else ():
        sizes = {name: n * factor if name in involved else n for name, n in example.items()}
        values = {symbol: sympy.Integer(sizes[name]) for symbol, name in captured.names.items()}
        if (
            not allowed(sizes)
            or max(sizes.values()) > LARGEST
            or elements(call, sizes) > max(ELEMENTS, 256 * elements(call, example))
            or any(evaluated(defined, size, values) == 1 for size in ones)
        ):
            continue
        try:
            # What torch learned of a size that is 1, it may have made a limit of the input's.
            excluded = any(high is not None and sizes[name] > high for name, (_, high) in captured.limits.items())
            if differs(model, call, trace(captured), captured, sizes, values) or excluded:
                return [OneSided(next(iter(ones.values())), sizes, "right only where a size stays 1 as in the example")]
            return []
        except ModelFails:  # at sizes that nobody promised it to take
            continue
    return []


def other_sizes(call: ModelCall, branches: list[OneSided], froze: Frozen) -> Iterator[ModelCall]:
    """The call at sizes that take the other side of every branch; or at others than those that the model fixes."""
    example = example_sizes(call)
    if branches:
        yield _resized(call, {k: n for branch in branches for k, n in branch.sizes.items() if n != example[k]})
        return
    fixed = {name: n for name, n in example.items() if n > 1 and any(n == at for at, _ in froze.places.values())}
    if fixed:
        yield _resized(call, {name: 2 * n for name, n in fixed.items()})
        yield _resized(call, {name: n + 1 for name, n in fixed.items()})


def _resized(call: ModelCall, sizes: dict[str, int]) -> ModelCall:
    leaves = []
    for leaf in call.leaves:
        tensor = leaf.tensor
        for axis, dim in leaf.dynamic.items():
            if dim.name in sizes:
                tensor = grow(tensor, axis, sizes[dim.name], dim.maximum)
        leaves.append(replace(leaf, tensor=tensor, dynamic=dict(leaf.dynamic)))
    return replace(call, leaves=leaves)


def left_open(
    model: torch.nn.Module, call: ModelCall, program: ExportedProgram, froze: Frozen, trace: Tracer
) -> list[OneSided] | None:
    """None, unless a program that was captured at other sizes does what the model does at those of the example.

    Else the conditions that go the other way where only the example came to: of ``(h, w) == (6, 8)``, the second one is
    asked where the first one holds.
    """
    call = _resized(call, {})  # a description forgets optional dimensions that a program fixes
    try:
        captured = describe(program, call)
        if differs(model, call, trace(captured), captured, example_sizes(call)):
            return None
    except (TonnxError, ModelFails):
        return None
    return unsettled(model, call, program, froze, [], trace)


class ModelFails(Exception):
    """The model itself does not run at sizes that were invented for it."""


def differs(
    model: torch.nn.Module,
    call: ModelCall,
    trace: ShapedTrace,
    captured: Captured,
    sizes: dict[str, int],
    symbols: dict[sympy.Symbol, sympy.Integer] | None = None,
    misnamed: Misnamed | None = None,
) -> bool:
    """Whether model and program give something else at these sizes. Raises ModelFails where the model does not run.

    With ``symbols``, their values there, also whether tensors have other shapes than the program says; or which sizes
    of which tensors are others is put into ``misnamed``.
    """
    if any(dim.size(sizes) < 0 for leaf in call.leaves for dim in leaf.dynamic.values()):  # a size less others
        raise ModelFails("a size would be negative there")
    tensors = [tensor.detach().clone() for tensor in resized(call, sizes)]
    feeds = {leaf.name: to_numpy(tensor) for leaf, tensor in zip(call.leaves, tensors, strict=True)}
    args, kwargs = call.with_tensors([tensor.clone() for tensor in tensors])
    try:
        with torch.random.fork_rng(devices=[]), state_kept(model):
            chance = torch.get_rng_state()
            results = pytree.tree_leaves(called(model, args, kwargs))
            draws = not torch.equal(chance, torch.get_rng_state())
    except Exception as error:  # the user's code, at a size that it may not be made for
        raise ModelFails(f"{type(error).__name__}: {' '.join(str(error).split())}"[:120].rstrip(": ")) from error
    wanted = [to_numpy(result) for result in results if isinstance(result, torch.Tensor)]
    outputs = list(captured.program.graph.nodes)[-1].args[0]
    count = len(outputs) - len(results)  # the buffers that it changes come first
    names = [node.name for node in outputs[count:] if isinstance(getattr(node, "meta", {}).get("val"), torch.Tensor)]
    values: dict[str, np.ndarray] = {}
    shapes: set[tuple[str, tuple[int, ...]]] = set()
    said = {} if symbols is None else said_shapes(captured, symbols)

    try:
        trace.run(feeds, names, values.__setitem__, lambda name, shape: shapes.add((name, shape)))
    except TonnxError:
        return True
    others = [(name, shape) for name, shape in shapes if name in said and not is_shape(shape, said[name])]
    if others and (misnamed is None or any(len(shape) != len(said[name]) for name, shape in others)):
        return True
    for name, shape in others:
        assert misnamed is not None
        misnamed[name] = {axis for axis, n in enumerate(shape) if said[name][axis] not in (None, n)}
    if len(names) != len(wanted) or any(name not in values for name in names):
        return False  # an output that is an input as it is
    return not all(  # of random numbers, which are others in every run, only shapes can be compared
        values[name].shape == array.shape and (draws or np.allclose(values[name], array, _RTOL, _ATOL, equal_nan=True))
        for name, array in zip(names, wanted, strict=True)
    )
