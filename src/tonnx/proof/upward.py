"""Files of opsets below 7, which ONNX Runtime does not promise to run: brought up to 7, to be run there.

By onnx's own version converter, so that the judge is not the accused. It lacks some operators (Cast below 6, Less,
Greater, Equal, And, Or below 7, Pad and Split below 2, recurrent ones); a file that has those is brought up by
tonnx's own rules, and the proof says so.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

import onnx

from tonnx.ir.target import OLDEST_RUN, Target

_OPSET_IMPORT = 8  # its field number in ModelProto
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protobuf's wire types

BY_ONNX = "onnx's version converter"
BY_TONNX = "tonnx's own rules"
"""In a proof it is followed by the reason why the converter could not."""


def old_model(model: str | bytes) -> onnx.ModelProto | None:
    """The whole model, if its opset is below 7."""
    opset = opset_of(model)
    if opset is None or opset >= OLDEST_RUN:
        return None
    return load_proto(model)


def load_proto(model: str | os.PathLike[str] | bytes, *, weights: bool = True) -> onnx.ModelProto:
    """A file or its bytes; without ``weights``, what lies beside the file stays there."""
    if isinstance(model, bytes):
        return onnx.load_model_from_string(model)
    return onnx.load(os.fspath(model), load_external_data=weights)


def ways_up(proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> Iterator[tuple[bytes, str]]:
    """A model at opset 7 for inputs of these shapes, and who brought it there; the best judge first."""
    converted = by_onnx(_of_sizes(proto, shapes))
    if isinstance(converted, bytes):
        yield converted, BY_ONNX
    why = converted if isinstance(converted, str) else "ONNX Runtime does not load what it gives"
    yield by_our_rules(proto), f"{BY_TONNX} (onnx's version converter cannot: {why})"


def types_of(proto: onnx.ModelProto) -> tuple[dict[str, str], dict[str, str]]:
    """The types of inputs and outputs, as ONNX Runtime writes them."""
    weights = {tensor.name for tensor in proto.graph.initializer}

    def told(value: onnx.ValueInfoProto) -> str:
        kind = value.type.tensor_type.elem_type  # 0: not told, as in parts that are cut out of a file
        return f"tensor({onnx.TensorProto.DataType.Name(kind).lower()})"

    return (
        {value.name: told(value) for value in proto.graph.input if value.name not in weights},
        {value.name: told(value) for value in proto.graph.output},
    )


def shapes_of(proto: onnx.ModelProto) -> dict[str, list[int | str | None]]:
    """The shapes of inputs and outputs: numbers, names, or None."""
    return {
        value.name: [
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
            for dim in value.type.tensor_type.shape.dim
        ]
        for value in (*proto.graph.input, *proto.graph.output)
    }


def metadata_of(proto: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in proto.metadata_props}


def _of_sizes(proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """The same for fixed sizes: the converter has to know what is broadcast."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(proto)
    graph = fixed.graph
    sizes: dict[str, int] = {}
    for value in graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            if dim.dim_param:
                sizes[dim.dim_param] = size
            dim.dim_value = size
    for value in (*graph.value_info, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    # Of versions this old onnx infers little: what the file says of its values counts, where it is all known.
    told = [v for v in graph.value_info if all(d.HasField("dim_value") for d in v.type.tensor_type.shape.dim)]
    del graph.value_info[:]
    graph.value_info.extend(told)
    return fixed


def by_onnx(proto: onnx.ModelProto) -> bytes | str:
    """A model at opset 7, by onnx's own converter; or why it cannot."""
    from onnx import version_converter

    if misread := _misread(proto):
        return f"it misreads {misread}"
    try:
        converted = version_converter.convert_version(onnx.shape_inference.infer_shapes(proto), OLDEST_RUN)
    except Exception as error:  # noqa: BLE001 (RuntimeError, ValidationError and protobuf's own; the proof tells it)
        return " ".join(str(error).split())[:160] or type(error).__name__
    # Of the nodes that it adds it says that their type is 0, which runtimes refuse.
    typed = [value for value in converted.graph.value_info if value.type.tensor_type.elem_type]
    del converted.graph.value_info[:]
    converted.graph.value_info.extend(typed)
    return bytes(converted.SerializeToString())


def _misread(proto: onnx.ModelProto) -> str:
    """What the converter (onnx 1.23) gets wrong without a word; empty if there is nothing of it."""
    lengths = {tensor.name: math.prod(tensor.dims) for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        attributes = {attribute.name: attribute.i for attribute in node.attribute}
        if attributes.get("broadcast") and attributes.get("axis"):
            return "operands over a middle axis"
        if node.op_type == "PRelu" and lengths.get(node.input[1]) != 1:
            return "slopes by channel"
    return ""


def by_our_rules(proto: onnx.ModelProto) -> bytes:
    """A model at opset 7, by the legaliser's way up. Raises RetargetError where there is none."""
    from tonnx.io import read, write
    from tonnx.legalise import legalise
    from tonnx.passes import clean_up

    model = read.reader(proto)()
    read.infer(model)
    legalise(model, Target(OLDEST_RUN))
    clean_up(model)
    return write.to_bytes(model)


def opset_of(model: str | bytes) -> int | None:
    """The version of the default domain, without reading the graph; None if that cannot be found."""
    try:
        with io.BytesIO(model) if isinstance(model, bytes) else open(model, "rb") as file:
            return _find(file)
    except (OSError, EOFError):
        return None


def _find(file: BinaryIO) -> int | None:
    while (key := _varint(file)) is not None:
        number, wire = key >> 3, key & 7
        if number == _OPSET_IMPORT and wire == _BYTES:
            entry = onnx.OperatorSetIdProto.FromString(file.read(_varint(file) or 0))
            if entry.domain in ("", "ai.onnx"):
                return int(entry.version)
        elif wire == _BYTES:
            file.seek(_varint(file) or 0, os.SEEK_CUR)
        elif wire == _VARINT:
            _varint(file)
        elif wire in (_FIXED64, _FIXED32):
            file.seek(8 if wire == _FIXED64 else 4, os.SEEK_CUR)
        else:
            return None  # not a protobuf
    return None


def _varint(file: BinaryIO) -> int | None:
    value = shift = 0
    while byte := file.read(1):
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value
        shift += 7
        if shift > 63:
            raise EOFError("not a number")
    return None
