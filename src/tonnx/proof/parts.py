"""A file whose weights are more than memory should hold: run part by part, each with the weights that it reads."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from tonnx.errors import InvalidModel
from tonnx.io import read as reading
from tonnx.proof.locate.cut import Cutter
from tonnx.proof.session import Session
from tonnx.proof.signature import Signature

WHOLE_UP_TO = 4 << 30
"""Bytes of a file and its weights up to which it is loaded at once."""
_WITHOUT_WEIGHTS = 64 << 20
"""Bytes that a file has at most whose weights lie beside it."""
_PART = 256 << 20
"""Bytes of weights from which on a part is at its end. ONNX Runtime keeps some of them twice."""


def nbytes(model: str | os.PathLike[str] | bytes) -> int:
    """The size of a file together with the weights beside it."""
    size = len(model) if isinstance(model, bytes) else os.path.getsize(model)
    if isinstance(model, bytes) or size > _WITHOUT_WEIGHTS:
        return size
    try:
        tensors = reading.parsed(Path(model).read_bytes()).graph.initializer
    except InvalidModel:
        return size  # who loads it says what it is
    beside = (tensor for tensor in tensors if tensor.data_location == onnx.TensorProto.EXTERNAL)
    return size + sum(math.prod(tensor.dims) * ir.DataType(tensor.data_type).itemsize for tensor in beside)


@dataclass(frozen=True)
class _Part:
    nodes: list[int]
    wanted: list[str]
    """What others read of it."""
    done_with: list[str]
    """What nobody reads after it."""


class PartedSession(Session):
    """Loads a part, runs it, and lets go of it. What lies between two parts is kept as long as somebody reads it."""

    remark = "the file has so many weights that it was run part by part"

    def __init__(self, path: str | os.PathLike[str], *, optimised: bool = True) -> None:
        self._model = reading.reader(path)()
        reading.infer(self._model)  # what is a sequence cannot go from one part to another
        self._folder = os.path.dirname(os.path.realpath(path))
        self._optimised = optimised
        self._cutter = Cutter(self._model)
        self.brought_up_by = ""
        signature = Signature.of(self._model)
        self.inputs = {name: _type_of(value) for name, value in signature.inputs.items()}
        self.outputs = {str(value.name): _type_of(value) for value in self._model.graph.outputs}
        self.shapes = {str(v.name): _shape_of(v) for v in (*signature.inputs.values(), *self._model.graph.outputs)}
        self.metadata = dict(self._model.metadata_props)

    @cached_property
    def _parts(self) -> list[_Part]:
        cutter, groups, read, size = self._cutter, [list[int]()], set[str](), 0
        open_values: set[str] = set()
        for index, node in enumerate(cutter.nodes):
            new = {name for name in cutter.reads[index] if name in cutter.weights} - read
            added = sum(t.nbytes for name in new if (t := cutter.weights[name].const_value) is not None)
            if groups[-1] and added and size + added > _PART and all(map(cutter.is_tensor, open_values)):
                groups.append([])
                read, size = set(), 0
            groups[-1].append(index)
            read, size = read | new, size + added
            open_values |= {str(value.name) for value in node.outputs if cutter.readers.get(str(value.name))}
            open_values = {name for name in open_values if cutter.readers[name][-1] > index}
        return [self._part(group) for group in groups]

    def _part(self, nodes: list[int]) -> _Part:
        cutter, last = self._cutter, nodes[-1]
        made = [str(value.name) for index in nodes for value in cutter.nodes[index].outputs if value.name]
        wanted = [n for n in made if n in cutter.outputs or any(r > last for r in cutter.readers.get(n, ()))]
        ended = {name for index in nodes for name in cutter.reads[index]} - set(cutter.outputs)
        return _Part(nodes, wanted, [name for name in ended if cutter.readers[name][-1] <= last])

    def run(self, feeds: Mapping[str, np.ndarray], patience: float | None = None) -> dict[str, np.ndarray]:
        values = {name: np.asarray(array) for name, array in feeds.items()}
        for part in self._parts:
            if part.wanted:
                reads = {name for index in part.nodes for name in self._cutter.reads[index]}
                used = {name: values[name] for name in self._cutter.boundary(part.nodes) if name in reads}
                model = ir.to_proto(self._cutter.part(part.nodes, used, part.wanted)).SerializeToString()
                session = Session(model, optimised=self._optimised, data_folder=self._folder)
                values |= session.run(used, patience)
                del session
            for name in part.done_with:
                values.pop(name, None)
        return {name: values[name] if name in values else self._weight(name) for name in self.outputs}

    def _weight(self, name: str) -> np.ndarray:
        tensor = self._cutter.weights[name].const_value
        assert tensor is not None
        return np.asarray(tensor.numpy())


def _type_of(value: ir.Value) -> str:
    """As ONNX Runtime calls it."""
    return f"tensor({value.dtype.name.lower()})" if value.dtype is not None else "tensor(float)"


def _shape_of(value: ir.Value) -> list[int | str | None]:
    return [] if value.shape is None else [d if isinstance(d, int) else d.value for d in value.shape]
