"""From a module to a TorchScript program: scripted as a whole, or traced.

A trace follows one path. It is taken only if nothing in the model turned a tensor into a Python number or truth value
on the way (PyTorch warns of that, and two traces at different sizes and values differ), or if the user asked for it.
"""

from __future__ import annotations

import inspect
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from types import CodeType, FunctionType
from typing import Any

import torch

from tonnx.errors import CaptureError
from tonnx.frontends.patching import patched
from tonnx.frontends.torch.call.example import grown_example, other_example
from tonnx.frontends.torch.call.signature import FUNCTION, ModelCall
from tonnx.frontends.torch.call.state import state_kept
from tonnx.frontends.torch.capture.patches.fake_quantisers import steps_as_numbers
from tonnx.frontends.torch.capture.script_graphs import line_of, nodes_of, source_range
from tonnx.frontends.torch.source import NOT_THE_USERS, shorten


@dataclass
class Scripted:
    """A program, how it was made, and what the user should know of it."""

    program: Any
    notes: list[str] = field(default_factory=list)
    how: str = ""
    """The strategy that made it."""
    passed_over: list[str] = field(default_factory=list)
    """Why the strategies before it were not taken."""
    instead_of: CaptureError | None = None
    """Why torch.export did not do; reported if this way fails as well."""


def is_script(model: Any) -> bool:
    return isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction))


def script(module: torch.nn.Module) -> Scripted:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.jit.script(getattr(module, FUNCTION, module))
    except Exception as error:  # whatever PyTorch's compiler says of the user's code
        raise CaptureError(
            f"torch.jit.script cannot compile {type(module).__name__}",
            where=_where_of(str(error)),
            why=reason(str(error)),
            hint="capture='trace' follows one path through the model",
        ) from error
    if isinstance(program, torch.jit.ScriptModule) and not hasattr(program, "forward"):
        raise CaptureError(
            f"torch.jit.script gives {type(module).__name__} no forward of its own",
            why="it has several, of which a caller chooses one by its arguments",
            hint="export a module that calls it",
        )
    return Scripted(program)


def reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[0] if lines else "")[:300].rstrip(":")


def _where_of(text: str) -> str | None:
    match = re.search(r'File "([^"]+)", line (\d+)\n(.*)', text)
    if match is None:
        return None
    return f"{shorten(match[1])}:{match[2]}"


def trace(module: torch.nn.Module, call: ModelCall, *, forced: bool) -> Scripted:
    """``torch.jit.trace``. Refused where it may have dropped a branch, unless it was asked for."""
    program, dropped = _traced(module, call, grown_example(call))
    if not dropped and (other := _other_trace(module, call)) is not None:
        dropped = _differences(program, other)
    if dropped and not forced:
        where, what = dropped[0]
        raise CaptureError(
            "tracing would keep only the path that the example takes",
            where=where or None,
            why=what,
            hint="write the branch or loop in a function with @torch.jit.script, or as torch.cond; "
            "capture='trace' keeps the one path",
        )
    lines = [f"{where}: {what}" if where else what for where, what in dropped]
    notes = [f"[!] only the path of the example is in the file: {line}" for line in dict.fromkeys(lines)]
    return Scripted(program, notes)


def _traced(module: torch.nn.Module, call: ModelCall, tensors: list[torch.Tensor]) -> tuple[Any, list[tuple[str, str]]]:
    """A trace, and where it left the tensors."""
    args, kwargs = call.with_tensors([tensor.clone() for tensor in tensors])
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            torch.no_grad(),
            torch.random.fork_rng(devices=[]),
            state_kept(module),
            patched(steps_as_numbers(module)),
        ):
            warnings.simplefilter("always")
            if kwargs:
                named = {name: value for name, value in bound.arguments.items() if value is not None}
                program = torch.jit.trace(module, example_kwarg_inputs=named, check_trace=False, strict=False)
            else:
                program = torch.jit.trace(module, args, check_trace=False, strict=False)
    except Exception as error:  # whatever the user's code or PyTorch's tracer raises
        raise CaptureError(f"torch.jit.trace fails on {type(module).__name__}", why=reason(str(error))) from error
    return program, [dropped for dropped in map(_dropped, caught) if dropped is not None]


def _other_trace(module: torch.nn.Module, call: ModelCall) -> Any:
    """A trace at other sizes and values; None where the model does not run there."""
    try:
        return _traced(module, call, other_example(call))[0]
    except CaptureError:
        return None


def _differences(program: Any, other: Any) -> list[tuple[str, str]]:
    """Where two traces of one model differ: something there was a plain number, or a path was chosen."""
    one, two = ([n for n in nodes_of(p.inlined_graph) if n.kind() != "prim::GetAttr"] for p in (program, other))
    for a, b in zip_longest(one, two):
        if a is None or b is None or a.kind() != b.kind() or _literal(a) != _literal(b):
            at = a if a is not None else b
            return [
                (line_of(source_range(at)), "the model takes another course at other sizes or values of its inputs")
            ]
    return []


def _literal(node: Any) -> Any:
    if node.kind() != "prim::Constant" or node.outputsSize() != 1:
        return None
    value = node.output().toIValue()
    return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else value


def _dropped(warning: warnings.WarningMessage) -> tuple[str, str] | None:
    """Where a trace left the tensors, and how."""
    if not issubclass(warning.category, torch.jit.TracerWarning):
        return None
    text = " ".join(str(warning.message).split())
    if "check_trace" in text or "was not used" in text:
        return None
    file = "PyTorch" if warning.filename.startswith(NOT_THE_USERS) else shorten(warning.filename)
    return f"{file}:{warning.lineno}", text.partition(". ")[0]


# Models with scripted parts


def scripted_parts(module: torch.nn.Module) -> list[str]:
    """The names of scripted children, and of scripted functions that the model's own code names."""
    parts = [name or "the model" for name, child in module.named_modules() if isinstance(child, torch.jit.ScriptModule)]
    parts = [name for name in parts if not any(name.startswith(f"{other}.") for other in parts)]
    return list(dict.fromkeys([*parts, *(name for name, _ in _scripted_functions(module))]))


def _scripted_functions(module: torch.nn.Module) -> Iterator[tuple[str, torch.jit.ScriptFunction]]:
    """The scripted functions that the code of a model can call: attributes, and globals that its functions name."""
    children = [child for child in module.modules() if not isinstance(child, torch.jit.ScriptModule)]
    kinds = {kind: None for child in children for kind in type(child).__mro__}
    seen: set[Any] = set()
    for kind in kinds:
        if kind.__module__.split(".")[0] == "torch" or kind is object:
            continue
        for name, attribute in vars(kind).items():
            plain = getattr(attribute, "__func__", attribute)
            if isinstance(plain, torch.jit.ScriptFunction):
                yield name, plain
            elif isinstance(plain, FunctionType):
                yield from _named_by(plain, seen)
    for child in children:
        for name, value in vars(child).items():
            if isinstance(value, torch.jit.ScriptFunction):
                yield name, value


def _named_by(function: FunctionType, seen: set[Any]) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    key = code, id(function.__globals__), *map(id, function.__closure__ or ())
    if key in seen or _is_not_the_users(code.co_filename):
        return
    seen.add(key)
    enclosed = {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            enclosed[name] = cell.cell_contents
        except ValueError:  # not filled yet
            continue
    for name in _names(code):
        value = enclosed[name] if name in enclosed else function.__globals__.get(name)
        if isinstance(value, torch.jit.ScriptFunction):
            yield name, value
        elif isinstance(value, FunctionType):
            yield from _named_by(value, seen)


@cache
def _is_not_the_users(file: str) -> bool:
    return os.path.abspath(file).startswith(NOT_THE_USERS)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def has_control_flow(module: torch.nn.Module) -> bool:
    """Whether a scripted part of a model branches or loops: torch.export would follow one path through it."""
    graphs = [
        child.inlined_graph
        for child in module.modules()
        if isinstance(child, torch.jit.ScriptModule) and hasattr(child, "forward")
    ]
    graphs += [function.inlined_graph for _, function in _scripted_functions(module)]
    return any(node.kind() in ("prim::If", "prim::Loop") for graph in graphs for node in nodes_of(graph))
