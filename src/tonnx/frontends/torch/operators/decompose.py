"""PyTorch's own decomposition of one operator, for operators that have no rule.

Decomposing a whole program costs more than its capture. This traces a single call, on the fake tensors that the capture
left in the graph, so that only what has no rule pays for it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import sympy
import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from tonnx.errors import LoweringError


@dataclass(frozen=True)
class Traced:
    """A call as a graph of simpler operators."""

    module: torch.fx.GraphModule
    placeholders: list[str]
    arguments: list[Node]
    many: bool


@cache
def table() -> dict[Any, Any]:
    from torch._decomp import core_aten_decompositions, global_decomposition_table

    return {**global_decomposition_table["post_autograd"], **core_aten_decompositions()}


class NoDecomposition(LoweringError):
    """PyTorch does not take an operator apart; ``why`` says what stopped it, if it has a decomposition at all."""

    def __init__(self, why: str = "") -> None:
        super().__init__("PyTorch does not take the operator apart", why=why)

    @classmethod
    def because(cls, error: Exception) -> NoDecomposition:
        """For whatever PyTorch's decomposition raises while it is traced."""
        first = next((line for line in str(error).splitlines() if line.strip()), "").strip()
        return cls(f"PyTorch's own decomposition of it fails: {type(error).__name__}: {first}"[:300])


def trace(node: Node) -> Traced:
    """The decomposition of a call. Raises NoDecomposition if there is none."""
    target: Any = node.target
    formulas = table()
    composite = target._can_decompose() if hasattr(target, "_can_decompose") else False
    if target not in formulas and not composite:
        raise NoDecomposition
    leaves, spec = pytree.tree_flatten((node.args, dict(node.kwargs)))
    arguments = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node)))
    fakes = [a.meta["val"] for a in arguments]
    if any(isinstance(fake, (list, tuple)) for fake in fakes):
        raise NoDecomposition("an argument is a list that another operator gives, which is not followed")

    def call(*values: Any) -> Any:
        value_of = dict(zip(arguments, values, strict=True))
        args, kwargs = pytree.tree_unflatten(
            [value_of.get(leaf, leaf) if isinstance(leaf, Node) else leaf for leaf in leaves], spec
        )
        result = formulas[target](*args, **kwargs) if target in formulas else target.decompose(*args, **kwargs)
        return tuple(result) if isinstance(result, (list, tuple)) else (result,)

    mode = next((f.fake_mode for f in fakes if hasattr(f, "fake_mode")), None)
    if mode is None:
        raise NoDecomposition("none of its arguments is a tensor")
    try:
        with torch.no_grad(), mode:
            module = make_fx(call, tracing_mode="real")(*fakes)
    except Exception as error:  # PyTorch's decompositions raise anything
        raise NoDecomposition.because(error) from error
    if any(n.target is target for n in module.graph.nodes):
        raise NoDecomposition
    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    many = len(target._schema.returns) > 1 or str(target._schema.returns[0].type).startswith("List")
    return Traced(module, names, arguments, many)


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
