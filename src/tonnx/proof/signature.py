"""What a file says of its inputs and outputs, and how a model's arguments and results are matched with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tonnx.errors import InvalidArgument


@dataclass(frozen=True)
class Signature:
    """What a file says of its inputs and outputs."""

    inputs: dict[str, ir.Value]
    outputs: list[str]

    @staticmethod
    def of(model: ir.Model) -> Signature:
        """Of the inputs that have to be given: an initializer that is an input has its default."""
        inputs = {str(value.name): value for value in model.graph.inputs if not value.is_initializer()}
        return Signature(inputs, [str(value.name) for value in model.graph.outputs])

    def dynamic(self, unnamed: bool = True) -> dict[str, dict[int, str]]:
        """The dynamic axes of each input; one without a name gets one of its own, or is left out."""
        axes: dict[str, dict[int, str]] = {}
        for name, value in self.inputs.items():
            for axis, dim in enumerate(value.shape or ()):
                if not isinstance(dim, int) or dim < 0:
                    symbol = "" if isinstance(dim, int) else dim.value or ""
                    if symbol or unnamed:
                        axes.setdefault(name, {})[axis] = symbol or f"{name}_{axis}"
        return axes


def signature_of(value: ir.Value) -> str:
    """``name: float[batch, 3]``."""
    dims = (
        "?" if value.shape is None else ", ".join(str(d if isinstance(d, int) else d.value or "?") for d in value.shape)
    )
    return f"{value.name}: {value.dtype.name.lower() if value.dtype else '?'}[{dims}]"


def signature_lines(model: ir.Model) -> list[str]:
    """For people: every input that has to be given, and every output."""
    kinds = (("input", model.graph.inputs), ("output", model.graph.outputs))
    return [f"  {kind} {signature_of(v)}" for kind, values in kinds for v in values if not v.is_initializer()]


def match_inputs(file: Iterable[str], model: Iterable[str], of: str) -> dict[str, str]:
    """The file's input names → the model's: by name if the model has them all, else in order."""
    wanted, own = list(file), list(model)
    if set(wanted) <= set(own):
        return {name: name for name in wanted}
    if len(wanted) == len(own):
        return dict(zip(wanted, own, strict=True))
    raise InvalidArgument(
        f"the file has {_count(wanted, 'input')}, {of} takes {_count(own, 'input')}",
        why=f"the file's: {', '.join(wanted) or 'none'}; the model's: {', '.join(own) or 'none'}",
        hint="where a file has fewer inputs than the model, they are matched by name: give both the same names",
    )


def match_outputs(file: Sequence[str], model: Sequence[str]) -> list[int]:
    """For each output of the file its place among the model's: by name if the model has them all, else in order."""
    if len(set(model)) == len(model) and set(file) <= set(model):
        return [list(model).index(name) for name in file]
    if len(file) == len(model):
        return list(range(len(file)))
    raise InvalidArgument(
        f"the file has {_count(file, 'output')}, the model gives {_count(model, 'output')}",
        why=f"the file's: {', '.join(file)}; the model's: {', '.join(model) or 'none'}",
    )


def _count(names: Sequence[str], kind: str) -> str:
    return f"{len(names)} {kind}{'s' if len(names) != 1 else ''}"


def check_fit(signature: Signature, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse values of another dtype or rank than the file's inputs, before anything is run."""
    for name, array in arrays.items():
        value = signature.inputs.get(name)
        if value is None:
            names = ", ".join(signature.inputs) or "none"
            raise InvalidArgument(f"the file has no input {name!r}", why=f"its inputs are {names}")
        dims = None if value.shape is None else list(value.shape)
        fits = dims is None or (
            len(dims) == array.ndim
            and all(not isinstance(d, int) or d < 0 or d == n for d, n in zip(dims, array.shape, strict=True))
        )
        kind = ir.DataType.STRING if array.dtype.kind in "OUS" else ir.DataType.from_numpy(array.dtype)
        if not fits or (value.dtype is not None and value.dtype != kind):
            raise InvalidArgument(
                f"the value given for the input {name!r} does not fit the file",
                why=f"the file's input is {signature_of(value)}, and the value {array.dtype}{list(array.shape)}",
            )
