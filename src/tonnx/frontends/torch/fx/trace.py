"""The captured program, run node by node: what its values hold, for `tonnx.proof.locate.search`."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx import Node
from torch.fx.node import map_arg

from tonnx.errors import CaptureError, TonnxError, cause_of
from tonnx.frontends.torch.capture.program import Captured
from tonnx.frontends.torch.capture.size_branches import Shaped
from tonnx.frontends.torch.fx.memory import gives_what_it_wrote, mutates, written_arguments
from tonnx.frontends.torch.fx.recorded_flow import Block, arrange, kind_of
from tonnx.frontends.torch.fx.trace_bodies import Inside, is_flow, step_name
from tonnx.frontends.torch.fx.walk import is_dropped, operator_name
from tonnx.frontends.torch.reference.eager import from_numpy, to_numpy
from tonnx.frontends.torch.source import module_of, source_of
from tonnx.ir.provenance import INSIDE
from tonnx.proof.locate.trace import Opened, Step, Take
from tonnx.proof.session import one_line

_RECURRENT = {f"tonnx::{kind}": kind for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")}
"""Operators that stand in for PyTorch's own during a capture, and have no kernel."""


class FxTrace:
    """A torch.export program. Its values have the names of its nodes."""

    framework = "PyTorch"

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        self._nodes, self._blocks = arrange(captured.program.graph.nodes)

    def steps(self) -> list[Step]:
        """What the program computes outside of its loops, in order: tensors, and lists of them."""
        steps, entries = [], self._captured.inputs
        for node in self._nodes:
            if node.op == "call_function" and isinstance(node.meta.get("val"), (torch.Tensor, list, tuple)):
                read = (other for other in node.all_input_nodes if other.op == "call_function" or other.name in entries)
                inputs = tuple(other.name for other in read)
                steps.append(Step(node.name, operator_name(node.target), module_of(node), source_of(node), inputs))
        return steps

    def opened(self, feeds: dict[str, np.ndarray], steps: Collection[str]) -> Opened | None:
        """With the values inside of branches and loops among ``steps``: ``name@2`` is of the third pass."""
        chosen = {node.name for node in self._nodes if node.name in steps and (node in self._blocks or is_flow(node))}
        if not chosen:
            return None
        run = self._ran(feeds, (), lambda name, array: None, chosen)
        return Opened(_OpenedTrace(self, chosen, run.inside.steps), run.inside.passes)

    def run(
        self, feeds: dict[str, np.ndarray], wanted: Collection[str], take: Take, shaped: Shaped | None = None
    ) -> None:
        """Run the program on inputs by the file's names.

        With ``shaped``, which gets the shapes, also inside of every pass, what is wanted of the results is as they end.
        """
        self._ran(feeds, wanted, take, shaped=shaped)

    def _ran(
        self,
        feeds: dict[str, np.ndarray],
        wanted: Collection[str],
        take: Take,
        opened: Collection[str] = (),
        shaped: Shaped | None = None,
    ) -> _Run:
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                run = _Run(self._captured, self._nodes, self._blocks, feeds, wanted, take, opened, shaped)
                run.all()
                return run
        except TonnxError:
            raise
        except Exception as error:  # the user's model at sizes that it may not take, or a kernel that is missing
            raise CaptureError("the captured program does not run", why=one_line(cause_of(error))) from error


class _OpenedTrace:
    """The same program, and what was found inside of some of its nodes."""

    framework = FxTrace.framework

    def __init__(self, trace: FxTrace, chosen: Collection[str], inside: Sequence[Step]) -> None:
        self._trace, self._chosen, self._inside = trace, chosen, list(inside)

    def steps(self) -> list[Step]:
        """What is inside of a node comes before it."""
        steps = []
        for step in self._trace.steps():
            if step.name in self._chosen:
                steps += [one for one in self._inside if one.name.startswith(step.name + INSIDE)]
            steps.append(step)
        return steps

    def run(self, feeds: dict[str, np.ndarray], wanted: Collection[str], take: Take) -> None:
        self._trace._ran(feeds, wanted, take, self._chosen)

    def opened(self, feeds: dict[str, np.ndarray], steps: Collection[str]) -> Opened | None:
        """What is inside of those is one level only."""
        return None


class _Run:
    """One run: every value is dropped after its last use."""

    def __init__(
        self,
        captured: Captured,
        nodes: Sequence[Node],
        blocks: Mapping[Node, Block],
        feeds: Mapping[str, np.ndarray],
        wanted: Collection[str],
        take: Take,
        opened: Collection[str] = (),
        shaped: Shaped | None = None,
    ) -> None:
        self._shaped = shaped
        self._module = captured.program.graph_module
        self._opened, self.inside = opened, Inside(wanted, take)
        self._outer, self._turns, self._inner = "", list[str](), dict[Node, str]()
        self._nodes, self._blocks = nodes, blocks
        self._wanted, self._take = wanted, take
        self._arguments = _placeholders(captured, feeds)
        self._env: dict[Node, Any] = {}
        self._last = _last_uses(nodes, blocks)

    def all(self) -> None:
        for index, node in enumerate(self._nodes):
            if node.op == "output":
                if self._shaped is not None:
                    self._results(node)
                return
            self._computed(node)
            for done in self._last.get(index, ()):
                self._env.pop(done, None)

    def _results(self, output: Node) -> None:
        """What the program gives: the values as they are in the end, some are written to after they are made."""
        for node in output.all_input_nodes:
            if node.name in self._wanted and isinstance(value := self._env[node], torch.Tensor):
                self._take(node.name, to_numpy(value))

    def _computed(self, node: Node) -> Any:
        self._env[node] = value = self._value(node)
        if isinstance(value, torch.Tensor):
            if node.name in self._wanted:
                self._take(node.name, to_numpy(value))
            if self._shaped is not None:
                self._shaped(node.name, tuple(value.shape))
        return value

    def _value(self, node: Node) -> Any:
        if node.op == "placeholder":
            return self._arguments.pop(node.name)
        if node.op == "get_attr":
            return operator.attrgetter(str(node.target))(self._module)
        if node in self._blocks:
            block = self._blocks[node]
            return self._branch(node, block) if kind_of(node) == "if_end" else self._loop(node, block)
        return self._call(node)

    def _call(self, node: Node) -> Any:
        if is_dropped(node):
            return None
        if node.name in self._opened:
            return self.inside.call(node, lambda argument: map_arg(argument, self._get))
        args = map_arg(node.args, self._get)
        kwargs = map_arg(node.kwargs, self._get)
        kind = _RECURRENT.get(getattr(getattr(node.target, "_schema", None), "name", ""))
        if kind is not None:
            x, hx, params, has_biases, layers, bidirectional, batch_first = args
            states = tuple(hx) if kind == "lstm" else hx[0]
            kernel = getattr(torch._VF, kind)
            return list(kernel(x, states, list(params), has_biases, layers, 0.0, False, bidirectional, batch_first))
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def _get(self, node: Node) -> Any:
        """A value. A number may have been needed first where this run does not come along."""
        if node not in self._env:
            is_tensor = gives_what_it_wrote(node)
            self._env[node] = self._get(written_arguments(node)[0]) if is_tensor else self._value(node)
        return self._env[node]

    def _all(self, argument: Any) -> list[torch.Tensor]:
        return list(map_arg(argument, self._get))

    def _block(self, nodes: Sequence[Node], end: Node, turn: int = 0) -> None:
        """One pass, with what is recorded inside of it if that was asked for."""
        begins = not self._turns and end.name in self._opened
        if begins or self._turns:
            self._turns.append(str(turn))
        if begins:
            self._outer = end.name
            self.inside.passes[end.name] = turn + 1
        for node in nodes:
            value = self._computed(node)
            if self._turns and node.op == "call_function":
                name = step_name(self._outer, node, ".".join(self._turns))
                read = [self._inner.get(other, other.name) for other in node.all_input_nodes]
                self.inside.note(name, node, value, read)
                self._inner[node] = name
        if self._turns:
            self._turns.pop()

    def _branch(self, end: Node, block: Block) -> list[torch.Tensor]:
        """What was recorded of the side that is taken."""
        side = 0 if bool(self._get(block.begin.args[0])) else 1  # type: ignore[arg-type]
        self._block(block.parts[side], end)
        return self._all(end.args[1 + side])

    def _loop(self, end: Node, block: Block) -> list[torch.Tensor]:
        """What was recorded of a loop, as often as it says."""
        _, trips, again, carried, last, stacked, _ = end.args
        count = math.inf if trips is None else map_arg(trips, self._get)
        go_on = bool(self._get(block.begin.args[1]))  # type: ignore[arg-type]
        states = self._all(block.begin.args[2])
        rows: list[list[torch.Tensor]] = [[] for _ in stacked]  # type: ignore[union-attr]
        final: list[torch.Tensor] = []
        index = 0
        while go_on and index < count:  # type: ignore[operator]
            self._env[block.begin] = [torch.tensor(index), *states]
            self._block(block.parts[0], end, index)
            handed_on = [self._inner[node] for node in carried if node in self._inner]  # type: ignore[union-attr]
            self._inner[block.begin] = handed_on[0] if handed_on else ""
            states, final = self._all(carried), self._all(last)
            for row, value in zip(rows, self._all(stacked), strict=True):
                row.append(value.clone())
            go_on = True if again is None else bool(self._get(again))  # type: ignore[arg-type]
            index += 1
        if not index:
            final = [torch.zeros([int(d) for d in node.meta["val"].shape]) for node in last]  # type: ignore[union-attr]
            rows = [[torch.empty([0])] for _ in rows]
        return [*states, *final, *(torch.stack(row) for row in rows)]


def _placeholders(captured: Captured, feeds: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """A value for every input of the graph. What the program may write to is copied."""
    program = captured.program
    writes = any(mutates(node) for node in program.graph.nodes if node.op == "call_function")
    state: dict[str, Any] = {**program.state_dict, **program.constants}
    values = {}
    for spec in program.graph_signature.input_specs:
        name = spec.arg.name
        if spec.kind == InputKind.USER_INPUT:
            if isinstance(spec.arg, ConstantArgument):
                values[name] = spec.arg.value
            else:
                leaf = captured.inputs[name]
                values[name] = from_numpy(feeds[leaf.name], leaf.tensor)
        else:
            value = state[spec.target]  # type: ignore[index]
            copied = writes and spec.kind == InputKind.BUFFER and isinstance(value, torch.Tensor)
            values[name] = value.clone() if copied else value
    return values


def _last_uses(nodes: Sequence[Node], blocks: Mapping[Node, Block]) -> dict[int, list[Node]]:
    """By index of a node: the values that nobody needs behind it. What a loop reads is needed until its end."""
    last: dict[Node, int] = {}
    for index, node in enumerate(nodes):
        last[node] = index
        for inner in _with_blocks(node, blocks):
            last[inner] = index
            last.update(dict.fromkeys(inner.all_input_nodes, index))
    by_index: dict[int, list[Node]] = {}
    for node, index in last.items():
        by_index.setdefault(index, []).append(node)
    return by_index


def _with_blocks(node: Node, blocks: Mapping[Node, Block]) -> Iterable[Node]:
    yield node
    if node in blocks:
        yield blocks[node].begin
        for part in blocks[node].parts:
            for inner in part:
                yield from _with_blocks(inner, blocks)
