"""The little languages of the command line: inputs, shapes, dynamic axes. Plain text in, plain data out."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, replace
from typing import Any

from tonnx.ir.size_expressions import derived_sizes, is_size

DTYPES = (
    "float32 float64 float16 bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
    "int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128"
).split()

_ALIASES = {
    "float": "float32", "fp32": "float32", "f32": "float32", "double": "float64", "fp64": "float64", "f64": "float64",
    "half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16", "short": "int16", "int": "int64",
    "long": "int64", "i32": "int32", "i64": "int64", "byte": "uint8", "u8": "uint8", "i8": "int8", "boolean": "bool",
}  # fmt: skip

_NAME = r"[A-Za-z_][\w./-]*"
_INPUT = re.compile(rf"\s*(?P<name>{_NAME})\s*(?::\s*(?P<dtype>\w*)\s*)?\[(?P<dims>[^\[\]]*)\]\s*")
_SHAPE = re.compile(rf"\s*(?:(?P<name>{_NAME})\s*:)?\s*(?P<dims>\[[^\[\]]*\]|[^\[\]]*)\s*")
_DIM_NAME = r"[A-Za-z_(][\w\s+*/%()-]*"
_DIM = re.compile(rf"(?P<name>{_DIM_NAME}?)(?:\s*=\s*(?P<size>\d+))?")


@dataclass(frozen=True)
class DimSpec:
    """One dimension: fixed to ``size``, or dynamic with a name ("" lets tonnx choose it) and perhaps an example."""

    size: int | None
    name: str | None = None


@dataclass(frozen=True)
class InputSpec:
    """One input. Without a name it is the next of the model's; without a dtype it is float32."""

    name: str | None
    dtype: str | None
    dims: tuple[DimSpec, ...]

    @property
    def dynamic(self) -> dict[int, str]:
        return {axis: dim.name for axis, dim in enumerate(self.dims) if dim.name is not None}


def input_spec(text: str) -> InputSpec:
    """``x:float32[batch,3,224,224]``, ``x[batch=4,3]``, ``x:int64[]``."""
    match = _INPUT.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an input; it is written NAME:DTYPE[DIM,...], such as x:float32[batch,3,224,224]"
        )
    return InputSpec(match["name"], _dtype(match["dtype"]), _dims(match["dims"], text))


def shape_spec(text: str) -> InputSpec:
    """``x:1,3,224,224``; the name may be left out where there is one input."""
    match = _SHAPE.fullmatch(text)
    dims = match["dims"].strip("[]") if match else ""
    if match is None or not dims.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape; it is written NAME:1,3,224,224")
    return InputSpec(match["name"], None, _dims(dims, text))


def dynamic_spec(text: str) -> tuple[str, dict[int, str | None]]:
    """``x:0=batch,2=h``: the axes of an input or output that are dynamic; ``x:0,2`` leaves the names to tonnx."""
    name, colon, rest = text.rpartition(":")
    axes: dict[int, str | None] = {}
    for part in rest.split(","):
        match = re.fullmatch(rf"\s*(-?\d+)\s*(?:=\s*({_DIM_NAME}))?", part)
        if match is None or not name or not colon or (match[2] and not is_size(match[2])):
            raise argparse.ArgumentTypeError(f"{text!r} does not name axes; they are written NAME:0=batch,2=height")
        axes[int(match[1])] = match[2].strip() if match[2] else None
    return name.strip(), axes


def names(text: str) -> list[str]:
    """``a,b``: names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def opset(text: str) -> int:
    from tonnx.errors import InvalidArgument
    from tonnx.ir.target import Target

    try:
        return Target(int(text)).opset
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError(f"{text} is out of range: {error.why}") from None


def runtime(text: str) -> str | None:
    from tonnx.errors import InvalidArgument
    from tonnx.ir.target import Target

    try:
        return Target(runtime=None if text == "none" else text).runtime
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError(f"{error.what}; it is ort-cpu, ort or none") from None


def target(text: str) -> str:
    from tonnx.errors import InvalidArgument
    from tonnx.targets import read_profile

    try:
        return read_profile(text).name
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError("; ".join(filter(None, (error.what, error.hint, error.why)))) from None


def size_spec(text: str) -> tuple[str, int]:
    """``height=224``."""
    name, _, size = text.partition("=")
    if not name or not size.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NUMBER")
    return name, int(size)


def effort(text: str) -> str | float:
    """How long a proof may take: quick, thorough, or seconds."""
    if text in ("quick", "thorough"):
        return text
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is neither quick nor thorough nor a number of seconds")
    return seconds


def with_example_sizes(specs: list[InputSpec]) -> list[InputSpec]:
    """Give every dynamic dimension a size: the one written somewhere, else one that most models accept.

    A dimension has the same size wherever its name stands; one that is computed of others follows them.
    """
    sizes: dict[str, int] = {}
    derived = derived_sizes([dim.name for spec in specs for dim in spec.dims if dim.name])
    for spec in specs:
        for dim in spec.dims:
            if dim.name and dim.size is not None and sizes.setdefault(dim.name, dim.size) != dim.size:
                raise argparse.ArgumentTypeError(
                    f"the dimension {dim.name!r} has two example sizes, {sizes[dim.name]} and {dim.size}"
                )
    for spec in specs:
        for axis, dim in enumerate(spec.dims):
            if dim.name and dim.name not in derived:
                sizes.setdefault(dim.name, _usual(axis, len(spec.dims)))
    for name, expression in derived.items():
        sizes.setdefault(name, int(expression.of(sizes)))
    return [
        replace(spec, dims=tuple(_sized(dim, axis, len(spec.dims), sizes) for axis, dim in enumerate(spec.dims)))
        for spec in specs
    ]


def _sized(dim: DimSpec, axis: int, rank: int, sizes: dict[str, int]) -> DimSpec:
    if dim.size is not None:
        return dim
    return replace(dim, size=sizes[dim.name] if dim.name else _usual(axis, rank))


def _usual(axis: int, rank: int) -> int:
    """2 for a batch, 64 for the sides of an image (networks halve them five times), 8 for a sequence."""
    return 2 if axis == 0 else 64 if rank >= 4 and axis >= 2 else 8


def _dtype(name: str | None) -> str | None:
    if not name:
        return None
    dtype = _ALIASES.get(name, name)
    if dtype not in DTYPES:
        raise argparse.ArgumentTypeError(f"there is no dtype {name!r}; there are {', '.join(DTYPES)}")
    return dtype


def _dims(text: str, whole: str) -> tuple[DimSpec, ...]:
    return tuple(_dim(part.strip(), whole) for part in text.split(",")) if text.strip() else ()


def _dim(text: str, whole: str) -> DimSpec:
    if text in ("?", "-1"):
        return DimSpec(None, "")
    if text.isdecimal():
        return DimSpec(int(text))
    match = _DIM.fullmatch(text)
    if match is None or not is_size(match["name"]):
        raise argparse.ArgumentTypeError(
            f"{text!r} in {whole!r} is not a dimension: a number, a name, a name with an example size (batch=4), "
            "or an expression of names (past + sequence)"
        )
    return DimSpec(int(match["size"]) if match["size"] else None, match["name"])


def custom_opset(text: str) -> tuple[str, int]:
    """``my.domain=2``."""
    domain, equals, version = text.partition("=")
    if not equals or not domain or not version.isdigit() or int(version) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form DOMAIN=N")
    return domain, int(version)


def same(options: argparse.Namespace, names: str) -> dict[str, Any]:
    """Options that the function behind a command calls as the command line does."""
    return {name: getattr(options, name) for name in names.split()}


def weights(asked: list[str] | None) -> str | list[str]:
    """``--weights``, as `tonnx.export` takes it: a word, or files."""
    return asked[0] if asked is not None and len(asked) == 1 else asked or "copy"


_SHARED: dict[str, dict[str, Any]] = {
    "--inputs": {"action": "append", "default": [], "metavar": "FILE"},
    "--input": {"action": "append", "default": [], "type": input_spec, "metavar": "SPEC"},
    "--input-shapes": {"action": "extend", "nargs": "+", "default": [], "type": shape_spec, "metavar": "SHAPE"},
    "--size": {"action": "append", "default": [], "type": size_spec, "metavar": "NAME=N"},
    "--target": {"metavar": "NAME", "type": target},
    "--runtime": {"type": runtime, "metavar": "R"},
    "--external-data": {
        "action": argparse.BooleanOptionalAction,
        "help": "weights in FILE.data beside the file; if neither is given, only above 2 GiB",
    },
    "--report": {
        "nargs": "?",
        "const": True,
        "default": False,
        "metavar": "FILE",
        "help": "a page about the file, too",
    },
    "--rtol": {"type": float, "metavar": "X", "help": "relative tolerance; by default the dtype's own"},
    "--atol": {"type": float, "metavar": "X", "help": "absolute tolerance; by default the dtype's own"},
    "--provider": {"action": "append", "metavar": "P", "help": "an execution provider of ONNX Runtime"},
    "--threads": {"type": int, "metavar": "N", "help": "threads for one operator; all cores by default"},
}
"""Options that several commands have."""


def add(group: argparse._ActionsContainer, name: str, help: str = "", **more: Any) -> None:
    """An option that other commands have, too; ``help`` where it is said in other words."""
    group.add_argument(name, **_SHARED[name] | ({"help": help} if help else {}) | more)


def add_files(parser: argparse.ArgumentParser) -> None:
    """What every command has that makes one ONNX file of another and proves it; `arrays.of_two_files` reads it."""
    parser.add_argument("model", metavar="MODEL", help="the ONNX file to read")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the ONNX file to write")
    help = "real values for the proof: data.npz, x.npy, or x=file.npy; random ones that fit the types otherwise"
    add(parser, "--inputs", help)
    add(parser, "--external-data")
    parser.add_argument("--no-verify", action="store_true", help="do not run both files and compare them")
