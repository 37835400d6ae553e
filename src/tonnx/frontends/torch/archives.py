"""Files that PyTorch wrote: TorchScript archives, programs of torch.export, and what is only weights."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

from tonnx.errors import InvalidArgument, first_line, told_as

SUFFIXES = (".pt", ".pth", ".ts", ".pt2", ".ptl", ".torchscript", ".jit", ".ckpt", ".bin", ".safetensors")
_WEIGHTS = (".pth", ".ckpt", ".bin", ".safetensors")
_MAKE = "write a function that makes the model and loads the weights into it"


def is_torch_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a file of PyTorch's. Looks at names and at the zip's table only, and imports nothing."""
    file = Path(path)
    return file.name.lower().endswith(SUFFIXES) or (file.is_file() and _kind(file) in ("script", "export"))


def _kind(file: Path) -> str:
    try:
        if not zipfile.is_zipfile(file):
            return "other"
        with zipfile.ZipFile(file) as archive:
            names = [name.partition("/")[2] for name in archive.namelist()]
    except (zipfile.BadZipFile, NotImplementedError, ValueError):  # a damaged table: its magic, version, names
        return "other"
    if ".data/extern_modules" in names:
        return "package"
    if any(name.startswith(("models/", "serialized_exported_program")) for name in names):
        return "export"
    if "constants.pkl" in names:
        return "script"
    return "pickle" if "data.pkl" in names else "other"


def _damaged_member(file: Path) -> str:
    """A part of the program, weights apart, that does not fit its checksum; empty if there is none.

    PyTorch does not look, and reads damaged records of source lines without end. It may be told to write no checksums:
    then none of them fits.
    """
    fitting, damaged = 0, ""
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if "/data/" in member.filename or "/constants/" in member.filename:
                continue
            try:
                archive.read(member)
                fitting += member.file_size > 0
            except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError, ValueError):
                damaged = damaged or member.filename
    return damaged if fitting else ""


def load_torch_file(path: str | os.PathLike[str]) -> Any:
    """The program in a file: a ScriptModule or an ExportedProgram."""
    file = Path(path)
    if not file.is_file() and file.suffix not in _WEIGHTS:
        raise InvalidArgument(f"there is no file {file}")
    import torch

    from tonnx.frontends.patching import patched
    from tonnx.frontends.torch.capture.explain import quiet_torch

    kind = _kind(file) if file.is_file() else "pickle"
    if kind == "package":
        hint = "write a function that returns torch.package.PackageImporter(path).load_pickle(package, resource)"
        raise InvalidArgument(f"{file} is an archive of torch.package: code, and any number of objects", hint=hint)
    if kind == "script":
        read = torch.jit.load
    elif kind == "export" or file.suffix == ".pt2":
        read = torch.export.load
    elif kind == "other" and file.suffix not in _WEIGHTS:
        raise InvalidArgument(f"{file} is no archive that PyTorch writes a model into, or it is damaged", hint=_MAKE)
    else:
        raise InvalidArgument(f"{file} holds weights, not a model", hint=_MAKE)
    if kind == "script" and (member := _damaged_member(file)):
        raise InvalidArgument(f"{file} is damaged: {member} is not what was written into it")
    name = "torch.jit.load" if kind == "script" else "torch.export.load"
    # A damaged zip, another version, an operator that is not registered.
    with told_as(InvalidArgument, f"{name} cannot read {file}", why=first_line), patched(quiet_torch()):
        return read(file, map_location="cpu") if kind == "script" else read(file)
