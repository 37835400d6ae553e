"""The rewriter on functions that nobody wrote for it: PyTorch's own and Python's library, all in one file at once."""

from __future__ import annotations

import ast
import asyncio
import json
from pathlib import Path

import pytest
import torch

from tonnx.frontends.torch.capture.python_flow.replace_code import _File, _parsed, _rewritten
from tonnx.frontends.torch.capture.python_flow.scope_analysis import Unsuitable
from tonnx.frontends.torch.capture.python_flow.sites import check
from tonnx.frontends.torch.capture.python_flow.syntax import place

TORCH, LIBRARY = Path(torch.__file__).parent, Path(json.__file__).parents[1]
SOURCES = [
    TORCH / "functional.py",
    TORCH / "distributions" / "utils.py",
    TORCH / "nn" / "modules" / "rnn.py",
    TORCH / "nn" / "modules" / "module.py",
    TORCH / "nn" / "utils" / "rnn.py",
    TORCH / "utils" / "_pytree.py",
    Path(asyncio.__file__).with_name("locks.py"),
    LIBRARY / "dataclasses.py",
    LIBRARY / "textwrap.py",
    LIBRARY / "statistics.py",
    LIBRARY / "json" / "decoder.py",
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_function_that_can_be_rewritten_compiles(source: Path) -> None:
    tree = _parsed(str(source))
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    suitable = {place(function) for function in functions if _is_suitable(function)}
    lambdas = {place(node) for node in ast.walk(tree) if isinstance(node, ast.Lambda)}
    lines = set(range(1, 1 + len(source.read_text(encoding="utf-8").splitlines())))
    pairs = [pair for pairs in _rewritten(str(source), _File(suitable, lambdas, lines)).values() for pair in pairs]
    assert len(pairs) >= len(suitable)
    for before, after in pairs:  # the user's own variables: functions are replaced in place, with their closures
        assert before.co_freevars == after.co_freevars
        assert before.co_varnames[: before.co_argcount] == after.co_varnames[: after.co_argcount]


def _is_suitable(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    try:
        check(function)
    except Unsuitable:
        return False
    return True
