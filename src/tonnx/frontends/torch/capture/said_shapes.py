"""The shapes that a captured program says its tensors have, at sizes at which it is run, and those that are others.

They were learned on the side of a branch that the example takes. Where that side serves for all sizes, they may be
others all the same: a slice ``x[:n]`` of a longer tensor has n elements, of a shorter one those that there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node

from tonnx.frontends.torch.capture.patches.short_sizes import definitions, evaluated
from tonnx.frontends.torch.capture.program import Captured

Misnamed = dict[str, Set[int]]
"""By the name of a tensor: the axes that are not as long as the program says."""


def said_shapes(captured: Captured, symbols: Mapping[sympy.Symbol, sympy.Integer]) -> dict[str, list[Any]]:
    """By the name of a tensor: the sizes that the program says it has there; None for what only the run knows."""
    at = {**{symbol: size.xreplace(symbols) for symbol, size in captured.tied.items()}, **symbols}
    known: dict[Any, int | None] = {}

    def number(size: Any) -> int | None:
        if type(size) is int:
            return size
        expression = size.node.expr
        if expression not in known:
            n = sympy.sympify(evaluated(definitions(size.node.shape_env), expression, at))
            known[expression] = int(n) if n.is_Integer else None
        return known[expression]

    return {node.name: [number(size) for size in fake.shape] for node, fake in _tensors(captured.program)}


def is_shape(shape: tuple[int, ...], said: list[Any]) -> bool:
    return len(shape) == len(said) and all(size in (None, n) for n, size in zip(shape, said, strict=True))


def forget_sizes(program: ExportedProgram, misnamed: Misnamed) -> None:
    """Only the run knows these."""
    for node, fake in _tensors(program):
        if axes := misnamed.get(node.name):
            mode: Any = fake.fake_mode  # type: ignore[attr-defined]
            with mode:
                fresh = {axis: mode.shape_env.create_unbacked_symint() for axis in axes}
                sizes = [fresh.get(axis, size) for axis, size in enumerate(fake.shape)]
                node.meta["val"] = torch.empty(sizes, dtype=fake.dtype, device=fake.device)
            mode.shape_env.pending_fresh_unbacked_symbols.clear()


def _tensors(program: ExportedProgram) -> Iterator[tuple[Node, torch.Tensor]]:
    for node in program.graph.nodes:
        if node.op == "call_function" and isinstance(fake := node.meta.get("val"), torch.Tensor):
            yield node, fake
