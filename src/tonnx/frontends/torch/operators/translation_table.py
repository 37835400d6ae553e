"""``custom_translation_table``: what stands beside an operator there, as a rule.

A function is one of three kinds, told apart by the name of its first parameter: ``op`` is tonnx's builder, as for
`tonnx.lower`; ``g`` is the graph of a symbolic function; anything else is a function in the style of ``torch.onnx``,
which gets the operator's arguments and calls onnxscript's operators. A function made by ``onnxscript.script`` becomes
an ONNX function of the file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
import torch

from tonnx.errors import InvalidArgument, LoweringError, UnsupportedArgument, told_as
from tonnx.ir.build import Builder, Names
from tonnx.legalise.graft import graft, stand_in
from tonnx.lowering.rules import Rule
from tonnx.lowering.rules import rule_of as plain_rule


def checked_table(table: Mapping[Any, Any] | None) -> dict[str, Any]:
    """The table by operator names: ``{torch.ops.ns.op: function}`` → ``{"ns.op": function}``."""
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        raise InvalidArgument(f"custom_translation_table must be a dict, not {table!r}")
    checked = {}
    for target, function in table.items():
        if isinstance(function, (list, tuple)) and function:
            function = function[0]  # torch.onnx takes several, for overloads that it tells apart by their types
        if not callable(function):
            raise InvalidArgument(f"custom_translation_table[{target}] must be a function, not {function!r}")
        checked[_name(target)] = function
    return checked


def _name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        namespace, name = target._schema.name.split("::")
        return f"{namespace}.{name}.{target._overloadname}"
    if isinstance(target, torch._ops.OpOverloadPacket):
        return target._qualified_op_name.replace("::", ".")
    if isinstance(target, str) and "::" in target:
        return target.replace("::", ".")
    raise InvalidArgument(
        f"custom_translation_table has a key that is no operator: {target!r}",
        hint="use torch.ops.namespace.name, or torch.ops.namespace.name.overload",
    )


def rule_of(function: Any, schema: Any) -> Rule:
    """The rule that a table's entry stands for."""
    if hasattr(function, "to_function_proto"):  # onnxscript's OnnxFunction
        return _rule(schema, lambda op, args: _scripted(op, function, args))
    inner = getattr(function, "func", function)  # a TracedOnnxFunction is the function in it
    first = next(iter(inspect.signature(inner).parameters), "")
    if first == "op":
        return plain_rule(inner)
    if first == "g":
        from tonnx.frontends.torch.operators.symbolic_functions import symbolic_rule

        return symbolic_rule(inner, schema, 18)
    return _rule(schema, lambda op, args: _traced(op, inner, _fitting(inner, schema, dict(args))))


def _rule(schema: Any, lower: Callable[[Builder, list[tuple[str, Any]]], Any]) -> Rule:
    names = tuple(argument.name for argument in schema.arguments)

    def function(op: Builder, **arguments: Any) -> Any:
        return lower(op, [(name, arguments[name]) for name in names if name in arguments])

    return Rule(function, names)


# Functions that call onnxscript's operators


def _fitting(function: Callable[..., Any], schema: Any, bound: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments in order, as many as the function takes; what it does not take must have its default."""
    parameters = inspect.signature(function).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    room = len(schema.arguments) if inspect.Parameter.VAR_POSITIONAL in kinds else len(parameters)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in schema.arguments:
        if argument.name not in bound:
            continue
        value = bound[argument.name]
        if not argument.kwarg_only and len(args) < room:
            args.append(value)
        elif argument.name in parameters or inspect.Parameter.VAR_KEYWORD in kinds:
            kwargs[argument.name] = value
        elif value is not None and not (argument.has_default_value() and value == argument.default_value):
            raise UnsupportedArgument(
                f"{schema.name}: the function does not take the argument {argument.name}={value!r}"
            )
    return args, kwargs


def _traced(op: Builder, function: Callable[..., Any], call: tuple[list[Any], dict[str, Any]]) -> Any:
    """Run a function whose calls of onnxscript's operators end up here."""
    from onnxscript import evaluator

    name = getattr(function, "__qualname__", repr(function))
    with (
        told_as(LoweringError, f"the function {name} of custom_translation_table fails"),
        evaluator.default_as(_Recorder(op)),
    ):
        return function(*call[0], **call[1])


class _Recorder:
    """onnxscript's evaluator: its operators become nodes of ours, written at the opset that they name."""

    def __init__(self, op: Builder) -> None:
        self.op = op

    def eval_op(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        domain, version = operator.opset.domain, operator.opset.version
        if domain not in ("", "ai.onnx"):
            outputs = len(operator.op_schema.outputs) if operator.op_schema is not None else 1
            return self.op.custom(f"{domain}::{operator.name}", *args, _outputs=outputs, **kwargs)
        operands = [value for value in args if isinstance(value, ir.Value)]
        stand_ins = [stand_in(value, f"in{i}") for i, value in enumerate(operands)]
        graph = ir.Graph(stand_ins, [], nodes=[], opset_imports={"": version}, name=operator.name)
        inner = Builder(graph, names=Names(), opset=version)
        standing = iter(stand_ins)
        returned = getattr(inner, operator.name)(
            *[_with_constant(inner, value, next(standing)) if isinstance(value, ir.Value) else value for value in args],
            **kwargs,
        )
        many = not isinstance(returned, ir.Value)
        graph.outputs.extend(returned if many else [returned])
        results = graft(self.op, graph, operands)
        return tuple(results) if many else results[0]

    def eval_function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return _scripted(self.op, function, [*(("", value) for value in args), *kwargs.items()])


def _with_constant(op: Builder, outside: ir.Value, inside: ir.Value) -> ir.Value:
    """A value that is known outside is known inside too: axes and shapes are often constants."""
    return inside if outside.const_value is None else op.constant(outside.const_value.numpy())


# Functions that onnxscript compiled


def _scripted(op: Builder, function: Any, args: Sequence[tuple[str, Any]]) -> Any:
    """A call of an ONNX function, with its body for just these types."""
    proto = function.to_function_proto()
    operands, attributes = _split(op, proto, args)
    call = [ir.convenience.convert_attributes({name: value})[0] for name, value in attributes.items()]
    key = tuple((name, str(value)) for name, value in sorted(attributes.items()))
    name = f"{proto.domain or 'this'}::{proto.name}"

    def body(inner: Builder, *inputs: ir.Value) -> list[ir.Value]:
        opset = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), op.opset)
        stand_ins = [stand_in(value, f"in{i}") for i, value in enumerate(inputs)]
        calling = ir.Node(proto.domain, proto.name, stand_ins, call, num_outputs=len(proto.output))
        imports = {"": opset, proto.domain: 1}
        graph = ir.Graph(stand_ins, list(calling.outputs), nodes=[calling], opset_imports=imports, name=proto.name)
        return graft(inner, graph, inputs, _with_callees(function))

    results = op.function(name, operands, body, key)
    return results[0] if len(results) == 1 else results


def _split(op: Builder, proto: Any, args: Sequence[tuple[str, Any]]) -> tuple[list[ir.Value], dict[str, Any]]:
    """The arguments in the order of the function's inputs and attributes: by name where the names are its own."""
    names = [*proto.input, *proto.attribute, *(a.name for a in proto.attribute_proto)]
    named = {name: value for name, value in args if name in names}
    free = [name for name in names if name not in named]
    rest = [value for name, value in args if name not in names]
    by_name = {**named, **dict(zip(free, rest, strict=False))}
    operands = [
        value if isinstance(value, ir.Value) else op.constant(value)
        for value in (by_name.get(name) for name in proto.input)
        if value is not None
    ]
    return operands, {n: v for n, v in by_name.items() if n not in proto.input and v is not None}


def _with_callees(function: Any) -> list[ir.Function]:
    called = function.function_ir.get_called_functions().values()
    return [ir.from_proto(each.to_function_proto()) for each in (function, *called)]
