"""From a module to a torch.export program, with the dimensions dynamic that were asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from tonnx.errors import CaptureError, TonnxError
from tonnx.frontends.patching import patched
from tonnx.frontends.torch.call.example import grown_example
from tonnx.frontends.torch.call.plain import plain
from tonnx.frontends.torch.call.signature import ModelCall
from tonnx.frontends.torch.call.state import state_kept
from tonnx.frontends.torch.capture.caches import sizes_as_keys
from tonnx.frontends.torch.capture.explain import Frozen, Spot, explain, spot_of_error, user_line
from tonnx.frontends.torch.capture.patches.autograd import FunctionCall, calls_kept
from tonnx.frontends.torch.capture.patches.fake_quantisers import made_plain, shapes_known
from tonnx.frontends.torch.capture.patches.table import capture_patches, export_patches
from tonnx.frontends.torch.capture.program import Captured, describe
from tonnx.frontends.torch.capture.python_flow.replace_code import Rewrites
from tonnx.frontends.torch.capture.python_flow.scope_analysis import Unsuitable
from tonnx.frontends.torch.capture.python_flow.sites import ITERATES
from tonnx.frontends.torch.capture.record import Declined, Recording, record
from tonnx.frontends.torch.capture.sampled_sizes import at_sizes, sampled, sampled_note, with_symbols
from tonnx.frontends.torch.capture.size_branches import (
    OneSided,
    Tracer,
    differs,
    empty_notes,
    left_open,
    other_sizes,
    refusal,
    unsettled,
    without_optional,
)
from tonnx.frontends.torch.capture.tried_sizes import example_sizes
from tonnx.frontends.torch.reference.mode import called
from tonnx.frontends.torch.source import runs_the_model
from tonnx.frontends.torch.versions import export

_ATTEMPTS = 40  # each costs a capture, and rewrites at least one function more


@dataclass
class _Exported:
    """A program, and what was learned on the way to it."""

    program: ExportedProgram
    froze: Frozen
    notes: list[str]
    calls: list[FunctionCall]
    one_sided: list[OneSided]
    """Branches on sizes that other sizes decide otherwise."""
    not_looked_at: list[str]
    """Those of which nobody knows, since the model itself fails at other sizes."""


class Exports:
    """The captures of a model, each with more of its control flow rewritten than the one before.

    The recorder is asked first where something is rewritten, and torch.export where it declines.

    If a loop or branch is what a capture fails at, its function is rewritten for the next. A capture may also succeed
    although a loop's header fixed something: torch fixes n // 64 without fixing n. Or the example decided a branch on
    sizes, where other sizes would not: then those are captured, and what is general there serves for all. It serves,
    too, if recording that loop or branch fails. Loops and branches on a size that the recorder has met are rewritten at
    once.
    """

    def __init__(self, model: torch.nn.Module, call: ModelCall, trace: Tracer, may_record: bool = True) -> None:
        """The model must be in the mode that is wanted. ``may_record``: else torch.export alone captures it."""
        self._trace, self._may_record = trace, may_record
        self._model, self._call = plain(model, call)
        self._dropped = _drop_broadcast(self._model, self._call)
        self._other_sides: list[dict[str, int]] = []
        """Sizes at which branches are known to go another way than at those of the example."""
        self._begin()

    def _begin(self, loops: Iterable[Spot] = (), branches: Iterable[Spot] = ()) -> None:
        self._rewrites = Rewrites()
        self._first: CaptureError | None = None
        self._usable: _Exported | None = None
        self._wider: _Exported | None = None
        """Of other sizes than the example's, where it is right, too; but not everywhere."""
        self._looked_elsewhere = False
        rewritten = [self._rewrites.add(*spot, only=ITERATES) for spot in dict.fromkeys(loops)]
        rewritten += [self._rewrites.add(*spot) for spot in dict.fromkeys(branches)]
        self._ahead = any(rewritten)
        """Whether loops and branches are rewritten before anything was tried without."""
        self.unfinished = self._ahead
        """Whether the next attempt has more rewritten."""

    def recorded(self) -> Captured:
        """The capture by tonnx's own recorder. Raises `Declined` where control flow would have to be rewritten, too."""
        froze = Frozen()
        try:
            exported = self._recorded(self._call, froze)
        finally:
            self._begin(froze.spots)
        if exported.one_sided and not froze.spots:
            general = self._elsewhere(exported.one_sided, froze, self._recorded)
            self._begin(branches=[branch.spot for branch in exported.one_sided])
            self._looked_elsewhere = self._ahead
            exported = general or exported
        if froze.spots or exported.one_sided:
            raise Declined("sizes decide a loop or a branch, or become plain numbers")
        captured = self._finished(exported, self.recorded)
        assert captured is not None
        return captured

    def _recorded(self, call: ModelCall, froze: Frozen, rewrites: Rewrites | None = None) -> _Exported:
        calls, notes, open_questions = list[FunctionCall](), list[str](), list[str]()
        program: Any = _record(self._model, call, froze, rewrites or Rewrites(), calls, notes)
        one_sided = self._unsettled(call, program, froze, open_questions)
        return _Exported(program, froze, list(dict.fromkeys(notes)), calls, one_sided, open_questions)

    def _unsettled(self, call: ModelCall, program: Any, froze: Frozen, open_questions: list[str]) -> list[OneSided]:
        one_sided = unsettled(self._model, call, program, froze, open_questions, self._trace)
        sizes = (branch.sizes for branch in one_sided if not branch.is_empty)
        self._other_sides += [each for each in sizes if each not in self._other_sides]
        return one_sided

    def rewritten(self) -> Captured:
        """Captures until nothing more is to be rewritten."""
        for _ in range(_ATTEMPTS):
            captured = self.attempt()
            if captured is not None:
                return captured
        raise CaptureError(
            f"the model has more than {_ATTEMPTS} functions whose control flow depends on sizes or values"
        )

    def attempt(self) -> Captured | None:
        """One capture; None if another one with more rewritten may be better."""
        froze, rewrites = Frozen(), self._rewrites
        failed: CaptureError | None = None
        try:
            self._usable = exported = self._exported(self._call, froze)
            spots = froze.spots
        except Declined:
            self.unfinished = True
            return None
        except CaptureError as error:
            failed, self._first = error, self._first or error
            spots = [*froze.spots, *spot_of_error(error.__cause__)]
        branches = [] if failed else exported.one_sided
        if branches or not self._looked_elsewhere:
            self._looked_elsewhere = True
            if (general := self._elsewhere(branches, froze, self._exported)) is not None:
                return self._finished(general, self._from_the_beginning)
        more = [rewrites.add(*spot) for spot in dict.fromkeys(spots)]
        if not any(more):  # else other sizes may serve once those numbers are dynamic
            more += [rewrites.add(*branch.spot) for branch in branches]
        if failed is not None and not any(more):
            more.append(rewrites.split(failed.__cause__))
        self.unfinished = any(more)
        if self.unfinished:
            return None
        if self._usable is not None:
            best = self._wider if self._usable.one_sided and self._wider is not None else self._usable
            if best.one_sided and (fixed := without_optional(best.one_sided, self._call)):
                self._dropped += fixed
                return self._from_the_beginning()
            if refused_for := [branch for branch in best.one_sided if not branch.is_empty]:
                refused = refusal(refused_for, self._call)
                raise rewrites.explained(refused, failed or refused) from (failed and failed.__cause__)
            return self._finished(best, self._from_the_beginning)
        if self._ahead:  # rewriting does not help, and what the model does without serves or is what the error is about
            return self._from_the_beginning()
        assert self._first is not None and failed is not None
        raise rewrites.explained(self._first, failed) from failed.__cause__

    def from_samples(self) -> Captured:
        """One capture, made of several at fixed sizes: near the example's, or where branches go the other way."""
        declined = Declined("the model itself takes no other sizes")
        for first in islice([example_sizes(self._call), *self._other_sides], 3):
            try:
                return self._from_samples(first)
            except Declined as error:
                declined = error
        raise declined

    def _from_samples(self, first: dict[str, int]) -> Captured:
        recorded_at, judged_at = sampled(self._model, self._call, first)
        recordings, calls, notes, froze = list[Recording](), list[FunctionCall](), list[str](), Frozen()
        for sizes in recorded_at:
            recordings.append(_record(self._model, at_sizes(self._call, sizes), Frozen(), Rewrites(), calls, []))
        if calls:
            raise Declined("the model calls autograd functions of its own")
        program: Any = _record(with_symbols(self._model, recordings), self._call, froze, Rewrites(), calls, notes)
        if froze.spots:
            raise Declined("sizes become plain numbers where numbers follow sizes, too")
        captured = describe(program, self._call)
        for sizes in [*judged_at, *self._other_sides]:
            if differs(self._model, self._call, self._trace(captured), captured, sizes):
                raise Declined(f"captures at several sizes do not come to one: it does not hold at {sizes}")
        captured.notes += [*self._dropped, *notes, sampled_note(recorded_at)]
        return captured

    def _from_the_beginning(self) -> Captured | None:
        self._begin()
        return self.attempt()

    def _exported(self, call: ModelCall, froze: Frozen) -> _Exported:
        if self._rewrites and self._may_record:
            own = Frozen()
            try:
                exported = self._recorded(call, own, self._rewrites)
                if own.spots:  # what became a plain number, torch.export explains
                    raise Declined("sizes become plain numbers")
                vars(froze).update(vars(own))
                return exported
            except Declined as error:
                spots = dict.fromkeys([*own.spots, *error.spots]) if call is self._call else ()
                if any([self._rewrites.add(*spot) for spot in spots]):  # noqa: C419 (each of them)
                    raise  # torch.export would stop at the same line, later
        calls, open_questions = list[FunctionCall](), list[str]()
        program = _export(self._model, call, froze, self._rewrites, calls)
        one_sided = self._unsettled(call, program, froze, open_questions)
        notes = list(dict.fromkeys(self._rewrites.notes))
        return _Exported(program, froze, notes, calls, one_sided, open_questions)

    def _elsewhere(
        self, one_sided: list[OneSided], froze: Frozen, capture: Callable[[ModelCall, Frozen], _Exported]
    ) -> _Exported | None:
        """The capture at sizes that take the other side, if that one serves for all."""
        for call in other_sizes(self._call, one_sided, froze):
            try:
                exported = capture(call, elsewhere := Frozen())
            except CaptureError:  # the model fixes that size, too, or has no such
                continue
            if elsewhere.spots:
                continue
            remaining = left_open(self._model, self._call, exported.program, froze, self._trace)
            if remaining is None:
                continue
            exported.one_sided += remaining
            if not exported.one_sided:
                return exported
            self._wider = exported
        return None

    def _finished(self, exported: _Exported, again: Callable[[], Captured | None]) -> Captured | None:
        if (hidden := exported.froze.swallow_error()) is not None:
            raise hidden
        if _drop_fixed(exported.program, self._call):  # fewer dimensions are dynamic now
            return again()
        captured = describe(exported.program, self._call)
        captured.calls = exported.calls
        captured.notes += empty_notes(exported.one_sided)
        captured.notes += [*dict.fromkeys([*self._dropped, *exported.not_looked_at]), *exported.notes]
        return captured


def _record(
    model: torch.nn.Module,
    call: ModelCall,
    froze: Frozen,
    rewrites: Rewrites,
    calls: list[FunctionCall],
    notes: list[str],
) -> Recording:
    with (
        shapes_known(),
        calls_kept(calls),
        rewrites.recording(),
        state_kept(model),
        sizes_as_keys(model) as caches,
        patched(capture_patches(model, froze, rewrites)),
    ):
        try:
            recording = record(model, call, grown_example(call), notes)
            notes += rewrites.notes
            caches.clear_of(recording.tensors(), any(leaf.dynamic for leaf in call.leaves))
            return recording
        except Declined as error:
            declined = Declined(error.what)
        except (Exception, Unsuitable) as error:  # noqa: BLE001 (the user's forward; told if torch.export fails, too)
            declined = Declined(f"{type(error).__name__}: {error}".splitlines()[0])
            declined.spots = spot_of_error(error) if isinstance(error, GuardOnDataDependentSymNode) else ()
    # Without the error itself: it holds the frames of the model, and all that is in them, for the next capture to find.
    raise declined


@runs_the_model
def _export(
    model: torch.nn.Module, call: ModelCall, froze: Frozen, rewrites: Rewrites, calls: list[FunctionCall]
) -> ExportedProgram:
    # torch.export leaves marks on the tensors that it is given, which the next one reads.
    aliases = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in grown_example(call)]
    args, kwargs = call.with_tensors(aliases)
    with (
        shapes_known(),
        calls_kept(calls),
        rewrites.recording(),
        state_kept(model),
        sizes_as_keys(model),
        patched(export_patches(model, froze, rewrites)),
    ):
        try:
            return made_plain(export(model, args, kwargs, _dynamic_shapes(model, call)))
        except TonnxError as error:
            error.where = error.where or user_line(error)
            raise
        except (Exception, Unsuitable) as error:  # whatever goes wrong in the user's forward or in torch.export
            raise explain(error, model, call, froze) from error


def _drop_broadcast(model: torch.nn.Module, call: ModelCall) -> list[str]:
    """Forget the Dim.AUTO dimensions of size 0 or 1 that the model broadcasts or drops: it wants them of that size.

    Nothing but a run tells: torch.export puts off the question whether two sizes are equal. Returns notes: a model
    that fails at any other size leaves the question open.
    """
    optional = [(leaf, axis) for leaf in call.leaves for axis, dim in leaf.dynamic.items() if dim.optional]
    small = [(leaf, axis) for leaf, axis in optional if leaf.tensor.shape[axis] < 2]
    if not small:
        return []
    notes: list[str] = []
    try:
        ranks = []
        for tensors in (grown_example(call), [leaf.tensor for leaf in call.leaves]):
            args, kwargs = call.with_tensors([tensor.clone() for tensor in tensors])
            with torch.random.fork_rng(devices=[]), state_kept(model):
                results = pytree.tree_leaves(called(model, args, kwargs))
            ranks.append([result.dim() for result in results if isinstance(result, torch.Tensor)])
    except Exception as error:  # noqa: BLE001 (the user's code, at a size that it may not be made for; told in a note)
        ranks = [[0], [1]]
        fixed = ", ".join(f"axis {axis} of {leaf.name}" for leaf, axis in small)
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:120].rstrip(": ")
        notes.append(f"fixed, since the model itself fails at another size: {fixed} ({reason})")
    if ranks[0] != ranks[1]:
        for leaf, axis in small:
            del leaf.dynamic[axis]
    return notes


def _drop_fixed(program: ExportedProgram, call: ModelCall) -> bool:
    """Forget the Dim.AUTO dimensions that torch left symbolic although the model allows one size only."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs = [
        placeholders[spec.arg.name].meta["val"]
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)
    ]
    dropped = False
    for leaf, fake in zip(call.leaves, inputs, strict=True):
        for axis, wanted in list(leaf.dynamic.items()):
            size = fake.shape[axis]
            limits = None if isinstance(size, int) else program.range_constraints.get(size.node.expr)
            if wanted.optional and limits is not None and limits.is_singleton():
                del leaf.dynamic[axis]
                dropped = True
    return dropped


def _dynamic_shapes(model: torch.nn.Module, call: ModelCall) -> dict[str, Any] | None:
    """``dynamic_shapes`` for torch.export: Dim.DYNAMIC at each place, so that it derives relations by itself."""
    if not any(leaf.dynamic for leaf in call.leaves):
        return None
    names = inspect.signature(model.forward).parameters
    return {
        name: {axis: Dim.AUTO if dim.optional else Dim.DYNAMIC for axis, dim in leaf.dynamic.items()} or None
        for name, leaf in zip(names, call.leaves, strict=True)
    }
