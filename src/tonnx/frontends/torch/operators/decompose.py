"""PyTorch's own decomposition of one operator, for operators that have no rule.

Decomposing a whole program costs more than its capture. This traces a single call, on the fake tensors that the capture
left in the graph, so that only what has no rule pays for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any

import sympy
import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree

from tonnx.errors import LoweringError, cause_of


@cache
def table() -> dict[Any, Any]:
    from torch._decomp import core_aten_decompositions, global_decomposition_table

    return {**global_decomposition_table["post_autograd"], **core_aten_decompositions()}


class NoDecomposition(LoweringError):
    """PyTorch does not take an operator apart; ``why`` says what stopped it, if it has a decomposition at all."""

    def __init__(self, why: str = "") -> None:
        super().__init__("PyTorch does not take the operator apart", why=why)


def trace(node: Node) -> tuple[torch.fx.GraphModule, list[Node]]:
    """The decomposition of a call, and what its inputs are. Raises NoDecomposition if there is none."""
    target: Any = node.target
    composite = target._can_decompose() if hasattr(target, "_can_decompose") else False
    if target not in table() and not composite and written_in_python(target) is None:
        raise NoDecomposition
    called = node.args, dict(node.kwargs)
    arguments = list(dict.fromkeys(leaf for leaf in pytree.tree_leaves(called) if isinstance(leaf, Node)))
    fakes = [a.meta["val"] for a in arguments]
    if any(isinstance(fake, (list, tuple)) for fake in fakes):
        raise NoDecomposition("an argument is a list that another operator gives, which is not followed")
    mode = next((f.fake_mode for f in fakes if hasattr(f, "fake_mode")), None)
    if mode is None:
        raise NoDecomposition("none of its arguments is a tensor")
    return graph_of(target, called, arguments, fakes, mode), arguments


def written_in_python(target: Any) -> Callable[..., Any] | None:
    """What computes an operator that a library registered from Python (`torch.library.custom_op`), on the CPU."""
    from torch._library.custom_ops import OPDEFS

    schema = getattr(target, "_schema", None)
    if schema is None or schema.is_mutable:
        return None
    kernels = getattr(OPDEFS.get(schema.name), "_backend_fns", {})
    return kernels.get("cpu") or kernels.get(None)


_has_rule: ContextVar[Callable[[Any], object]] = ContextVar("_has_rule", default=lambda schema: True)


@contextlib.contextmanager
def rules_known(rule: Callable[[Any], object]) -> Iterator[None]:
    """For captures inside of it: ``rule`` gives the rule of a schema. What has none is captured as it is written."""
    before = _has_rule.set(rule)
    try:
        yield
    finally:
        _has_rule.reset(before)


def written_out(target: Any, args: Any, kwargs: Any, mode: Any) -> Any:
    """The result of an operator that is written in Python and has no rule, its calls recorded by a mode, loops as well.

    None if it is another one, or cannot run there.
    """
    body = None if target.namespace == "aten" else written_in_python(target)
    if body is None or _has_rule.get()(target._schema):
        return None
    try:
        with mode:
            return body(*args, **kwargs)
    except GuardOnDataDependentSymNode:
        raise
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return None


def graph_of(target: Any, called: Any, tensors: Sequence[Any], fakes: Sequence[Any], mode: Any) -> torch.fx.GraphModule:
    """The decomposition of ``target`` on the arguments ``called``, in which ``fakes`` take the place of ``tensors``."""
    leaves, spec = pytree.tree_flatten(called)

    def call(*values: Any) -> Any:
        value_of = dict(zip(tensors, values, strict=True))
        flat = [value_of[leaf] if isinstance(leaf, type(tensors[0])) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(flat, spec)
        result = (table().get(target) or written_in_python(target) or target.decompose)(*args, **kwargs)
        return tuple(result) if isinstance(result, (list, tuple)) else (result,)

    try:
        with torch.no_grad(), mode:
            module = make_fx(call, tracing_mode="real")(*fakes)
    except Exception as error:  # PyTorch's decompositions raise anything
        raise NoDecomposition(f"PyTorch's own decomposition of it fails: {cause_of(error)}"[:300]) from error
    if any(n.target is target for n in module.graph.nodes):
        raise NoDecomposition
    return module


def gives_many(target: Any) -> bool:
    """Whether an operator gives several tensors, or a list."""
    return len(target._schema.returns) > 1 or str(target._schema.returns[0].type).startswith("List")


def retrace(function: Any, fakes: list[Any], context: Any = None) -> torch.fx.GraphModule | None:
    """A function on fake tensors as a graph of what really runs: vmap, autocast and other modes are worked in."""
    mode = next((f.fake_mode for f in fakes if hasattr(f, "fake_mode")), None)
    if mode is None:
        return None

    def call(*values: Any) -> Any:
        result = function(*values)
        return tuple(result) if isinstance(result, (list, tuple)) else (result,)

    guards = mode.shape_env.guards if mode.shape_env is not None else []
    before = len(guards)
    with torch.no_grad(), mode, context or contextlib.nullcontext():
        traced = make_fx(call, tracing_mode="real", _allow_non_fake_inputs=True)(*fakes)
    if fixed := [str(guard.expr) for guard in guards[before:] if isinstance(guard.expr, sympy.Eq)]:
        # vmap in 2.10 and before takes sizes for numbers.
        raise LoweringError(
            f"PyTorch {torch.__version__} fixes dynamic sizes here ({', '.join(fixed)})",
            hint="update PyTorch, or export without dynamic dimensions",
        )
    return traced
