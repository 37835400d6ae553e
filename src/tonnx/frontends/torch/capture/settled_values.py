"""Values that do not depend on the inputs, though torch.export does not know them: of weights, and of constants.

``if self.initialised:``, ``int(self.steps)``, ``torch.arange(1, x.dim()).tolist()``: a capture has no values, but what
such a tensor was computed from has. It is computed again, for real, when a number of it is asked for.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.fx.node import map_arg
from torch.utils._python_dispatch import _disable_current_modes

from tonnx.frontends.patching import Patch
from tonnx.frontends.torch.capture.explain import calling_frame, line_of
from tonnx.frontends.torch.capture.python_flow.conditions import NOTES
from tonnx.frontends.torch.capture.python_flow.variables import is_watched

_LONGEST = 200  # steps that are computed again for one number
_HARMLESS = (torch.ops.aten.detach_.default,)
"""Writes that change nothing; ``torch.tensor`` ends with one."""


def number_patches(model: torch.nn.Module) -> Iterator[Patch]:
    """Whoever asks a tensor for a number gets it, if it does not depend on the inputs."""
    weights = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    reason = "the number may be one of weights or constants"
    for name in ("item", "__bool__", "__int__", "__float__", "__index__"):
        yield Patch("torch.Tensor", name, partial(_asked, weights), reason)


def _asked(weights: list[tuple[str, torch.Tensor]], original: Any, tensor: torch.Tensor) -> Any:
    settled = _settled(tensor, weights)
    return original(tensor if settled is None else settled)


def _settled(tensor: torch.Tensor, weights: list[tuple[str, torch.Tensor]]) -> torch.Tensor | None:
    """A tensor with its value; None if that depends on the inputs, or is there already."""
    mode = get_proxy_mode()
    if mode is None or is_watched() or not isinstance(tensor, torch._subclasses.FakeTensor):
        return None
    if tensor.constant is not None or tensor.numel() != 1:
        return None
    slot: Any = get_proxy_slot(tensor, mode.tracer, None)
    node = getattr(getattr(slot, "proxy", None), "node", None)
    return None if node is None else _History(node, mode.tracer, weights).value()


class _History:
    """The steps from weights and constants to a value."""

    def __init__(self, end: Node, tracer: Any, weights: list[tuple[str, torch.Tensor]]) -> None:
        self._end, self._tracer = end, tracer
        placeholders = [node for node in end.graph.nodes if node.op == "placeholder"]
        # Parameters and buffers come before the inputs.
        self._weights = {
            node: tensor
            for node, (_, tensor) in zip(placeholders, weights, strict=False)
            if isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].shape == tensor.shape
        }
        self._known = len(self._weights) == len(weights)

    def value(self) -> torch.Tensor | None:
        steps = self._steps()
        if not steps or self._written(steps):
            return None
        values: dict[Node, Any] = {}
        with _disable_current_modes(), torch.no_grad():
            for node in steps:
                values[node] = self._computed(node, values)
        if any(node.op == "placeholder" for node in steps):
            frame = calling_frame(sys._getframe(4))
            line = "" if frame is None else f": {line_of(frame, frame.f_lineno)}"
            NOTES.get([]).append(f"decided by the values that the weights have now{line}")
        result: torch.Tensor = values[self._end]
        return result

    def _steps(self) -> list[Node]:
        """In the order in which they are computed; none if one of them depends on the inputs, or on chance."""
        reached: set[Node] = set()
        left = [self._end]
        while left:
            node = left.pop()
            if node in reached:
                continue
            reached.add(node)
            if len(reached) > _LONGEST or not self._is_settled(node):
                return []
            left += node.all_input_nodes
        return [node for node in self._end.graph.nodes if node in reached]

    def _is_settled(self, node: Node) -> bool:
        if node.op == "placeholder":
            return self._known and node in self._weights
        if node.op == "get_attr" or node.target is operator.getitem:
            return True
        overload = node.target
        if not isinstance(overload, torch._ops.OpOverload) or overload.namespace not in ("aten", "prims"):
            return False
        chance = torch.Tag.nondeterministic_seeded in overload.tags
        return not chance and (not overload._schema.is_mutable or overload in _HARMLESS)

    def _written(self, steps: Iterable[Node]) -> bool:
        """Whether somebody has written to one of the values meanwhile."""
        own = set(steps)
        for node in self._end.graph.nodes:
            schema = getattr(node.target, "_schema", None)
            if schema is None or not schema.is_mutable or node.target in _HARMLESS:
                continue
            for target in node.all_input_nodes:
                while target not in own and target.all_input_nodes:
                    target = target.all_input_nodes[0]  # what a view is of
                if target in own:
                    return True
        return False

    def _computed(self, node: Node, values: dict[Node, Any]) -> Any:
        if node.op == "placeholder":
            return self._weights[node].detach().clone()
        if node.op == "get_attr":
            return getattr(self._tracer.root, str(node.target)).clone()
        return node.target(*map_arg(node.args, values.get), **map_arg(node.kwargs, values.get))  # type: ignore[operator]
