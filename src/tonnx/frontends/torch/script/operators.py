"""Calls of aten operators: bound to the shared rules, with views and writes in place seen to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import onnx_ir as ir
import torch

from tonnx.errors import LoweringError, UnsupportedArgument
from tonnx.frontends.torch.operators.bind import DTYPES, bind, convert, kind_of
from tonnx.frontends.torch.script import decompose, dtypes, lists, queries, special
from tonnx.frontends.torch.script.store import link
from tonnx.frontends.torch.script.values import Dict, List, Maybe, Object, Tensor
from tonnx.ir import facts
from tonnx.ir.build import Builder, UnknownRank
from tonnx.lowering.complex import is_complex
from tonnx.lowering.ops import quantized
from tonnx.lowering.regions.lists import as_number
from tonnx.lowering.rules import Rule, complex_rule, rule_for
from tonnx.lowering.views import view_inverse

if TYPE_CHECKING:
    from tonnx.frontends.torch.script.walk import ScriptWalk

_GIVE_BACK = frozenset("to type_as dropout feature_dropout alpha_dropout feature_alpha_dropout".split())
"""These give back the tensor itself if there is nothing to change."""

_RESHAPE = frozenset("reshape contiguous flatten reshape_as ravel atleast_1d atleast_2d atleast_3d".split())
"""These give a view of what lies packed in memory, and perhaps a copy of what does not."""

_STAY_PACKED = frozenset("view view_as unsqueeze squeeze unflatten expand_as detach alias".split()) | _RESHAPE

_SAME = frozenset(
    "detach detach_ alias requires_grad_ cpu cuda pin_memory data lift lift_fresh _propagate_xla_data".split()
)
"""These give back the tensor itself."""

_SPREADS = frozenset("copy_ fill_ zero_ set_ normal_ uniform_".split())
"""Writes whose value may be smaller than what they write to."""

_MAKE_COMPLEX = frozenset("complex polar view_as_complex _fft_r2c".split())

_CHANGE_SHAPE = frozenset("unsqueeze_ squeeze_ transpose_ t_ swapaxes_ swapdims_".split())


@dataclass(frozen=True)
class Argument:
    """One argument of an operator, as far as binding needs to know it."""

    name: str
    kind: str
    is_dtype: bool
    is_written: bool


@dataclass(frozen=True)
class Operator:
    """A TorchScript operator with its overload."""

    target: Any
    namespace: str
    name: str
    overload: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    aliases: bool

    @property
    def title(self) -> str:
        return f"{self.namespace}.{self.name}" + (f".{self.overload}" if self.overload else "")


@cache
def operator_of(schema_text: str) -> Operator:
    head = schema_text.partition("(")[0]
    qualified, _, overload = head.partition(".")
    namespace, _, name = qualified.partition("::")
    try:
        target = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
    except (AttributeError, RuntimeError):  # an operator of TorchScript's own, which Python does not see
        target = None
    schema = target._schema if target is not None else torch._C.parse_schema(schema_text)
    arguments = tuple(
        Argument(
            a.name,
            kind_of(a.type),
            "ScalarType" in str(a.real_type),
            a.alias_info is not None and a.alias_info.is_write,
        )
        for a in schema.arguments
    )
    returns = tuple(str(r.type) for r in schema.returns)
    aliases = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    return Operator(target, namespace, name, overload, arguments, returns, aliases)


def call(walk: ScriptWalk, operator: Operator, arguments: list[Any]) -> Any:
    """The results of a call: a thing, or a list of things if the operator has several."""
    written = [i for i, argument in enumerate(operator.arguments) if argument.is_written and i < len(arguments)]
    if operator.name in _SAME:
        return arguments[0]
    if operator.name in _CHANGE_SHAPE:
        return _changed_in_shape(walk, operator, arguments)
    if operator.name in special.RECURRENT and operator.overload == "input":
        return special.recurrent(walk, operator, arguments)
    if operator.name in ("stack", "cat", "concat", "concatenate") and special.is_grown(walk, arguments[0]):
        return Tensor(special.joined(walk, operator.name, walk.store.content(arguments[0]), arguments[1]))
    if (size := queries.arithmetic(walk, operator.name, arguments)) is not None:
        return size
    if (parts := special.parts_at_run_time(walk, operator, arguments)) is not None:
        return parts
    results = _results(walk, operator, arguments)
    if written:
        if len(written) > 1 or not results:
            raise LoweringError(f"{operator.title} writes to several of its arguments")
        place = arguments[written[0]]
        if not isinstance(place, Tensor):
            raise LoweringError(f"{operator.title} writes to something that is not a tensor")
        walk.store.write(
            walk.op, place, results[0], operator.name in _SPREADS or operator.arguments[written[0]].name == "out"
        )
        return place
    things = _things(walk, operator, arguments, results)
    things += [None] * (len(operator.returns) - len(things))  # what nobody can use: indices of a backward pass
    return things[0] if len(operator.returns) == 1 else things


def _results(walk: ScriptWalk, operator: Operator, arguments: list[Any]) -> list[Any]:
    """What the rule gives, one entry for each return of the schema."""
    results = _computed(walk, operator, arguments, walk.op)
    if len(operator.returns) == 1:
        results = [results]
    return dtypes.corrected(walk, operator, arguments, list(results))


def _computed(walk: ScriptWalk, operator: Operator, arguments: list[Any], op: Builder) -> Any:
    raw = [_raw(walk, op, argument, value) for argument, value in zip(operator.arguments, arguments, strict=False)]
    rule = _rule(walk, operator, _has_complex(walk, op, raw))
    if rule is None or operator.target is None:
        return decompose.lower(walk, operator, raw)

    def resolve(item: Any) -> Any:
        return walk.store.read(op, item) if isinstance(item, Tensor) else item

    bound = bind(operator.target, rule, raw, {}, op, resolve)
    if "parts" in rule.parameters:
        bound["parts"] = walk.unpacked
    try:
        result = rule.function(op, **bound)
        return quantized.completed(op, operator.name, bound, result) if operator.namespace == "aten" else result
    except UnknownRank as error:
        raise LoweringError(
            f"{operator.title} needs the rank of its input, which is not known",
            why="paths that are chosen at run time give it different ranks, or a list grows of tensors of any rank",
            hint="bring the tensor to one rank on every path",
        ) from error


def _rule(walk: ScriptWalk, operator: Operator, with_complex: bool) -> Rule | None:
    schema = operator.target._schema if operator.target is not None else None
    if schema is None:
        return rule_for(operator.namespace, operator.name, operator.overload)
    rule = walk.settings.rule(schema, with_complex)
    if rule is None and not with_complex:  # what makes complex numbers of reals has a rule for those only
        own = complex_rule(operator.namespace, operator.name, operator.overload or "default")
        return own if operator.name in _MAKE_COMPLEX else None
    return rule


def _has_complex(walk: ScriptWalk, op: Builder, raw: Any) -> bool:
    if isinstance(raw, list):
        return any(_has_complex(walk, op, item) for item in raw)
    if isinstance(raw, Tensor):
        return is_complex(raw.value)
    return isinstance(raw, complex) or (isinstance(raw, torch.dtype) and raw.is_complex)


def _raw(walk: ScriptWalk, op: Builder, argument: Argument, thing: Any) -> Any:
    """A thing in the form that the shared binder takes."""
    if isinstance(thing, Maybe):
        raise LoweringError(
            f"the argument {argument.name!r} is an Optional of which only the run tells whether it is None",
            hint="branch on `is None`, and call the operator on both sides",
        )
    if argument.is_dtype and isinstance(thing, int):
        dtype = queries.CODES[thing]
        if dtype not in DTYPES:
            raise UnsupportedArgument(f"ONNX has no element type for {dtype}")
        return dtype
    if isinstance(thing, (List, tuple)):
        items = lists.elements_of(walk, thing, f"the argument {argument.name!r}")
        inner = Argument(argument.name, argument.kind.removeprefix("List["), argument.is_dtype, False)
        return [_raw(walk, op, inner, item) for item in items]
    if isinstance(thing, ir.Value) and argument.kind in ("Scalar", "float", "bool"):
        return wrapped(op, thing)
    if isinstance(thing, (Dict, Object)):
        raise LoweringError(f"the argument {argument.name!r} is a {type(thing).__name__.lower()}")
    return thing


def wrapped(op: Builder, number: ir.Value) -> ir.Value:
    """A number at run time as an operand: of rank 0, and without a say in the dtype of the result."""
    scalar = op.cast(number, ir.DataType.FLOAT) if number.dtype == ir.DataType.DOUBLE else number
    scalar = op.Squeeze(scalar, [0])
    facts.WRAPPED.add(scalar)
    return scalar


# Results


def _things(walk: ScriptWalk, operator: Operator, arguments: list[Any], results: list[Any]) -> list[Any]:
    things = []
    for declared, result in zip(operator.returns, results, strict=False):
        if declared.startswith("List"):
            items = list(result) if isinstance(result, (list, tuple)) else result
            if not isinstance(items, list):
                things.append(items)
            elif "Tensor" in declared:
                things.append(List(_tensor(walk, operator, arguments, item, i) for i, item in enumerate(items)))
            else:
                things.append(List(items))
        elif "Tensor" in declared:
            things.append(_tensor(walk, operator, arguments, result, None))
        else:
            things.append(_number(walk, result))
    return things


def _number(walk: ScriptWalk, result: Any) -> Any:
    if isinstance(result, ir.Value):
        if result.shape is not None and result.shape.rank() == 0:
            result = walk.op.Unsqueeze(result, [0])
        return as_number(result)
    return result


def _tensor(walk: ScriptWalk, operator: Operator, arguments: list[Any], result: Any, index: int | None) -> Any:
    """A result as a tensor: one of its own, or a view of the first argument."""
    if result is None:
        return None
    if not isinstance(result, ir.Value):
        result = walk.op.constant(result)
    base = arguments[0] if arguments else None
    if not isinstance(base, Tensor):
        return Tensor(result)
    if operator.name in _GIVE_BACK:
        return _given_back(operator, arguments, base, result)
    if operator.name in _RESHAPE:
        if operator.name == "contiguous" and base.packed:
            return base
        if not base.packed:
            tensor = Tensor(result)
            link(tensor, base.root)  # perhaps a view, perhaps a copy
            return tensor
    elif not operator.aliases:
        tensor = Tensor(result)
        tensor.packed = all(a.packed for a in arguments if isinstance(a, Tensor))
        return tensor
    view = Tensor(result, base, _again(walk, operator, arguments, index), _back(walk, operator, arguments, index))
    dim = next((a for a in arguments[1:] if isinstance(a, int)), None)
    leading = operator.name in ("select", "slice", "narrow", "unbind", "split", "chunk") and dim == 0
    view.packed = base.packed and (operator.name in _STAY_PACKED or leading)
    return view


def _given_back(operator: Operator, arguments: list[Any], base: Tensor, result: ir.Value) -> Tensor:
    named = {a.name: value for a, value in zip(operator.arguments, arguments, strict=False)}
    if result is not base.value and result.dtype != base.value.dtype:
        return Tensor(result)  # converted
    if named.get("copy") is True:
        return Tensor(result)
    if named.get("memory_format") in (None, 0, 1):
        return base
    converted = Tensor(result)
    link(converted, base.root)
    return converted


def _changed_in_shape(walk: ScriptWalk, operator: Operator, arguments: list[Any]) -> Tensor:
    """``x.unsqueeze_(0)``: from now on x is a view of the memory that it had."""
    plain = operator.name.rstrip("_")
    tensor = arguments[0]
    if tensor.has_views or walk.store.is_older(tensor):
        raise LoweringError(f"{plain}_ changes the shape of a tensor in place", hint=f"write x = x.{plain}(…)")
    rest = str(operator.target._schema).partition(operator.name)[2]
    functional = operator_of(f"aten::{plain}{'.int' if plain == 'transpose' else ''}{rest}")
    before = Tensor(walk.store.read(walk.op, tensor), tensor.parent, tensor.again, tensor.back)
    view = call(walk, functional, [before, *arguments[1:]])
    for cell in tensor.kin:
        link(before, cell)
    tensor.parent, tensor.again, tensor.back, tensor.value = before, view.again, view.back, view.value
    tensor.version, tensor.packed = before.root.version, False
    return tensor  # type: ignore[no-any-return]


def _again(
    walk: ScriptWalk, operator: Operator, arguments: list[Any], index: int | None
) -> Callable[[Builder, ir.Value], ir.Value]:
    parts = walk.unpacked

    def compute(op: Builder, base: ir.Value) -> ir.Value:
        now, walk.unpacked = walk.unpacked, parts
        computed = _computed(walk, operator, [Tensor(base), *arguments[1:]], op)
        walk.unpacked = now
        return computed if index is None else computed[index]  # type: ignore[no-any-return]

    return compute


def _back(
    walk: ScriptWalk, operator: Operator, arguments: list[Any], index: int | None
) -> Callable[[Builder, ir.Value, ir.Value], ir.Value]:
    def compute(op: Builder, base: ir.Value, value: ir.Value) -> ir.Value:
        def resolve(item: Any) -> Any:
            return walk.store.read(op, item) if isinstance(item, Tensor) else item

        bound: dict[str, Any] = {"index_of_output": index or 0}
        for argument, operand in list(zip(operator.arguments, arguments, strict=False))[1:]:
            if operand is not None:
                value_of = convert(_raw(walk, op, argument, operand), argument.kind, op, resolve)
                if isinstance(operand, Tensor) and value_of.shape is not None and value_of.shape.rank() == 0:
                    value_of = op.Unsqueeze(value_of, [0])  # a place, which other forms of the view take as a number
                bound[argument.name] = value_of
        return view_inverse(op, operator.name, base, value, bound)

    return compute
