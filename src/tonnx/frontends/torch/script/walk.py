"""Runs a TorchScript program on values that are known in part, and so lowers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from tonnx.errors import LoweringError, Occurrence, UnsupportedOp
from tonnx.frontends.torch.capture import script_graphs as graphs
from tonnx.frontends.torch.operators.aten_fallback import unsupported_operators
from tonnx.frontends.torch.script import containers, control, loops, numbers, operators, queries, special
from tonnx.frontends.torch.script.objects import Parameters, thing_of
from tonnx.frontends.torch.script.store import Store
from tonnx.frontends.torch.script.values import Dict, List, Object, Tensor, Vague, values_in
from tonnx.frontends.torch.settings import EVAL, Settings
from tonnx.ir.build import Builder
from tonnx.ir.provenance import SOURCE
from tonnx.lowering.regions.forms import is_number
from tonnx.lowering.regions.lists import DynamicList, as_number
from tonnx.lowering.walk import GraphWalk, Origin, StandIn, place

_IGNORED = frozenset(
    """prim::Print aten::warn prim::Enter prim::Exit aten::manual_seed prim::TimePoint prim::AddStatValue
    aten::_assert_async aten::_assert_scalar aten::_assert_tensor_metadata aten::_functional_assert_async aten::_print
    aten::backward prim::profile""".split()
)
"""What computes nothing."""


_ON_VAGUE = frozenset(
    "aten::format aten::str aten::percentFormat aten::__is__ aten::__isnot__ prim::TupleConstruct "
    "prim::ListConstruct aten::append prim::unchecked_cast".split()
)
"""What may be done to a text that is not known."""


LowerGraph = Callable[[Builder, Any, Settings, torch.fx.GraphModule, Sequence[ir.Value]], list[Any]]
"""Lowers PyTorch's decomposition of one operator, a graph of torch.export's kind."""


class ScriptWalk(GraphWalk):
    """The lowering of one program into one ONNX graph."""

    never_passed_over = (loops.TooLong,)

    def __init__(self, op: Builder, parameters: Parameters, settings: Settings, lower_graph: LowerGraph) -> None:
        super().__init__(op)
        self.store = Store()
        self.parameters = parameters
        self.settings = settings
        self.lower_graph = lower_graph
        self.notes: list[str] = []
        self.writes_state = False
        """Whether the program writes to its module: then every run changes the next one."""
        self.unpacked: int | None = None
        """Into how many variables the list is unpacked that the current node gives."""
        self._graphs: dict[Any, Any] = {}
        self._values: list[dict[str, Any]] = [{}]
        self._modules: list[Object] = []
        self._lines: list[str] = [""]

    # Graphs and blocks

    def method(self, module: Object, name: str, arguments: Sequence[Any]) -> Any:
        key = (id(module.handle), name)
        if key not in self._graphs:
            self._graphs[key] = graphs.ready(module.handle._get_method(name).graph)
        self._modules.append(module)
        try:
            return self.graph(self._graphs[key], [module, *arguments])
        finally:
            self._modules.pop()

    def graph(self, graph: Any, arguments: Sequence[Any]) -> Any:
        """The result of a graph that is ready: of a function, or of a method, whose first argument is its module."""
        self._values.append({})
        try:
            results = self.block(graph, arguments)
        finally:
            self._values.pop()
        return results[0] if len(results) == 1 else tuple(results)

    def block(self, block: Any, arguments: Sequence[Any]) -> list[Any]:
        """Run the nodes of a block; returns its results."""
        values = self._values[-1]
        for formal, actual in zip(block.inputs(), arguments, strict=True):
            values[formal.debugName()] = actual
        for node in block.nodes():
            self._node(node)
        return [values[result.debugName()] for result in block.outputs()]

    # One node

    def _node(self, node: Any) -> None:
        kind = node.kind()
        if kind == graphs.ENTER:
            self._lines.append(graphs.line_of(node.s("at")) or self._lines[-1])
            return
        if kind == graphs.LEAVE:
            self._lines.pop()
            return
        with self.op.origin(self._path, _title(node), self.line(node)):
            self._lower(node)

    def _lower(self, node: Any) -> None:
        values, result = self._values[-1], self.results_of(node)
        outputs = list(node.outputs())
        if len(outputs) == 1:
            values[outputs[0].debugName()] = _settled(self.op, outputs[0], result)
        else:
            for output, part in zip(outputs, result if outputs else (), strict=True):
                values[output.debugName()] = _settled(self.op, output, part)

    def _arguments(self, node: Any) -> list[Any]:
        return [self._values[-1][value.debugName()] for value in node.inputs()]

    def compute(self, node: Any) -> Any:
        kind, arguments = node.kind(), self._arguments(node)
        if kind == "prim::Constant":
            return self._constant(node)
        if kind == "prim::If":
            results = control.lower_if(self, node, arguments[0])
            return results[0] if len(results) == 1 else results
        if kind == "prim::Loop":
            results = loops.lower_loop(self, node, arguments[0], arguments[1], arguments[2:])
            return results[0] if len(results) == 1 else results
        if kind == "prim::GetAttr":
            return self.attribute(arguments[0], node.s("name"))
        if kind == "prim::SetAttr":
            return self._set_attribute(arguments[0], node.s("name"), arguments[1])
        if kind == graphs.CALL:
            return self._call_method(node, arguments)
        if kind == "prim::fork":
            return self.graph(graphs.ready(node.g("Subgraph")), arguments)
        if kind == "prim::CreateObject":
            return Object(None, "")
        if kind == "prim::RaiseException":
            raise LoweringError(
                f"the program raises an exception: {arguments[0] if arguments else ''}",
                why="it does so whatever the inputs are, for this example and these options",
            )
        if kind in _IGNORED:
            return arguments[0] if node.outputsSize() == 1 and arguments else [None] * node.outputsSize()
        return self._operation(node, kind, arguments)

    def _operation(self, node: Any, kind: str, arguments: list[Any]) -> Any:
        if any(isinstance(argument, Vague) for argument in arguments) and kind not in _ON_VAGUE:
            if kind == "aten::add":
                return queries.text(self, node, *arguments)
            raise LoweringError(
                f"the text {arguments[0]!r} decides something, and has parts that only the run knows",
                hint="decide by the number or the tensor itself, not by its text",
            )
        if kind in containers.ALWAYS and not (kind == "aten::len" and isinstance(arguments[0], Tensor)):
            return containers.ALWAYS[kind](self, node, *arguments)
        if kind in containers.ON_CONTAINERS and _is_about_containers(arguments):
            return containers.ON_CONTAINERS[kind](self, node, *arguments)
        if isinstance(arguments[0] if arguments else None, str) and kind in containers.ON_STRINGS:
            return containers.on_string(kind, arguments)
        if kind in queries.FACTS:
            return queries.FACTS[kind](self, node, *arguments)
        if kind == "aten::len":
            return containers.length(self, node, arguments[0])
        if kind in ("aten::eq", "aten::ne") and any(isinstance(a, Enum) for a in arguments):
            return (arguments[0] == arguments[1]) == (kind == "aten::eq")
        result = numbers.compute(self.op, kind, arguments)
        if result is not NotImplemented:
            return list(result) if node.outputsSize() > 1 else result
        if kind == "prim::PythonOp":
            return special.python_op(self, node, arguments)
        schema = node.schema()
        if kind.startswith("prim::") or schema in (None, "(no schema)"):
            return self.refuse(node)
        self.unpacked = _unpacked(node)
        return operators.call(self, operators.operator_of(schema), arguments)

    def _call_method(self, node: Any, arguments: list[Any]) -> Any:
        self._lines.append(self.line(node) or self._lines[-1])
        try:
            return self.method(arguments[0], node.s("name"), arguments[1:])
        finally:
            self._lines.pop()

    def _constant(self, node: Any) -> Any:
        output = node.output()
        if output.type().kind() == "FunctionType":
            return None  # its calls are inlined
        value = output.toIValue()
        if isinstance(value, torch.Tensor):
            return self._modules_parameters(value)
        return thing_of(self, value, "")

    def _modules_parameters(self, tensor: torch.Tensor) -> Tensor:
        plain = tensor.layout == torch.strided and tensor.dtype != torch.bfloat16 and not tensor.is_complex()
        if tensor.numel() <= 16 and plain:
            name = self.parameters.name_of(tensor)
            if name is None and not tensor.is_quantized:
                return Tensor(self.op.constant(tensor.detach().cpu().numpy()))
        path = self._modules[-1].path if self._modules else ""
        return self.parameters.tensor(tensor, f"{path}.constant" if path else "constant")

    # Attributes

    def attribute(self, owner: Object, name: str) -> Any:
        """An attribute of a module: what the program has set, or what PyTorch's module holds."""
        self.store.check(owner)
        if name in owner.content:
            return owner.content[name]
        if name == "training" and self.settings.training == EVAL:
            return False
        if name not in owner.loaded:
            if owner.handle is None:
                raise LoweringError(f"the attribute {name!r} is read before it is set")
            path = f"{owner.path}.{name}" if owner.path else name
            owner.loaded[name] = thing_of(self, owner.handle.__getattr__(name), path)
        return owner.loaded[name]

    def _set_attribute(self, owner: Object, name: str, thing: Any) -> list[Any]:
        if owner.handle is not None:
            self.writes_state = True
        self.store.set_content(owner, {**owner.content, name: thing}, spoil=False)
        return []

    # Where

    def origin_of(self, node: Any) -> Origin:
        line = self.line(node)
        return Origin(_title(node), self._path, line, place(line, self._path))

    @property
    def _path(self) -> str:
        return self._modules[-1].path if self._modules else ""

    def line(self, node: Any) -> str:
        """The user's line of a node, or of the call that leads to it."""
        return graphs.line_of(graphs.source_range(node)) or self._lines[-1]

    def note_once(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    # What has no rule

    def refuse_operator(self, title: str, reason: str = "") -> None:
        """Note an operator without a rule, to report all of them at once."""
        self.unsupported.append(Occurrence(title, self._path, self.op.source.get(SOURCE, ""), reason))

    def operands_of(self, node: Any) -> list[ir.Value]:
        return values_in(self._arguments(node))

    def stand_in_for(self, node: Any) -> Any:
        self._doubt_written(node, self._arguments(node))
        results = [stand_in(output.type()) for output in node.outputs()]
        return results[0] if len(results) == 1 else results

    def _doubt_written(self, node: Any, arguments: list[Any]) -> None:
        """Nobody knows what the tensors hold that an operator writes to whose rule has stopped."""
        schema = node.schema()
        if node.kind().startswith("prim::") or schema in (None, "(no schema)"):
            return
        for formal, actual in zip(operators.operator_of(schema).arguments, arguments, strict=False):
            if formal.is_written and isinstance(actual, Tensor):
                before = actual.root.value
                self.store.set_root(actual.root, StandIn(before.dtype or ir.DataType.FLOAT, before.shape))

    def raise_unsupported(self) -> None:
        """Report all operators without a rule."""
        if self.unsupported:
            named = "." in self.unsupported[0].operator and " " not in self.unsupported[0].operator
            raise unsupported_operators(self.unsupported) if named else UnsupportedOp(self.unsupported)


def stand_in(kind: Any) -> Any:
    """A thing of a TorchScript type of which nothing else is known."""
    name = kind.kind()
    if name == "TensorType":
        return Tensor(StandIn(ir.DataType.FLOAT, None))
    if name == "ListType":
        return List(DynamicList(StandIn(ir.DataType.FLOAT, None), ir.DataType.FLOAT, None, stacked=False))
    if name == "TupleType":
        return tuple(stand_in(element) for element in kind.elements())
    if name in ("IntType", "NumberType"):
        return StandIn(ir.DataType.INT64, ir.Shape([1]))
    if name == "FloatType":
        return StandIn(ir.DataType.DOUBLE, ir.Shape([1]))
    if name == "BoolType":
        return True
    return Dict({}) if name == "DictType" else None


def _unpacked(node: Any) -> int | None:
    """The number of variables that the list of a node is unpacked into."""
    if node.outputsSize() != 1:
        return None
    for use in node.output().uses():
        if use.user.kind() == "prim::ListUnpack":
            return int(use.user.outputsSize())
    return None


def _is_about_containers(arguments: list[Any]) -> bool:
    """Whether an operator is called on a list, a dict or a string; ``3 * [0]`` is, too."""
    kinds = (List, Dict, str)
    return isinstance(arguments[0], kinds) or (is_number(arguments[0]) and isinstance(arguments[-1], (List, str)))


def _settled(op: Builder, output: Any, thing: Any) -> Any:
    """A number in the type that the graph declares: 2 ** 3 is a float there."""
    if isinstance(thing, ir.Value) and thing.dtype == ir.DataType.INT64 and output.type().kind() == "FloatType":
        return as_number(op.cast(thing, ir.DataType.DOUBLE))
    if isinstance(thing, (bool, int, float)) and not isinstance(thing, np.generic):
        declared = output.type().kind()
        if declared == "FloatType":
            return float(thing)
        if declared == "IntType" and isinstance(thing, float):
            return int(thing)
    return thing


def _title(node: Any) -> str:
    kind = node.kind()
    if kind in ("prim::PythonOp", "prim::IgnoredPythonOp"):
        return f"the Python function {node.pyname()}"
    if kind.startswith("aten::") or not kind.startswith(("prim::", "tonnx::")):
        schema = node.schema()
        return str(schema).partition("(")[0].replace("::", ".") if schema and schema != "(no schema)" else kind
    return str(kind)
