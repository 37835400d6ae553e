"""Run an ONNX file on pictures or arrays, with the steps before and after it from a recipe; or a package.

Examples:
  tonnx run net.onnx cat.jpg --recipe imagenet
  tonnx run sr.onnx photos/ --recipe super-resolution -o enlarged/
  tonnx run net.onnx 'shots/*.png' --recipe my.yaml --batch 8
  tonnx run net.onnx x=input.npy -o outputs/
  tonnx run clip-onnx/ cat.jpg --label "a cat" --label "a dog"
  tonnx run whisper-onnx/ speech.wav
  tonnx run net.onnx 's3://bucket/shots/*.jpg' -o answers.parquet --batch 32 --engine ray
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnx.cli import specs
from tonnx.cli.console import Console, Report
from tonnx.errors import InvalidArgument, TonnxError, system_says, told_as

if TYPE_CHECKING:
    from tonnx.run.after import Answer
    from tonnx.run.model import Model

_NOT_IN_NAMES = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
"""What no system takes in the name of a file, or not all do: an output may be called ``scores:0`` or ``a/b``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", metavar="MODEL", help="the ONNX file, or the folder of a package that labels or transcribes")
    add("inputs", nargs="+", metavar="INPUT", help="pictures, folders, globs; or arrays: data.npz, x.npy, x=file.npy")
    add("--recipe", metavar="R", help="a ready recipe, or a TOML, YAML or JSON file; by default the one in the model")
    add("--label", action="append", metavar="L", help="of a package that takes any labels: one to choose from")
    add(
        "-o", "--output", metavar="DIR",
        help="where pictures and numbers are written, here by default; or NAME.parquet, a table with a row a picture",
    )  # fmt: skip
    add("--batch", type=int, metavar="N", help="pictures at once; by default what the model fixes")
    add(
        "--engine", choices=("local", "ray"), default="local", help="what fills a table: this process, or a Ray cluster"
    )
    add("--actors", type=int, metavar="N", help="how many of them; by default one a processor")
    add("--address", metavar="A", help="of the Ray cluster; RAY_ADDRESS, or one started here")
    help = "an execution provider of ONNX Runtime, such as CUDA; several in order of preference; by default CPU"
    specs.add(parser, "--provider", help)
    specs.add(parser, "--threads")
    add("--max-pixels", type=int, metavar="N", help="refuse larger pictures; 100,000,000 by default")
    add(
        "--keep-going", action="store_true", help="leave out pictures that fail, and say so at the end with exit code 1"
    )


def run(options: argparse.Namespace, console: Console) -> Report:
    """Everything is computed first; files are written only when nothing failed."""
    from tonnx.cli.arrays import SUFFIXES
    from tonnx.run.model import load

    if Path(options.model).is_dir():
        return _run_package(options, console)
    if options.batch is not None and options.batch < 1:
        raise InvalidArgument(f"--batch must be at least 1, not {options.batch}")
    arrays = [text for text in options.inputs if text.lower().endswith(SUFFIXES)]
    if arrays and len(arrays) != len(options.inputs):
        raise InvalidArgument("pictures and arrays cannot be mixed", hint="run them one after the other")
    if (options.output or "").endswith(".parquet"):
        return _run_table(options, arrays, console)
    if options.engine == "ray" or options.actors or options.address:
        raise InvalidArgument("--engine ray, --actors and --address write a table", hint="-o NAME.parquet")
    paths = [] if arrays else _pictures(options.inputs)
    console.stage("load")
    model = load(options.model, recipe=options.recipe, providers=options.provider, threads=options.threads)
    folder = Path(options.output) if options.output else Path()
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"{folder} is a file", hint="-o takes a folder")
    with _staging(folder) as staging:
        results = _Results(folder, staging, Path(options.model).stem, [path.resolve() for path in paths])
        if arrays:
            _run_arrays(model, arrays, results)
        else:
            _run_pictures(model, paths, results, options, console)
        results.commit()
    return Report(results.text(), results.data, failed=bool(results.failed))


def _run_package(options: argparse.Namespace, console: Console) -> Report:
    """Labels with their probabilities, or the words of sounds."""
    from tonnx.run.package import SPEECH, Package

    console.stage("load")
    package = Package(options.model, options.provider, options.threads)
    if package.task == SPEECH:
        answers: list[Any] = [package.transcribe(sound) for sound in options.inputs]
        lines = [f"{name}: {words}" for name, words in zip(options.inputs, answers, strict=True)]
    else:
        answers, lines = package.classify(options.inputs, options.label), []
        for name, chances in zip(options.inputs, answers, strict=True):
            lines += [name, *(f"  {chance:7.2%}  {label}" for label, chance in [*chances.items()][:5])]
    data = [{"input": name, "answer": answer} for name, answer in zip(options.inputs, answers, strict=True)]
    return Report("\n".join(lines), lambda: {"results": data})


def _run_table(options: argparse.Namespace, arrays: Sequence[str], console: Console) -> Report:
    """A row a picture, in order, with the outputs of the network and what the recipe says of them."""
    from tonnx.run.pictures import MOST_PIXELS
    from tonnx.run.table import answer_batches, find_pictures, write_table

    if arrays or options.keep_going:
        raise InvalidArgument("a table is of pictures" if arrays else "a table has all pictures, or is not written")
    pictures = [found for text in options.inputs for found in find_pictures(text, _pictures)]
    how = {"recipe": options.recipe, "providers": options.provider}
    most = options.max_pixels or MOST_PIXELS
    console.stage(f"run {len(pictures)} picture{'s' if len(pictures) != 1 else ''}")
    if options.engine == "ray":
        import logging

        from tonnx.ray import picture_batches

        logging.getLogger("ray.data").setLevel(logging.ERROR)

        batches = picture_batches(
            options.model, pictures, batch=options.batch, actors=options.actors, threads=options.threads or 1,
            address=options.address, most_pixels=most, **how,
        )  # fmt: skip
    else:
        from tonnx.run.model import load

        model = load(options.model, threads=options.threads, **how)
        batches = answer_batches(model, pictures, options.batch, most)
    rows = write_table(options.output, console.progress(batches, len(pictures), "pictures"))
    return Report(f"{options.output}: {rows} rows", lambda: {"table": options.output, "rows": rows})


@contextlib.contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A hidden place in the folder, or where it will be; with a clear word if nothing can be written there."""
    with told_as(InvalidArgument, f"cannot write to the folder {folder}", OSError, why=system_says):
        parent = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        with tempfile.TemporaryDirectory(dir=parent, prefix=".tonnx-run-") as staging:
            yield Path(staging)


def _run_pictures(
    model: Model, paths: Sequence[Path], results: _Results, options: argparse.Namespace, console: Console
) -> None:
    from tonnx.run.pictures import MOST_PIXELS
    from tonnx.run.pipeline import batches, predict, recipe_of

    recipe_of(model)
    most = options.max_pixels or MOST_PIXELS
    console.stage(f"run {len(paths)} picture{'s' if len(paths) != 1 else ''}")
    groups = list(batches(model, paths, options.batch))
    for group in console.progress(groups, len(groups), "pictures"):
        try:
            answers: list[Answer | None] = [*predict(model, group, most)]
        except TonnxError as error:
            if not options.keep_going:
                error.where = error.where or ", ".join(map(str, group[:3]))
                raise
            answers = [_alone(model, path, most, results) for path in group]  # one bad picture spoils no batch
        for path, answer in zip(group, answers, strict=True):
            if answer is not None:
                results.add(path, answer)


def _alone(model: Model, path: Path, most_pixels: int, results: _Results) -> Answer | None:
    from tonnx.run.pipeline import predict

    try:
        return predict(model, [path], most_pixels)[0]
    except TonnxError as error:
        results.failed.append(f"{path}: {error.what}")
        return None


def _run_arrays(model: Model, inputs: Sequence[str], results: _Results) -> None:
    import numpy as np

    from tonnx.cli.arrays import read_arrays
    from tonnx.run.after import conclude
    from tonnx.run.recipe import Recipe

    arrays = read_arrays(inputs, list(model.inputs))
    named = {name: array for name, array in arrays.items() if name in model.inputs}
    if not named and len(arrays) == len(model.inputs):
        named = dict(zip(model.inputs, arrays.values(), strict=True))
    for name, array in named.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise InvalidArgument(f"the array for {name} has NaN", why="every output would be NaN too")
    outputs = model(**(named or arrays))
    recipe = model.recipe or Recipe()
    if recipe.after and all(len(array) == 1 for array in outputs.values() if array.ndim):
        outputs = {name: array[0] if array.ndim else array for name, array in outputs.items()}
    results.add(Path(inputs[0].split("=")[-1]), conclude(outputs, None, recipe))


class _Results:
    """Answers, and the files they become: in a hidden folder first, moved into place at the very end."""

    def __init__(self, folder: Path, staging: Path, model: str, inputs: Sequence[Path]) -> None:
        self._folder, self._staging, self._model, self._inputs = folder, staging, model, set(inputs)
        self._entries: list[dict[str, Any]] = []
        self._lines: list[str] = []
        self._names: dict[str, str] = {}  # by what a file system that ignores case takes for the same
        self.failed: list[str] = []

    def add(self, path: Path, answer: Answer) -> None:
        import numpy as np

        files = []
        if answer.picture is not None:
            files.append(self._name(f"{path.stem}-{self._model}", ".png"))
            answer.picture.save(self._staging / files[-1])
        for name, array in answer.arrays.items():
            files.append(self._name(f"{path.stem}-{name}", ".npy"))
            np.save(self._staging / files[-1], array)
        written = [str(self._folder / name) for name in files]
        self._entries.append({"input": str(path), **answer.data, "files": written})
        self._lines += [str(path), *(f"  {line}" for line in answer.lines), *(f"  → {name}" for name in written)]

    def _name(self, stem: str, suffix: str) -> str:
        stem = _NOT_IN_NAMES.sub("_", stem)
        name, number = f"{stem}{suffix}", 1
        while name.casefold() in self._names or (self._folder / name).resolve() in self._inputs:
            number += 1
            name = f"{stem}-{number}{suffix}"
        self._names[name.casefold()] = name
        return name

    def commit(self) -> None:
        """Move the files to where they belong."""
        if self._names:
            self._folder.mkdir(parents=True, exist_ok=True)
        for name in sorted(self._names.values()):
            os.replace(self._staging / name, self._folder / name)

    def text(self) -> str:
        return "\n".join([*self._lines, *(f"[✗] {line}" for line in self.failed)])

    def data(self) -> dict[str, Any]:
        return {"results": self._entries, "failed": self.failed}


def _pictures(inputs: Sequence[str]) -> list[Path]:
    """The pictures among files, folders and globs, in order."""
    from tonnx.run.pictures import SUFFIXES

    pictures: list[Path] = []
    for text in inputs:
        path = Path(text)
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
            if not inside:
                raise InvalidArgument(f"there are no pictures in {path}")
            pictures += inside
        elif path.exists() or not glob.has_magic(text):
            pictures.append(path)
        else:
            matches = [Path(match) for match in sorted(glob.glob(text, recursive=True))]
            if not matches:
                raise InvalidArgument(f"nothing matches {text}")
            pictures += matches
    return pictures
