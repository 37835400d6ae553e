"""What a file is verified against: a model of any framework as a function on arrays by the file's own names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from tonnx.api.result import signature_of
from tonnx.errors import CaptureError, InvalidArgument, TonnxError
from tonnx.proof.locate.trace import Trace
from tonnx.proof.session import one_line

Reference = Callable[[dict[str, np.ndarray]], list[np.ndarray]]


@dataclass(frozen=True)
class Signature:
    """What a file says of its inputs and outputs."""

    inputs: dict[str, ir.Value]
    outputs: list[str]

    def dynamic(self) -> dict[str, dict[int, str]]:
        """The dynamic axes of each input; one without a name gets one of its own."""
        axes: dict[str, dict[int, str]] = {}
        for name, value in self.inputs.items():
            for axis, dim in enumerate(value.shape or ()):
                if not isinstance(dim, int) or dim < 0:
                    symbol = "" if isinstance(dim, int) else dim.value or ""
                    axes.setdefault(name, {})[axis] = symbol or f"{name}_{axis}"
        return axes


@dataclass
class Original:
    """A model on arrays. Names are the file's."""

    framework: str
    reference: Reference
    example: dict[str, np.ndarray]
    trace: Callable[[], Trace] | None = None
    """The values inside it; may raise a TonnxError, and takes time."""
    untraced: str = ""
    """Why there is no trace."""
    notes: list[str] = field(default_factory=list)
    rtol: float | None = None
    """The relative tolerance where the user gives none; None: that of each output's dtype."""
    saturates: Callable[[], str | None] | None = None
    """Names the framework whose integer kernels it uses, if they saturate on this processor."""


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


def check_fit(signature: Signature, given: Mapping[str, np.ndarray]) -> None:
    """Refuse values of another dtype or rank than the file's inputs, before anything is run."""
    for name, array in given.items():
        value = signature.inputs.get(name)
        if value is None:
            known = ", ".join(signature.inputs) or "none"
            raise InvalidArgument(f"the file has no input {name!r}", why=f"its inputs are {known}")
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


def first_that_runs(reference: Reference, examples: Iterable[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The first of the examples that the model itself takes."""
    failure: Exception | None = None
    for example in examples:
        try:
            reference({name: array.copy() for name, array in example.items()})
            return example
        except InvalidArgument:
            raise
        except Exception as error:  # noqa: BLE001 (the user's own code, at sizes that we invented; raised below)
            failure = failure or error
    reason = failure.why or failure.what if isinstance(failure, TonnxError) else f"{type(failure).__name__}: {failure}"
    raise CaptureError(
        "the model takes none of the inputs that were drawn from what the file says of its own",
        why=one_line(reason),
        hint="give real ones",
    )
