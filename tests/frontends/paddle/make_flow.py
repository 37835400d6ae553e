"""Writes fixtures/flow_*.tar.xz: the layers of `flow`, saved by the real PaddlePaddle.

    PYTHONPATH=. python tests/frontends/paddle/make_flow.py  # 3.3.1: PIR programs
    PYTHONPATH=. python tests/frontends/paddle/make_flow.py  # 2.6.2: old programs

What a layer gives is what Paddle makes of the saved program, not of the layer: tracing changes the meaning of some.
An archive is like those of `make_operators.py`, but for ``cases.json``: by case, the inputs and outputs of each run.
"""

from __future__ import annotations

import importlib
import io
import json
import lzma
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import paddle
from paddle.static import InputSpec

from tests.frontends.paddle.flow.table import NETS
from tests.frontends.paddle.make_operators import HERE, KIND, keep, without_stacks


def save(name: str, folder: Path, arrays: dict[str, np.ndarray]) -> list[dict[str, list[str]]]:
    make, specs, runs = NETS[name]
    paddle.seed(11)
    layer = make()
    layer.eval()
    path = folder / name
    paddle.jit.save(layer, str(path), input_spec=[InputSpec(*spec) for spec in specs])
    Path(f"{path}.pdiparams.info").unlink(missing_ok=True)
    if KIND == "old":
        without_stacks(Path(f"{path}.pdmodel"))
    loaded = paddle.jit.load(str(path))
    found = []
    for inputs in runs:
        results = paddle.utils.flatten(loaded(*map(paddle.to_tensor, inputs)))
        outputs = [result.numpy() for result in results]
        found.append({"inputs": [keep(a, arrays) for a in inputs], "outputs": [keep(a, arrays) for a in outputs]})
    return found


def main() -> None:
    for module in ("branches", "loops", "lists", "recurrent", "models"):
        importlib.import_module(f"tests.frontends.paddle.flow.{module}")
    cases, arrays = {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in NETS:
            try:
                cases[name] = save(name, folder, arrays)
            except Exception as error:  # what this version of Paddle cannot trace, or cannot run
                print(f"{name}: not saved: {type(error).__name__} {str(error).strip().splitlines()[-1][:200]}")
        (folder / "cases.json").write_text(json.dumps(cases, indent=0, sort_keys=True))
        np.savez(folder / "arrays.npz", **arrays)
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as files:
            for file in sorted(f for f in folder.iterdir() if f.stem in (*cases, "cases", "arrays")):
                entry = tarfile.TarInfo(file.name)
                entry.size = file.stat().st_size
                files.addfile(entry, io.BytesIO(file.read_bytes()))
        (HERE / "fixtures" / f"flow_{KIND}.tar.xz").write_bytes(lzma.compress(data.getvalue(), preset=9))
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
