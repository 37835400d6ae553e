"""What PyTorch asks about sizes, answered by integers where they are enough.

PyTorch asks at every operator whether a product of sizes is 0, whether a tensor is contiguous, whether two sizes are
one; and simplifies with sympy for each answer, the longer the later in a network. Most answers follow from the limits
of the symbols by plain arithmetic, or from both sides being the same polynomial. What does not is asked of PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.functions import CleanDiv, FloorDiv, Max, Min, Mod, PowByNatural, PythonMod

from tonnx.frontends.patching import Patch
from tonnx.frontends.torch.capture.patches.short_sizes import definitions, evaluated, roots
from tonnx.frontends.torch.versions import example_of, example_sizes

_SHAPE_ENV = "torch.fx.experimental.symbolic_shapes.ShapeEnv"
_Limits = tuple[float, float]
"""The least and the greatest number that an expression may be; whole numbers, or infinite."""
_ANY: _Limits = (-math.inf, math.inf)
_TERMS = 64  # of a polynomial that is still worth to be multiplied out


def size_questions() -> Iterator[Patch]:
    reason = "sympy takes long for what plain arithmetic can answer"
    yield Patch(_SHAPE_ENV, "_maybe_evaluate_static", _evaluated, reason)
    yield Patch(_SHAPE_ENV, "evaluate_sym_node", _fallen_back, reason, optional=True)


def _evaluated(original: Any, env: ShapeEnv, expression: Any, **options: Any) -> Any:
    if not any(options.values()):
        answer = _decided(_Known(env), expression)
        if answer is not None:
            return sympy.true if answer else sympy.false
    return original(env, expression, **options)


def _fallen_back(
    original: Any, env: ShapeEnv, node: Any, size_oblivious: bool = False, fallback_value: bool | None = None
) -> Any:
    """A kernel says what to take where only the run knows; one case where that holds shows that no other is certain."""
    if fallback_value is not None and not size_oblivious:
        condition, sizes = node.expr, example_sizes(env)
        unknown = condition.free_symbols - sizes.keys()
        if unknown and _decided(_Case(env), condition) is fallback_value:
            return fallback_value
    return original(env, node, size_oblivious, fallback_value)


_OTHER_SIZES = 1, 2, 3, 5, 8, 13, 24, 64, 200


def varies(condition: Any, length: Any = 1) -> bool:
    """Whether a comparison of sizes of inputs is another one at some sizes than in the example; a few are tried.

    Only those at which there is something of a ``length`` that hangs on them.
    """
    if not isinstance(condition, torch.SymBool):
        return False
    env, relation = condition.node.shape_env, condition.node.expr
    defined, sizes = definitions(env), example_sizes(env)
    of = roots(defined, relation)
    if not of <= sizes.keys() or _decided(_FromOne(env), relation) is not None:
        return False
    example = {symbol: sizes[symbol] for symbol in of}
    opposite = sympy.Not(evaluated(defined, relation, example))
    others = ({**example, symbol: size} for size in _OTHER_SIZES for symbol in of)
    least = length.node.expr if isinstance(length, torch.SymInt) else length
    return any(
        evaluated(defined, relation, other) == opposite and evaluated(defined, sympy.Ge(least, 1), other) == sympy.true
        for other in others
    )


def _decided(known: _Known, condition: Any) -> bool | None:
    """Whether a condition holds for all sizes, or for none; None if that takes more to find out."""
    if isinstance(condition, (sympy.And, sympy.Or)):
        answers = {_decided(known, part) for part in condition.args}
        stops = isinstance(condition, sympy.Or)
        return stops if stops in answers else None if None in answers else not stops
    if not isinstance(condition, sympy.Rel):
        return None
    one, other = condition.args
    compare = _COMPARED[condition.func]
    answer = compare(known.limits(one), known.limits(other))
    if answer is None:
        difference = known.difference(one, other)
        answer = None if difference is None else compare(known.of_terms(difference), (0, 0))
    return answer


def _less(one: _Limits, other: _Limits) -> bool | None:
    return True if one[1] < other[0] else False if one[0] >= other[1] else None


def _equal(one: _Limits, other: _Limits) -> bool | None:
    if one[0] > other[1] or one[1] < other[0]:
        return False
    return True if one[0] == one[1] == other[0] == other[1] else None


def _opposite(compare: Callable[[_Limits, _Limits], bool | None]) -> Callable[[_Limits, _Limits], bool | None]:
    def compared(one: _Limits, other: _Limits) -> bool | None:
        answer = compare(one, other)
        return None if answer is None else not answer

    return compared


_COMPARED: dict[Any, Callable[[_Limits, _Limits], bool | None]] = {
    sympy.Lt: _less,
    sympy.Gt: lambda one, other: _less(other, one),
    sympy.Le: _opposite(lambda one, other: _less(other, one)),
    sympy.Ge: _opposite(_less),
    sympy.Eq: _equal,
    sympy.Ne: _opposite(_equal),
}

_Terms = dict[tuple[tuple[Any, int], ...], int]
"""A polynomial: the whole coefficient of each product of powers. What is no sum, product or power is a variable."""


class _Known:
    """What follows from the limits of the symbols."""

    def __init__(self, env: ShapeEnv) -> None:
        self._env = env
        self._limits: dict[Any, _Limits] = {}

    def limits(self, expression: Any) -> _Limits:
        if (limits := self._limits.get(expression)) is None:
            limits = self._limits[expression] = self._computed(expression)
        return limits

    def _computed(self, expression: Any) -> _Limits:
        if expression.is_Integer:
            return (int(expression),) * 2  # type: ignore[return-value]
        if expression.is_Symbol:
            return self._of_symbol(expression)
        rule = _RULES.get(expression.func)
        return _ANY if rule is None else rule(*map(self.limits, expression.args))

    def _of_symbol(self, symbol: Any) -> _Limits:
        bounds = self._env.var_to_range.get(symbol)
        if bounds is None or not bounds.is_int or symbol in self._env.replacements:
            return _ANY
        low, high = bounds.lower, bounds.upper
        return int(low) if low.is_Integer else -math.inf, int(high) if high.is_Integer else math.inf

    def difference(self, one: Any, other: Any) -> _Terms | None:
        """``one - other`` multiplied out; None if that gets long."""
        terms, others = self._terms(one), self._terms(other)
        if terms is None or others is None:
            return None
        return _sum([terms, {product: -factor for product, factor in others.items()}])

    def of_terms(self, terms: _Terms) -> _Limits:
        each = []
        for product, factor in terms.items():
            limits: _Limits = (factor, factor)
            for variable, power in product:
                limits = _times(limits, _power(self.limits(variable), (power, power)))
            each.append(limits)
        return _plus(*each)

    def _terms(self, expression: Any) -> _Terms | None:
        if expression.is_Integer:
            return {(): int(expression)} if expression else {}
        if expression.is_Add or expression.is_Mul:
            parts = [self._terms(part) for part in expression.args]
            if None in parts:
                return None
            return (_sum if expression.is_Add else _product)(parts)  # type: ignore[arg-type]
        if expression.is_Pow and expression.args[1].is_Integer and 1 < expression.args[1] < 9:
            base = self._terms(expression.args[0])
            return None if base is None else _product([base] * int(expression.args[1]))
        if isinstance(expression, Max) and (largest := self._largest(expression.args)) is not None:
            return self._terms(largest)
        return None if expression.is_number else {((expression, 1),): 1}

    def _largest(self, numbers: Any) -> Any:
        """The one of several that is the largest at all sizes, where the others are numbers: ``Max(1, n)`` is n."""
        others = [number for number in numbers if not number.is_Integer]
        least = max((int(number) for number in numbers if number.is_Integer), default=None)
        return others[0] if len(others) == 1 and least is not None and self.limits(others[0])[0] >= least else None


class _FromOne(_Known):
    """What follows where sizes may be 1, too, of which PyTorch takes for granted that they are not."""

    def _of_symbol(self, symbol: Any) -> _Limits:
        low, high = super()._of_symbol(symbol)
        return min(low, 1), high


class _Case(_Known):
    """What holds in the example, where all that is known of the symbols is true."""

    def _of_symbol(self, symbol: Any) -> _Limits:
        example = example_of(self._env, symbol)
        return _ANY if example is None or example != int(example) else (int(example),) * 2  # type: ignore[return-value]


def _sum(parts: list[_Terms]) -> _Terms:
    total: _Terms = {}
    for part in parts:
        for product, factor in part.items():
            total[product] = total.get(product, 0) + factor
    return {product: factor for product, factor in total.items() if factor}


def _product(parts: list[_Terms]) -> _Terms | None:
    result: _Terms = {(): 1}
    for part in parts:
        if len(result) * len(part) > _TERMS:
            return None
        pairs = [{_joined(p, q): a * b} for p, a in result.items() for q, b in part.items()]
        result = _sum(pairs)
    return result


def _joined(one: Any, other: Any) -> Any:
    powers = dict(one)
    for variable, power in other:
        powers[variable] = powers.get(variable, 0) + power
    return tuple(sorted(powers.items(), key=lambda pair: hash(pair[0])))


# Arithmetic of limits


def _plus(*parts: _Limits) -> _Limits:
    return sum(low for low, _ in parts), sum(high for _, high in parts)


def _times(*parts: _Limits) -> _Limits:
    low: float = 1
    high: float = 1
    for a, b in parts:
        ends = [0 if 0 in (x, y) else x * y for x in (low, high) for y in (a, b)]
        low, high = min(ends), max(ends)
    return low, high


def _power(base: _Limits, exponent: _Limits) -> _Limits:
    power = exponent[0]
    if power != exponent[1] or base[0] < 0 or not 0 < power < 64:
        return _ANY
    return base[0] ** power, base[1] ** power


def _quotient(number: _Limits, divisor: _Limits) -> _Limits:
    if divisor[0] <= 0 or number[0] < 0:
        return _ANY
    low = 0 if divisor[1] == math.inf else number[0] // divisor[1]
    return low, math.inf if number[1] == math.inf else number[1] // divisor[0]


def _remainder(number: _Limits, divisor: _Limits) -> _Limits:
    if divisor[0] <= 0:
        return _ANY
    return 0, min(divisor[1] - 1, number[1]) if number[0] >= 0 else divisor[1] - 1


def _remainder_of_positive(number: _Limits, divisor: _Limits) -> _Limits:
    return _remainder(number, divisor) if number[0] >= 0 else _ANY


def _greatest(*parts: _Limits) -> _Limits:
    return max(low for low, _ in parts), max(high for _, high in parts)


def _least(*parts: _Limits) -> _Limits:
    return min(low for low, _ in parts), min(high for _, high in parts)


_RULES: dict[Any, Callable[..., _Limits]] = {
    sympy.Add: _plus,
    sympy.Mul: _times,
    sympy.Pow: _power,
    PowByNatural: _power,
    FloorDiv: _quotient,
    CleanDiv: _quotient,
    PythonMod: _remainder,
    Mod: _remainder_of_positive,
    Max: _greatest,
    Min: _least,
}
