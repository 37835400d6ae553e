"""What is inside of the branches and loops of a captured program, as steps of its trace: one for each pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from tonnx.frontends.torch.fx.walk import operator_name
from tonnx.frontends.torch.reference.eager import to_numpy
from tonnx.frontends.torch.source import module_of, source_of
from tonnx.ir.provenance import INSIDE
from tonnx.proof.locate.trace import Step, Take

_FLOW = ("cond", "while_loop")


def is_flow(node: Node) -> bool:
    """Whether a node is one of PyTorch's own branches or loops, with graphs inside."""
    return isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() in _FLOW


class Inside:
    """The values inside of some nodes of a run: their steps are noted, and those that are wanted handed over."""

    def __init__(self, wanted: Collection[str], take: Take) -> None:
        self.steps: list[Step] = []
        self.passes: dict[str, int] = {}
        self._wanted, self._take = wanted, take

    def note(self, name: str, node: Node, value: Any, inputs: Sequence[str]) -> None:
        if not isinstance(value, torch.Tensor):
            return
        self.steps.append(Step(name, operator_name(node.target), module_of(node), source_of(node), tuple(inputs)))
        if name in self._wanted:
            self._take(name, to_numpy(value))

    def call(self, node: Node, get: Callable[[Any], Any]) -> Any:
        """``torch.cond`` and ``while_loop``, by running their graphs node by node."""
        if node.target.name() == "cond":  # type: ignore[union-attr]
            test, on_true, on_false, operands = (get(argument) for argument in node.args[:4])
            self.passes[node.name] = 1
            body = on_true if bool(test) else on_false
            return self._graph(node.name, 0, body, list(operands), _names(node.args[3]))[0]
        test, body, carried, others = (get(argument) for argument in node.args[:4])
        states, outer = list(carried), _names(node.args[2])
        extra, turn = list(others), 0
        while bool(test(*states, *extra)):
            results, names = self._graph(node.name, turn, body, [*states, *extra], [*outer, *_names(node.args[3])])
            states, outer, turn = list(results), names, turn + 1
        self.passes[node.name] = turn
        return tuple(states)

    def _graph(
        self, outer: str, turn: int, body: GraphModule, operands: Sequence[Any], names: Sequence[str]
    ) -> tuple[Any, list[str]]:
        recording = _Recording(self, body, outer, turn, names)
        results = recording.run(*operands)
        (last,) = (node for node in body.graph.nodes if node.op == "output")
        return results, [recording.step_names.get(_name(one), "") for one in last.args[0]]


class _Recording(Interpreter):
    def __init__(self, inside: Inside, body: GraphModule, outer: str, turn: int, names: Sequence[str]) -> None:
        super().__init__(body)
        self._inside, self._outer, self._turn = inside, outer, turn
        placeholders = [node.name for node in body.graph.nodes if node.op == "placeholder"]
        self.step_names = dict(zip(placeholders, names, strict=False))

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.op == "call_function":
            name = step_name(self._outer, n, str(self._turn))
            inputs = [self.step_names.get(other.name, "") for other in n.all_input_nodes]
            self._inside.note(name, n, value, [one for one in inputs if one])
            self.step_names[n.name] = name
        return value


def step_name(outer: str, node: Node, turn: str) -> str:
    """Of a value inside of another node, in one pass: ``1.0`` is the first one of what is in the second one."""
    return f"{outer}{INSIDE}{node.name}@{turn}"


def _name(argument: Any) -> str:
    return argument.name if isinstance(argument, Node) else ""


def _names(arguments: Any) -> list[str]:
    return [_name(argument) for argument in arguments]
