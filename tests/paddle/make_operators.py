"""Writes tests/paddle/fixtures/operators_*.tar.xz: every case of tests/paddle/operators with the real PaddlePaddle.

    PYTHONPATH=. /tmp/paddle-venv/bin/python tests/paddle/make_operators.py     # 3.3.1: PIR programs
    PYTHONPATH=. /tmp/paddle26/bin/python tests/paddle/make_operators.py        # 2.6.2: old programs

An archive has the programs, ``cases.json`` (by case: the inputs and outputs) and ``arrays.npz``, where each array lies
once, under its hash. `make_fixtures.py` says how to make the two environments.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import lzma
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.static import InputSpec

from tests.paddle.operators.table import CASES

HERE = Path(__file__).resolve().parent
KIND = "pir" if paddle.__version__.startswith("3") else "old"
MODULES = ("pointwise", "reduce", "shape", "index", "vision", "picture")


class _Net(paddle.nn.Layer):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = paddle.jit.not_to_static(function)


class _One(_Net):
    def forward(self, x):
        return self.function(x)


class _Two(_Net):
    def forward(self, x, y):
        return self.function(x, y)


class _Three(_Net):
    def forward(self, x, y, z):
        return self.function(x, y, z)


def save(name: str, folder: Path, arrays: dict[str, np.ndarray]) -> dict[str, list[str]]:
    function, inputs, dynamic = CASES[name]
    results = function(*map(paddle.to_tensor, inputs))
    specs = []
    for i, array in enumerate(inputs):
        axes = dynamic.get(i, ()) if isinstance(dynamic, dict) else dynamic
        shape = [None if axis in axes else size for axis, size in enumerate(array.shape)]
        specs.append(InputSpec(shape, str(array.dtype), f"in{i}"))
    net = (_One, _Two, _Three)[len(inputs) - 1](function)
    net.eval()
    paddle.jit.save(net, str(folder / name), input_spec=specs)
    (folder / f"{name}.pdiparams.info").unlink(missing_ok=True)
    if KIND == "old":
        without_stacks(folder / f"{name}.pdmodel")
    outputs = [r.numpy() for r in (results if isinstance(results, (list, tuple)) else [results])]
    return {"inputs": [keep(a, arrays) for a in inputs], "outputs": [keep(a, arrays) for a in outputs]}


def keep(array: np.ndarray, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha1(f"{array.dtype}{array.shape}".encode() + array.tobytes()).hexdigest()[:10]
    arrays[digest] = array
    return digest


def without_stacks(file: Path) -> None:
    """Call stacks name this machine's folders, and are ten times as large as the rest."""
    program = paddle.base.core.ProgramDesc(file.read_bytes())
    for i in range(program.num_blocks()):
        block = program.block(i)
        for j in range(block.op_size()):
            block.op(j).remove_attr("op_callstack")
    file.write_bytes(program.serialize_to_string())


def main() -> None:
    for module in MODULES:
        importlib.import_module(f"tests.paddle.operators.{module}")
    cases, arrays = {}, {}
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "fixtures"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in CASES:
            try:
                cases[name] = save(name, folder, arrays)
            except Exception as error:  # an operator that this version of Paddle lacks
                print(f"{name}: not saved: {type(error).__name__} {str(error).strip().splitlines()[-1][:200]}")
        (folder / "cases.json").write_text(json.dumps(cases, indent=0, sort_keys=True))
        np.savez(folder / "arrays.npz", **arrays)
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as archive:
            for file in sorted(folder.iterdir()):
                entry = tarfile.TarInfo(file.name)
                entry.size = file.stat().st_size
                archive.addfile(entry, io.BytesIO(file.read_bytes()))
        (target / f"operators_{KIND}.tar.xz").write_bytes(lzma.compress(data.getvalue(), preset=9))
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
