"""``torch.autograd.Function`` classes that say by a static method ``symbolic`` what they are in ONNX.

torch.export would look through their ``forward``. For the length of a capture, ``forward`` of such a class is one
operator of our own, which carries a key; the key leads back to the class and its arguments, and the lowering calls
``symbolic``. The results' dtypes and shapes are those of ``forward`` itself on the capture's fake tensors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from tonnx.errors import LoweringError, TonnxError
from tonnx.frontends.torch.capture.patches.library import operator
from tonnx.frontends.torch.operators.symbolic_functions import run_symbolic
from tonnx.ir.build import Builder

NAME = "tonnx::function"


@dataclass(eq=False)
class FunctionCall:
    """One use of a class: its arguments with places for tensors and sizes, and whether it gave a tuple."""

    function: type
    arguments: list[Any]
    spec: pytree.TreeSpec
    many: bool = False


@dataclass(frozen=True)
class _Place:
    """Stands for a tensor or a run-time size among the arguments."""

    kind: str
    index: int


_calls: WeakValueDictionary[int, FunctionCall] = WeakValueDictionary()
"""By their keys, for as long as somebody keeps the program that has them."""
_keys = count(1)
_kept: ContextVar[list[FunctionCall] | None] = ContextVar("_kept", default=None)
"""The calls of the capture that is under way; None where ``forward`` is to be looked through."""


def has_symbolic(function: Any) -> bool:
    return callable(getattr(function, "symbolic", None))


def _fake(tensors: Sequence[torch.Tensor], sizes: Sequence[Any], key: int) -> list[torch.Tensor]:
    return _shapes(_calls[key], tensors, sizes)


def _filled(call: FunctionCall, tensors: Sequence[Any], sizes: Sequence[Any]) -> tuple[Any, ...]:
    groups = {"tensor": tensors, "size": sizes}
    flat = [groups[leaf.kind][leaf.index] if isinstance(leaf, _Place) else leaf for leaf in call.arguments]
    return pytree.tree_unflatten(flat, call.spec)


def _shapes(call: FunctionCall, tensors: Sequence[torch.Tensor], sizes: Sequence[Any]) -> list[torch.Tensor]:
    """The results of ``forward``, for their dtypes and shapes only."""
    versions = [tensor._version for tensor in tensors]
    name = call.function.__name__
    try:
        with calls_kept(None):
            results = call.function.apply(*_filled(call, tensors, sizes))  # type: ignore[attr-defined]
    except TonnxError:
        raise
    except Exception as error:  # the user's own code, on tensors without values
        if any(isinstance(size, torch.SymInt) for tensor in tensors for size in tensor.shape) or sizes:
            raise LoweringError(
                f"{name}.forward does not run without values, and only it says what shape its results have",
                why=f"{type(error).__name__}: {error}".splitlines()[0],
                hint="let it use PyTorch operators while torch.onnx.is_in_onnx_export(), which need only give the "
                "shape; or export without dynamic dimensions",
            ) from error
        results = _with_values(call, tensors)
    if versions != [tensor._version for tensor in tensors]:
        raise LoweringError(f"{name}.forward writes to its inputs, which its symbolic function cannot say")
    call.many = isinstance(results, (list, tuple))
    outputs = list(results) if call.many else [results]
    if not all(isinstance(result, torch.Tensor) for result in outputs):
        raise LoweringError(f"{name}.forward gives results that are not tensors")
    return [result.clone() if any(result is tensor for tensor in tensors) else result for result in outputs]


def _with_values(call: FunctionCall, tensors: Sequence[torch.Tensor]) -> Any:
    """The shapes by a run on zeros: for code that reads the tensors' memory, such as a C++ extension's."""
    name = call.function.__name__
    with _disable_current_modes():
        real = [torch.zeros(tuple(t.shape), dtype=t.dtype) for t in tensors]
        try:
            with calls_kept(None), torch.no_grad():
                results = call.function.apply(*_filled(call, real, ()))  # type: ignore[attr-defined]
        except Exception as error:  # the user's own code
            raise LoweringError(
                f"{name}.forward fails on zeros, and only it says what shape its results have",
                why=f"{type(error).__name__}: {error}".splitlines()[0],
            ) from error
    outputs = [tensors[0].new_empty(tuple(r.shape), dtype=r.dtype) for r in pytree.tree_leaves(results)]
    return outputs if isinstance(results, (list, tuple)) else outputs[0]


def _as_operator(calls: list[FunctionCall], cls: Any, *args: Any) -> Any:
    if cls.setup_context is torch.autograd.Function.setup_context:
        args = args[1:]  # the context, which only a forward without a setup_context gets
    flat, spec = pytree.tree_flatten(args)
    tensors = [leaf for leaf in flat if isinstance(leaf, torch.Tensor)]
    sizes = [leaf for leaf in flat if isinstance(leaf, torch.SymInt)]
    places = {"tensor": 0, "size": 0}

    def place(leaf: Any) -> Any:
        kind = "tensor" if isinstance(leaf, torch.Tensor) else "size" if isinstance(leaf, torch.SymInt) else None
        if kind is None:
            return leaf
        places[kind] += 1
        return _Place(kind, places[kind] - 1)

    key = next(_keys)
    call = _calls[key] = FunctionCall(cls, [place(leaf) for leaf in flat], spec)
    calls.append(call)
    function = operator("function(Tensor[] tensors, SymInt[] sizes, int key) -> Tensor[]", _fake)
    results = function(tensors, sizes, key)
    return tuple(results) if call.many else results[0]


def class_attribute(original: Any, cls: type, name: str) -> Any:
    """``type.__getattribute__`` of the classes.

    ``apply`` is out of reach: many keep a bound one (``deform_conv2d = DeformConv2dFunction.apply``), and in PyTorch
    2.15 that is a function in C. It looks ``forward`` up at every call, through the metaclass.
    """
    attribute = original(cls, name)
    if name != "forward" or (calls := _kept.get()) is None or not has_symbolic(cls):
        return attribute
    return partial(_as_operator, calls, cls)


@contextlib.contextmanager
def calls_kept(calls: list[FunctionCall] | None) -> Iterator[None]:
    """Classes with a ``symbolic`` stay whole, or are looked through if ``calls`` is None.

    The list must live as long as the program.
    """
    token = _kept.set(calls)
    try:
        yield
    finally:
        _kept.reset(token)


def lower_call(op: Builder, key: int, tensors: Sequence[Any], sizes: Sequence[Any], opset: int) -> list[Any]:
    """The lowering of one call that a capture kept whole."""
    call = _calls[key]
    return lower_function(op, call.function, _filled(call, tensors, sizes), opset)


def lower_function(op: Builder, function: type, args: Sequence[Any], opset: int) -> list[Any]:
    """What ``symbolic`` of an autograd function makes of its arguments: values for tensors, all else as it was."""
    results = run_symbolic(op, function.symbolic, args, opset, as_values=False)  # type: ignore[attr-defined]
    if not results:
        raise LoweringError(f"{function.__name__}.symbolic gives nothing")
    return results
