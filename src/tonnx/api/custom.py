"""Rules of the user's own: `tonnx.lower`, `tonnx.register_custom_op_symbolic` and `tonnx.register_container`.

They hold for the process, from their registration on, and come before tonnx's own rules. A second registration for a
name replaces the first: a notebook's cell may run again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tonnx.errors import InvalidArgument

F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"([A-Za-z_]\w*)(?:::|\.)([A-Za-z_]\w*)(?:\.(\w+))?")


def lower(*names: str, function: str | None = None) -> Callable[[F], F]:
    """Say how an operator of PyTorch is written in ONNX.

    Example::

        @tonnx.lower("mylib::softclip")
        def softclip(op, x, limit=1.0):
            return op.Mul(op.Tanh(op.Div(x, limit)), limit)

    Args:
        names: operators as ``"ns::op"``, which serves all overloads, or ``"ns::op.overload"``.
        function: ``"domain::Name"`` puts the nodes into an ONNX function of that name, which the file then has: one
            node in the graph, and a file that still runs everywhere.

    The function's first parameter is the builder: ``op.Relu(x)`` makes a node, in the newest version of the operator
    whatever opset is asked for, and ``op.custom("domain::Name", x, alpha=0.5)`` one of another domain. The others have
    the names of the operator's schema (the first may be called ``x``). Tensors are values with ``dtype`` and ``shape``;
    numbers are Python's own; sizes are ints, or values where they are dynamic.
    """
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"{name!r} is no operator", hint='write "namespace::name" or "namespace::name.overload"'
            )
    if not names:
        raise InvalidArgument("lower needs the name of an operator", hint='@tonnx.lower("namespace::name")')
    if function is not None and not re.fullmatch(r"[^:]+::\w+", function):
        raise InvalidArgument(f"{function!r} is no name of an ONNX function", hint='write "my.domain::Name"')

    def enter(rule: F) -> F:
        from tonnx.lowering.rules import USERS, rule_of

        entry = rule_of(rule) if function is None else _in_function(rule, function)
        for name in names:
            match = _NAME.fullmatch(name)
            assert match is not None
            USERS[".".join(part for part in match.groups() if part)] = entry
        return rule

    return enter


def _in_function(rule: Callable[..., Any], name: str) -> Any:
    """The rule, with its nodes in an ONNX function: tensors are its inputs, all else is fixed in its body."""
    import inspect

    import onnx_ir as ir

    from tonnx.lowering.rules import Rule

    def call(op: Any, **arguments: Any) -> Any:
        tensors = {key: value for key, value in arguments.items() if isinstance(value, ir.Value)}
        fixed = {key: value for key, value in arguments.items() if key not in tensors}
        for key, value in fixed.items():
            if isinstance(value, (list, tuple)) and any(isinstance(item, ir.Value) for item in value):
                raise InvalidArgument(f"{name}: the argument {key} is a list of tensors, which no ONNX function takes")

        def body(inner: Any, *inputs: ir.Value) -> Any:
            return rule(inner, **fixed, **dict(zip(tensors, inputs, strict=True)))

        results = op.function(name, list(tensors.values()), body, repr(sorted(fixed.items())))
        return results[0] if len(results) == 1 else results

    return Rule(call, tuple(inspect.signature(rule).parameters)[1:])


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """Register a symbolic function, exactly as ``torch.onnx.register_custom_op_symbolic`` does.

    Example::

        tonnx.register_custom_op_symbolic("mylib::op", lambda g, x: g.op("my.domain::Op", x), 9)

    Both share one registry, so that a registration made with either counts in either.
    """
    import torch.onnx

    if not callable(symbolic_fn):
        raise InvalidArgument(f"symbolic_fn must be a function, not {symbolic_fn!r}")
    try:
        torch.onnx.register_custom_op_symbolic(symbolic_name, symbolic_fn, opset_version)
    except (ValueError, torch.onnx.OnnxExporterError) as error:
        raise InvalidArgument(
            f"{symbolic_name!r} is no operator", hint='write "namespace::name"; overloads share one function'
        ) from error


def register_container(
    kind: type, flatten: Callable[[Any], Mapping[str, Any]], unflatten: Callable[[dict[str, Any]], Any]
) -> None:
    """Say what is in a class that a model takes or returns, where its public attributes do not tell.

    Example::

        tonnx.register_container(Boxes, lambda boxes: {"corners": boxes._data}, lambda parts: Boxes(parts["corners"]))

    Args:
        kind: the class; it stands for its subclasses, too.
        flatten: gives the parts of an object by name: tensors, numbers, or other containers. Inputs and outputs of the
            file are called ``argument.name``.
        unflatten: makes an object of such parts.

    Dataclasses, named tuples, dicts and objects with tensors in public attributes, such as the caches of transformers,
    need no registration. Nothing is registered with PyTorch.
    """
    from tonnx.frontends.torch.call.containers import USERS

    if not isinstance(kind, type) or not callable(flatten) or not callable(unflatten):
        raise InvalidArgument(
            f"register_container takes a class and two functions, not {kind!r}, {flatten!r}, {unflatten!r}"
        )
    USERS[kind] = (flatten, unflatten)


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Take a registration back."""
    import torch.onnx

    torch.onnx.unregister_custom_op_symbolic(symbolic_name, opset_version)
