"""Inputs that are invented for a file: at sizes that it may take, and not at sizes that nobody would try."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from tonnx.proof.examples import random_examples
from tonnx.proof.signature import Signature


def tried(**shapes: list[int | str | None]) -> list[dict[str, tuple[int, ...]]]:
    values = {
        name: ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(shape))
        for name, shape in shapes.items()
    }
    return [
        {name: array.shape for name, array in arrays.items()} for arrays in random_examples(Signature(values, []), {})
    ]


def test_sounds_of_a_batch_and_of_one() -> None:
    """A state says that it is of one sound, which an open name does not."""
    shapes = [entry["sound"] for entry in tried(sound=["batch", "samples"], state=[2, "batch", 64])]
    assert shapes[0] == (2, 2) and {(2, 224), (1, 224), (1, 4000), (1, 32000)} <= set(shapes)
    assert {entry["state"] for entry in tried(sound=["batch", "samples"], state=[2, "batch", 64])} >= {(2, 1, 64)}


def test_what_stands_alone_is_no_batch() -> None:
    assert (4000,) in [entry["sound"] for entry in tried(sound=[None])]


def test_no_picture_is_thousands_of_pixels_wide() -> None:
    shapes = [entry["picture"] for entry in tried(picture=["n", 3, "h", "w"])]
    assert (1, 3, 224, 224) in shapes and max(map(prod, shapes)) <= 1 << 22


def test_given_sizes_are_kept() -> None:
    values = {
        name: ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n", "m"])) for name in "ab"
    }
    first = next(iter(random_examples(Signature(values, []), {"a": np.zeros((5, 9), np.float32)})))
    assert first["b"].shape == (5, 9)
