"""Functions whose control flow is to be recorded: found by the line that failed, and replaced while a capture runs."""

from __future__ import annotations

import ast
import contextlib
import dis
import gc
import linecache
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, TypeAlias

from tonnx.errors import CaptureError
from tonnx.frontends.patching import How, Patch
from tonnx.frontends.torch.capture.explain import is_data_dependent, user_line
from tonnx.frontends.torch.capture.python_flow.conditions import NOTES
from tonnx.frontends.torch.capture.python_flow.match_statement import AsBranches
from tonnx.frontends.torch.capture.python_flow.merge import NUMBERS, UNSPLIT, Line, Unmerged
from tonnx.frontends.torch.capture.python_flow.recorded_list import RecordedList
from tonnx.frontends.torch.capture.python_flow.rewrite_ast import BODY, Rewriter
from tonnx.frontends.torch.capture.python_flow.scope_analysis import Function, Unsuitable
from tonnx.frontends.torch.capture.python_flow.sites import check, function_at, lambdas_at, sites_at
from tonnx.frontends.torch.capture.python_flow.syntax import THUNK, Place, place
from tonnx.frontends.torch.capture.python_flow.tail_duplication import Split
from tonnx.frontends.torch.capture.python_flow.variables import unwatched

_Key: TypeAlias = tuple[str, int]  # a function's name and first line

_SPLITS = 6  # of a file; each may double what comes after it


@dataclass
class _File:
    """What is rewritten of one file."""

    functions: set[Place] = field(default_factory=set)
    lambdas: set[Place] = field(default_factory=set)
    lines: set[int] = field(default_factory=set)
    """Where somebody asked for a plain number."""
    split: set[int] = field(default_factory=set)
    """Branches that take what comes after them along."""


class Rewrites:
    """The functions to be rewritten, by file. Grows from one attempt at a capture to the next."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self.reasons: list[str] = []
        """Why functions that fix something have to stay as they are."""
        self.notes: list[str] = []
        """What the user should know."""
        self._tried: set[Line] = set()
        """Branches that were to take what comes after them along."""
        self._numbers: dict[Any, Line | None] = {}

    def __bool__(self) -> bool:
        return bool(self._files)

    def add(self, file: str, line: int, name: str, only: tuple[type[ast.AST], ...] = (ast.AST,)) -> bool:
        """Rewrite the function around a line that decides something; False if that is nothing new, or cannot be.

        ``only``: what there must be on that line.
        """
        chosen = self._files.get(file, _File())
        if line in chosen.lines:
            return False
        try:
            tree = AsBranches().visit(_parsed(file))
            if not any(isinstance(site, only) for site in sites_at(tree, line)):
                return False
            around = function_at(tree, line)
            lambdas = {place(node) for node in lambdas_at(tree, line)} if name == "<lambda>" else set()
            functions = {place(around[-1])} if around and not lambdas else set()
            if functions:
                check(around[-1])
        except Unsuitable as reason:
            self.reasons.append(str(reason))
            return False
        if not functions and not lambdas:
            return False
        self._files[file] = chosen
        chosen.lines.add(line)
        # In a function that is rewritten already, only a generator on this line is new.
        new = bool(functions - chosen.functions or lambdas - chosen.lambdas)
        new = new or any(isinstance(site, ast.GeneratorExp) for site in sites_at(tree, line))
        chosen.functions |= functions
        chosen.lambdas |= lambdas
        return new

    def split(self, cause: BaseException | None) -> bool:
        """Move what comes after a branch into its sides; False if that branch is nothing new.

        It is the one whose sides leave something that is too different, or a number that has to be a plain one.
        """
        branch = cause.branch if isinstance(cause, Unsuitable) else None
        for symbol in getattr(getattr(cause, "cond", None), "free_symbols", ()):
            branch = branch or self._numbers.get(symbol)
        if branch is None or branch in self._tried:
            return False
        self._tried.add(branch)
        chosen = self._files.get(branch[0])
        if chosen is not None and len(chosen.split) < _SPLITS:
            split = Split({*chosen.split, branch[1]})
            split.visit(AsBranches().visit(_parsed(branch[0])))
            if branch[1] in split.done:
                chosen.split.add(branch[1])
        return True

    def explained(self, first: CaptureError, last: CaptureError) -> CaptureError:
        """The error of the first attempt, with the reason why recording did not help."""
        cause, reasons = last.__cause__, self.reasons
        if isinstance(cause, Unsuitable):
            reasons = [str(cause)]
        elif any(f"{kind.__name__}'> in output" in str(cause) for kind in RecordedList.__subclasses__()):
            reasons = [
                "the list that it fills is returned, and ONNX has no list of any length; return torch.stack of it"
            ]
        elif f"{Unmerged.__name__}'> in output" in str(cause):
            reasons = [Unmerged.latest]
        elif is_data_dependent(cause) and not first.data_dependent:
            assert cause is not None
            reasons = [f"its body needs a number that differs from pass to pass ({user_line(cause)})"]
        elif last.what != first.what and not reasons:
            reasons = [f"{last.what} ({last.where})"]
        elif last.where != first.where and not reasons:
            reasons = [
                f"then {last.where} fixes the size"
                if not first.data_dependent
                else f"then a plain number is needed, which only the run knows: {last.where}"
            ]
        if reasons:
            kept = f"it cannot become an If or a Loop of ONNX, since {'; '.join(dict.fromkeys(reasons))}"
            where = user_line(cause) if isinstance(cause, Unsuitable) else None
            if where is not None and where != first.where:
                kept += f" ({where})"
            first.why = f"{first.why}; {kept}" if first.why else kept
        return first

    def patches(self) -> Iterator[Patch]:
        """The code of the functions, with their control flow rewritten."""
        for function, code in self._replacements():
            yield Patch(function, "__code__", code, "a loop or branch in it is recorded", How.VALUE)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        self.notes, self._numbers = [], {}
        told = NOTES.set(self.notes)
        tried, numbers = UNSPLIT.set(frozenset([None, *self._tried])), NUMBERS.set(self._numbers)
        try:
            with unwatched():
                yield
        finally:
            NOTES.reset(told)
            UNSPLIT.reset(tried)
            NUMBERS.reset(numbers)

    def _replacements(self) -> list[tuple[FunctionType, CodeType]]:
        if not self._files:
            return []
        wanted: dict[tuple[str, str, int], list[tuple[CodeType, CodeType]]] = {}
        for file, chosen in self._files.items():
            for key, codes in _rewritten(file, chosen).items():
                wanted[(file, *key)] = codes
        replacements = []
        for thing in gc.get_objects():  # a frame knows its code, but not the function that has it
            if type(thing) is not FunctionType:
                continue
            code = thing.__code__
            pairs = wanted.get((code.co_filename, code.co_name, code.co_firstlineno), [])
            alike = [new for old, new in pairs if _same(code, old) and code.co_freevars == new.co_freevars]
            if alike:
                replacements.append((thing, alike[0]))
            elif pairs and code.co_name != "<lambda>":
                self.reasons.append(f"{code.co_name} is not what its source file says")
        return replacements


def _same(code: CodeType, read: CodeType) -> bool:
    """Whether a function is what was read from its file; an import hook may have written its asserts anew."""
    if (code.co_code, code.co_names, code.co_varnames) == (read.co_code, read.co_names, read.co_varnames):
        return True
    asserts = _assert_lines(code.co_filename)
    return bool(asserts) and _instructions(code, asserts) == _instructions(read, asserts)


def _assert_lines(file: str) -> set[int]:
    asserts = [node for node in ast.walk(_parsed(file)) if isinstance(node, ast.Assert)]
    return {line for node in asserts for line in range(node.lineno, (node.end_lineno or 0) + 1)}


def _instructions(code: CodeType, without: set[int]) -> list[tuple[str, Any]]:
    """What a function does, line by line, but for some lines; where it jumps to depends on those too."""
    line, instructions = 0, []
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line if isinstance(instruction.starts_line, int) else line
        positions = getattr(instruction, "positions", None)  # from Python 3.11
        line = line if positions is None else positions.lineno
        if line in without or instruction.opname in ("EXTENDED_ARG", "NOP"):
            continue
        value = instruction.argval
        value = value.co_name if isinstance(value, CodeType) else value
        instructions.append((instruction.opname, None if instruction.opcode in _JUMPS else (type(value), value)))
    return instructions


_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


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


def _rewritten(file: str, chosen: _File) -> dict[_Key, list[tuple[CodeType, CodeType]]]:
    """The code before and after, of the chosen functions and of those around them.

    A function inside another one is made anew whenever the outer one runs, from the code that the outer one holds.
    """
    tree = _parsed(file)
    keys = _keys(tree, chosen)
    before = _codes(_compiled(tree, file))
    tree = Split(chosen.split).visit(AsBranches().visit(tree))
    after = _codes(_compiled(Rewriter(chosen.functions, chosen.lambdas, chosen.lines).visit(tree), file))
    pairs = {key: list(zip(before.get(key, []), after.get(key, []), strict=False)) for key in keys}
    return {key: codes for key, codes in pairs.items() if codes}


def _keys(tree: ast.Module, chosen: _File) -> set[_Key]:
    keys: set[_Key] = set()

    def visit(node: ast.AST, around: list[Function]) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            around = [*around, node]
            if place(node) in chosen.functions:
                keys.update(map(_key, around))
        elif isinstance(node, ast.Lambda) and place(node) in chosen.lambdas:
            keys.update([*map(_key, around), ("<lambda>", node.lineno)])
        for child in ast.iter_child_nodes(node):
            visit(child, around)

    visit(tree, [])
    return keys


def _key(function: Function) -> _Key:
    return function.name, min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _ours(code: CodeType) -> bool:
    return code.co_name.startswith(BODY) or THUNK in code.co_varnames


def _codes(code: CodeType) -> dict[_Key, list[CodeType]]:
    """All functions of a compiled file but our own, by name and first line; in the order of the source.

    Bodies get the name of their function: PyTorch notes the lines of functions called ``forward`` only.
    """
    by_key: dict[_Key, list[CodeType]] = {}

    def renamed(code: CodeType, ours: bool) -> CodeType:
        codes = [] if ours else by_key.setdefault((code.co_name, code.co_firstlineno), [])
        at = len(codes)
        codes.append(code)
        constants = []
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                own = _ours(constant)
                constant = renamed(constant.replace(co_name=code.co_name) if own else constant, own)
            constants.append(constant)
        codes[at] = code.replace(co_consts=tuple(constants))
        return codes[at]

    renamed(code, False)
    return by_key
