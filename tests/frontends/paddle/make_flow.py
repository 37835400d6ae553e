"""Writes fixtures/flow_*.tar.xz: the layers of `flow`, saved by the real PaddlePaddle.

Run by `make fixtures`: by 3.3.1 for PIR programs, by 2.6.2 for old ones.

What a layer gives is what Paddle makes of the saved program, not of the layer: tracing changes the meaning of some.
An archive is like those of `make_operators.py`, but by case it has the inputs and outputs of each of several runs.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

import numpy as np
import paddle
from paddle.static import InputSpec

from tests.frontends.paddle.flow.table import NETS
from tests.frontends.paddle.make_operators import KIND, folder_asked_for, keep, pack, without_stacks


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
    target = folder_asked_for()
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
        pack(folder, cases, arrays, target / f"flow_{KIND}")


if __name__ == "__main__":
    main()
