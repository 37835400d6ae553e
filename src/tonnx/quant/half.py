"""A network in half precision: float16 or bfloat16 in the place of float32, with casts where a node stays what it is.

1. A node stays in float32 if it was found to lose too much (`emulate`), if its schema does not take the half type, or
   if it is of another domain. So does what stands between two such nodes and would only be cast there and back.
2. Weights and constants are stored in half precision once, and in float32 as well only if somebody reads them so.
   Constants beyond its range, such as what masks are filled with, become its largest number.
3. Bodies of If, Loop and Scan are converted, with what goes in and out of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, Names
from tonnx.ir.rewrite import all_graphs, builder_of, drop_unread, inner_graphs, names_in
from tonnx.ir.schema import signature
from tonnx.quant.layers import HANDED_ON

T = ir.DataType
HALVES = {"fp16": T.FLOAT16, "bf16": T.BFLOAT16}
SINCE = {T.FLOAT16: 7, T.BFLOAT16: 13}
"""The first opset at which layers take the type."""
_BY_ATTRIBUTE = ("Cast", "ConstantOfShape", "Constant")
"""Operators whose result has the type that an attribute says, which is changed."""
_FLOW = ("If", "Loop", "Scan")


def as_half(array: np.ndarray, half: ir.DataType) -> np.ndarray:
    """Numbers in half precision, those beyond its range as its largest."""
    dtype = half.numpy()
    most = float(ir.DataType(half).max)
    finite = np.isfinite(array)
    return np.where(finite, np.clip(array, -most, most), array).astype(dtype)


def half_variables(node: ir.Node, half: ir.DataType, opset: int, target: int) -> frozenset[str]:
    """The type variables of a node's schema that may be the half type in the place of float32.

    ``target``: the opset of the file, where fewer types may be taken; the node would be computed in float32 anyway.
    """
    schema = signature(node.op_type, opset, deprecated=True) if node.domain == "" else None
    if schema is None or node.op_type in _FLOW:
        return frozenset()
    if not _takes(node, half, target):
        return frozenset()
    read = {schema.input(i).type_str for i, value in enumerate(node.inputs) if value is not None}
    formals = [(schema.input(i), value) for i, value in enumerate(node.inputs)]
    formals += [(schema.output(i), value) for i, value in enumerate(node.outputs)]
    chosen = set()
    for formal, value in formals:
        if value is None or value.dtype != T.FLOAT or half not in formal.dtypes:
            continue
        if formal.type_str in read or node.op_type in _BY_ATTRIBUTE:
            chosen.add(formal.type_str)
    return frozenset(chosen)


def _takes(node: ir.Node, half: ir.DataType, target: int) -> bool:
    """Whether something of an operator may be of the half type at an opset, if it has the operator at all."""
    schema = signature(node.op_type, target, deprecated=True)
    return schema is None or any(half in formal.dtypes for formal in (*schema.inputs, *schema.outputs))


_Plan = tuple[ir.Node, frozenset[str], bool]
"""A node, its type variables that change, and whether it has bodies that do."""


@dataclass
class _Conversion:
    model: ir.Model
    half: ir.DataType
    stays: Collection[str]
    keep_io: bool
    target: int
    casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = field(default_factory=dict)
    builders: dict[ir.Graph, Builder] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.opset = self.model.opset_imports[""]
        self.names = Names(names_in(self.model))
        nodes = [node for graph in all_graphs(self.model) for node in graph]
        self.staying = {node for node in nodes if node.name in self.stays}
        self.staying |= {node for node in nodes if self.is_flow(node) and not _takes(node, self.half, self.target)}
        for node in list(self.staying):
            self.staying |= set(_inside(node))
        self.staying |= _between(self.model, self.staying)

    def halved(self, node: ir.Node) -> frozenset[str]:
        return frozenset() if node in self.staying else half_variables(node, self.half, self.opset, self.target)

    def is_flow(self, node: ir.Node) -> bool:
        return node.domain == "" and node.op_type in _FLOW and node not in self.staying

    def run(self) -> int:
        """Returns how many nodes compute in half precision."""
        graphs = [self.model.graph]  # functions are of other domains, and stay what they are
        for graph in graphs:  # which grows
            graphs += [body for node in graph for body in inner_graphs(node)]
        plans = [(node, self.halved(node), self.is_flow(node)) for graph in graphs for node in graph]
        wants = dict(self._wants(plans))
        halved = {value for node, variables, flow in plans for value in self._results(node, variables, flow)}
        bodies = {body for node, _, flow in plans if flow for body in inner_graphs(node)}
        for body in bodies:
            halved |= {value for value in body.inputs if value.dtype == T.FLOAT}
        if not self.keep_io:
            halved |= {v for v in self.model.graph.inputs if v.dtype == T.FLOAT and not v.is_initializer()}
        for value in halved:
            value.type = ir.TensorType(self.half)
        for node, _, _ in plans:
            if node.op_type in _BY_ATTRIBUTE and node.outputs and node.outputs[0] in halved:
                self._change_attribute(node)
        for (node, index), dtype in wants.items():
            read = node.inputs[index]
            assert read is not None
            node.replace_input_with(index, self.cast(read, dtype))
        for body in bodies:
            self._outputs(body, self.half)
        if self.keep_io:
            self._outputs(self.model.graph, T.FLOAT)
        for graph in graphs:
            graph.sort()
        drop_unread(self.model)  # weights that are now read in half precision only
        return sum(bool(variables) for _, variables, _ in plans)

    def _wants(self, plans: Sequence[_Plan]) -> Iterator[tuple[tuple[ir.Node, int], ir.DataType]]:
        for node, variables, flow in plans:
            schema = signature(node.op_type, self.opset, deprecated=True) if node.domain == "" else None
            for index, value in enumerate(node.inputs):
                if value is None or value.dtype != T.FLOAT:
                    continue
                taken = flow or (schema is not None and schema.input(index).type_str in variables)
                yield (node, index), self.half if taken else T.FLOAT

    def _results(self, node: ir.Node, variables: frozenset[str], flow: bool) -> Iterator[ir.Value]:
        schema = signature(node.op_type, self.opset, deprecated=True) if node.domain == "" else None
        for index, value in enumerate(node.outputs):
            if value.dtype == T.FLOAT and (flow or (schema is not None and schema.output(index).type_str in variables)):
                yield value

    def _change_attribute(self, node: ir.Node) -> None:
        if node.op_type == "Cast":
            node.attributes.add(ir.AttrInt64("to", int(self.half)))
            return
        tensor = node.attributes["value"].as_tensor() if "value" in node.attributes else None
        if tensor is None:  # a number as an attribute of its own kind, or the zero of ConstantOfShape
            attribute = node.attributes.pop("value_float", None) or node.attributes.pop("value_floats", None)
            tensor = ir.Tensor(np.asarray([0.0] if attribute is None else attribute.value, np.float32))
        small = ir.Tensor(as_half(tensor.numpy(), self.half), name=tensor.name)
        node.attributes.add(ir.AttrTensor("value", small))
        if node.op_type == "Constant":
            node.outputs[0].const_value = small

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """The value as this type: itself, a stored copy of a constant, or one Cast for all its readers."""
        if value.dtype == dtype:
            return value
        if (value, dtype) not in self.casts:
            self.casts[value, dtype] = self._cast(value, dtype)
        return self.casts[value, dtype]

    def _cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        graph = value.graph
        assert graph is not None
        tensor = value.const_value
        if graph not in self.builders:
            self.builders[graph] = Builder(graph, names=self.names, opset=self.opset)
        op = self.builders[graph]
        if value.is_initializer() and tensor is not None and not value.is_graph_input():
            return op.initializer(f"{value.name}_half", ir.Tensor(as_half(tensor.numpy(), dtype)))
        result = op.cast(value, dtype)
        result.shape = value.shape
        return result

    def _outputs(self, graph: ir.Graph, dtype: ir.DataType) -> None:
        """Give the results of a graph this type, under their names."""
        for i, value in enumerate(graph.outputs):
            if value.dtype not in (T.FLOAT, self.half) or value.dtype == dtype:
                continue
            if value.dtype == self.half and dtype == T.FLOAT and value.is_graph_input() and graph is self.model.graph:
                continue
            result = self.cast(value, dtype)
            if graph is self.model.graph:
                name = value.name
                value.name = self.names.unique(f"{name}_{str(self.half.name).lower()}")
                result.name = name
            graph.outputs[i] = result


def _inside(node: ir.Node) -> Iterator[ir.Node]:
    for body in inner_graphs(node):
        for inner in body:
            yield inner
            yield from _inside(inner)


def _between(model: ir.Model, staying: Collection[ir.Node]) -> set[ir.Node]:
    """Nodes that read and feed only nodes which stay: they would be cast to half precision and back."""
    among = set()
    for node in model.graph:
        if node in staying or node.op_type in _FLOW:
            continue
        sources = [value for value in node.inputs if value is not None and value.dtype == T.FLOAT and value.producer()]
        readers = [user for value in node.outputs for user, _ in value.uses()]
        floats = any(value.dtype == T.FLOAT for value in node.outputs)
        makers = [value.producer() for value in sources]
        if makers and readers and floats and all(other in staying for other in (*makers, *readers)):
            among.add(node)
    return among


def to_half(model: ir.Model, half: ir.DataType, stays: Collection[str], keep_io: bool, target: int) -> int:
    """Convert a model whose nodes have names and types; returns how many nodes compute in half precision.

    ``stays``: names of nodes that do not. ``target``: the opset that the model will be taken to.
    """
    return _Conversion(model, half, stays, keep_io, target).run()


def rounded_to_half(model: ir.Model, half: ir.DataType, stays: Collection[str], target: int) -> ir.Model:
    """A copy in float32 that rounds what the same call of `to_half` makes nodes give in half precision."""
    copy = model.clone()
    op = builder_of(copy)
    for value in copy.graph.initializers.values():
        if value.dtype == T.FLOAT and value.const_value is not None and not value.is_graph_input():
            value.const_value = ir.Tensor(as_half(value.const_value.numpy(), half).astype(np.float32), name=value.name)
    nodes = (node for node in copy.graph if node.name not in stays and half_variables(node, half, op.opset, target))
    values = [value for value in copy.graph.inputs if not value.is_initializer()]
    values += [value for node in nodes for value in node.outputs]
    for value in values:
        readers = list(value.uses())
        if value.dtype == T.FLOAT and readers:
            rounded = op.cast(op.cast(value, half), T.FLOAT)
            for user, index in readers:
                user.replace_input_with(index, rounded)
    copy.graph.sort()
    return copy


# Emulation

_SUMS = {"ReduceMean": "ReduceSum", "GlobalAveragePool": "ReduceSum", "ReduceL2": "ReduceSumSquare"}
"""What these add up on the way: kernels may do so in half precision."""
_CHOOSES = frozenset("Where Clip Min Max Pad".split())
"""Operators that only pick among numbers: beyond the range, the largest number in half precision will do."""


@dataclass(frozen=True)
class Emulated:
    """What a node comes to in half precision, over all samples: by its name in ``by_node``."""

    error: float
    """Of its results by their magnitude (root of mean squares)."""
    largest: float
    """Magnitude of what it computes, the sums on the way included."""
    own: float = 0.0
    """The error of its results if they alone are rounded, and not what it reads."""

    def why(self, half: ir.DataType, tolerance: float) -> str:
        """Why it has to stay in float32; empty if it need not."""
        most = float(half.max)
        if self.largest > most:
            return f"overflows: it reaches {self.largest:.3g}, beyond {most:.3g}"
        if not np.isfinite(self.error):
            return "overflows: its results are not finite"
        return f"loses too much: an error of {self.error:.2g}" if self.error > tolerance else ""


class Emulation:
    """A network beside itself in half precision, node by node: each node reads what it should, rounded.

    One node's error does not reach the next one, so that the nodes at fault are seen, and not those behind them.
    """

    def __init__(self, model: ir.Model, half: ir.DataType, target: int) -> None:
        self.model = model.clone()
        self._half = half
        self._op = builder_of(self.model)
        self._rounded: dict[ir.Value, ir.Value] = {}
        self._probes: dict[str, tuple[str, ...]] = {}
        self._sums: dict[str, np.ndarray] = {}
        self._whole: set[str] = set()
        """Nodes that give whole numbers, of which another one is none that is near: they choose rows, and classes."""
        nodes = list(self.model.graph)
        self.model.graph.outputs.clear()
        for node in nodes:
            if half_variables(node, half, self._op.opset, target) and node.op_type != "Constant":
                self._twin(node)

    def _round(self, value: ir.Value) -> ir.Value:
        if value.dtype != T.FLOAT:
            return value
        if value not in self._rounded:
            op = self._op
            if value.const_value is not None and value.is_initializer():
                array = as_half(value.const_value.numpy(), self._half).astype(np.float32)
                self._rounded[value] = op.initializer(f"{value.name}_rounded", ir.Tensor(array))
            else:
                self._rounded[value] = op.cast(op.cast(value, self._half), T.FLOAT)
        return self._rounded[value]

    def _twin(self, node: ir.Node) -> None:
        op = self._op
        inputs = [None if value is None else self._round(value) for value in node.inputs]
        outputs = [(value.dtype, None if value.shape is None else value.shape.dims) for value in node.outputs]
        twins = op.node(node.op_type, inputs, list(node.attributes.values()), outputs)
        numbers = []
        for value, twin in zip(node.outputs, twins, strict=True):
            if value.dtype == T.FLOAT and (value.uses() or value.is_graph_output() or len(node.outputs) == 1):
                numbers.append(self._compared(node, value, op.cast(op.cast(twin, self._half), T.FLOAT)))
            elif node.op_type == "Cast" and value.dtype in (T.INT32, T.INT64):
                numbers.append(self._compared(node, op.cast(value, T.FLOAT), op.cast(twin, T.FLOAT)))
                self._whole.add(str(node.name))
        if not numbers:
            return
        probes = [value for group in numbers for value in group]
        if node.op_type in _SUMS and node.inputs[0] is not None:
            total = getattr(op, _SUMS[node.op_type])(op.Abs(node.inputs[0]), *self._axes(node), keepdims=1)
            probes[2] = op.Max(probes[2], op.ReduceMax(total, keepdims=0))
        self.model.graph.outputs.extend(probes)  # of each result four
        self._probes[str(node.name)] = tuple(str(value.name) for value in probes)

    def _axes(self, node: ir.Node) -> list[ir.Value | list[int]]:
        if node.op_type == "GlobalAveragePool":
            rank = node.inputs[0].shape.rank() if node.inputs[0] is not None and node.inputs[0].shape is not None else 4
            return [list(range(2, rank))]
        return [value for value in node.inputs[1:2] if value is not None]

    def _compared(self, node: ir.Node, wanted: ir.Value, half: ir.Value) -> tuple[ir.Value, ...]:
        op, own = self._op, self._round(wanted)
        if node.op_type in _CHOOSES:
            most = float(self._half.max)
            wanted, half = (op.Clip(value, np.float32(-most), np.float32(most)) for value in (wanted, half))
        errors = (op.Sub(half, wanted), wanted, op.Sub(own, wanted))
        error, signal, rounding = (op.ReduceSumSquare(value, keepdims=0) for value in errors)
        return error, signal, op.ReduceMax(op.Abs(wanted), keepdims=0), rounding

    def add(self, results: Mapping[str, np.ndarray]) -> None:
        """Take down what the model gives for a sample."""
        for name, probes in self._probes.items():
            numbers = np.array([float(results[probe]) for probe in probes], np.float64).reshape(-1, 4)
            ours = self._sums.setdefault(name, np.zeros_like(numbers))
            ours[:, [0, 1, 3]] += numbers[:, [0, 1, 3]]
            ours[:, 2] = np.maximum(ours[:, 2], numbers[:, 2])

    def by_node(self) -> dict[str, Emulated]:
        judged = {}
        for name, numbers in self._sums.items():
            with np.errstate(divide="ignore", invalid="ignore"):
                error, own = (np.where(noise == 0, 0.0, np.sqrt(noise / numbers[:, 1])) for noise in numbers.T[[0, 3]])
            if name in self._whole:
                error, own = np.sign(error), np.zeros(1)
            judged[name] = Emulated(float(error.max()), float(numbers[:, 2].max()), float(own.max()))
        return judged


def makers(node: ir.Node) -> Iterator[str]:
    """The nodes that compute what a node reads, by name: beyond those that hand numbers on."""
    for value in node.inputs:
        maker = None if value is None or value.dtype != T.FLOAT else value.producer()
        if maker is not None and maker.domain == "" and maker.op_type in HANDED_ON:
            yield from makers(maker)
        if maker is not None:
            yield str(maker.name)
