"""Sizes that are padded or cut to a multiple, as that multiple: ``h + (8 - h % 8) % 8`` is ``(h + 7) // 8 * 8``.

Networks of windows pad in every block, and halve in every stage. Of the first form every stage has the size before it
twice or thrice in it, so that sizes double with each; and torch does not see that the windows fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from tonnx.frontends.patching import Patch

_REMAINDERS = (Mod, PythonMod)


def multiples() -> Iterator[Patch]:
    for name in ("add", "sub"):
        yield Patch(
            "torch.fx.experimental.sym_node.SymNode", name, _computed, "sizes of padded tensors stay short",
            optional=True,
        )  # fmt: skip


def _computed(original: Any, node: Any, other: Any) -> Any:
    result = original(node, other)
    expression = result.expr
    if not expression.is_Add or not any(_remainder(term) for term in expression.args):
        return result
    shorter = as_multiple(expression)
    if shorter is expression:
        return result
    return type(result)(shorter, result.shape_env, result.pytype, result._hint, result.constant, result.fx_node)


def as_multiple(size: Any) -> Any:
    """The same size, where it is a number and what it lacks to a multiple, or a number without its remainder."""
    for term in size.args:
        remainder = _remainder(term)
        if remainder is None:
            continue
        of, step = remainder.args
        rest = size - term
        if term is remainder and _divides(step, rest + _congruent(of, step)):
            return step * FloorDiv(rest + step - 1, step)
        if term is not remainder and _divides(step, rest - _congruent(of, step)):
            return step * FloorDiv(rest, step)
    return size


def _remainder(term: Any) -> Any:
    """``x % n`` of a term that is that, or minus that; None for all others."""
    inner = -term if term.is_Mul and term.args[0] == -1 else term
    return inner if isinstance(inner, _REMAINDERS) and inner.args[1].is_Integer and inner.args[1] > 0 else None


def _congruent(number: Any, step: Any) -> Any:
    """Another number with the same remainder, in which no remainder of that step is left."""
    is_remainder = lambda part: isinstance(part, _REMAINDERS) and part.args[1] == step  # noqa: E731
    return number.replace(is_remainder, lambda part: part.args[0])


def _divides(step: Any, number: Any) -> bool:
    coefficients = sympy.expand(number).as_coefficients_dict().values()
    return all((coefficient / step).is_Integer for coefficient in coefficients)
