"""The rules of the PyTorch front ends: one function an operator, its arguments bound from the operator's own schema.

    @lower("aten.leaky_relu")
    def leaky_relu(op, x, negative_slope=0.01):
        return op.LeakyRelu(x, alpha=negative_slope)

Operators of one family share a function, and settle what tells them apart:

    @lower("aten.rnn_tanh_cell", activation="Tanh")
    @lower("aten.rnn_relu_cell", activation="Relu")
    def rnn_cell(op, x, hx, w_ih, w_hh, b_ih=None, b_hh=None, *, activation): ...

A rule that is one short expression is written as one, and stands at the head of its section:

    selu = lower("aten.selu")(lambda op, x: op.Selu(x))

A name without overload serves every overload that has no rule of its own. ``x`` is the schema's first argument; all
other parameters carry the schema's names. What a rule does not name must keep its default, or the export is refused;
``unused`` names arguments that play no part, whatever they say, ``renamed`` those that have another name in the schema.
Parameters that are called as in `CAPTURED` get what only the capture knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from tonnx.ir.registry import Registry, import_all

Lowering = Callable[..., Any]

CAPTURED = ("parts", "result_dims", "memory_order", "used_outputs")
"""What a front end tells the rules that ask for it, where it knows: no operator has arguments of these names.

- ``parts: int | None``: how many results a list has
- ``result_dims: Sequence[int] | None``: the sizes of the result, -1 for those that the run decides
- ``memory_order: Sequence[int] | None``: the axes of the first argument as they lie in memory, the outermost first;
  None if it does not fill its memory
- ``used_outputs: Collection[int] | None``: which of several results somebody uses
"""


@dataclass(frozen=True)
class Rule:
    """A lowering and the names of the arguments that it wants."""

    function: Lowering
    parameters: tuple[str, ...]
    unused: frozenset[str] = frozenset()
    """Arguments that change nothing in what is computed."""
    required: tuple[str, ...] = ()
    """Arguments that the function has no default for."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """From the schema's names to those of the function, where they differ."""


RULES: Registry[Rule] = Registry("lowering")

USERS: dict[str, Rule] = {}
"""Rules that `tonnx.lower` entered: they come before tonnx's own, and the last one for a name counts."""


def lower(*names: str, unused: str = "", renamed: str = "", **settled: Any) -> Callable[[Lowering], Lowering]:
    """Enter a function as the lowering of the operators ``names``, which give it the ``settled`` arguments.

    ``renamed`` is written ``"mat2=other vec=other"``, the schema's names first.
    """
    own_names = dict(pair.split("=") for pair in renamed.split())

    def enter(function: Lowering) -> Lowering:
        rule = replace(rule_of(function, **settled), unused=frozenset(unused.split()), renamed=own_names)
        for name in names:
            RULES.add(name, rule)
        return function

    return enter


def rule_of(function: Lowering, **settled: Any) -> Rule:
    """A function ``f(op, x, …)`` as a rule: what stands after ``op`` and is not settled are the arguments it wants."""
    wanted = [p for p in list(inspect.signature(function).parameters.values())[1:] if p.name not in settled]
    named = [p for p in wanted if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "node"]
    required = tuple(p.name for p in named if p.default is p.empty)
    return Rule(partial(function, **settled), tuple(p.name for p in wanted), required=required)


@cache
def load() -> Registry[Rule]:
    """Import every rule module, once."""
    import_all("tonnx.lowering.ops")
    RULES.freeze()
    return RULES


def rule_for(namespace: str, name: str, overload: str) -> Rule | None:
    """The rule of ``namespace.name.overload``, or that of all overloads."""
    rules = load()
    return rules.get(f"{namespace}.{name}.{overload or 'default'}") or rules.get(f"{namespace}.{name}")


def complex_rule(namespace: str, name: str, overload: str) -> Rule | None:
    """The rule of an operator for complex numbers: one of its own, or that for reals, for each part by itself."""
    from tonnx.lowering import complex as pairs

    name = name.rstrip("_") if not name.startswith("__") and name != "_" else name
    rules = load()
    own = rules.get(f"{namespace}.{name}.{overload}@complex") or rules.get(f"{namespace}.{name}@complex")
    alone = name in pairs.REAL_ONLY
    if own is not None or not (alone or name in pairs.COMPONENTWISE):
        return own
    real = rule_for(namespace, name, overload)
    if real is None:
        return None

    def function(op: Any, **arguments: Any) -> Any:
        if alone:
            return pairs.real_alone(op, real.function, arguments)
        result = pairs.directly(op, name, real.function, arguments)
        return pairs.componentwise(op, real.function, arguments) if result is None else result

    return replace(real, function=function)
