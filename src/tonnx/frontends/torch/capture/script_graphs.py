"""TorchScript graphs made ready for the walk: functions inlined, with marks of who called them.

Methods of modules stay calls, so that the walk knows the path of the module that it is in. Functions can only be
reached by PyTorch's inlining pass, which forgets the line of the call; marks around each call keep it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from tonnx.frontends.torch.source import NOT_THE_USERS, shorten

CALL, ENTER, LEAVE = "tonnx::CallMethod", "tonnx::enter", "tonnx::leave"
_RANGE = re.compile(r'File "([^"]+)", line (\d+)')


def ready(graph: Any) -> Any:
    """A copy of a method's graph without calls of functions."""
    graph = graph.copy()
    for node in list(nodes_of(graph)):
        if node.kind() == "prim::CallMethod" and _is_module(next(node.inputs()).type()):
            _keep_call(graph, node)
        elif node.kind() in ("prim::CallMethod", "prim::CallFunction"):
            enter = graph.create(ENTER, [], 0)
            enter.s_("at", source_range(node))
            enter.insertBefore(node)
            graph.create(LEAVE, [], 0).insertAfter(node)
    torch._C._jit_pass_inline(graph)
    return graph


def _is_module(kind: Any) -> bool:
    """Modules are there before the program runs. Instances of TorchScript classes have a constructor to make them."""
    return kind.kind() == "InterfaceType" or (kind.kind() == "ClassType" and "__init__" not in kind.method_names())


def _keep_call(graph: Any, node: Any) -> None:
    kept = graph.create(CALL, list(node.inputs()), 1)
    kept.s_("name", node.s("name"))
    kept.copyMetadata(node)
    kept.output().setType(node.output().type())
    kept.insertBefore(node)
    node.output().replaceAllUsesWith(kept.output())
    node.destroy()


def nodes_of(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes_of(inner)


def source_range(node: Any) -> str:
    """Where a node comes from, in PyTorch's words; empty where the archive's record of that is damaged."""
    try:
        return str(node.sourceRange())
    except RuntimeError:
        return ""


@cache
def line_of(source_range: str) -> str:
    """``file.py:12`` of a source range; empty if the line is PyTorch's own."""
    for file, line in _RANGE.findall(source_range):
        if not file.startswith("<") and not is_of_torch(source_range):
            return f"{shorten(file)}:{line}"
    return ""


def is_of_torch(source_range: str) -> bool:
    """Whether a line is PyTorch's own, here or on the machine where an archive was written."""
    match = _RANGE.search(source_range)
    return match is not None and (match[1].startswith(NOT_THE_USERS) or "/torch/nn/" in match[1].replace("\\", "/"))


def always_raises(block: Any) -> bool:
    """Whether every path through a block ends in an exception."""
    for node in block.nodes():
        if node.kind() == "prim::RaiseException":
            return True
        if node.kind() == "prim::If" and all(map(always_raises, node.blocks())):
            return True
    return False
