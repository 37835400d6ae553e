"""The values inside a TorchScript program, for `tonnx.proof.locate`: its graph, with a few of them as outputs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tonnx.errors import CaptureError
from tonnx.frontends.torch.call.signature import ModelCall
from tonnx.frontends.torch.capture.script_graphs import line_of, source_range
from tonnx.frontends.torch.reference.eager import from_numpy, to_numpy
from tonnx.frontends.torch.reference.mode import inference_mode
from tonnx.proof.locate.trace import Step, Take
from tonnx.proof.session import one_line

_AT_ONCE = 32
_TRACED = re.compile(r"^(.+)\((\d+)\): ", re.MULTILINE)
_SCOPE = re.compile(r"__module\.([\w.]+)")


class ScriptTrace:
    """A TorchScript module or function, all calls inlined. What is inside of branches and loops is not looked at."""

    framework = "PyTorch"

    def __init__(self, script: Any, call: ModelCall, names: Mapping[str, str]) -> None:
        self._script, self._call = script, call
        self._names = [names.get(leaf.name, "") for leaf in call.leaves]
        self._graph = script.inlined_graph
        self._steps = list(_steps(self._graph))
        self._places = {  # a copy of a graph gives its values other names
            output.debugName(): (index, place)
            for index, node in enumerate(self._graph.nodes())
            for place, output in enumerate(node.outputs())
        }

    def steps(self) -> list[Step]:
        """The tensors that operators of the main block compute, in order."""
        return self._steps

    def run(self, feeds: dict[str, np.ndarray], wanted: Collection[str], take: Take) -> None:
        """Run once for every few values."""
        names = [step.name for step in self._steps if step.name in wanted]
        for start in range(0, len(names), _AT_ONCE):
            part = names[start : start + _AT_ONCE]
            try:
                values = self._values(feeds, part)
            except RuntimeError as error:  # the program at sizes that it may not take
                raise CaptureError("the TorchScript program does not run", why=one_line(str(error)[-300:])) from error
            for name, value in zip(part, values, strict=True):
                take(name, to_numpy(value))

    def _values(self, feeds: Mapping[str, np.ndarray], part: list[str]) -> tuple[torch.Tensor, ...]:
        tensors = [
            from_numpy(feeds[name], leaf.tensor) if name in feeds else leaf.tensor.clone()
            for name, leaf in zip(self._names, self._call.leaves, strict=True)
        ]
        args, kwargs = self._call.with_tensors(tensors)
        if kwargs:
            schema = getattr(self._script, "schema", None) or self._script.forward.schema
            order = [argument.name for argument in schema.arguments if argument.name != "self"][len(args) :]
            args = (*args, *(kwargs[name] for name in order if name in kwargs))
        places = [self._places[name] for name in part]
        function = torch._C._create_function_from_graph("inside", _with_outputs(self._graph, places))
        is_module = isinstance(self._script, torch.jit.ScriptModule)
        own = (self._script,) if is_module else ()
        mode = inference_mode(self._script) if is_module else torch.no_grad()
        with torch.random.fork_rng(devices=[]), mode, torch.jit.optimized_execution(False):
            result = function(*own, *args)
        return result if isinstance(result, tuple) else (result,)


def _with_outputs(graph: Any, places: Sequence[tuple[int, int]]) -> Any:
    """A copy of the graph that gives the values of these nodes, each as it was when it was computed."""
    graph = graph.copy()
    nodes = list(graph.nodes())
    first = nodes[0]
    nothing = graph.create("prim::Constant", [], 1)
    nothing.insertBefore(first)
    nothing.output().setType(torch._C.NoneType.get())
    while list(graph.outputs()):
        graph.eraseOutput(0)
    for index, place in places:
        copied = graph.create("aten::clone", [list(nodes[index].outputs())[place], nothing.output()], 1)
        copied.insertAfter(nodes[index])
        graph.registerOutput(copied.output())
    graph.makeMultiOutputIntoTuple()
    return graph


def _steps(graph: Any) -> Iterator[Step]:
    sources: dict[str, tuple[str, ...]] = {value.debugName(): () for value in graph.inputs()}
    sources |= {v.debugName(): (v.debugName(),) for v in graph.inputs() if v.type().kind() == "TensorType"}
    for node in graph.nodes():
        read = [name for value in node.inputs() for name in sources.get(value.debugName(), ())]
        inputs = tuple(dict.fromkeys(read))
        operator = node.kind().startswith("aten::") or node.kind() in ("prim::If", "prim::Loop")
        for output in node.outputs():
            name = output.debugName()
            if operator and output.type().kind() == "TensorType":
                sources[name] = (name,)
                yield Step(name, node.kind().replace("::", "."), _module(node), _line(node), inputs)
            else:
                sources[name] = inputs


def _module(node: Any) -> str:
    scopes = _SCOPE.findall(node.scopeName())
    return scopes[-1] if scopes else ""


def _line(node: Any) -> str:
    """The user's line: a script says one place, a trace the whole stack, the innermost first."""
    place = source_range(node)
    for file, line in _TRACED.findall(place):
        if (short := line_of(f'File "{file}", line {line}')) and "/site-packages/" not in file:
            return short
    return line_of(place)
