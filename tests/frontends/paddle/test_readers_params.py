"""Weights files made by hand: all types, and every kind of damage."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.frontends.paddle import encode as e
from tonnx.errors import InvalidModel
from tonnx.frontends.paddle.read import params

ONE = e.tensor_desc(5, 1)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "holds 0 tensors"),
        (e.record(ONE, bytes(4)) * 2, "bytes are left after the 1 tensors"),
        (e.record(ONE, bytes(3)), "cut short"),
        (e.record(ONE, bytes(4), version=1), "version 1"),
        (e.record(ONE, bytes(4), inner=9), "inner version 9"),
        (struct.pack("<IQ", 0, 1 << 60), "levels"),
        (struct.pack("<IQQ", 0, 1, 1 << 60), "cut short"),
        (struct.pack("<IQIi", 0, 0, 0, -4), "-4 bytes are wanted"),
        (struct.pack("<IQIi", 0, 0, 0, 1 << 30), "description takes"),
        (e.record(e.tensor_desc(5, -1)), "dimension -1"),
        (e.record(e.tensor_desc(5, 1 << 62, 1 << 62)), "cut short"),
        (e.record(e.tensor_desc(5, *[2] * 65)), "65 dimensions"),
        (e.record(e.tensor_desc(99, 1)), "unknown type 99"),
        (e.record(b""), "unknown type None"),
        (e.record(b"\x08"), "inside a number"),
        (b"version https://git-lfs.github.com/spec/v1", "version"),
    ],
)
@pytest.mark.parametrize("how", ["combined", "separate"])
def test_damaged_weights(tmp_path: Path, data: bytes, why: str, how: str) -> None:
    path = tmp_path / "w"
    path.write_bytes(data)
    with pytest.raises(InvalidModel, match=why if data or how == "combined" else "empty"):
        params.combined(path, ["w"]) if how == "combined" else params.separate(tmp_path, ["w"])


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 5, 6, 20, 21, 22, 23, 24, 32, 33])
def test_weight_types(tmp_path: Path, number: int) -> None:
    path = tmp_path / "w"
    desc = e.message((1, number), (2, e.varint(1) + e.varint(3)))  # dims packed
    size = {0: 1, 1: 2, 4: 2, 2: 4, 5: 4, 20: 1, 21: 1, 22: 2, 24: 16, 32: 1, 33: 1}.get(number, 8)
    path.write_bytes(e.record(desc, bytes(size * 3), levels=(b"12345678",)))
    tensor = params.combined(path, ["w"])["w"]
    assert tensor.numpy().shape == (1, 3) and tensor.nbytes == size * 3 and not tensor.numpy().any()


def test_scalar_and_empty_weights(tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_bytes(e.record(e.tensor_desc(3), struct.pack("<q", 9)) + e.record(e.tensor_desc(5, 0, 4)))
    tensors = params.combined(path, ["a", "b"])
    assert tensors["a"].numpy().tolist() == 9 and tensors["b"].numpy().shape == (0, 4)
