"""A captured program, with its inputs and dimensions by the user's names."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import sympy
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument

from tonnx.frontends.torch.call.signature import DimSpec, Leaf, ModelCall
from tonnx.frontends.torch.capture.explain import frozen
from tonnx.frontends.torch.capture.patches.autograd import FunctionCall
from tonnx.ir.size_expressions import derived_sizes


@dataclass
class Captured:
    """A program, and what its dimensions are called."""

    program: ExportedProgram
    inputs: dict[str, Leaf]
    """Placeholder name → the user's input."""
    names: dict[sympy.Symbol, str]
    """Symbols of the program → the names that were asked for."""
    limits: dict[str, tuple[int, int | None]]
    """Sizes that the user or the model's own code restricts a dimension to."""
    notes: list[str] = field(default_factory=list)
    tied: dict[sympy.Symbol, sympy.Expr] = field(default_factory=dict)
    """Symbols of dimensions that are expressions of others, and those."""
    shared: set[str] = field(default_factory=set)
    """Names of different dimensions that the model wants equal, or one of them 1."""
    how: str = "torch.export"
    """The strategy that made it; an ExportedProgram needs none."""
    passed_over: list[str] = field(default_factory=list)
    """Why the strategies before it were not taken."""
    calls: list[FunctionCall] = field(default_factory=list)
    """The autograd functions that the program calls by a key; they live as long as this does."""


def describe(program: ExportedProgram, call: ModelCall) -> Captured:
    """Match the program's placeholders with the user's inputs, and its symbols with their names."""
    inputs: dict[str, Leaf] = {}
    names: dict[sympy.Symbol, str] = {}
    limits: dict[str, tuple[int, int | None]] = {}
    shared: set[str] = set()
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    leaves = iter(call.leaves)
    for spec in program.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT or not isinstance(spec.arg, TensorArgument):
            continue
        leaf = next(leaves)
        inputs[spec.arg.name] = leaf
        shape = placeholders[spec.arg.name].meta["val"].shape
        for axis, wanted in list(leaf.dynamic.items()):
            size = shape[axis]
            if isinstance(size, int) or size.node.maybe_as_int() is not None:
                if wanted.optional:
                    del leaf.dynamic[axis]
                    continue
                raise frozen([(leaf, axis, wanted, int(size), None)])
            expression = size.node.expr
            if expression.is_Symbol:
                name = names.setdefault(expression, wanted.name)
                if wanted.optional:  # Dim.AUTO: sizes that the model wants equal are one dimension
                    wanted = leaf.dynamic[axis] = replace(wanted, name=name)
                elif name != wanted.name:
                    shared |= {name, wanted.name}
            if wanted.expression is None:  # else its terms have limits
                _limit(limits, wanted, program.range_constraints.get(expression))
    return Captured(program, inputs, names, limits, tied=_tied(names), shared=shared)


def _tied(names: dict[sympy.Symbol, str]) -> dict[sympy.Symbol, sympy.Expr]:
    symbols = {name: symbol for symbol, name in names.items()}
    derived = derived_sizes(list(symbols))
    return {symbols[name]: expression.of(symbols) for name, expression in derived.items()}


def _limit(limits: dict[str, tuple[int, int | None]], wanted: DimSpec, bounds: Any) -> None:
    # torch.export says "at least 2" of every dynamic dimension, only because 0 and 1 are special to it.
    low, high = wanted.limits
    if bounds is not None:
        if bounds.lower.is_Integer and int(bounds.lower) > 2:
            low = max(low, int(bounds.lower))
        if bounds.upper.is_Integer and int(bounds.upper) < 2**31:
            high = min(int(bounds.upper), high) if high is not None else int(bounds.upper)
    before_low, before_high = limits.get(wanted.name, (0, None))
    highs = [h for h in (high, before_high) if h is not None]
    limits[wanted.name] = (max(low, before_low), min(highs) if highs else None)
