"""The rules of the Paddle front end: one function an operator, for PIR programs and for old ones.

    @lower("leaky_relu")
    def leaky_relu(op, x: Value, *, negative_slope: float = 0.02):
        return op.LeakyRelu(x, alpha=negative_slope)

The function's signature is the operator's schema. What stands before the ``*`` are PIR's operands in their order, what
stands after it are attributes; an operand that a program gives as an attribute, or the other way round, is bound all
the same. The annotation says what the rule wants (see `KINDS`), so that no rule parses arguments. Old operators come
to the same parameters through the synonyms in `schema`. A parameter ``node`` gets the operator itself, for what only
the program knows: the type of the result, and how many parts there are.

Attributes that play no part in inference are named by ``unused``; ``operands`` is PIR's order where it is another one.
``layout`` is the attribute that says where the first operand has its channels: the rule gets them first.
A rule that is a single call is entered as one (`direct`).

A rule returns a value, a tuple with one entry for each result, or a list: the parts of one result.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import onnx_ir as ir

from tonnx.frontends.paddle.lower.fit import channels_back, channels_first
from tonnx.ir.build import Size
from tonnx.ir.registry import Registry, import_all

Lowering = Callable[..., Any]

Value = ir.Value
Values = Sequence[ir.Value]
Sizes = Sequence[Size]
"""Integers known now, or int64 values of shape [1] that hold them at run time."""
Ints = Sequence[int]
"""Integers that have to be known now."""
Floats = Sequence[float]
Number = bool | int | float | ir.Value
"""A number, or a value of rank 0."""
Unused = object
"""Anything: it plays no part in inference, and is not even looked up."""

KINDS = tuple("Value Values Array Unused Size Sizes Ints Floats Number int float bool str ir.DataType".split())


@dataclass(frozen=True)
class Rule:
    """A lowering, its operands in order, and what each parameter wants."""

    function: Lowering
    operands: tuple[str, ...]
    kinds: dict[str, str]


RULES: Registry[Rule] = Registry("lowering")


def lower(
    *names: str, unused: str = "", operands: str = "", layout: str = "", **settled: Any
) -> Callable[[Lowering], Lowering]:
    """Enter a function as the lowering of the operators ``names``, given without dialect: ``conv2d``.

    Operators of one family share a function; ``settled`` are the arguments that tell them apart.
    """

    def enter(function: Lowering) -> Lowering:
        rule = rule_of(function, **settled)
        rule.kinds.update(dict.fromkeys(unused.split(), "Unused"))
        if operands:
            rule = replace(rule, operands=tuple(operands.split()))
        for name in names:
            RULES.add(name, _for_layouts(rule, layout) if layout else rule)
        return function

    return enter


def _for_layouts(rule: Rule, attribute: str) -> Rule:
    data = rule.operands[0]

    def function(op: Any, **arguments: Any) -> Any:
        layout = arguments.pop(attribute, "NCHW")
        arguments[data] = channels_first(op, arguments[data], layout)
        return channels_back(op, rule.function(op, **arguments), layout)

    return replace(rule, function=function, kinds=rule.kinds | {attribute: "str"})


def direct(schema: str, function: Lowering, *, order: str = "", unused: str = "", layout: str = "") -> None:
    """Enter an operator by its signature, as text, and the function that gets its arguments in that order.

        direct("leaky_relu(x, *, negative_slope: float = 0.02)", lambda op, x, slope: op.LeakyRelu(x, alpha=slope))

    What has no annotation is a Value. ``order`` names the arguments in the function's order where it is another one.
    """
    name, bracket, rest = schema.partition("(")
    (head,) = ast.parse(f"def rule{bracket}{rest}: ...").body
    assert isinstance(head, ast.FunctionDef)
    before, after = head.args.args, head.args.kwonlyargs
    defaults = dict(zip((a.arg for a in reversed(before)), reversed(head.args.defaults), strict=False))
    defaults |= {a.arg: default for a, default in zip(after, head.args.kw_defaults, strict=True) if default is not None}
    values = {argument: ast.literal_eval(default) for argument, default in defaults.items()}
    kinds = {a.arg: "Value" if a.annotation is None else _kind(ast.unparse(a.annotation), name) for a in before + after}

    def call(op: Any, **bound: Any) -> Any:
        arguments = values | bound
        return function(op, *(arguments[argument] for argument in order.split() or kinds))

    rule = Rule(call, tuple(a.arg for a in before), kinds | dict.fromkeys(unused.split(), "Unused"))
    RULES.add(name, _for_layouts(rule, layout) if layout else rule)


def _kind(annotation: str, where: str) -> str:
    kind = annotation.removesuffix(" | None")
    assert kind in KINDS, f"{where}: an argument is a {kind}, which no argument is"
    return kind


def rule_of(function: Lowering, **settled: Any) -> Rule:
    """A function with what its signature says of the arguments that are not settled."""
    operands, kinds = [], {}
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if name in settled:
            continue
        if name != "node":
            kinds[name] = _kind(str(parameter.annotation), function.__name__)
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            operands.append(name)
        elif name == "node":
            kinds[name] = "node"
    return Rule(partial(function, **settled), tuple(operands), kinds)


@cache
def load() -> Registry[Rule]:
    """Import every rule module, once."""
    import_all("tonnx.frontends.paddle.ops")
    RULES.freeze()
    return RULES
