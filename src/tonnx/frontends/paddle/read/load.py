"""A saved Paddle model: finds its files, reads them, fits them together."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import onnx_ir as ir

from tonnx.errors import InvalidArgument
from tonnx.frontends.paddle.read import params as weights
from tonnx.frontends.paddle.read import pir, program
from tonnx.frontends.paddle.read.damaged_file import at, damaged
from tonnx.frontends.paddle.read.graph import Program

_SUFFIXES = (".json", ".pdmodel")
_OLD_NAME = "__model__"
_WEIGHTS = (".pdiparams",)
_OLD_WEIGHTS = ("__params__", "params")
_SNIFF = 4096


@dataclass(frozen=True)
class Loaded:
    """A model: what it computes, and its weights by name."""

    program: Program
    params: dict[str, ir.Tensor]
    path: Path
    weights: Path | None = None
    """The weights file, or the folder that has one for each parameter; None if there are none."""


def load(path: str | os.PathLike[str], params: str | os.PathLike[str] | None = None) -> Loaded:
    """Read a saved model.

    ``path`` is the program (``inference.json``, ``inference.pdmodel``, ``__model__``), the prefix that was given to
    ``paddle.jit.save``, or a folder with one program. ``params`` is the weights file, or a folder with a file for
    each parameter; without it they are looked for beside the program. ::

        loaded = load("ocr/inference")
        loaded.program.inputs["x"].shape      # (-1, 3, 48, -1)
        loaded.params["conv2d_0.w_0"].numpy()
    """
    file = find_program(Path(path))
    with at(str(file)):
        program_read = read_program(file)
    weights_path = Path(params) if params is not None else _find_weights(program_read, file)
    tensors = {} if weights_path is None else _read_weights(program_read, weights_path)
    for name, tensor in tensors.items():
        with at(f"parameter {name!r}"):
            _fit(program_read, name, tensor)
    return Loaded(program_read, tensors, file, weights_path)


def find_program(path: Path) -> Path:
    if path.suffix in _WEIGHTS and path.is_file():
        raise InvalidArgument(
            f"{path} holds the weights of a Paddle model, not its program",
            hint=f"give the program: {path.with_suffix('.json')}, {path.with_suffix('.pdmodel').name} or the folder",
        )
    if path.is_file():
        return path
    if path.is_dir():
        candidates = sorted(f for f in path.iterdir() if f.is_file() and (f.name == _OLD_NAME or f.suffix in _SUFFIXES))
        candidates = [f for f in candidates if f.suffix != ".json" or _is_pir(f)]  # configurations are JSON too
    else:
        candidates = [f for suffix in _SUFFIXES if (f := path.with_name(path.name + suffix)).is_file()]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise InvalidArgument(
            f"{path} has several Paddle programs: {', '.join(f.name for f in candidates[:10])}", hint="give one of them"
        )
    what = "has no Paddle program" if path.is_dir() else "does not exist"
    raise InvalidArgument(
        f"{path} {what}", hint="give an inference.json, inference.pdmodel or __model__ file, or the folder of one"
    )


def read_program(file: Path) -> Program:
    """A program of either format: the content tells which, not the name."""
    data = weights.mapped(file)
    start = bytes(data[:_SNIFF]).lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start:
        raise damaged("the file is empty")
    if start.startswith(b"version https://git-lfs"):
        raise damaged("it is a Git LFS pointer, not the file itself", hint="run `git lfs pull`")
    if start.startswith((b"{", b"[")):
        if data.nbytes > pir.MAX_BYTES:  # before it is copied
            raise damaged(f"the program takes {data.nbytes} bytes; at most {pir.MAX_BYTES} are read")
        return pir.read(data.tobytes())
    return program.read(data.data)


def _is_pir(file: Path) -> bool:
    try:
        with open(file, "rb") as opened:
            return b'"base_code"' in opened.read(_SNIFF)  # Paddle sorts its keys: it comes first
    except OSError:
        return False


def _read_weights(program: Program, path: Path) -> dict[str, ir.Tensor]:
    names = list(program.parameters)
    if path.is_dir():
        return weights.separate(path, [name for name in names if name not in program.unsaved])
    if not path.is_file():
        raise InvalidArgument(f"the weights {path} do not exist")
    return weights.combined(path, names, program.unsaved)


def _find_weights(program: Program, file: Path) -> Path | None:
    if all(name in program.unsaved for name in program.parameters):
        return None  # Paddle writes no file for no weights
    folder = file.parent
    stem = file.name.removesuffix(file.suffix) if file.suffix in _SUFFIXES else file.name
    candidates = [folder / (stem + suffix) for suffix in _WEIGHTS]
    candidates += [folder / name for name in _OLD_WEIGHTS]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    alone = sorted(f for f in folder.iterdir() if f.suffix in _WEIGHTS and f.is_file())
    if len(alone) == 1:
        return alone[0]
    paths = (weights.file_of(folder, name) for name in program.parameters if name not in program.unsaved)
    if any(path is not None and path.is_file() for path in paths):
        return folder
    raise InvalidArgument(
        f"the weights of {file} were not found",
        why=f"it has {len(program.parameters)} parameters, and there is no {candidates[0].name} beside it",
        hint="give the weights file with params=",
    )


def _fit(program: Program, name: str, tensor: ir.Tensor) -> None:
    value = program.parameters[name]
    shape = tuple(int(dim) for dim in tensor.shape.numpy())
    said = value.shape
    if said is not None and _solid(said) == _solid(shape):
        pass  # quantisation passes write scales as [], [1], [8] or [1, 8], whatever the program says
    elif said is not None and (
        len(said) != len(shape) or any(a not in (-1, b) for a, b in zip(said, shape, strict=True))
    ):
        raise damaged(
            f"the program says {list(said)} and the weights file {list(shape)}",
            hint="give the weights file that was saved together with this program",
        )
    # The file is right about the type: PaddleSlim stores int8 weights for variables that are declared float.
    value.type = replace(value.type, dtype=tensor.dtype, shape=shape)


def _solid(shape: tuple[int, ...]) -> list[int]:
    """A shape without its axes of size 1."""
    return [size for size in shape if size != 1]
