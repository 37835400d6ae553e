"""The smallest file that shows a difference, and the arrays that show it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import onnx_ir as ir

from tonnx.errors import TonnxError
from tonnx.io import write
from tonnx.proof.locate.cut import COMPUTED, Cutter
from tonnx.proof.locate.sweep import Local


def write_reproducer(cutter: Cutter, found: Local, path: Path) -> tuple[Path, Path]:
    """Write the nodes to ``path``, and beside it an ``.npz`` with their inputs and ``expected``, what the model gives.

    Both are complete or not there. The first output of the file is to be compared with ``expected``.
    """
    region = found.region
    assert found.expected is not None
    model = cutter.part(region.nodes, found.given, [region.value], name="reproducer")
    like = found.actual if found.actual is not None else found.expected
    output = model.graph.outputs[0]  # onnx's checker wants a type
    kind = ir.DataType.STRING if like.dtype.kind in "OSUT" else ir.DataType.from_numpy(like.dtype)
    output.type, output.shape = ir.TensorType(kind), ir.Shape(like.shape)
    arrays = path.with_suffix(".npz")
    contents = {**found.given, "expected": found.expected}
    _save(arrays, contents)
    try:
        write.write(model, path)
    except TonnxError:
        arrays.unlink(missing_ok=True)
        raise
    return path, arrays


def _save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    plain = {name.removesuffix(COMPUTED): _storable(array) for name, array in arrays.items()}
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".tonnx-", suffix=".npz", delete=False) as file:
            try:
                np.savez(file, **plain)  # type: ignore[arg-type]
                file.flush()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise TonnxError(f"cannot write {path}", why=error.strerror or str(error)) from error


def _storable(array: np.ndarray) -> np.ndarray:
    """bfloat16 and its like are no dtypes of numpy's files: as float32, which holds all of their values."""
    if array.dtype.kind == "O":
        return array.astype(str)
    return array.astype(np.float32) if array.dtype.kind == "V" and array.dtype.names is None else array
