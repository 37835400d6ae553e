"""One tree of errors. Each says what is wrong, where in the user's code, why, and what to do."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tonnx.proof.locate.located import Located
    from tonnx.proof.trials.verification import Verification


def first_line(error: BaseException | str) -> str:
    """What an error of others says first: their messages are long."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")[:300]


def first_words(error: BaseException) -> str:
    """What an error says first, or its kind where it says nothing."""
    return first_line(error) or type(error).__name__


def in_one_line(error: BaseException) -> str:
    """All that an error says, or its kind where it says nothing."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def system_says(error: BaseException) -> str:
    """What the operating system says went wrong, without the name of the file."""
    return getattr(error, "strerror", None) or str(error)


def cause_of(error: BaseException) -> str:
    """``TypeError: what it says first``."""
    return f"{type(error).__name__}: {first_line(error)}".rstrip(": ")


def root_of(error: BaseException) -> BaseException:
    """What an error came from: others wrap theirs many times."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def innermost(error: BaseException, is_users: Callable[[str], bool]) -> str | None:
    """The last line that an error came through in a file that is the user's."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    return f"{short_path(frames[-1].filename)}:{frames[-1].lineno}: {frames[-1].line}" if frames else None


def short_path(file: str) -> str:
    """A file as seen from the current folder, if it is in it."""
    try:
        return Path(file).relative_to(Path.cwd()).as_posix()
    except ValueError:
        return file


def did_you_mean(name: object, names: Iterable[str], otherwise: str | None = None) -> str | None:
    """The hint of an error about a name that does not exist: those that are written nearly so, or ``otherwise``."""
    from difflib import get_close_matches

    words = list(names)
    near = get_close_matches(str(name), words, n=1, cutoff=0.8) or get_close_matches(str(name), words, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else otherwise


class TonnxError(Exception):
    """Base of everything tonnx raises on purpose.

    ``what`` is one line; ``where`` a place in the user's code; ``why`` the cause; ``hint`` the way out.
    """

    def __init__(self, what: str, *, where: str | None = None, why: str | None = None, hint: str | None = None) -> None:
        self.what, self.where, self.why, self.hint = what, where, why, hint
        super().__init__(what)

    @property
    def page(self) -> str:
        """The entry about this kind of error, relative to the docs."""
        return f"errors.md#{type(self).__name__.lower()}"

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.why:
            lines.append(f"  why:   {self.why}")
        if self.hint:
            lines.append(f"  do:    {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        """For other processes: by what it holds, since constructors take something else."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[TonnxError], args: tuple[object, ...], state: dict[str, object]) -> TonnxError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


@contextmanager
def told_as(
    refusal: type[TonnxError],
    what: str,
    *kinds: type[Exception],
    why: Callable[[BaseException], str] = cause_of,
    hint: str | None = None,
) -> Iterator[None]:
    """Others' errors, of these kinds or of any, become one of ours that says ``what``; ours stay what they are."""
    try:
        yield
    except TonnxError:
        raise
    except Exception as error:
        if kinds and not isinstance(error, kinds):
            raise
        raise refusal(what, why=why(error), hint=hint) from error


def needed(module: str, what: str, hint: str) -> Any:
    """A package that only some things need; ``what`` is said where it is missing, ``hint`` is how it is had."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependency(what, hint=hint) from error


class InvalidArgument(TonnxError, ValueError):
    """An argument of a public function cannot be used as given."""


class MissingDependency(TonnxError, ImportError):
    """An optional package is needed; the hint has the pip command."""


class CaptureError(TonnxError):
    """The framework could not turn the model into a graph.

    ``data_dependent``: because its control flow depends on the values of a tensor.
    """

    def __init__(self, what: str, *, data_dependent: bool = False, **told: str | None) -> None:
        super().__init__(what, **told)
        self.data_dependent = data_dependent


class LoweringError(TonnxError):
    """A framework operator could not be expressed in ONNX."""


class UnsupportedArgument(LoweringError):
    """The operator is known, but not with this argument."""


@dataclass(frozen=True)
class Occurrence:
    """One place where an operator is used that cannot be exported."""

    operator: str
    module: str
    source: str
    reason: str = ""
    """What stopped its rule, or its decomposition; empty where it has neither."""


class UnsupportedOp(LoweringError):
    """Lists ALL operators of the model that have no rule, and those whose rule stopped, with counts and places."""

    def __init__(self, occurrences: Sequence[Occurrence], hint: str | None = None) -> None:
        self.occurrences = tuple(occurrences)
        groups: dict[tuple[str, str], list[Occurrence]] = {}
        for occurrence in occurrences:
            groups.setdefault((occurrence.operator, occurrence.reason), []).append(occurrence)
        lines = []
        for (operator, reason), places in sorted(groups.items(), key=lambda item: -len(item[1])):
            first = places[0]
            at = " ".join(part for part in (first.module and f"in {first.module}", first.source) if part)
            more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
            lines.append(f"  {len(places):>3} × {operator}  {at}{more}")
            lines += [f"        {reason}"] if reason else []
        count = len({occurrence.operator for occurrence in occurrences})
        super().__init__(
            f"{count} operator{'s' if count != 1 else ''} of this model cannot be exported:\n" + "\n".join(lines),
            hint=hint or "write a lowering for it (see CONTRIBUTING.md), or express it with other operators",
        )


@dataclass(frozen=True)
class Blocker:
    """One node, input or property of a model that keeps it from the opset or target that was asked for."""

    node: str
    operator: str
    reason: str
    source: str = ""
    lowest_opset: int | None = None

    def __str__(self) -> str:
        at = f"  [{self.source}]" if self.source else ""
        lowest = f"; works from opset {self.lowest_opset}" if self.lowest_opset else ""
        return f"{self.operator} ({self.node}): {self.reason}{lowest}{at}"


class RetargetError(TonnxError):
    """The model cannot be expressed at the opset, or for the target, that was asked for; lists every blocking node."""

    def __init__(self, opset: int, blockers: Sequence[Blocker], *, target: str = "") -> None:
        self.opset = opset
        self.target = target
        """The name of the target; empty where only an opset was asked for."""
        self.blockers = tuple(blockers)
        lines = [f"  {blocker}" for blocker in self.blockers]
        reachable = [blocker.lowest_opset for blocker in self.blockers]
        hint = None
        if reachable and all(reachable):
            hint = f"the lowest opset that works for this model is {max(o for o in reachable if o)}"
        count = len(self.blockers)
        if target:
            what = f"the model does not fit {target} (opset {opset}), in {count} point{'s' if count != 1 else ''}"
        else:
            what = f"{count} node{'s' if count != 1 else ''} cannot be expressed at opset {opset}"
        super().__init__(f"{what}:\n" + "\n".join(lines), hint=hint)


class InvalidModel(TonnxError):
    """The checker or the runtime does not accept the model."""


class VerificationFailed(TonnxError):
    """The file does not compute what the model computes."""

    def __init__(self, what: str, *, verification: Verification | None = None, **told: str | None) -> None:
        super().__init__(what, **told)
        self.verification = verification
        self.located: Located | None = None
        """The first node that differs, where it could be found."""
