"""The content of everything that a job depends on, as one hash: the same hash, the same result.

That is the model's source with the local modules that it imports and the files that it names, the files that its
options name, the options, tonnx itself, and the versions of the packages that take part. What a model reads under a
name that it computes cannot be seen; the manifest names it with ``depends``.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

import tonnx
from tonnx.zoo.manifest import Job

_ALWAYS = ("onnx", "onnx-ir", "onnxruntime", "numpy", "torch", "paddlepaddle")
_CHUNK = 1 << 20


@cache
def _tonnx() -> str:
    """The content of tonnx's own code: a version says too little while it is worked on."""
    digest = hashlib.sha256()
    root = Path(tonnx.__file__).parent
    for file in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".json", ".toml")):
        digest.update(file.relative_to(root).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


@cache
def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "none"


@cache
def _distributions() -> dict[str, list[str]]:
    return {name: sorted(set(owners)) for name, owners in packages_distributions().items()}


def versions() -> dict[str, str]:
    """The versions that a result was had with."""
    return {"tonnx": tonnx.__version__} | {name: _version(name) for name in _ALWAYS if _version(name) != "none"}


class Sources:
    """Hashes of jobs; what several share is read once."""

    def __init__(self) -> None:
        self._hashes: dict[Path, str] = {}
        self._imports: dict[tuple[Path, Path], tuple[set[Path], set[str]]] = {}

    def fingerprint(self, job: Job) -> str:
        """The hash of all that the job's result depends on."""
        folder = Path(job.folder)
        files, packages = self._of_model(folder, job.source)
        named = [folder / word.rpartition("=")[2] for word in job.words[2:]]
        files |= {path for path in named if _is_there(path)}
        files |= {folder / name for name in job.depends}
        content = {
            "words": job.words,
            "latency": job.latency,
            "tonnx": _tonnx(),
            "python": list(sys.version_info[:2]),
            "packages": {name: _version(name) for name in sorted({*_ALWAYS, *packages})},
            "files": sorted((self._named(file, folder), self._hash(file)) for file in files),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _named(self, file: Path, folder: Path) -> str:
        """Relative: a zoo may be checked out anywhere."""
        try:
            return file.resolve().relative_to(folder.resolve()).as_posix()
        except ValueError:
            return file.name

    def _hash(self, path: Path) -> str:
        if path not in self._hashes:
            self._hashes[path] = _content(path)
        return self._hashes[path]

    def _of_model(self, folder: Path, source: str) -> tuple[set[Path], set[str]]:
        """Files and packages: of a saved model what is saved, of Python code what it imports."""
        place, _, name = source.rpartition(":")
        if (folder / source).exists():
            return {folder / source, *_beside(folder / source)}, set()
        if place.endswith(".py") or source.endswith(".py"):
            file = folder / (place if place.endswith(".py") else source)
            return self._closure(file, [file.parent, folder])
        if any((folder / f"{source}{suffix}").exists() for suffix in (".json", ".pdmodel")):
            return set(_beside(folder / f"{source}.json")), set()
        return self._module(place or name, [folder])

    def _closure(self, file: Path, roots: Sequence[Path]) -> tuple[set[Path], set[str]]:
        """A file and whatever local code it leads to."""
        files, packages, rest = set[Path](), set[str](), [file]
        while rest:
            one = rest.pop()
            if one in files:
                continue
            files.add(one)
            key = one, roots[0]
            if key not in self._imports:
                self._imports[key] = self._read(one, roots)
            others, names = self._imports[key]
            rest += [other for other in others if other.suffix == ".py"]
            files |= {other for other in others if other.suffix != ".py"}
            packages |= names
        return files, packages

    def _read(self, file: Path, roots: Sequence[Path]) -> tuple[set[Path], set[str]]:
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):  # the job itself will say it
            return set(), set()
        files, packages = set[Path](), set[str]()
        for module in _imported(tree, file, roots):
            more_files, more_packages = self._module(module, roots)
            files |= more_files
            packages |= more_packages
        for text in {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}:
            if isinstance(text, str) and 0 < len(text) < 200 and "\0" not in text and ("." in text or "/" in text):
                files |= {root / text for root in roots if _is_there(root / text) and (root / text).is_file()}
        return files, packages

    def _module(self, module: str, roots: Sequence[Path]) -> tuple[set[Path], set[str]]:
        """A module's file if it is one of the user's, with those of its packages; else the distribution it is from."""
        top, *rest = module.split(".")
        files, search = set[Path](), [str(root) for root in roots]
        for i, part in enumerate((top, *rest)):
            spec = PathFinder.find_spec(".".join((top, *rest)[: i + 1]), search) if part else None
            if spec is None:
                break
            files |= {Path(spec.origin)} if spec.origin and spec.origin.endswith(".py") else set()
            if spec.submodule_search_locations is None:
                break
            search = list(spec.submodule_search_locations)
        return files, set() if files else set(_distributions().get(top, ()))


def _imported(tree: ast.AST, file: Path, roots: Sequence[Path]) -> Iterator[str]:
    """Names of modules; of ``from a import b`` also ``a.b``, which may be one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = file.parents[node.level - 1]
                base = ".".join(filter(None, (*_below(package, roots), base)))
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


def _below(package: Path, roots: Sequence[Path]) -> tuple[str, ...]:
    return next((package.relative_to(root).parts for root in roots if package.is_relative_to(root)), ())


def _beside(path: Path) -> Iterator[Path]:
    """What belongs to a saved model: ``net.onnx.data``, ``net.pdiparams``."""
    if path.is_dir():
        return
    for other in path.parent.glob(f"{path.stem}.*"):
        if other.is_file() and other.suffix not in (".html", ".py"):
            yield other


def _is_there(path: Path) -> bool:
    """Whether there is such a file or folder; a text that is too long for a name is none."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _content(path: Path) -> str:
    digest = hashlib.sha256()
    if path.is_dir():
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            digest.update(file.relative_to(path).as_posix().encode())
            digest.update(_content(file).encode())
        return digest.hexdigest()
    if path.exists() and not path.is_file():
        return "not a file"  # reading a pipe would take from the job what is meant for it
    try:
        with path.open("rb") as opened:
            while chunk := opened.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return digest.hexdigest()
