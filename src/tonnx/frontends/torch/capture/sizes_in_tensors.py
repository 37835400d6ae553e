"""Sizes that a model puts into a tensor and reads back as a number: which expression of sizes that number is.

``torch.div(x.size(1), 2, rounding_mode="trunc")`` is a tensor, and so is ``torch.ceil(torch.tensor(n) / 4)``. As a
number that only the run knows, it would not be seen to fit the sizes that it came from.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import get_proxy_slot
from torch.utils._python_dispatch import _disable_current_modes

from tonnx.frontends.patching import Patch
from tonnx.frontends.torch.capture.python_flow.variables import is_watched
from tonnx.frontends.torch.capture.settled_values import SettledValues, node_of, values_of

_FEW = 16  # numbers that are read one by one
_FLOATS = (float, torch.SymFloat)
_FEWER_DIGITS = (torch.float16, torch.bfloat16)
READS = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)
"""What reads the number in a tensor of one element."""


class _NoSize(Exception):
    """A number is none that sizes and constants make."""


def number_in(node: Node, settled: SettledValues) -> Any:
    """The number in a tensor of one element as an expression of sizes; None if it is none."""
    try:
        value = _value(node, settled)
    except _NoSize:
        return None
    if not isinstance(value, (torch.SymInt, torch.SymFloat)):
        return None
    return torch.sym_float(value) if node.meta["val"].dtype.is_floating_point else value


def _value(node: Node, settled: SettledValues) -> Any:
    """A number, or a list of them; floats are quotients and roots of whole numbers only, since others are rounded."""
    fake = node.meta.get("val")
    if isinstance(fake, (torch.SymInt, torch.SymFloat)):
        return fake
    if not isinstance(fake, torch.Tensor) or fake.dim() > 1 or fake.dtype in _FEWER_DIGITS or fake.dtype.is_complex:
        raise _NoSize
    if settled.is_written(fake):
        raise _NoSize
    if (constant := settled.of(node)) is not None:
        return _listed(constant[0])
    rule = _RULES.get(getattr(node.target, "overloadpacket", None))
    if rule is None:
        raise _NoSize
    read = partial(_argument, settled=settled)
    value = rule(*map(read, node.args), **{name: read(argument) for name, argument in node.kwargs.items()})
    if isinstance(value, _FLOATS) and not fake.dtype.is_floating_point:
        return math.trunc(value)  # type: ignore[arg-type]
    return value


def _argument(argument: Any, settled: SettledValues) -> Any:
    if isinstance(argument, Node):
        return _value(argument, settled)
    return [_argument(part, settled) for part in argument] if isinstance(argument, (list, tuple)) else argument


def _listed(constant: torch.Tensor) -> Any:
    with _disable_current_modes():
        if constant.numel() > _FEW:
            raise _NoSize
        return constant.tolist()


def _whole(compute: Callable[..., Any]) -> Callable[..., Any]:
    """A function of whole numbers, of which the result is exact."""

    def computed(*numbers: Any, **options: Any) -> Any:
        given = [int(n) if isinstance(n, float) and n.is_integer() else n for n in numbers]
        if not all(isinstance(n, (int, torch.SymInt)) for n in given):
            raise _NoSize
        return compute(*given, **options)

    return computed


def _divided(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return a // b
    return a / b if rounding_mode is None else math.trunc(a / b)


def _filled(size: Any, number: Any, **options: Any) -> Any:
    if size:
        raise _NoSize
    return number


def _taken(numbers: Any, axis: int = 0, index: int = 0) -> Any:
    return numbers[index]


def _single(number: Any, *options: Any, **more: Any) -> Any:
    return number[0] if isinstance(number, list) and len(number) == 1 else number


def _of_all(compute: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def computed(numbers: Any, *axes: Any, **options: Any) -> Any:
        if axes or not isinstance(numbers, list):
            raise _NoSize
        return reduce(_whole(compute), numbers)

    return computed


_RULES: dict[Any, Callable[..., Any]] = {
    getattr(torch.ops.aten, name): rule
    for names, rule in (
        ("full", _filled),
        ("scalar_tensor", _single),
        ("detach detach_ alias clone contiguous lift_fresh lift_fresh_copy to _to_copy", lambda n, *_, **__: n),
        ("reshape view squeeze unsqueeze", _single),
        ("stack", lambda numbers, dim=0: numbers),
        ("select", _taken),
        ("add", _whole(lambda a, b, alpha=1: a + alpha * b)),
        ("sub", _whole(lambda a, b, alpha=1: a - alpha * b)),
        ("rsub", _whole(lambda a, b, alpha=1: b - alpha * a)),
        ("mul", _whole(operator.mul)),
        ("neg", _whole(operator.neg)),
        ("div", _whole(_divided)),
        ("floor_divide", _whole(operator.floordiv)),
        ("remainder", _whole(operator.mod)),
        ("minimum", _whole(torch.sym_min)),
        ("maximum", _whole(torch.sym_max)),
        ("sqrt", _whole(torch.sym_sqrt)),
        ("log2", _whole(torch._sym_log2)),  # type: ignore[attr-defined]
        ("pow", _whole(operator.pow)),
        ("ceil", math.ceil),
        ("floor", math.floor),
        ("prod", _of_all(operator.mul)),
        ("sum", _of_all(operator.add)),
        ("max amax", _of_all(torch.sym_max)),
        ("min amin", _of_all(torch.sym_min)),
    )
    for name in names.split()
}


# For torch.export, where a tensor may be read by PyTorch itself: as a size among others


def proxy_patches() -> Iterator[Patch]:
    owner = "torch.fx.experimental.proxy_tensor.ProxyTorchDispatchMode"
    yield Patch(owner, "__torch_dispatch__", _dispatched, "the number in a tensor may be made of sizes")


def _dispatched(original: Any, mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    if func in READS and not is_watched():
        node = node_of(args[0], mode.tracer)
        number = None if node is None else number_in(node, values_of(node.graph, mode.tracer, []))
        if number is not None and get_proxy_slot(number, mode.tracer, None) is not None:  # torch can write it as nodes
            return number
    return original(mode, func, types, args, kwargs)
