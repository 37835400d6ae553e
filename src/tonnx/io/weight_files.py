"""What tensors a file of weights holds, and where: read from its header, without the weights and without a framework.

- ``.safetensors``: the length of a JSON header, the header, the data.
- ``torch.save``: a zip archive of uncompressed members; a pickle among them says what they are. Here it is only looked
  at: nothing that it names is imported or called.
- ``.onnx``: what its external data holds.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import onnx
import onnx_ir as ir

from tonnx.errors import TonnxError
from tonnx.ir.build import T
from tonnx.ir.place import Place, WeightFile

_MAX_HEADER = 100_000_000  # the format's own limit

_SAFETENSORS = {
    "F64": T.DOUBLE, "F32": T.FLOAT, "F16": T.FLOAT16, "BF16": T.BFLOAT16, "I64": T.INT64, "I32": T.INT32,
    "I16": T.INT16, "I8": T.INT8, "U64": T.UINT64, "U32": T.UINT32, "U16": T.UINT16, "U8": T.UINT8, "BOOL": T.BOOL,
    "F8_E4M3": T.FLOAT8E4M3FN, "F8_E5M2": T.FLOAT8E5M2,
}  # fmt: skip
_TORCH = {
    "DoubleStorage": T.DOUBLE, "FloatStorage": T.FLOAT, "HalfStorage": T.FLOAT16, "BFloat16Storage": T.BFLOAT16,
    "LongStorage": T.INT64, "IntStorage": T.INT32, "ShortStorage": T.INT16, "CharStorage": T.INT8,
    "ByteStorage": T.UINT8, "BoolStorage": T.BOOL,
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A tensor of a file."""

    name: str
    dtype: ir.DataType
    shape: tuple[int, ...]
    place: Place


def entries_of(path: str | os.PathLike[str]) -> list[Entry]:
    """The tensors of a file; its content tells which format it has."""
    file = WeightFile.look_at(path)
    read = _reader(file)
    if read is None:
        raise TonnxError(
            f"{path} is not a file of weights that an ONNX file could point into",
            why="it is neither .safetensors, nor an archive of torch.save since PyTorch 1.6, nor an ONNX file",
        )
    try:
        entries = list(read(file))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error, OSError, EOFError) as error:
        raise _damaged(file, f"{type(error).__name__}: {error}"[:200]) from error
    except (zipfile.BadZipFile, pickle.UnpicklingError) as error:
        raise _damaged(file, str(error)) from error
    for entry in entries:
        entry.place.check_inside()
    return entries


def is_weight_file(path: Path) -> bool:
    return path.is_file() and _reader(WeightFile.look_at(path)) is not None


def _reader(file: WeightFile) -> Callable[[WeightFile], Iterator[Entry]] | None:
    with open(file.path, "rb") as opened:
        start = opened.read(9)
    if start[:4] == b"PK\x03\x04":
        return _of_archive
    if file.path.endswith(".onnx"):
        return _of_onnx
    if len(start) == 9 and start[8:] == b"{" and struct.unpack("<Q", start[:8])[0] <= _MAX_HEADER:
        return _of_safetensors
    return None


def _damaged(file: WeightFile, why: str) -> TonnxError:
    return TonnxError(f"the weights file {file.path} is damaged", why=why, hint="copy or download it again")


def _of_safetensors(file: WeightFile) -> Iterator[Entry]:
    with open(file.path, "rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
        header = json.loads(opened.read(length))
    for name, tensor in header.items():
        if name == "__metadata__" or tensor["dtype"] not in _SAFETENSORS:
            continue
        begin, end = tensor["data_offsets"]
        dtype, shape = _SAFETENSORS[tensor["dtype"]], tuple(int(size) for size in tensor["shape"])
        if begin < 0 or end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"the tensor {name!r} has {end - begin} bytes for {dtype.name} {list(shape)}")
        yield Entry(name, dtype, shape, Place(file, 8 + length + begin, end - begin))


def _of_onnx(file: WeightFile) -> Iterator[Entry]:
    with open(file.path, "rb") as opened:
        model = onnx.load_model(opened, load_external_data=False)
    looked_at: dict[str, WeightFile] = {}
    for tensor in model.graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        said = {entry.key: entry.value for entry in tensor.external_data}
        path = os.path.join(os.path.dirname(file.path), said["location"])
        if path not in looked_at:
            looked_at[path] = WeightFile.look_at(path)
        dtype, shape = T(tensor.data_type), tuple(tensor.dims)
        nbytes = math.ceil(math.prod(shape) * dtype.itemsize)
        yield Entry(tensor.name, dtype, shape, Place(looked_at[path], int(said.get("offset", 0)), nbytes))


# Archives of torch.save


def _of_archive(file: WeightFile) -> Iterator[Entry]:
    with open(file.path, "rb") as opened, zipfile.ZipFile(opened) as archive:
        members = {info.filename: info for info in archive.infolist()}
        listing = next((name for name in members if name.rpartition("/")[2] == "data.pkl"), None)
        if listing is None:
            raise ValueError("it has no data.pkl: it is a zip archive, but not one of torch.save")
        with archive.open(listing) as pickled:
            content = _Listing(pickled).load()
        folder, starts = listing.removesuffix("data.pkl") + "data/", dict[str, int]()
        for name, tensor in _named(content):
            info = members[folder + tensor.key]
            if info.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"its member {info.filename} is compressed: nobody can point into it")
            if tensor.key not in starts:
                starts[tensor.key] = _start_of(opened, info)
            start = starts[tensor.key] + int(tensor.offset * tensor.dtype.itemsize)
            nbytes = int(math.prod(tensor.shape) * tensor.dtype.itemsize)
            yield Entry(name, tensor.dtype, tensor.shape, Place(file, start, nbytes))


def _start_of(archive: IO[bytes], info: zipfile.ZipInfo) -> int:
    """Where a member's data begins: after a header whose own lengths count, not those of the directory."""
    archive.seek(info.header_offset + 26)
    name, extra = struct.unpack("<HH", archive.read(4))
    return info.header_offset + 30 + int(name) + int(extra)


@dataclass(frozen=True)
class _Saved:
    """A dense tensor, as the pickle describes it."""

    key: str
    dtype: ir.DataType
    offset: int
    shape: tuple[int, ...]


def _named(content: Any, prefix: str = "", depth: int = 8) -> Iterator[tuple[str, _Saved]]:
    """The tensors in dicts of dicts: checkpoints keep the weights under ``model`` or ``state_dict``."""
    if isinstance(content, _Saved):
        yield prefix, content
    elif isinstance(content, Mapping) and depth:
        for key, inner in content.items():
            yield from _named(inner, f"{prefix}.{key}" if prefix else str(key), depth - 1)


class _Any:
    """Stands for whatever else a pickle holds."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __setstate__(self, _: Any) -> None: ...

    def __setitem__(self, _: Any, __: Any) -> None: ...

    def append(self, _: Any) -> None:
        """Lists of other classes are filled by it."""

    extend = append


class _Listing(pickle.Unpickler):
    """Reads which tensors an archive has. No name in it is imported: a pickle could call anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _TORCH:
            return _TORCH[name]
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
        }
        return known.get((module, name), _Any)

    def persistent_load(self, pid: Any) -> Any:
        return pid


def _tensor(storage: Any, offset: int, shape: Sequence[int], stride: Sequence[int], *_: Any) -> Any:
    """None of a tensor whose numbers do not lie in order, or have a dtype that ONNX lacks."""
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    dense = all(size == 1 or step == own for size, step, own in zip(shape, steps, stride, strict=True))
    dtype, key = storage[1], str(storage[2])
    return _Saved(key, dtype, offset, tuple(shape)) if dense and isinstance(dtype, ir.DataType) else None
