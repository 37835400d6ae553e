"""Conditions that only the run decides: a tensor's value, or an expression of sizes."""

from __future__ import annotations

import operator
import sys
from contextvars import ContextVar
from functools import reduce
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_false, statically_known_true

from tonnx.frontends.torch.capture.except_blocks import handler_of
from tonnx.frontends.torch.capture.explain import RELATIONS, line_of
from tonnx.frontends.torch.capture.patches.short_sizes import definitions, evaluated, roots
from tonnx.frontends.torch.capture.python_flow.merge import Unmerged
from tonnx.frontends.torch.capture.python_flow.recorded_list import RecordedList
from tonnx.frontends.torch.capture.python_flow.scope_analysis import Unsuitable
from tonnx.frontends.torch.capture.python_flow.values import as_tensor, shape_env, unwrapped
from tonnx.frontends.torch.versions import example_sizes

NOTES: ContextVar[list[str]] = ContextVar("NOTES")
"""What the user should know of the capture that runs."""


def truth(value: Any) -> bool | torch.Tensor:
    """Whether a value counts as true: a bool, or a bool tensor of rank 0 if only the run tells."""
    value = unwrapped(value)
    if isinstance(value, RecordedList):
        value = value.size() > 0
    if isinstance(value, torch.Tensor):
        constant = getattr(value, "constant", None)
        if constant is not None or not isinstance(value, torch._subclasses.FakeTensor):
            return bool(value if constant is None else constant)
        flat = value.reshape(()) if value.dim() else value
        return flat if flat.dtype == torch.bool else flat != 0
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return truth(compared("ne", value, 0))
    if isinstance(value, torch.SymBool):
        answer = True if statically_known_true(value) else False if statically_known_false(value) else None
        if answer is None or _differs_when_small(value.node.expr, answer) or _differs_when_large(value, answer):
            return _asked(value)
        return answer
    return bool(value)


def _asked(condition: torch.SymBool) -> torch.Tensor:
    """A condition on sizes as a tensor that remembers it."""
    asked: Any = as_tensor(condition)
    asked.tonnx_condition = condition.node.expr
    return asked  # type: ignore[no-any-return]


def condition_of(test: torch.Tensor) -> Any:
    """The condition on sizes that a tensor stands for; None if it is another one."""
    return getattr(test, "tonnx_condition", None)


def compared(sign: str, a: Any, b: Any) -> Any:
    """``a == b`` and its like. torch takes a size for positive, and answers at once; it may be 0 at run time."""
    if isinstance(a, _ROWS) and isinstance(b, _ROWS) and any(isinstance(x, torch.SymInt) for x in (*a, *b)):
        return _rows_compared(sign, a, b)
    answer = getattr(operator, sign)(a, b)
    if not all(isinstance(x, _INTEGERS) for x in (a, b)):
        return answer
    decided = answer.node.expr if isinstance(answer, torch.SymBool) else answer
    if decided in (True, False) and any(isinstance(x, torch.SymInt) for x in (a, b)):
        expressions = [x.node.expr if isinstance(x, torch.SymInt) else sympy.Integer(x) for x in (a, b)]
        if _differs_when_small(RELATIONS[sign](*expressions, evaluate=False), bool(decided)):
            return getattr(operator, sign)(as_tensor(a), as_tensor(b))
    return answer


_INTEGERS = (int, torch.SymInt)
_ROWS = (tuple, list)


def _rows_compared(sign: str, a: Any, b: Any) -> Any:
    """``x.shape[2:] == y.shape[2:]``, which Python would ask of one size after the other."""
    if sign not in ("eq", "ne") or isinstance(a, tuple) != isinstance(b, tuple) or len(a) != len(b):
        return getattr(operator, sign)(a, b)
    answers = [truth(compared("eq", x, y)) for x, y in zip(a, b, strict=True)]
    undecided = [answer for answer in answers if isinstance(answer, torch.Tensor)]
    differs = any(answer is False for answer in answers)
    if differs or not undecided:
        return differs == (sign == "ne")
    equal = reduce(torch.logical_and, undecided)
    return equal if sign == "eq" else torch.logical_not(equal)


def _differs_when_small(expression: Any, answer: bool) -> bool:
    """Whether a condition is otherwise if a dynamic dimension is 0 or 1: torch takes every one for at least 2.

    Nor does it expect that nothing is found: a count that only the run knows, such as that of the boxes which NMS
    keeps, is at least 2 where an operator of others makes it.
    """
    env = shape_env()
    if env is None or not isinstance(expression, sympy.Rel) or len(expression.free_symbols) != 1:
        return False
    (symbol,) = expression.free_symbols
    bounds = env.var_to_range.get(symbol)
    if bounds is None or symbol in env.replacements:
        return False
    if bounds.lower != 2 if symbol in example_sizes(env) else bounds.lower not in (1, 2):
        return False
    other = sympy.false if answer else sympy.true
    return any(expression.xreplace({symbol: sympy.Integer(n)}) == other for n in (0, 1))


def _differs_when_large(condition: torch.SymBool, answer: bool) -> bool:
    """Whether a condition is otherwise at a multiple of the example's sizes.

    torch knows it then by what its own operators asked before, which the example has answered: a window is as large as
    the picture, so that nothing is left beside it, and from there on no picture is larger.
    """
    env = condition.node.shape_env
    expression, sizes, defined = condition.node.expr, example_sizes(env), definitions(env)
    if not isinstance(expression, sympy.Rel) or not roots(defined, expression) <= sizes.keys():
        return False
    example = {symbol: sizes[symbol] for symbol in sorted(roots(defined, expression), key=str)}
    larger = [{symbol: factor * size for symbol, size in example.items()} for factor in (2, 3)]
    larger += [{**example, symbol: 2 * size} for symbol, size in example.items()]
    other = sympy.false if answer else sympy.true
    return any(evaluated(defined, expression, one) == other for one in larger)


def negated(value: Any) -> Any:
    """``not value``."""
    answer = truth(value)
    if isinstance(answer, bool):
        return not answer
    opposite: Any = torch.logical_not(answer)
    if (condition := condition_of(answer)) is not None:
        opposite.tonnx_condition = sympy.Not(condition)
    return opposite


def assumed(test: Any, expected: bool, line: int, frame: Any = None) -> bool:
    """What a check of the inputs comes to: that it finds nothing, if only the run could tell."""
    answer = truth(test)
    if isinstance(answer, bool):
        return answer
    at = frame or sys._getframe(1)
    if (handler := handler_of(at)) is not None:
        raise Unsuitable(f"the exception is caught ({line_of(*handler)}), so that it decides what is computed")
    notes = NOTES.get([])
    notes.append(f"a check of values is left out of the file: {line_of(at, line)}")
    return expected


def same(a: Any, b: Any) -> bool:
    """``a is b``, for what may be two different things."""
    for value in (a, b):
        if isinstance(value, Unmerged):
            raise value.refusal()
    return a is b
