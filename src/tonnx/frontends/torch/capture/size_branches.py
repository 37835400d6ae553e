"""Branches on sizes that the example decided: does the captured program still do what the model does at other sizes?

torch.export takes the side that the example takes. Often both give the same (a special case for speed), and one graph
serves. Where it does not, the function has to be rewritten so that both sides are in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import sympy
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tonnx.errors import TonnxError
from tonnx.frontends.torch.call.example import resized
from tonnx.frontends.torch.call.signature import ModelCall
from tonnx.frontends.torch.capture.explain import Frozen, Spot
from tonnx.frontends.torch.capture.program import Captured, describe
from tonnx.frontends.torch.fx.trace import FxTrace
from tonnx.frontends.torch.reference.state import state_kept
from tonnx.frontends.torch.source import shorten

_TRIED = 4  # conditions that are looked at; every one costs a run of the model
_LARGEST = 4096  # a size at which the model is run to see whether it goes another way
_RTOL, _ATOL = 1e-2, 1e-3  # the proof looks closer; here it is another way through the model that shows


def unsettled(
    model: torch.nn.Module, call: ModelCall, program: ExportedProgram, froze: Frozen, notes: list[str]
) -> list[Spot]:
    """The lines of conditions that other sizes decide otherwise, with other results than the captured program's.

    What could not be looked at, since the model itself fails at such sizes, is told in ``notes``.
    """
    if not froze.decided:
        return []
    try:
        captured = describe(program, call)
    except TonnxError:  # a dimension is fixed, which is reported soon
        return []
    spots: list[Spot] = []
    tried: set[Any] = set()
    example = _example_sizes(call)
    for expression, outcome, spot in froze.decided:
        expression = expression.xreplace(captured.tied)
        key = (expression, spot)
        if key in tried or spot in spots or len(tried) >= _TRIED:
            continue
        sizes = _otherwise(expression, outcome, captured.names, call)
        if sizes is not None:
            tried.add(key)
            try:
                if _differs(model, call, captured, sizes):
                    spots.append(spot)
            except _ModelFails as error:
                changed = ", ".join(f"{name}={sizes[name]}" for name in sorted(sizes) if sizes[name] != example[name])
                told = f"the other side, at {changed}, is not in the file: the model itself fails there ({error})"
                notes.append(f"{shorten(spot[0])}:{spot[1]}: {told}")
    return spots


def _otherwise(
    expression: Any, outcome: bool, names: dict[sympy.Symbol, str], call: ModelCall
) -> dict[str, int] | None:
    """Sizes near the example's at which a condition is not what it was; None if there are none."""
    symbols = [symbol for symbol in expression.free_symbols if symbol in names]
    if len(symbols) < len(expression.free_symbols):
        return None
    example = _example_sizes(call)
    limits = {d.name: (d.minimum or 0, d.maximum) for leaf in call.leaves for d in leaf.dynamic.values()}
    now = {symbol: example[names[symbol]] for symbol in symbols}
    for symbol in symbols:
        lowest, highest = limits[names[symbol]]
        for size in _near(now[symbol], _thresholds(expression)):
            if size < lowest or (highest is not None and size > highest):
                continue
            try:
                answer = bool(expression.xreplace({s: sympy.Integer(n) for s, n in {**now, symbol: size}.items()}))
            except TypeError:  # it does not come to a yes or no
                return None
            if answer != outcome:
                return {**example, names[symbol]: size}
    return None


def _example_sizes(call: ModelCall) -> dict[str, int]:
    return {dim.name: leaf.tensor.shape[axis] for leaf in call.leaves for axis, dim in leaf.dynamic.items()}


def _thresholds(expression: Any) -> list[int]:
    """The numbers in a condition: it may change at them, however far from the example they are."""
    return sorted({abs(int(n)) for n in expression.atoms(sympy.Integer)} & set(range(_LARGEST)))


def _near(size: int, thresholds: list[int]) -> Iterator[int]:
    near = (size + 1, size - 1, size + 2, size - 2, 2 * size, size + 3, 3 * size, size // 2)
    far = [n + d for n in thresholds for d in (0, 1, -1)] + [n * size for n in thresholds]
    yield from (n for n in (*near, *far) if 1 < n < _LARGEST)
    yield from (1, 0)


class _ModelFails(Exception):
    """The model itself does not run at sizes that were invented for it."""


def _differs(model: torch.nn.Module, call: ModelCall, captured: Captured, sizes: dict[str, int]) -> bool:
    """Whether model and program give something else at these sizes. Raises _ModelFails where the model does not run."""
    tensors = [tensor.detach().clone() for tensor in resized(call, sizes)]
    feeds = {leaf.name: tensor.numpy() for leaf, tensor in zip(call.leaves, tensors, strict=True)}
    args, kwargs = call.with_tensors([tensor.clone() for tensor in tensors])
    try:
        with torch.random.fork_rng(devices=[]), state_kept(model):
            results = pytree.tree_leaves(model(*args, **kwargs))
    except Exception as error:  # the user's code, at a size that it may not be made for
        raise _ModelFails(f"{type(error).__name__}: {' '.join(str(error).split())}"[:120].rstrip(": ")) from error
    wanted = [result.numpy() for result in results if isinstance(result, torch.Tensor)]
    outputs = list(captured.program.graph.nodes)[-1].args[0]
    count = len(outputs) - len(results)  # the buffers that it changes come first
    names = [node.name for node in outputs[count:] if isinstance(getattr(node, "meta", {}).get("val"), torch.Tensor)]
    values: dict[str, np.ndarray] = {}
    try:
        FxTrace(captured).run(feeds, set(names), values.__setitem__)
    except TonnxError:
        return True
    if len(names) != len(wanted) or any(name not in values for name in names):
        return False  # an output that is an input as it is
    return not all(
        values[name].shape == array.shape and np.allclose(values[name], array, _RTOL, _ATOL, equal_nan=True)
        for name, array in zip(names, wanted, strict=True)
    )
