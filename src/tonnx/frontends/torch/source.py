"""Where a node comes from: the module path and the user's own source line."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeVar

import sympy
import torch
from torch.fx import Node

import tonnx

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
NOT_THE_USERS = tuple(os.path.dirname(package.__file__ or "") + os.sep for package in (torch, tonnx, sympy))
_NOT_THE_MODELS = (*NOT_THE_USERS, contextlib.__file__, inspect.__file__)
_GENERATED = ("<eval_with_key", "<attrs generated", "<frozen", "<__array_function__")
"""Names of code that torch.fx and attrs write; its text can be had, but nobody wrote it."""
_ENTRANCES: set[CodeType] = set()
_Function = TypeVar("_Function", bound=Callable[..., object])


def runs_the_model(function: _Function) -> _Function:
    """Marks a function of ours in which the model runs: whoever called it is not the model."""
    _ENTRANCES.add(function.__code__)  # type: ignore[attr-defined]
    return function


def outside_the_model(frame: FrameType) -> bool:
    """Whether a frame, and so all that called it, is none of the model's; see `runs_the_model`."""
    return frame.f_code in _ENTRANCES


_replayed: list[Node] = []


@contextlib.contextmanager
def replaying(node: Node) -> Iterator[None]:
    """What is recorded meanwhile comes from where this node does."""
    _replayed.append(node)
    try:
        yield
    finally:
        _replayed.pop()


def place(node: Node, module: str, source: str) -> None:
    """Say where a recorded node comes from, in the words of torch.export."""
    if _replayed:
        module, source = module_of(_replayed[-1]), source_of(_replayed[-1])
    node.meta["nn_module_stack"] = {module: (module, "")}
    node.meta["stack_trace"] = source


def module_of(node: Node) -> str:
    """The path of the innermost module, such as ``layer1.0.conv1``."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = str(next(reversed(stack.values()))[0])
    if path.startswith("_empty_nn_module_stack"):  # made by torch.export itself, for no module
        return ""
    return path.removeprefix("L['self'].").removeprefix("L['self']")


def source_of(node: Node) -> str:
    """``file.py:12``: the innermost line that is neither PyTorch's nor ours (stand-ins)."""
    trace = node.meta.get("stack_trace")
    return _innermost(trace) if trace and "\n" in trace else trace or ""  # a recorded one is the line already


def is_users(file: str) -> bool:
    """Whether code is neither PyTorch's nor ours, nor sympy's, which computes sizes.

    That of a cell, of a prompt, or of ``exec`` is the user's.
    """
    return not file.startswith(_GENERATED if file.startswith("<") else _NOT_THE_MODELS)


_of_users = cache(is_users)


def recorded_line(frame: FrameType | None) -> str:
    """``file.py:12``: the innermost line of the model, at a frame or around it, that is neither PyTorch's nor ours."""
    while frame is not None and not outside_the_model(frame):
        if _of_users(frame.f_code.co_filename):
            return f"{shorten(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@cache
def _innermost(trace: str) -> str:
    for file, line in reversed(_FRAME.findall(trace)):
        if (os.path.isabs(file) or file.startswith("<")) and is_users(file):
            return f"{shorten(file)}:{line}"
    return ""


@cache
def shorten(file: str) -> str:
    """A path that the user recognises and that tells nothing of the machine: relative, or from the package on."""
    path = Path(file)
    if "site-packages" in path.parts:
        return "/".join(path.parts[path.parts.index("site-packages") + 1 :])
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.name
