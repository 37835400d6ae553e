"""Weights that stay where they are: the ONNX file points, as external data, into the files that hold them already.

Where a weight lies is known if it was read from a file by tonnx, or if its memory is a mapping of one. Else it is
looked for by name, dtype and shape, and then by dtype and shape alone; only bytes that are equal are pointed at.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from tonnx.errors import InvalidArgument, TonnxError
from tonnx.io.mappings import Mappings
from tonnx.io.weight_files import Entry, entries_of, is_weight_file
from tonnx.ir import facts
from tonnx.ir.place import LOAD_AGAIN, Place, WeightFile
from tonnx.ir.rewrite import all_graphs

SMALLEST = 1024
"""Bytes from which a tensor is pointed at; smaller ones are in the file, where shape inference sees them."""
_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
_FIRST, _CHUNK = 4096, 8 * 1024**2


def location_of(file: WeightFile, destination: Path) -> str:
    """A weights file as the ONNX file ``destination`` names it; raises where readers would refuse it."""
    folder = os.path.realpath(destination.parent)
    path = os.path.realpath(file.path)
    relative = os.path.relpath(path, folder) if os.path.splitdrive(path)[0] == os.path.splitdrive(folder)[0] else ".."
    why, place = None, os.path.dirname(path)
    if relative.split(os.sep)[0] == os.pardir:
        why = f"it does not lie in {folder} or below; onnx and ONNX Runtime read external data from there only"
    elif os.stat(path).st_nlink > 1:
        why = "it has several hard links, and onnx and ONNX Runtime refuse such files"
        place = f"a folder with a copy of {os.path.basename(path)}"
    if why is not None:
        raise TonnxError(
            f"{destination.name} cannot point into {file.path}",
            why=why,
            hint=f'write the .onnx file into {place}, or let the weights be copied: weights="copy" (--weights copy)',
        )
    return Path(relative).as_posix()


def check_files(files: Sequence[str], destination: Path) -> None:
    """What can be known to be wrong with the files that a user names, before the long work begins."""
    for path in files:
        if not os.path.isfile(path):
            raise InvalidArgument(f"there is no weights file {path}")
        for file in {entry.place.file for entry in entries_of(path)}:
            location_of(file, destination)


def refer(model: ir.Model, destination: Path, files: Sequence[str] = ()) -> None:
    """Mark the weights of a model that can stay in their files, those of ``files`` if there are any."""
    weights = [value for value in model.graph.initializers.values() if _can_stay(value)]
    search = _Search(destination, files)
    for value in weights:
        tensor = value.const_value
        assert tensor is not None
        place = search.place_of(str(value.name), tensor)
        if place is not None:
            facts.REFERENCE[tensor] = place
    if weights and not search.located:
        looked = ", ".join(map(os.path.basename, search.looked_into)) or "no file"
        raise TonnxError(
            "the weights of the model are in no file that the ONNX file could point into",
            why=f"they are not mapped from one, and {looked} beside {destination.name} has them",
            hint='name the files, weights=["model.safetensors"] (--weights FILE), load them by safetensors or by '
            'torch.load(mmap=True), or let them be copied: weights="copy"',
        )


def _can_stay(value: ir.Value) -> bool:
    tensor = value.const_value
    return tensor is not None and tensor.dtype != ir.DataType.STRING and tensor.nbytes >= SMALLEST


class _Search:
    """Finds the places of weights."""

    def __init__(self, destination: Path, files: Sequence[str]) -> None:
        self._destination, self._files = destination, files
        self._wanted = {os.path.realpath(file) for path in files for file in (path, *_data_files(path))}
        self._mappings = Mappings()
        self._by_kind: dict[tuple[ir.DataType, tuple[int, ...]], list[Entry]] | None = None
        self.looked_into: list[str] = []
        self.located = 0

    def place_of(self, name: str, tensor: ir.TensorProtocol) -> Place | None:
        place, unreachable = self._known(tensor), None
        if place is not None and self._wanted and place.file.path not in self._wanted:
            place = None
        if place is not None:
            try:
                location_of(place.file, self._destination)
            except TonnxError as error:
                place, unreachable = None, error
        place = place or self._searched(name, tensor)
        if place is None and unreachable is not None:
            raise unreachable
        self.located += place is not None
        return place

    def _known(self, tensor: ir.TensorProtocol) -> Place | None:
        """Where a tensor was read or mapped from."""
        if isinstance(tensor, ir.ExternalTensor):
            external = Place(WeightFile.look_at(tensor.path), tensor.offset or 0, tensor.nbytes)
            external.check_inside()
            return external
        if (read := facts.PLACE.get(tensor)) is not None:
            read.file.check_unchanged()
            return read
        array = _in_order(tensor)
        mapped = None if array is None else self._mappings.place_of(array.ctypes.data, array.nbytes)
        if mapped is None or array is None:
            return None
        place, is_clean = mapped
        return place if is_clean or _is_at(array, place) else None

    def _searched(self, name: str, tensor: ir.TensorProtocol) -> Place | None:
        """Where equal bytes are. A file that has other numbers under the same name is not the model's."""
        array = _in_order(tensor)
        if array is None:
            return None
        entries = self._entries().get((tensor.dtype, tuple(tensor.shape.numpy())), [])
        named = [entry for entry in entries if _same_name(entry.name, name)]
        others = [entry for entry in entries if not _same_name(entry.name, name)]
        for entry in (*named, *others):
            if _is_at(array, entry.place):
                location_of(entry.place.file, self._destination)
                return entry.place
        if named:
            raise TonnxError(
                f"{named[0].place.file.path} has other numbers than the model for {name!r}",
                why="the file changed since it was loaded, or the weights did",
                hint=LOAD_AGAIN,
            )
        return None

    def _entries(self) -> dict[tuple[ir.DataType, tuple[int, ...]], list[Entry]]:
        if self._by_kind is None:
            self._by_kind = defaultdict(list)
            self.looked_into = list(self._files) or _beside(self._destination)
            for path in self.looked_into:
                for entry in entries_of(path):
                    self._by_kind[entry.dtype, entry.shape].append(entry)
        return self._by_kind


def _data_files(path: str) -> Iterator[str]:
    """The data files of an ONNX file that was named."""
    if path.endswith(".onnx"):
        yield from {entry.place.file.path for entry in entries_of(path)}


def _beside(destination: Path) -> list[str]:
    """Files of weights in the folder of the ONNX file."""
    inside = sorted(path for path in destination.absolute().parent.iterdir() if path.suffix in _SUFFIXES)
    return [str(path) for path in inside if is_weight_file(path)]


def _same_name(one: str, other: str) -> bool:
    """Also where one of them has the name of a wrapper before it."""
    return one == other or one.endswith(f".{other}") or other.endswith(f".{one}")


def _in_order(tensor: ir.TensorProtocol) -> np.ndarray | None:
    """The numbers of a tensor in memory, if they lie there as a file would have them."""
    if not isinstance(tensor, ir.Tensor) or tensor.dtype.bitwidth < 8:
        return None
    array = tensor.numpy()
    return array if array.flags.c_contiguous else None


def _is_at(array: np.ndarray, place: Place) -> bool:
    flat = array.reshape(-1).view(np.uint8)
    with open(place.file.path, "rb") as file:
        file.seek(place.offset)
        start, size = 0, _FIRST
        while start < flat.size:
            chunk = np.frombuffer(file.read(min(size, flat.size - start)), np.uint8)
            if not chunk.size or not np.array_equal(chunk, flat[start : start + chunk.size]):
                return False
            start, size = start + chunk.size, _CHUNK
    return True


def summary(model: ir.Model) -> list[str]:
    """For the result: what stays where, and what was written."""
    staying: dict[str, list[int]] = defaultdict(list)
    written: list[int] = []
    for value in model.graph.initializers.values():
        if value.const_value is None:
            continue
        place = facts.REFERENCE.get(value.const_value)
        (written if place is None else staying[place.file.path]).append(value.const_value.nbytes)
    notes = [f"{_amount(sizes, 'stays', 'stay')} in {os.path.basename(path)}" for path, sizes in staying.items()]
    return [*notes, f"{_amount(written, 'is', 'are')} in the ONNX file itself"]


def left_out(model: ir.Model) -> list[str]:
    """For the result: what the passes did not do to weights that stay in their files."""
    if not (left := _left_to_runtime(model)):
        return []
    named = ", ".join(kind if count == 1 else f"{kind} ×{count}" for kind, count in left.most_common())
    return [f"left to the runtime, since weights that stay in their file are not rewritten: {named}"]


def _amount(sizes: list[int], one: str, several: str) -> str:
    nouns = ("tensor", one) if len(sizes) == 1 else ("tensors", several)
    return f"{len(sizes)} {nouns[0]} ({sum(sizes):,} bytes) {nouns[1]}"


def _left_to_runtime(model: ir.Model) -> Counter[str]:
    """Nodes that would have been folded, and batch normalisations that would have gone into a layer."""
    left: Counter[str] = Counter()
    for node in (node for graph in all_graphs(model) for node in graph):
        inputs = [value for value in node.inputs if value is not None]
        if any(map(facts.stays_in_file, inputs)) and all(value.const_value is not None for value in inputs):
            left[node.op_type] += 1
        elif node.op_type == "BatchNormalization" and (layer := node.inputs[0]) is not None:
            producer = layer.producer()
            if producer is not None and any(map(facts.stays_in_file, producer.inputs[1:2])):
                left[node.op_type] += 1
    return left
