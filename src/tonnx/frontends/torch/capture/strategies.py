"""The ways to capture a model, in the order in which they are tried. Each says why it was not taken."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tonnx.errors import CaptureError, InvalidArgument
from tonnx.frontends.torch.call.example import other_example
from tonnx.frontends.torch.call.signature import ModelCall
from tonnx.frontends.torch.call.state import state_kept
from tonnx.frontends.torch.capture import torchscript
from tonnx.frontends.torch.capture.explain import calling_frame, line_of, user_line
from tonnx.frontends.torch.capture.patches.fake_quantisers import packed_part
from tonnx.frontends.torch.capture.program import Captured
from tonnx.frontends.torch.capture.size_branches import Tracer
from tonnx.frontends.torch.capture.torch_export import Exports
from tonnx.frontends.torch.capture.torchscript import Scripted
from tonnx.frontends.torch.reference.mode import called

CHOICES = ("auto", "record", "export", "script", "trace")
"""What ``capture`` may be."""


class _MemoryGiven(TorchFunctionMode):
    """The first line that gives a weight other memory, which a capture cannot follow: ``self.fused.weight.data = w``"""

    line: str | None = None

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self.line is None and func == torch.Tensor.data.__set__ and isinstance(args[0], torch.nn.Parameter):  # type: ignore[attr-defined]
            frame = calling_frame(sys._getframe(1))
            self.line = None if frame is None else line_of(frame, frame.f_lineno)
        return func(*args, **(kwargs or {}))

    def error(self, model: torch.nn.Module) -> CaptureError:
        return CaptureError(
            f"{type(model).__name__} exchanges a weight while it runs, which cannot be captured",
            where=self.line,
            why="setting .data changes the weight behind PyTorch's back: what is computed for it is no part of a graph",
            hint="do it once before the export, and not in forward; or call the operator with the new weight: "
            "torch.nn.functional.linear(x, weight), conv2d(x, weight)",
        )


@dataclass
class Task:
    """What is to be captured how, and what has come of it so far."""

    asked: str
    """One of CHOICES."""
    module: torch.nn.Module
    call: ModelCall
    trace: Tracer
    errors: dict[str, CaptureError] = field(default_factory=dict)
    """By the name of the strategy that failed."""
    memory_given: _MemoryGiven = field(default_factory=_MemoryGiven)

    @cached_property
    def exports(self) -> Exports:
        return Exports(self.module, self.call, self.trace, may_record=self.asked == "auto")

    @cached_property
    def packed(self) -> str | None:
        """The part that has weights for which torch.export has no place."""
        part = packed_part(self.module)
        return None if part is None else f"{part}: weights packed for PyTorch's own kernels"

    @cached_property
    def needs_script(self) -> str | None:
        """Why torch.export would not do, or would follow one path only."""
        if self.packed is not None:
            return self.packed
        parts = torchscript.scripted_parts(self.module)
        if parts and torchscript.has_control_flow(self.module):
            return f"{', '.join(parts[:3])}: a scripted part with branches or loops"
        return None

    @cached_property
    def failure_elsewhere(self) -> str:
        """What the model says to other sizes of what is to be dynamic, if it fails: then no other capture helps."""
        error = self._failure(other_example(self.call))
        return "" if error is None else f"{type(error).__name__}: {torchscript.reason(str(error))}"

    def check_example(self) -> None:
        """Raise what the model says to the example, if it fails: then a capture was never the question."""
        error = self._failure([leaf.tensor.clone() for leaf in self.call.leaves])
        if error is not None:
            raise CaptureError(
                "the model itself fails on the example",
                where=user_line(error),
                why=f"{type(error).__name__}: {torchscript.reason(str(error))}".rstrip(": "),
                hint="call the model with these arguments first: it has to take them",
            ) from error

    def _failure(self, tensors: list[torch.Tensor]) -> Exception | None:
        args, kwargs = self.call.with_tensors(tensors)  # what cannot be copied is said as such
        try:
            with torch.random.fork_rng(devices=[]), state_kept(self.module), self.memory_given:
                called(self.module, args, kwargs)
        except Exception as error:  # noqa: BLE001 (the user's code, which may not be made for this; told)
            return error
        return None

    def by_script(self) -> bool:
        """Whether a TorchScript program is wanted in the first place."""
        return self.asked == "auto" and self.needs_script is not None

    def by_export(self) -> bool:
        return self.asked in ("auto", "export") and self.packed is None

    def by_samples(self) -> bool:
        """Whether captures at fixed sizes may come further: what they cannot do is answer what only the run knows."""
        if self.asked != "auto" or self.packed is not None or not any(leaf.dynamic for leaf in self.call.leaves):
            return False
        return not any(error.data_dependent for error in self.errors.values())


Result = Captured | Scripted | None


@dataclass(frozen=True)
class Strategy:
    """One way to capture a model."""

    name: str
    when: str
    """When it applies, in words: said where it does not."""
    applies: Callable[[Task], bool]
    capture: Callable[[Task], Result]
    """Raises `CaptureError` if it does not do; None if the next strategy has to go on with it."""
    telling: bool = True
    """Whether its error is of use to somebody who did not ask for it."""


def _is_given(task: Task) -> bool:
    return torchscript.is_script(getattr(task.module, "script", None))


def _script(task: Task) -> Result:
    return _explained(torchscript.script(task.module), "torch.jit.script", task)


def _trace(task: Task) -> Result:
    forced = task.asked == "trace"
    return _explained(torchscript.trace(task.module, task.call, forced=forced), "torch.jit.trace", task)


def _explained(scripted: Scripted, name: str, task: Task) -> Scripted:
    if task.by_script():
        scripted.notes.insert(0, f"captured by {name}: {task.needs_script}")
    return scripted


def _script_after_all(task: Task) -> Result:
    stopped = list(task.errors.values())[-1]
    scripted = torchscript.script(task.module)
    scripted.notes.append(f"captured by torch.jit.script: torch.export stops: {stopped.what.splitlines()[0]}")
    scripted.instead_of = stopped
    return scripted


STRATEGIES = (
    Strategy("TorchScript", "the model is a TorchScript program", _is_given, lambda task: Scripted(task.module.script)),
    Strategy(
        "torch.jit.script", "it is asked for, weights are packed, or a scripted part has branches or loops",
        lambda task: task.asked == "script" or task.by_script(), _script, telling=False,
    ),
    Strategy(
        "torch.jit.trace", "it is asked for; or the same, and the whole cannot be scripted",
        lambda task: task.asked == "trace" or task.by_script(), _trace,
    ),
    Strategy(
        "recorder", "no other is asked for, and no weights are packed",
        lambda task: task.asked in ("auto", "record") and task.packed is None, lambda task: task.exports.recorded(),
        telling=False,
    ),
    Strategy(
        "torch.export", "no other is asked for, no weights are packed, and the recorder has met no loop over a size",
        lambda task: task.by_export() and not task.exports.unfinished, lambda task: task.exports.attempt(),
    ),
    Strategy(
        "control flow rewritten", "torch.export fixes or cannot follow a loop or a branch",
        lambda task: task.by_export() and task.exports.unfinished, lambda task: task.exports.rewritten(),
    ),
    Strategy(
        "torch.jit.script", "torch.export stops, and the model itself takes other sizes",
        lambda task: task.asked == "auto" and not task.by_script() and not task.failure_elsewhere, _script_after_all,
        telling=False,
    ),
    Strategy(
        "several sizes", "torch.export stops, and the control flow depends on no values",
        lambda task: task.by_samples(), lambda task: task.exports.from_samples(), telling=False,
    ),
)  # fmt: skip
"""Read from top to bottom: the first that applies and does is taken."""


def capture(asked: str, module: torch.nn.Module, call: ModelCall, trace: Tracer) -> Captured | Scripted:
    """A module as a program, by the first strategy that does. The module must be in the mode that is wanted."""
    task = Task(asked, module, call, trace)
    _check(task)
    passed_over: list[str] = []
    telling: list[CaptureError] = []
    for strategy in STRATEGIES:
        if not strategy.applies(task):
            passed_over.append(f"{strategy.name}: only if {strategy.when}")
            continue
        try:
            program = strategy.capture(task)
        except CaptureError as error:
            if not task.errors:
                task.check_example()
            task.errors[strategy.name] = error
            telling += [error] if strategy.telling else []
            passed_over.append(f"{strategy.name}: {error.what.splitlines()[0]}")
            continue
        if program is None:
            passed_over.append(f"{strategy.name}: a loop or branch in the model has to be rewritten")
            continue
        program.how, program.passed_over = strategy.name, passed_over
        return program
    first = (telling or list(task.errors.values()))[0]
    if task.memory_given.line is not None:
        raise task.memory_given.error(module) from first
    if task.asked == "auto" and not task.by_script() and (failure := task.failure_elsewhere):
        untried = f"torch.jit.script was not tried, since the model itself fails at other sizes: {failure}"
        first.why = f"{first.why}; {untried}" if first.why else untried
    raise first


def _check(task: Task) -> None:
    if task.asked not in CHOICES:
        raise InvalidArgument(f"capture must be one of {', '.join(CHOICES)}, not {task.asked!r}")
    if task.asked == "export" and _is_given(task):
        raise InvalidArgument("torch.export takes no TorchScript", hint="leave capture at 'auto'")
    if task.asked == "export" and task.packed is not None:
        raise InvalidArgument(f"torch.export does not take {task.packed}", hint="leave capture at 'auto'")
