"""Sizes that are padded or cut to a multiple, as that multiple: ``h + (8 - h % 8) % 8`` is ``(h + 7) // 8 * 8``.

Networks of windows pad in every block, and halve in every stage. Of the first form every stage has the size before it
twice or thrice in it, so that sizes double with each; and torch does not see that the windows fit. Nor does it see how
many parts ``torch.cat([a, b]).chunk(2)`` has: ``(2 * n + n - 1) // n`` is 2. ``math.ceil(n / 256)`` and
``int(n * 0.5)`` are quotients of whole numbers as well, about which torch can reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, IntTrueDiv, Mod, PythonMod, ToFloat

from tonnx.frontends.patching import Patch

_SYM_NODE = "torch.fx.experimental.sym_node.SymNode"
_REMAINDERS = (Mod, PythonMod)


def multiples() -> Iterator[Patch]:
    for name in ("add", "sub"):
        yield Patch(_SYM_NODE, name, _computed, "sizes of padded tensors stay short", optional=True)
    yield Patch(_SYM_NODE, "int_floordiv", _divided, "a number of equal parts is a plain one", optional=True)
    for name in ("floor", "ceil", "trunc"):
        yield Patch(_SYM_NODE, name, partial(_whole, name), "a rounded quotient of sizes is one", optional=True)


def _whole(name: str, original: Any, node: Any) -> Any:
    result = original(node)
    quotient = rounded_quotient(name, node.expr)
    return result if quotient is None else _written(result, quotient)


_EXACT = 2**16
"""Products of sizes with a fraction of at most this denominator are exact in float64."""


def rounded_quotient(rounding: str, number: Any) -> Any:
    """``floor``, ``ceil`` or ``trunc`` of a fraction of a size, as a division of whole numbers; None of all others."""
    of: Any = None
    by: Any = None
    if isinstance(number, IntTrueDiv):
        of, by = number.args
    if isinstance(number, sympy.Mul) and len(number.args) == 2:
        factors = sorted(number.args, key=lambda factor: isinstance(factor, ToFloat))
        if isinstance(factors[1], ToFloat) and factors[0].is_Float:
            factor = sympy.Rational(factors[0])
            of, by = factors[1].args[0] * factor.p, sympy.Integer(factor.q)
    if of is None or not by.is_positive or (by.is_Integer and by > _EXACT):
        return None
    if rounding == "trunc" and not of.is_nonnegative:
        return None
    return FloorDiv(of + by - 1 if rounding == "ceil" else of, by)


def _computed(original: Any, node: Any, other: Any) -> Any:
    result = original(node, other)
    expression = result.expr
    if not expression.is_Add or not any(_remainder(term) for term in expression.args):
        return result
    return _written(result, as_multiple(expression))


def _divided(original: Any, node: Any, other: Any) -> Any:
    result = original(node, other)
    return _written(result, whole_quotient(result.expr))


def _written(number: Any, expression: Any) -> Any:
    """The same number of torch's, written as another expression."""
    if expression is number.expr:
        return number
    return type(number)(expression, number.shape_env, number.pytype, number._hint, number.constant, number.fx_node)


def whole_quotient(quotient: Any) -> Any:
    """The same quotient, where one size is a multiple of another, or one less than that: then it is a plain number."""
    if not isinstance(quotient, FloorDiv) or quotient.args[1].is_Integer or not quotient.args[1].is_positive:
        return quotient
    number, divisor = quotient.args
    factor = _leading(number) / _leading(divisor)
    rest = sympy.expand(number - factor * divisor) if factor.is_Integer else None
    return factor + rest if rest in (0, -1) else quotient


def _leading(number: Any) -> Any:
    """The coefficient of one of the terms that are no plain numbers: the same one for equal terms."""
    coefficients = sympy.expand(number).as_coefficients_dict()
    terms = sorted((term for term in coefficients if term != 1), key=str)
    return coefficients[terms[0]] if terms else sympy.S.Zero


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
