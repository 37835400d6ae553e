"""Paddle's files, made by hand: what Paddle itself would never write."""

from __future__ import annotations

import struct
from typing import Any


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def field(number: int, value: int | float | str | bytes) -> bytes:
    """One field: int as varint, float as fixed32, the rest length-delimited."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(*fields: tuple[int, Any]) -> bytes:
    return b"".join(field(number, value) for number, value in fields)


def tensor_desc(dtype: int, *dims: int) -> bytes:
    return message((1, dtype), *((2, dim) for dim in dims))


def variable(name: str, *dims: int, dtype: int = 5, kind: int = 7, persistable: int = 0) -> bytes:
    """A VarDesc: of a tensor, or with kind 13 of an array."""
    holder = {7: 3, 13: 4}.get(kind)
    tensor = [] if holder is None else [(holder, message((1, tensor_desc(dtype, *dims))))]
    return message((1, name), (2, message((1, kind), *tensor)), (3, persistable))


def op(kind: str, inputs: dict[str, list[str]], outputs: dict[str, list[str]], *attrs: bytes) -> bytes:
    def slots(number: int, named: dict[str, list[str]]) -> list[tuple[int, bytes]]:
        return [(number, message((1, slot), *((2, name) for name in names))) for slot, names in named.items()]

    return message(*slots(1, inputs), *slots(2, outputs), (3, kind), *((4, attr) for attr in attrs))


def attr(name: str, kind: int, *fields: tuple[int, Any]) -> bytes:
    return message((1, name), (2, kind), *fields)


def feed(name: str, column: int = 0) -> bytes:
    return op("feed", {"X": ["feed"]}, {"Out": [name]}, attr("col", 0, (3, column)))


def fetch(name: str, column: int = 0) -> bytes:
    return op("fetch", {"X": [name]}, {"Out": ["fetch"]}, attr("col", 0, (3, column)))


def block(index: int, parent: int, variables: list[bytes], ops: list[bytes]) -> bytes:
    return message((1, index), (2, parent), *((3, v) for v in variables), *((4, o) for o in ops))


def program(*blocks: bytes) -> bytes:
    return message(*((1, b) for b in blocks), (4, message((1, 0))))


def record(
    desc: bytes, data: bytes = b"", *, version: int = 0, levels: tuple[bytes, ...] = (), inner: int = 0
) -> bytes:
    """One tensor of a weights file."""
    lod = b"".join(struct.pack("<Q", len(level)) + level for level in levels)
    head = struct.pack("<IQ", version, len(levels)) + lod
    return head + struct.pack("<Ii", inner, len(desc)) + desc + data


def pir(ops: list[dict[str, Any]], **base: Any) -> dict[str, Any]:
    block = {"#": "block_0", "args": [], "ops": ops}
    code = {"magic": "pir", "version": 4, **base}
    return {"base_code": code, "program": {"regions": [{"#": "region_0", "blocks": [block]}]}}


def pir_type(*dims: Any, dtype: str = "0.t_f32") -> dict[str, Any]:
    return {"#": "0.t_dtensor", "D": [{"#": dtype}, list(dims), "NCHW", [], 0]}


def pir_value(number: Any, *dims: Any) -> dict[str, Any]:
    return {"%": number, "TT": pir_type(*dims)}


def pir_attr(name: str, kind: str, value: Any) -> dict[str, Any]:
    return {"N": name, "AT": {"#": kind, "D": value}}


def pir_op(name: str, inputs: list[int], outputs: list[int], *attrs: Any, regions: Any = None) -> dict[str, Any]:
    made = {"#": name, "I": [{"%": i} for i in inputs], "O": [pir_value(o, 2, 3) for o in outputs], "A": list(attrs)}
    return made if regions is None else {**made, "regions": regions}


def pir_data(number: int, name: str) -> dict[str, Any]:
    return pir_op("1.data", [], [number], pir_attr("name", "0.a_str", name))


def pir_fetch(number: int, name: str, column: int = 0) -> dict[str, Any]:
    return pir_op("1.fetch", [number], [], pir_attr("name", "0.a_str", name), pir_attr("col", "0.a_i32", column))
