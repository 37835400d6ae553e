"""Protobuf's wire format (https://protobuf.dev/programming-guides/encoding/), read without generated classes.

A message is described by a table from field number to ``Field``. Unknown fields are skipped, as protobuf does;
everything else that does not fit (a length beyond the end, a text where a number belongs) is ``InvalidModel``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tonnx.frontends.paddle.read.damaged_file import damaged

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}


def _int32(raw: int) -> int:
    raw &= 0xFFFFFFFF  # protobuf cuts an int32 to its low bits, whatever the writer put above them
    return raw - (1 << 32) if raw >> 31 else raw


def text(raw: memoryview) -> str:
    """The bytes of a length-delimited field as text."""
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise damaged(f"a name is not UTF-8: {error.reason}") from None


def text_or_bytes(raw: memoryview) -> str | bytes:
    """A proto2 ``string`` as C++ writes it: not every attribute is text."""
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError:
        return bytes(raw)


class Kind(NamedTuple):
    """A type of field: how it lies in the file and what it becomes."""

    wire: int
    convert: Callable[[Any], Any]


INT32 = Kind(_VARINT, _int32)
INT64 = Kind(_VARINT, lambda raw: raw - (1 << 64) if raw >> 63 else raw)
BOOL = Kind(_VARINT, bool)
FLOAT = Kind(_FIXED32, lambda raw: float(struct.unpack("<f", raw)[0]))
DOUBLE = Kind(_FIXED64, lambda raw: float(struct.unpack("<d", raw)[0]))
TEXT = Kind(_LENGTH, text)
STRING = Kind(_LENGTH, text_or_bytes)
MESSAGE = Kind(_LENGTH, lambda raw: raw)


class Field(NamedTuple):
    """A field of a message."""

    name: str
    kind: Kind
    repeated: bool = False


Spec = Mapping[int, Field]


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The unsigned number at ``at``, and where the next byte is."""
    end = len(data)
    if at < end and data[at] < 0x80:
        return data[at], at + 1
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise damaged("a number takes more than ten bytes")
    raise damaged("the file ends inside a number")


def decode(data: memoryview, spec: Spec) -> dict[str, Any]:
    """The fields of a message by name: repeated ones always as a list, others only if present (the last wins)."""
    out: dict[str, Any] = {field.name: [] for field in spec.values() if field.repeated}
    position, end = 0, len(data)
    while position < end:
        tag = data[position]
        position += 1
        if tag >= 0x80:  # numbers of one byte, which most are, do not go through a call
            tag, position = varint(data, position - 1)
        number, wire = tag >> 3, tag & 7
        if not number:
            raise damaged("a field has the number 0")
        raw: int | memoryview
        if wire == _VARINT:
            raw, position = varint(data, position)
        else:
            if wire == _LENGTH:
                size, position = varint(data, position)
            elif wire in _SIZES:
                size = _SIZES[wire]
            else:  # 3 and 4 are groups, which Paddle never used
                raise damaged(f"field {number} has the unknown wire type {wire}")
            if size > end - position:
                raise damaged(f"field {number} claims {size} bytes and {end - position} are left")
            raw = data[position : position + size]
            position += size
        field = spec.get(number)
        if field is None:
            continue
        if wire == field.kind.wire:
            value = field.kind.convert(raw)
            if field.repeated:
                out[field.name].append(value)
            else:
                out[field.name] = value
        elif field.repeated and isinstance(raw, memoryview) and wire == _LENGTH:
            out[field.name].extend(_packed(raw, field.kind))
        else:
            raise damaged(f"field {number} ({field.name}) has the wire type {wire}, not {field.kind.wire}")
    return out


def _packed(data: memoryview, kind: Kind) -> list[Any]:
    """Numbers side by side without tags: proto2 writes them so only on request, but every reader has to take it."""
    values, position = list[Any](), 0
    if kind.wire == _VARINT:
        while position < len(data):
            raw, position = varint(data, position)
            values.append(kind.convert(raw))
        return values
    size = _SIZES[kind.wire]
    if len(data) % size:
        raise damaged(f"{len(data)} bytes of packed numbers are not a multiple of {size}")
    return [kind.convert(data[at : at + size]) for at in range(0, len(data), size)]
