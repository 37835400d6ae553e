"""The smallest file that shows a difference, and the arrays that show it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from tonnx.io import write
from tonnx.io.staging import writing
from tonnx.proof.locate.cut import COMPUTED, Cutter
from tonnx.proof.locate.sweep import Local


def write_reproducer(cutter: Cutter, judged: Local, path: Path) -> tuple[Path, Path]:
    """Write the nodes to ``path``, and beside it an ``.npz`` with their inputs and ``expected``, what the model gives.

    Both are complete or not there. The first output of the file is to be compared with ``expected``.
    """
    region = judged.region
    assert judged.expected is not None
    model = cutter.part(region.nodes, judged.feeds, [region.value], name="reproducer")
    like = judged.actual if judged.actual is not None else judged.expected
    output = model.graph.outputs[0]  # onnx's checker wants a type
    kind = ir.DataType.STRING if like.dtype.kind in "OSUT" else ir.DataType.from_numpy(like.dtype)
    output.type, output.shape = ir.TensorType(kind), ir.Shape(like.shape)
    contents = {**judged.feeds, "expected": judged.expected}
    plain = {name.removesuffix(COMPUTED): _storable(array) for name, array in contents.items()}
    with write.Staged(path) as staged:
        staged.write(model)
        arrays = staged.path.with_suffix(".npz")
        with writing(path.with_suffix(".npz")):
            np.savez(arrays, **plain)  # type: ignore[arg-type]
        staged.commit(arrays)
    return path, path.with_suffix(".npz")


def _storable(array: np.ndarray) -> np.ndarray:
    """bfloat16 and its like are no dtypes of numpy's files: as float32, which holds all of their values."""
    if array.dtype.kind == "O":
        return array.astype(str)
    return array.astype(np.float32) if array.dtype.kind == "V" and array.dtype.names is None else array
