"""The manifest of a zoo: models, opsets and options in TOML; each combination is a job.

See docs/zoo.md for what may stand in one.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tonnx.errors import InvalidArgument
from tonnx.ir.target import DEFAULT, Target
from tonnx.toml import Document, Place, read_toml
from tonnx.zoo.options import Options
from tonnx.zoo.process import Limits

_OWN = ("opset", "time", "memory", "latency", "cpus", "gpus", "resources", "depends")
"""Keys that are the zoo's own; all others are options of the command."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)?")
_UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12} | {
    f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)
}
_PLACEHOLDER = re.compile(r"\{(\w[\w-]*)\}")
_NOT_IN_NAMES = re.compile(r"[^\w.=+-]+")


def read_manifest(path: Path, commands: Mapping[str, Options]) -> list[Job]:
    """The jobs of a manifest, in its order. ``commands``: what ``export`` and ``retarget`` take."""
    document = read_toml(path)
    data = document.data
    document.check_keys((), data, ["model", "defaults"], "a manifest")
    defaults = data.get("defaults", {})
    if not isinstance(defaults, dict):
        raise document.error(("defaults",), "the defaults are a table", "write [defaults] above them")
    models = data.get("model", [])
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models) or not models:
        raise document.error(("model",), "a manifest has models", "write [[model]] above each of them")
    every = sorted({*_OWN, *(name for options in commands.values() for name in options.names)})
    document.check_keys(("defaults",), defaults, every, "the table of defaults")
    jobs: dict[str, tuple[Job, int]] = {}
    for number, entry in enumerate(models):
        for job in _Entry(document, number, entry, defaults, commands).jobs():
            if job.name in jobs:
                what = f"two jobs are called {job.name!r}"
                raise document.error(("model", number), what, "give one of the models another name")
            jobs[job.name] = job, number
    return [job for job, _ in jobs.values()]


@dataclass(frozen=True)
class _Entry:
    """One ``[[model]]`` of a manifest."""

    document: Document
    number: int
    entry: Mapping[str, Any]
    defaults: Mapping[str, Any]
    commands: Mapping[str, Options]

    @property
    def place(self) -> Place:
        return ("model", self.number)

    def jobs(self) -> Iterator[Job]:
        """Every combination of its matrix and its opsets."""
        if not isinstance(self.entry.get("model"), str):
            what = "this model does not say what it is"
            hint = 'model = "net.py:Net", a Paddle folder, or an .onnx file, as `tonnx export` and `retarget` take it'
            raise self.document.error((*self.place, "model"), what, hint)
        options = self.commands[self._command(self.entry["model"])]
        allowed = ["name", "model", "matrix", *_OWN, *options.names]
        self.document.check_keys(self.place, self.entry, allowed, f"the model {self.entry['model']!r}")
        matrix = self._matrix(options)
        for values in itertools.product(*matrix.values()):
            variant = dict(zip(matrix, values, strict=True))
            settings = {**self._defaults(options), **self.entry}
            settings |= {key: value for key, value in variant.items() if key in (*_OWN, *options.names)}
            settings = {key: _filled(value, variant) for key, value in settings.items() if key != "matrix"}
            for opset in self._opsets(settings.get("opset", None if "target" in settings else DEFAULT)):
                yield self._job(settings, variant, opset, options)

    def _command(self, model: str) -> str:
        return "retarget" if model.endswith(".onnx") else "export"

    def _defaults(self, options: Options) -> dict[str, Any]:
        """Those that concern it: a retargeted file has no capture."""
        return {key: value for key, value in self.defaults.items() if key in (*_OWN, *options.names)}

    def _matrix(self, options: Options) -> dict[str, list[Any]]:
        matrix = self.entry.get("matrix", {})
        place = (*self.place, "matrix")
        if not isinstance(matrix, dict):
            hint = 'matrix = { runtime = ["ort-cpu", "none"] }'
            raise self.document.error(place, "a matrix is a table of lists", hint)
        texts = [text for value in self.entry.values() for text in _texts(value)]
        used = {match for text in texts for match in _PLACEHOLDER.findall(text)}
        self.document.check_keys(place, matrix, [*used, *_OWN, *options.names], "this matrix")
        for key, values in matrix.items():
            if not isinstance(values, list) or not values:
                raise self.document.error((*place, key), f"the matrix goes over the values of {key!r}", "give a list")
        if "opset" in matrix and "opset" in self.entry:
            raise self.document.error((*place, "opset"), "opset stands beside the matrix, too", "leave out one of them")
        unknown = sorted(used - set(matrix))
        if unknown:
            raise self.document.error((*self.place, "model"), f"{{{unknown[0]}}} is not in the matrix of this model")
        return matrix

    def _opsets(self, asked: Any) -> Sequence[int | None]:
        """None where the target says it."""
        if asked is None:
            return [None]
        opsets = asked if isinstance(asked, list) else [asked]
        for opset in opsets:
            if not isinstance(opset, int) or isinstance(opset, bool):
                raise self._wrong("opset", f"an opset is a number, not {opset!r}")
            try:
                Target(opset)
            except InvalidArgument as error:
                raise self._wrong("opset", f"{error.what}: {error.why}" if error.why else error.what) from None
        if not opsets or len(set(opsets)) < len(opsets):
            raise self._wrong("opset", f"the opsets are {opsets}", "name each of them once")
        return opsets

    def _wrong(self, key: str, what: str, hint: str | None = None) -> InvalidArgument:
        own = key in self.entry or key in self.entry.get("matrix", {})
        place = self.place if own else ("defaults",)
        matrix = ("matrix",) if own and key not in self.entry else ()
        return self.document.error((*place, *matrix, key), what, hint)

    def _job(self, settings: dict[str, Any], variant: Mapping[str, Any], opset: int | None, options: Options) -> Job:
        model = settings["model"]
        words = [self._command(model), model, *([] if opset is None else ["--opset", str(opset)])]
        for key in options.names:
            if key in settings:
                try:
                    words += options.words(key, settings[key])
                except ValueError as error:
                    raise self._wrong(key, f"{key}: {error}") from None
        label = str(settings.get("name", _short(model)))
        parts = {key: value for key, value in variant.items() if f"{{{key}}}" not in str(self.entry.get("name", ""))}
        parts.pop("opset", None)
        title = " ".join([label, *(f"{key}={_shown(value)}" for key, value in parts.items())])
        return Job(
            name=_NOT_IN_NAMES.sub("_", title if opset is None else f"{title} opset{opset}").strip("._"),
            title=title,
            source=model,
            opset=opset,
            words=tuple(words),
            folder=str(self.document.path.resolve().parent),
            limits=Limits(self._seconds(settings), self._bytes(settings)),
            latency=self._flag(settings, "latency"),
            needs=self._needs(settings),
            depends=tuple(self._strings(settings, "depends")),
        )

    def _needs(self, settings: Mapping[str, Any]) -> Needs:
        cpus, gpus = (self._number(settings, key, default) for key, default in (("cpus", 1.0), ("gpus", 0.0)))
        resources = settings.get("resources", {})
        if not isinstance(resources, dict) or not all(isinstance(count, (int, float)) for count in resources.values()):
            raise self._wrong("resources", "resources are a table of numbers", "resources = { big_machine = 1 }")
        return Needs(cpus, gpus, tuple(sorted((str(key), float(count)) for key, count in resources.items())))

    def _number(self, settings: Mapping[str, Any], key: str, default: float) -> float:
        value = settings.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise self._wrong(key, f"{key} is a number, not {value!r}")
        return float(value)

    def _seconds(self, settings: Mapping[str, Any]) -> float | None:
        if "time" not in settings:
            return 1800.0
        return self._number(settings, "time", 0) or None

    def _bytes(self, settings: Mapping[str, Any]) -> int | None:
        asked = settings.get("memory")
        match = _SIZE.fullmatch(str(asked).strip()) if asked is not None else None
        if asked is not None and (match is None or isinstance(asked, bool)):
            raise self._wrong("memory", f"memory is a size, not {asked!r}", 'such as memory = "8GB"')
        return None if match is None else int(float(match[1]) * _UNITS[match[2] or "B"])

    def _flag(self, settings: Mapping[str, Any], key: str) -> bool:
        value = settings.get(key, True)
        if not isinstance(value, bool):
            raise self._wrong(key, f"{key} is true or false, not {value!r}")
        return value

    def _strings(self, settings: Mapping[str, Any], key: str) -> Sequence[str]:
        values = settings.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise self._wrong(key, f"{key} is a list of files and folders", f'{key} = ["weights.pt"]')
        return values


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _filled(value: Any, variant: Mapping[str, Any]) -> Any:
    """``{size}`` replaced by what the matrix says of it."""
    if isinstance(value, list):
        return [_filled(one, variant) for one in value]
    if not isinstance(value, str):
        return value
    return _PLACEHOLDER.sub(lambda match: _shown(variant.get(match[1], match[0])), value)


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _short(model: str) -> str:
    """What a model without a name is called: ``resnet18`` of ``nets.py:resnet18``, ``ocr`` of ``models/ocr/``."""
    place, _, name = model.rpartition(":")
    return name if place and "/" not in name else Path(model.rstrip("/")).stem


@dataclass(frozen=True)
class Needs:
    """What a job asks of the machine that it runs on; engines with several machines place it by this."""

    cpus: float = 1
    gpus: float = 0
    resources: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Job:
    """What is to be done; the same job has the same name in every run."""

    name: str
    """Of the job and of its files: ``resnet18_opset11``."""
    title: str
    """The row on the page: the model's name, and what of the matrix it is."""
    source: str
    opset: int | None
    """None: the one that its target likes."""
    words: tuple[str, ...]
    """``tonnx`` and these words do it; where the file goes is added."""
    folder: str
    """Where the manifest is: paths in it start there."""
    limits: Limits = field(default_factory=Limits)
    latency: bool = True
    needs: Needs = field(default_factory=Needs)
    depends: tuple[str, ...] = ()
    """Files and folders that the model reads besides those that can be seen."""

    @property
    def output(self) -> str:
        """The name of what it writes: a file, or the folder of a package."""
        path = Path(self.folder, self.source)
        is_checkpoint = path.is_dir() and ("--task" in self.words or (path / "config.json").is_file())
        return self.name if is_checkpoint else f"{self.name}.onnx"

    @property
    def command(self) -> str:
        """What to type in the manifest's folder to do it by hand."""
        return shlex.join(["tonnx", *self.words, "-o", self.output])
