"""Parts of an ONNX model, each run on its own: nodes between values that are given and values that are wanted.

A part has only the weights that it reads, so a model is run piece by piece in little memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from tonnx.io import read as reading
from tonnx.io import write
from tonnx.io.read import from_proto
from tonnx.ir.reach import reached
from tonnx.proof.session import PATIENCE, Session

COMPUTED = "@computed"
"""Appended to the name of a value that a part both computes and is given."""
_IN_MEMORY = 64 << 20
"""Bytes of weights up to which a part is handed over as bytes; larger ones go through a file that is mapped."""


class Cutter:
    """A model taken apart: who makes and who reads each value. Values are known by their names."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.proto = reading.without_weights(model)
        self.nodes: list[ir.Node] = list(model.graph)
        self.weights = {str(value.name): value for value in model.graph.initializers.values()}
        self.inputs = [str(value.name) for value in model.graph.inputs if not value.is_initializer()]
        self.outputs = [str(value.name) for value in model.graph.outputs]
        self.maker: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        self.reads: list[list[str]] = []
        for index, node in enumerate(self.proto.graph.node):
            self.maker.update({name: index for name in node.output if name})
            self.reads.append(list(dict.fromkeys(_reads(node))))
            for name in self.reads[-1]:
                self.readers.setdefault(name, []).append(index)
        self._values = {str(value.name): value for node in self.nodes for value in node.outputs}
        self._small = {tensor.name: tensor for tensor in self.proto.graph.initializer}

    def is_tensor(self, name: str) -> bool:
        """Whether a value can be taken out of the model: sequences and optional values cannot."""
        value = self._values.get(name)
        return value is None or value.type is None or isinstance(value.type, ir.TensorType)

    def between(self, wanted: Iterable[str], supplied: Collection[str]) -> list[int]:
        """The nodes that compute ``wanted`` from ``supplied``, inputs and weights, in order; also if both have one."""

        def makers(names: Iterable[str]) -> list[int]:
            return [self.maker[name] for name in names if name in self.maker]

        return sorted(reached(makers(wanted), lambda i: makers(n for n in self.reads[i] if n not in supplied)))

    def boundary(self, nodes: Collection[int], supplied: Collection[str] = ()) -> list[str]:
        """The values that these nodes read and that are not weights: what ``supplied`` or others than they make."""
        own = {name for index in nodes for name in self.proto.graph.node[index].output if name not in supplied}
        read = dict.fromkeys(name for index in nodes for name in self.reads[index])
        return [name for name in read if name not in own and (name in self.maker or name in self.inputs)]

    def part(
        self, nodes: Sequence[int], feeds: Mapping[str, np.ndarray], wanted: Sequence[str], *, name: str = "part"
    ) -> ir.Model:
        """A model of these nodes alone, with the types and sizes of ``feeds``."""
        return self.part_of([self.proto.graph.node[index] for index in nodes], feeds, wanted, name=name)

    def part_of(
        self,
        nodes: Sequence[onnx.NodeProto],
        feeds: Mapping[str, np.ndarray],
        wanted: Sequence[str],
        initializers: Sequence[onnx.TensorProto] = (),
        *,
        name: str = "part",
    ) -> ir.Model:
        """The same of any nodes that read values and weights of this model, and ``initializers`` of their own."""
        graph = onnx.GraphProto(name=name)
        twice = set(feeds) & set(wanted)
        for proto in nodes:
            node = graph.node.add()
            node.CopyFrom(proto)
            for place, output in enumerate(node.output):
                if output in feeds:
                    node.output[place] = output + COMPUTED
        read = dict.fromkeys(name for node in nodes for name in _reads(node))
        graph.initializer.extend(tensor for tensor in initializers if tensor.name in read)
        for value in (name for name in read if name in feeds):
            graph.input.append(_described(value, feeds[value]))
        large = [name for name in read if name in self.weights and name not in self._small and name not in feeds]
        graph.initializer.extend(self._small[name] for name in read if name in self._small and name not in feeds)
        graph.input.extend(_weight_info(self.weights[name]) for name in large)
        graph.output.extend(onnx.ValueInfoProto(name=n + COMPUTED if n in twice else n) for n in wanted)
        proto = onnx.ModelProto(ir_version=self.proto.ir_version, producer_name="tonnx", graph=graph)
        proto.opset_import.extend(self.proto.opset_import)
        proto.functions.extend(self.proto.functions)
        return self._with_weights(from_proto(proto), large)

    def _with_weights(self, model: ir.Model, names: Sequence[str]) -> ir.Model:
        graph = model.graph
        by_name = {value.name: value for value in graph.inputs}
        for name in names:
            value = by_name[name]
            graph.inputs.remove(value)
            value.const_value = self.weights[name].const_value
            graph.initializers.add(value)
        return model

    def run(
        self, nodes: Sequence[int], feeds: Mapping[str, np.ndarray], wanted: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """What these nodes compute from ``feeds``, by the names of the whole model."""
        used = {name: feeds[name] for name in {n for i in nodes for n in self.reads[i]} if name in feeds}
        clash = {name: feeds[name] for name in wanted if name in feeds}
        model = self.part(nodes, {**used, **clash}, wanted)
        results = run_model(model, used)
        return {name: results[name + COMPUTED if name in clash else name] for name in wanted}


def run_model(model: ir.Model, feeds: Mapping[str, np.ndarray], *, optimised: bool = True) -> dict[str, np.ndarray]:
    """Load and run a model that is in memory."""
    weights = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value)
    if weights <= _IN_MEMORY:
        return Session(write.to_bytes(model), optimised=optimised).run(feeds, PATIENCE)
    with tempfile.TemporaryDirectory(prefix="tonnx-") as folder:
        path = Path(folder) / "part.onnx"
        write.write(model, path, external_data=True)
        return Session(path, optimised=optimised).run(feeds, PATIENCE)


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """What a node reads, including what the graphs inside it take from around them."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
            yield from _captured(graph)


def _captured(graph: onnx.GraphProto) -> Iterator[str]:
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {tensor.values.name for tensor in graph.sparse_initializer}
    for node in graph.node:
        yield from (name for name in _reads(node) if name not in own)
        own.update(node.output)
    yield from (value.name for value in graph.output if value.name not in own)


def _described(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    kind = onnx.TensorProto.STRING if array.dtype.kind in "OSUT" else int(ir.DataType.from_numpy(array.dtype))
    return onnx.helper.make_tensor_value_info(name, kind, list(array.shape))


def _weight_info(value: ir.Value) -> onnx.ValueInfoProto:
    tensor = value.const_value
    assert tensor is not None
    return onnx.helper.make_tensor_value_info(str(value.name), int(tensor.dtype), list(tensor.shape.numpy()))
