"""One export, as it was asked for: every argument of `tonnx.export`, checked before the long work begins."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tonnx.api import torch_compat
from tonnx.errors import InvalidArgument
from tonnx.frontends.request import ModelRequest
from tonnx.ir.target import Target

if TYPE_CHECKING:
    from tonnx.run.recipe import Recipe
    from tonnx.stages import Progress

SAVING = ("output_spec", "with_hook", "input_names_after_prune", "clip_extra")
"""Options of ``paddle.jit.save`` that say what of a layer is exported."""


@dataclass(frozen=True)
class Weights:
    """Where the weights go."""

    stay: bool = False
    """The file points into those that hold them already."""
    files: tuple[str, ...] = ()
    """Which those are; where there are none, they are looked for."""
    beside: Path = Path()
    """The ONNX file."""


@dataclass(frozen=True)
class ExportRequest(ModelRequest):
    """What goes into an export; see `tonnx.export`. The front ends read the first part of it, `ModelRequest`."""

    f: str | os.PathLike[str] | BinaryIO | None = None
    export_params: bool = True
    do_constant_folding: bool = True
    fuse_conv_bn: bool = True
    keep_initializers_as_inputs: bool | None = False
    custom_opsets: Mapping[str, int] = field(default_factory=dict)
    strip_doc_string: bool | None = None
    """None: what tonnx does by itself; True: nodes say nothing of their source; False: in their doc strings."""
    optimize: bool = True
    external_data: bool | None = None
    weights: Weights = field(default_factory=lambda: Weights())
    recipe: Recipe | None = None
    embed_preprocessing: bool = False
    report: bool | str | os.PathLike[str] = False
    verbose: bool = False
    rtol: float | None = None
    atol: float | None = None
    progress: Progress | None = None
    notes: tuple[str, ...] = ()
    """What is to be said of arguments that change nothing."""

    @property
    def may_change_weights(self) -> bool:
        """Whether folding and fusing may replace weights: a model for training keeps its own."""
        return self.optimize and self.training == "EVAL"


def read_request(arguments: Mapping[str, Any]) -> ExportRequest:
    """The arguments of `tonnx.export`, those that only ``torch.onnx.export`` had among them as ``classic``."""
    options = dict(arguments)
    classic = dict(options.pop("classic"))
    target = Target.of(options.pop("opset_version"), options.pop("runtime"), options.pop("target"))
    saving = {name: classic.pop(name) for name in SAVING if name in classic}
    options |= torch_compat.read(classic, options)
    options |= _fit_target(options, target)
    check_options(options["f"], options["external_data"], options["rtol"], options["atol"], options["report"])
    options["weights"] = read_weights(options["weights"], options["f"], options["external_data"])
    if options["weights"].stay and not options["export_params"]:
        raise InvalidArgument("a file without weights cannot point at them", hint="leave out export_params, or weights")
    options["recipe"] = _recipe(options["recipe"], options["embed_preprocessing"])
    return ExportRequest(**options, target=target, saving=saving)


def _fit_target(options: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """What a named target settles: the example's sizes for good, and weights inside of the file."""
    profile, settled = target.profile, dict[str, Any]()
    if profile is None:
        return settled
    if profile.static and (options["dynamic_axes"] or options["dynamic_shapes"]):
        note = f"{profile.name} takes fixed shapes only: every dimension has the size of the example"
        settled |= {"dynamic_axes": None, "dynamic_shapes": None, "notes": (*options.get("notes", ()), note)}
    if not profile.external_data:
        if options["external_data"] or options["weights"] != "copy":
            raise InvalidArgument(f"{profile.name} reads one file", hint="leave out external_data and weights")
        settled["external_data"] = False
    return settled


def _recipe(recipe: Any, embedded: bool) -> Recipe | None:
    if recipe is None:
        if embedded:
            raise InvalidArgument("embed_preprocessing needs a recipe", hint="recipe='imagenet', or a file of your own")
        return None
    from tonnx.run.recipe import read_recipe

    return read_recipe(recipe)


def read_weights(weights: Any, f: Any, external_data: bool | None) -> Weights:
    """The argument ``weights``: ``copy``, ``reference``, or the files that hold them."""
    if isinstance(weights, str) and weights == "copy":
        return Weights()
    files = [weights] if isinstance(weights, (str, os.PathLike)) else weights
    if not isinstance(files, (list, tuple)) or not all(isinstance(file, (str, os.PathLike)) for file in files):
        raise InvalidArgument(f"weights must be 'copy', 'reference' or files that hold them, not {weights!r}")
    if not isinstance(f, (str, os.PathLike)):
        raise InvalidArgument("only a file can point at the weights in another one", hint="give a path as f")
    if external_data:
        raise InvalidArgument(
            "external_data=True writes the weights, and weights='reference' leaves them where they are",
            hint="leave out one of the two",
        )
    names = () if weights == "reference" else tuple(os.fspath(file) for file in files)
    if names:
        from tonnx.io.reference import check_files

        check_files(names, Path(f))
    return Weights(True, names, Path(f))


def check_options(
    f: Any, external_data: bool | None, rtol: float | None, atol: float | None, report: Any = None
) -> None:
    """What can be known to be wrong before the long work begins."""
    if report and not isinstance(f, (str, os.PathLike)):
        raise InvalidArgument("a report is about a file", hint="give a path as f")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance is not None and (not isinstance(tolerance, (int, float)) or not tolerance >= 0):
            raise InvalidArgument(f"{name} must be a number that is at least 0, not {tolerance!r}")
    if f is None:
        return
    if isinstance(f, (str, os.PathLike)):
        path = Path(f)
        _check_name(path)
        if not os.fspath(f) or path.is_dir() or os.fspath(f).endswith(_SEPARATORS):
            why = "it is a folder" if os.fspath(f) else None
            raise InvalidArgument(f"f must be the path of a file, not {os.fspath(f)!r}", why=why)
        if not path.parent.is_dir():
            raise InvalidArgument(
                f"cannot write {path}",
                why=f"the folder {path.parent} does not exist",
                hint="make the folder first",
            )
    elif not hasattr(f, "write"):
        raise InvalidArgument(f"f must be a path, a binary file-like object or None, not {f!r}")
    elif getattr(f, "closed", False):
        raise InvalidArgument("the file object is closed", hint="give it while it is open, or give a path")
    elif isinstance(f, io.TextIOBase) or (isinstance(f, io.IOBase) and not f.writable()):
        how = "for text" if isinstance(f, io.TextIOBase) else "for reading"
        raise InvalidArgument(f"the file object is open {how}", hint="open it with mode 'wb'")
    elif external_data:
        raise InvalidArgument("a file object cannot have external data", hint="give a path")


_SEPARATORS = tuple(filter(None, (os.sep, os.altsep)))


def _check_name(path: Path) -> None:
    """A name that no file can have, or that runtimes, which are written in C++, cannot open."""
    try:
        os.fspath(path).encode()
        os.lstat(f"{path}.data")  # the longest that is written
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidArgument(f"cannot write {os.fspath(path)[:200]!r}", why=why, hint="give another name") from error
