"""Functions whose loops are to be recorded: found by the line that fixed a size, and replaced while a capture runs."""

from __future__ import annotations

import ast
import contextlib
import gc
import linecache
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import TypeAlias, TypeVar

from tonnx.errors import CaptureError
from tonnx.frontends.torch.explain import Frozen, user_frame, user_line
from tonnx.frontends.torch.loop_list import Listed
from tonnx.frontends.torch.loop_names import Unsuitable
from tonnx.frontends.torch.loop_source import BODY, Function, Rewriter, check, sites_at

T = TypeVar("T")
_Key: TypeAlias = tuple[str, int]  # a function's name and first line


_ATTEMPTS = 20  # each costs a capture, and records at least one loop more


def with_loops(attempt: Callable[[Frozen, Rewrites], T]) -> T:
    """Capture; if a loop's header is what fixed a size, capture once more with that loop recorded.

    A capture may also succeed although a header fixed something: torch fixes n // 64 without fixing n. It serves if
    recording that loop fails.
    """
    rewrites = Rewrites()
    first: CaptureError | None = None
    done: list[T] = []
    for _ in range(_ATTEMPTS):
        froze = Frozen()
        last = None
        try:
            done.append(attempt(froze, rewrites))
            spots = froze.spots
        except CaptureError as error:
            last, first = error, first or error
            at = user_frame(error.__cause__) if error.__cause__ is not None else None
            spots = [*froze.spots, *([(at[0].f_code.co_filename, at[1])] if at is not None else [])]
        new = [rewrites.add(*spot) for spot in dict.fromkeys(spots)]
        if any(new):
            continue
        if done:
            return done[-1]
        assert first is not None and last is not None
        raise rewrites.explained(first, last) from last.__cause__
    raise CaptureError(f"the model has more than {_ATTEMPTS} loops over dynamic sizes that do not show at once")


class Rewrites:
    """The loops to be recorded, by file and line. Grows from one attempt at a capture to the next."""

    def __init__(self) -> None:
        self._lines: dict[str, set[int]] = {}
        self.reasons: list[str] = []
        """Why loops that fix a size have to stay as they are."""

    def add(self, file: str, line: int) -> bool:
        """Record the loops whose header is on this line; False if there is none that is new and suitable."""
        if line in self._lines.get(file, ()):
            return False
        try:
            found = sites_at(_parsed(file), line)
            for loop, around in found:
                check(loop, around[-1])
        except Unsuitable as reason:
            self.reasons.append(str(reason))
            return False
        if found:
            self._lines.setdefault(file, set()).add(line)
        return bool(found)

    def explained(self, first: CaptureError, last: CaptureError) -> CaptureError:
        """The error of the first attempt, with the reason why recording its loop did not help."""
        cause, reasons = last.__cause__, self.reasons
        if isinstance(cause, Unsuitable):
            reasons = [str(cause)]
        elif type(cause).__name__.startswith("GuardOnDataDependent"):
            assert cause is not None
            reasons = [f"its body needs a number that differs from pass to pass ({user_line(cause)})"]
        elif f"{Listed.__name__}'> in output" in str(cause):
            reasons = [
                "the list that it fills is returned, and ONNX has no list of any length; return torch.stack of it"
            ]
        elif last.what != first.what and not reasons:
            reasons = [f"{last.what} ({last.where})"]
        elif last.where != first.where and not reasons:
            reasons = [f"then {last.where} fixes the size"]
        if reasons:
            kept = f"the loop cannot become one of ONNX, since {'; '.join(dict.fromkeys(reasons))}"
            first.why = f"{first.why}; {kept}" if first.why else kept
        return first

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The functions with their loops rewritten; afterwards they are what they were."""
        swapped: list[tuple[FunctionType, CodeType]] = []
        try:
            for function, code in self._replacements():
                swapped.append((function, function.__code__))
                function.__code__ = code
            yield
        finally:
            for function, code in reversed(swapped):
                function.__code__ = code

    def _replacements(self) -> list[tuple[FunctionType, CodeType]]:
        if not self._lines:
            return []
        wanted: dict[tuple[str, str, int], tuple[CodeType, CodeType]] = {}
        for file, lines in self._lines.items():
            for key, codes in _rewritten(file, lines).items():
                wanted[(file, *key)] = codes
        found = []
        for thing in gc.get_objects():  # a frame knows its code, but not the function that has it
            if type(thing) is not FunctionType:
                continue
            code = thing.__code__
            old, new = wanted.get((code.co_filename, code.co_name, code.co_firstlineno), (None, None))
            if old is None or new is None:
                continue
            if code.co_code != old.co_code or code.co_freevars != new.co_freevars:
                self.reasons.append(f"{code.co_name} is not what its source file says")
                continue
            found.append((thing, new))
        return found


def _parsed(file: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an old escape or comparison: the user has seen it already
            return ast.parse("".join(linecache.getlines(file)), file)
    except SyntaxError:
        raise Unsuitable(f"the source of {file} cannot be read") from None


def _compiled(tree: ast.Module, file: str) -> CodeType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(tree, file, "exec", dont_inherit=True)


def _rewritten(file: str, lines: set[int]) -> dict[_Key, tuple[CodeType, CodeType]]:
    """The code before and after, of the functions with loops on these lines and of those around them.

    A function inside another one is made anew whenever the outer one runs, from the code that the outer one holds.
    """
    tree = _parsed(file)
    sites = {id(site): (site, around) for line in sorted(lines) for site, around in sites_at(tree, line)}
    keys = {_key(function) for _, around in sites.values() for function in around}
    before = _codes(_compiled(tree, file))
    after = _codes(_renamed(_compiled(Rewriter(list(sites.values())).visit(tree), file)))
    return {key: (before[key], after[key]) for key in keys if key in before and key in after}


def _key(function: Function) -> _Key:
    return function.name, min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _renamed(code: CodeType) -> CodeType:
    """Bodies under the name of their function: PyTorch notes the lines of functions called ``forward`` only."""
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_name.startswith(BODY):
                constant = constant.replace(co_name=code.co_name)
            constant = _renamed(constant)
        constants.append(constant)
    return code.replace(co_consts=tuple(constants))


def _codes(code: CodeType) -> dict[_Key, CodeType]:
    """All functions of a compiled file."""
    found: dict[_Key, CodeType] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _codes(constant)
    return {**found, (code.co_name, code.co_firstlineno): code}
