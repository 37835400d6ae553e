"""Values that do not depend on the inputs, though a capture has none: of weights, and of constants.

``if self.initialised:``, ``int(self.steps)``, ``torch.arange(1, x.dim()).tolist()``: what such a tensor was computed
from has values. It is computed again, for real, when a number of it is asked for.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.fx.node import map_arg
from torch.utils._python_dispatch import _disable_current_modes

from tonnx.frontends.patching import Patch
from tonnx.frontends.torch.capture.explain import calling_frame, line_of
from tonnx.frontends.torch.capture.patches.plain_sizes import is_dynamic
from tonnx.frontends.torch.capture.python_flow.conditions import NOTES
from tonnx.frontends.torch.capture.python_flow.variables import is_watched

_LONGEST = 200  # steps that are computed again for one number
_RESIZE = ("aten::resize_", "aten::resize_as_", "aten::set_")
"""What PyTorch counts among the views in place, but changes the memory, which is the user's."""


def decided_note(line: str) -> str:
    """What the user is told where a value of weights has decided what is in the file."""
    return f"decided by the values that the weights have now{line and ': ' + line}"


class SettledValues:
    """What nodes are that depend on weights and constants alone, as long as nobody writes to them."""

    def __init__(self, leaf: Callable[[Node], torch.Tensor | None]) -> None:
        self._leaf = leaf
        """The tensor that a node without arguments stands for; None for an input."""
        self._values: dict[Node, Any] = {}
        self._written: set[int] = set()

    def note_write(self, overload: Any, args: Any, kwargs: Any) -> None:
        """A call writes to tensors, which have no settled values from then on."""
        for index, argument in enumerate(overload._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[index] if index < len(args) else kwargs.get(argument.name)
                for tensor in value if isinstance(value, (list, tuple)) else [value]:
                    if isinstance(tensor, torch.Tensor):
                        self._written.add(tensor.untyped_storage()._cdata)

    def is_written(self, fake: Any) -> bool:
        """Whether a call has written to the memory of a tensor."""
        return isinstance(fake, torch.Tensor) and fake.untyped_storage()._cdata in self._written

    def of(self, arguments: Any) -> tuple[Any, list[Node]] | None:
        """Arguments with values in the place of nodes, and the leaves these come from; None if one is not settled."""
        ends: list[Node] = []
        map_arg(arguments, ends.append)
        steps = self._steps(ends)
        if steps is None:
            return None
        with _disable_current_modes(), torch.no_grad():
            for node in steps:
                if node not in self._values:
                    self._values[node] = self._computed(node)
            return self._mapped(arguments), [node for node in steps if node.op in ("placeholder", "get_attr")]

    def _steps(self, ends: list[Node]) -> list[Node] | None:
        """All that they are computed from, in order; None if one step depends on the inputs, or on chance."""
        reached: set[Node] = set()
        left = list(ends)
        while left:
            node = left.pop()
            if node in reached:
                continue
            reached.add(node)
            if len(reached) > _LONGEST or not self._is_settled(node):
                return None
            left += node.all_input_nodes
        return sorted(reached)

    def _is_settled(self, node: Node) -> bool:
        if self.is_written(node.meta.get("val")):
            return False
        if node.op in ("placeholder", "get_attr"):
            return self._leaf(node) is not None
        overload = node.target
        if overload is operator.getitem:
            return True
        # Operators of our own stand for something while a capture runs, and compute nothing.
        if not isinstance(overload, torch._ops.OpOverload) or overload.namespace == "tonnx":
            return False
        if torch.Tag.nondeterministic_seeded in overload.tags:
            return False
        return not overload._schema.is_mutable or is_view_in_place(overload)

    def _computed(self, node: Node) -> Any:
        if (tensor := self._leaf(node)) is not None:
            return tensor
        target: Any = node.target
        return target(*self._mapped(node.args), **self._mapped(node.kwargs))

    def _mapped(self, arguments: Any) -> Any:
        return map_arg(arguments, lambda node: _detached(self._values[node]))


def is_view_in_place(overload: Any) -> bool:
    """Whether a call makes its argument look at the same memory in another way, as ``squeeze_`` does."""
    return torch.Tag.inplace_view in overload.tags and overload._schema.name not in _RESIZE


def _detached(value: Any) -> Any:
    """A value of which another shape in place does not reach what it came from, such as the user's own weight."""
    return value.detach() if isinstance(value, torch.Tensor) else value


# For torch.export, which asks tensors for numbers by their methods


def number_patches(model: torch.nn.Module) -> Iterator[Patch]:
    """Whoever asks a tensor for a number gets it, if it does not depend on the inputs."""
    weights = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    reason = "the number may be one of weights or constants"
    for name in ("item", "__bool__", "__int__", "__float__", "__index__"):
        yield Patch("torch.Tensor", name, partial(_asked, [tensor for _, tensor in weights]), reason)


def _asked(weights: list[torch.Tensor], original: Any, tensor: torch.Tensor) -> Any:
    settled = _settled(tensor, weights)
    return original(_only_element(tensor) if settled is None else settled)


def _only_element(tensor: torch.Tensor) -> torch.Tensor:
    """Where only the run knows that there is one element, as after ``if x.numel() == 1:``, the first is taken."""
    if not is_watched() or not isinstance(tensor, torch._subclasses.FakeTensor) or not is_dynamic(tensor.numel()):
        return tensor
    return tensor.flatten().index_select(0, torch.zeros(1, dtype=torch.int64, device=tensor.device)).reshape(())


def _settled(tensor: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor | None:
    """A tensor with its value; None if that depends on the inputs, or is there already."""
    mode = get_proxy_mode()
    if mode is None or is_watched() or not isinstance(tensor, torch._subclasses.FakeTensor):
        return None
    if tensor.constant is not None or tensor.numel() != 1:
        return None
    node = node_of(tensor, mode.tracer)
    settled = None if node is None else values_of(node.graph, mode.tracer, weights).of(node)
    if settled is None:
        return None
    value, leaves = settled
    if any(leaf.op == "placeholder" for leaf in leaves):
        frame = calling_frame(sys._getframe(2))
        NOTES.get([]).append(decided_note("" if frame is None else line_of(frame, frame.f_lineno)))
    result: torch.Tensor = value
    return result


def node_of(tensor: torch.Tensor, tracer: Any) -> Node | None:
    """The node that torch.export has for a tensor."""
    slot: Any = get_proxy_slot(tensor, tracer, None)
    node: Node | None = getattr(getattr(slot, "proxy", None), "node", None)
    return node


def values_of(graph: Graph, tracer: Any, weights: list[torch.Tensor]) -> SettledValues:
    """Those of a graph as far as torch.export has it."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    # Parameters and buffers come before the inputs.
    by_node = {
        node: tensor
        for node, tensor in zip(placeholders, weights, strict=False)
        if isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].shape == tensor.shape
    }
    by_node = by_node if len(by_node) == len(weights) else {}

    def leaf(node: Node) -> torch.Tensor | None:
        return getattr(tracer.root, str(node.target)) if node.op == "get_attr" else by_node.get(node)

    values = SettledValues(leaf)
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable and not is_view_in_place(node.target):
            values.note_write(node.target, *map_arg((node.args, node.kwargs), lambda part: part.meta.get("val")))
    return values
