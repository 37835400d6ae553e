"""Weights: ``.pdiparams`` files and folders with a file for each parameter.

A file is a row of records without names::

    u32 version = 0 | u64 levels | per level: u64 size, bytes | u32 version = 0 | i32 size | TensorDesc | data

Files are mapped, not read: a tensor is a view of the page cache, whatever the size of the model.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from tonnx.frontends.paddle.read import dtypes
from tonnx.frontends.paddle.read.damaged_file import at, damaged, quoted
from tonnx.frontends.paddle.read.program import TENSOR_DESC
from tonnx.frontends.paddle.read.wire import decode
from tonnx.ir import facts
from tonnx.ir.place import Place, WeightFile

_MAP_FROM = 64 * 1024  # a mapping costs a file descriptor, of which a process has 1,024
_MAX_LEVELS = 64
_MAX_DESC = 4096


@dataclass(frozen=True, slots=True)
class Record:
    """A tensor of a file, and where its data starts."""

    dtype: ir.DataType
    shape: tuple[int, ...]
    start: int
    nbytes: int


def mapped(path: Path) -> np.ndarray:
    """The bytes of a file, read when they are touched."""
    try:
        if path.stat().st_size < _MAP_FROM:
            return np.frombuffer(path.read_bytes(), np.uint8)
        return np.asarray(np.memmap(path, np.uint8, "r"))
    except (OSError, ValueError) as error:
        raise damaged(f"{path.name} cannot be opened: {error}") from error


def combined(path: Path, names: Sequence[str], unsaved: frozenset[str] = frozenset()) -> dict[str, ir.Tensor]:
    """The tensors of a ``.pdiparams`` file, which are in the order of ``sorted(names)``.

    ``unsaved`` are names that Paddle may or may not have put into the file: the number of tensors tells.
    """
    with at(str(path)):
        data = mapped(path)
        expected = sorted(names)
        records = _records(data, len(expected))
        if len(records) != len(expected):
            expected = [name for name in expected if name not in unsaved]
        if len(records) != len(expected):
            raise damaged(
                f"it holds {len(records)} tensors and the program has {len(expected)} parameters",
                hint="give the weights file that was saved together with this program",
            )
        file = WeightFile.look_at(path)
        return {name: _tensor(data, record, name, file) for name, record in zip(expected, records, strict=True)}


def separate(folder: Path, names: Sequence[str]) -> dict[str, ir.Tensor]:
    """The tensors of a folder in which every parameter has a file of its own."""
    tensors: dict[str, ir.Tensor] = {}
    for name in sorted(names):
        with at(str(folder)), at(f"parameter {quoted(name)}"):
            path = file_of(folder, name)
            if path is None or not path.is_file():
                raise damaged("there is no file for it", hint="give the weights with params=")
            data = mapped(path)
            records = _records(data, 1)
            if len(records) != 1:
                raise damaged("its file is empty")
            tensors[name] = _tensor(data, records[0], name, WeightFile.look_at(path))
    return tensors


def file_of(folder: Path, name: str) -> Path | None:
    """A parameter's file, if the name stays inside of the folder: names come from a file that anyone may have made."""
    path = Path(name)
    if "\0" in name or path.is_absolute() or ".." in path.parts or len(name) > 255:
        return None
    return folder / path


def _tensor(data: np.ndarray, record: Record, name: str, file: WeightFile) -> ir.Tensor:
    raw = data[record.start : record.start + record.nbytes]
    tensor = ir.Tensor(raw.view(record.dtype.numpy()).reshape(record.shape), record.dtype, name=name)
    facts.PLACE[tensor] = Place(file, record.start, record.nbytes)
    return tensor


def _records(data: np.ndarray, limit: int) -> list[Record]:
    """All tensors of a file, which has to end with the last; ``limit`` is how many may be there."""
    view, records, position = data.data, list[Record](), 0
    while position < len(view):
        with at(f"tensor {len(records)} at byte {position}"):
            if len(records) == limit:
                raise damaged(
                    f"{len(view) - position} bytes are left after the {limit} tensors that the program has",
                    hint="give the weights file that was saved together with this program",
                )
            record = _record(view, position)
        records.append(record)
        position = record.start + record.nbytes
    return records


def _record(view: memoryview, position: int) -> Record:
    def take(form: str) -> int:
        nonlocal position
        size = struct.calcsize(form)
        skip(size)
        return int(struct.unpack_from(form, view, position - size)[0])

    def skip(size: int) -> None:
        nonlocal position
        if not 0 <= size <= len(view) - position:
            raise damaged(f"{size} bytes are wanted and {len(view) - position} are left: the file is cut short")
        position += size

    hint = "is it a Git LFS pointer, encrypted, or a .pdparams file, which is a pickle?"
    if (version := take("<I")) != 0:
        raise damaged(f"the tensor has the version {version}, not 0", hint=hint)
    if (levels := take("<Q")) > _MAX_LEVELS:
        raise damaged(f"the tensor has {levels} levels of detail", hint=hint)
    for _ in range(levels):  # where sequences of a batch start: nothing that a weight has
        skip(take("<Q"))
    if (version := take("<I")) != 0:
        raise damaged(f"the tensor has the inner version {version}, not 0", hint=hint)
    size = take("<i")
    if size > _MAX_DESC:
        raise damaged(f"the tensor's description takes {size} bytes", hint=hint)
    skip(size)
    desc = decode(view[position - size : position], TENSOR_DESC)
    dtype = dtypes.PROTO.get(desc.get("dtype", -1))
    if dtype is None:
        raise damaged(f"the tensor has the unknown type {desc.get('dtype')}")
    shape = dtypes.shape(desc["dims"], dynamic=False)
    start = position
    nbytes = math.prod(shape) * dtype.itemsize
    skip(int(nbytes))
    return Record(dtype, shape, start, int(nbytes))
