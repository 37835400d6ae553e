"""Writes the archives of `fixtures`: every case of `operators` with the real PaddlePaddle.

Run by `make fixtures`: by 3.3.1 for PIR programs, by 2.6.2 for old ones. An archive has the programs, the inputs and
outputs of every case, and the arrays, where each lies once, under its hash.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.static import InputSpec

from tests.frontends.paddle import stored
from tests.frontends.paddle.operators.table import CASES, LIKE, MEND, RAW, STATIC

HERE = Path(__file__).resolve().parent
KIND = "pir" if paddle.__version__.startswith("3") else "old"
ARCHIVES = {
    "operators": ("pointwise", "reduce", "shape", "index", "vision", "picture"),
    "detection": ("detection", "proposals"),
    "further": ("further", "old", "quant", "random"),
}
"""By archive: the modules whose cases it has."""


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


class _Four(_Net):
    def forward(self, x, y, z, u):
        return self.function(x, y, z, u)


class _Five(_Net):
    def forward(self, x, y, z, u, v):
        return self.function(x, y, z, u, v)


def save(name: str, folder: Path, arrays: dict[str, np.ndarray]) -> dict[str, list[str]]:
    function, inputs, dynamic = CASES[name]
    results = function(*map(paddle.to_tensor, inputs))
    specs = []
    for i, array in enumerate(inputs):
        axes = dynamic.get(i, ()) if isinstance(dynamic, dict) else dynamic
        shape = [None if axis in axes else size for axis, size in enumerate(array.shape)]
        specs.append(InputSpec(shape, str(array.dtype), f"in{i}"))
    net = (_One, _Two, _Three, _Four, _Five)[len(inputs) - 1](function)
    net.eval()
    paddle.jit.save(net, str(folder / name), input_spec=specs)
    (folder / f"{name}.pdiparams.info").unlink(missing_ok=True)
    if KIND == "old":
        without_stacks(folder / f"{name}.pdmodel")
    outputs = [r.numpy() for r in paddle.utils.flatten(results) if r is not None]
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


def save_raw(name: str, folder: Path, arrays: dict[str, np.ndarray]) -> dict[str, list[str]]:
    """A program of one old operator that no function of Paddle makes any more; Paddle's executor computes it."""
    case = RAW[name]
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start), paddle.base.unique_name.guard():
        block, slots, feeds, given = main.global_block(), {}, {}, []
        for slot, array in case.inputs.items():
            parts = array if isinstance(array, list) else [array]
            slots[slot] = [_input(f"in{len(feeds) + i}", part, case.dynamic) for i, part in enumerate(parts)]
            feeds.update({variable.name: part for variable, part in zip(slots[slot], parts, strict=True)})
            given += slots[slot]
        for slot, array in case.weights.items():
            slots[slot] = [_weight(f"{slot.lower()}_w", array)]
        made = {
            slot: [block.create_var(name=f"{slot.lower()}_{i}", dtype=dtype) for i in range(count)]
            for slot, (dtype, count) in case.outputs.items()
        }
        unread = {slot: [block.create_var(name=f"{slot.lower()}_0", dtype="float32")] for slot in case.hidden}
        block.append_op(type=case.type, inputs=slots, outputs={**made, **unread}, attrs=case.attributes)
        run = paddle.static.Executor(paddle.CPUPlace())
        run.run(start)
        wanted = [v for values in made.values() for v in values]
        outputs = run.run(main, feed=feeds, fetch_list=wanted, return_numpy=False)
        paddle.static.save_inference_model(str(folder / name), given, wanted, run, program=main)
    without_stacks(folder / f"{name}.pdmodel")
    results = [np.asarray(value) for value in outputs]
    return {"inputs": [keep(a, arrays) for a in feeds.values()], "outputs": [keep(a, arrays) for a in results]}


def save_static(name: str, folder: Path, arrays: dict[str, np.ndarray]) -> dict[str, list[str]]:
    """A case that exists in programs alone."""
    function, inputs, dynamic = CASES[name]
    main, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, start), paddle.base.unique_name.guard():
        given = [_input(f"in{i}", array, dynamic) for i, array in enumerate(inputs)]
        wanted = [value for value in paddle.utils.flatten(function(*given)) if value is not None]
        run = paddle.static.Executor(paddle.CPUPlace())
        run.run(start)
        outputs = run.run(main, feed={f"in{i}": array for i, array in enumerate(inputs)}, fetch_list=wanted)
        paddle.static.save_inference_model(str(folder / name), given, wanted, run, program=main)
    if KIND == "old":
        without_stacks(folder / f"{name}.pdmodel")
    outputs = MEND[name](*outputs) if name in MEND else outputs
    return {"inputs": [keep(a, arrays) for a in inputs], "outputs": [keep(np.asarray(a), arrays) for a in outputs]}


def _input(name: str, array: np.ndarray, dynamic: Any) -> Any:
    shape = [-1 if axis in dynamic else size for axis, size in enumerate(array.shape)]
    return paddle.static.data(name, shape, str(array.dtype))


def _weight(name: str, array: np.ndarray) -> Any:
    value = paddle.nn.initializer.Assign(array)
    return paddle.create_parameter(list(array.shape), str(array.dtype), name, default_initializer=value)


def write(archive: str, modules: Sequence[str], target: Path) -> None:
    """One archive with all cases of the modules."""
    CASES.clear()
    RAW.clear()
    for module in modules:
        importlib.import_module(f"tests.frontends.paddle.operators.{module}")
    cases, arrays = {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in (*CASES, *(RAW if KIND == "old" else ())):
            how = save_raw if name in RAW else save_static if name in STATIC else save
            try:
                if how is not save:
                    paddle.enable_static()
                cases[name] = how(name, folder, arrays)
            except Exception as error:  # an operator that this version of Paddle lacks
                print(f"{name}: not saved: {type(error).__name__} {str(error).strip().splitlines()[-1][:200]}")
            finally:
                paddle.disable_static()
        for name in cases.keys() & LIKE.keys():  # what was drawn is not compared: zeros take no room
            drawn = [np.zeros_like(arrays[key]) for key in cases[name]["outputs"]]
            cases[name].update(LIKE[name], outputs=[keep(a, arrays) for a in drawn])
        used = {key for case in cases.values() for keys in (case["inputs"], case["outputs"]) for key in keys}
        arrays = {key: array for key, array in arrays.items() if key in used}
        pack(folder, cases, arrays, target / f"{archive}_{KIND}")


def pack(folder: Path, cases: dict[str, Any], arrays: dict[str, np.ndarray], target: Path) -> None:
    """The programs and weights of the cases, which lie in a folder, as one file."""
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file() and file.stem in cases}
    path = stored.pack(files, cases, arrays, target)
    print(f"{path.name}: {len(cases)} cases, Paddle {paddle.__version__}")


def folder_asked_for() -> Path:
    """``--to FOLDER``, or where the tests look."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", type=Path, default=HERE / "fixtures")
    target: Path = parser.parse_args().to
    target.mkdir(parents=True, exist_ok=True)
    return target


def main() -> None:
    target = folder_asked_for()
    for archive, modules in ARCHIVES.items():
        write(archive, modules, target)


if __name__ == "__main__":
    main()
