"""What changed between two ONNX files: ``tonnx.diff``. Needs neither torch nor paddle."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir

from tonnx.api.request import check_options
from tonnx.comparing.changes import Change, changes, page
from tonnx.errors import InvalidArgument, TonnxError
from tonnx.io import read as reading
from tonnx.io import write
from tonnx.io.staging import replacing
from tonnx.proof.compare import Comparison, compare
from tonnx.proof.data import finite
from tonnx.proof.examples import first_that_runs, random_examples
from tonnx.proof.session import Session
from tonnx.proof.signature import Signature, check_fit, signature_of

_Model: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model"


@dataclass(frozen=True)
class DiffResult:
    """What is different in the second of two files. ``print`` it to read it; it is empty where nothing is."""

    names: tuple[str, str]
    changes: list[Change]
    numeric: list[Comparison] | None = None
    """The outputs of both on the same inputs, where that was asked for."""
    not_run: str = ""
    """Why the outputs were not compared, though that was asked for."""
    page: Path | None = field(default=None, compare=False)

    @property
    def same(self) -> bool:
        """Nothing changed, and the outputs, where they were compared, are equal within tolerance."""
        return not self.changes and not self.not_run and all(comparison.ok for comparison in self.numeric or ())

    def figures(self) -> list[str]:
        """A line for each output that was compared, or why none was."""
        lines = [f"not run on the same inputs: {self.not_run}"] if self.not_run else []
        return [*lines, *map(_figure, self.numeric or ())]

    def __str__(self) -> str:
        lines = [str(change) for change in self.changes]
        lines += self.figures() if self.changes or not self.same else []
        if not lines:
            return ""
        count = len(self.changes)
        head = f"{self.names[0]} → {self.names[1]}: {count} change{'s' if count != 1 else ''}"
        return "\n  ".join([head, *lines])

    def data(self) -> dict[str, Any]:
        """The same as JSON data."""
        compared = None
        if self.numeric is not None:
            compared = [
                {"output": c.name, "ok": c.ok, "max_abs": finite(c.max_abs), "max_rel": finite(c.max_rel)}
                for c in self.numeric
            ]
        return {
            "files": list(self.names),
            "same": self.same,
            "changes": [dataclasses.asdict(change) for change in self.changes],
            "numeric": compared,
            "not_run": self.not_run or None,
            "page": str(self.page) if self.page else None,
        }


def _figure(comparison: Comparison) -> str:
    head = f"output {comparison.name}: max abs {comparison.max_abs:.2g}, max rel {comparison.max_rel:.2g}"
    if comparison.ok:
        return f"{head}: equal within tolerance"
    told = (comparison.reason or "").replace(" in the model", " in the first").replace(" in the file", " in the second")
    return f"{head}: {told}" if comparison.measured else f"output {comparison.name}: {told}"


def diff(
    a: _Model,
    b: _Model,
    *,
    numeric: bool = False,
    inputs: Mapping[str, np.ndarray] | None = None,
    html: str | os.PathLike[str] | None = None,
) -> DiffResult:
    """Say what changed from one ONNX model to another: operators by module, weights, attributes, shapes, names.

    Nodes are matched by what they compute, so that a value with another name is renamed, and not gone and new.

    Example::

        result = tonnx.diff("monday.onnx", "tuesday.onnx", numeric=True)
        print(result)

    Args:
        a, b: paths, bytes, ``onnx.ModelProto`` or onnx-ir models. They are not changed.
        numeric: also run both in ONNX Runtime on the same inputs, and compare the outputs.
        inputs: arrays by input name of ``a`` for that; random ones that fit the types otherwise.
        html: also write a page.
    """
    if html is not None:
        check_options(html, None, None, None)
    models = [_read(model) for model in (a, b)]
    names = _name(a, "a"), _name(b, "b")
    listed = changes(*models)
    compared, not_run = None, ""
    if numeric:
        check_fit(Signature.of(models[0]), dict(inputs or {}))
        try:
            compared = _numeric(a, b, models, dict(inputs or {}))
        except InvalidArgument as error:  # what changed is told all the same
            not_run = f"{error.what}; {error.why}" if error.why else error.what
    result = DiffResult(names, listed, compared, not_run, None if html is None else Path(html))
    if html is not None:
        with replacing(html) as place:
            place.write_text(page(" → ".join(names), listed, result.figures()), encoding="utf-8")
    return result


def _read(model: _Model) -> ir.Model:
    with reading.blaming(model):
        read = reading.reader(model)()
        reading.infer(read)
        return read


def _name(model: _Model, otherwise: str) -> str:
    return os.fspath(model) if isinstance(model, (str, os.PathLike)) else otherwise


def _numeric(a: _Model, b: _Model, models: list[ir.Model], arrays: Mapping[str, np.ndarray]) -> list[Comparison]:
    """Both on the same inputs, which need not have the same names."""
    ours, theirs = (Signature.of(model) for model in models)
    names = _common_inputs(ours, theirs)
    outputs = _common_outputs(ours, theirs)
    one, other = (Session(_loadable(model, read)) for model, read in zip((a, b), models, strict=True))
    examples = random_examples(_sized(ours, theirs, names), arrays)
    example = first_that_runs(lambda feeds: list(one.run(feeds).values()), examples)
    expected = one.run(dict(example))
    try:
        actual = other.run({names[name]: array for name, array in example.items()})
    except TonnxError as error:
        raise InvalidArgument(
            "the second file does not run on what the first one takes",
            why=error.why or error.what,
        ) from error
    return [compare(name, expected[name], actual[outputs[name]]) for name in ours.outputs]


def _sized(ours: Signature, theirs: Signature, names: Mapping[str, str]) -> Signature:
    """Our inputs with the sizes that are fixed in the other file only."""
    shapes = [(value, value.shape, theirs.inputs[names[name]].shape) for name, value in ours.inputs.items()]
    pairs = [(dim, size) for _, one, other in shapes for dim, size in zip(one or (), other or (), strict=False)]
    sizes: dict[Any, Any] = {d: size for d, size in pairs if not isinstance(d, int) and isinstance(size, int)}

    def sized(value: ir.Value, shape: ir.Shape | None) -> ir.Value:
        dims = None if shape is None else ir.Shape([sizes.get(dim, dim) for dim in shape])
        return ir.Value(name=value.name, type=value.type, shape=dims)

    return Signature({str(value.name): sized(value, shape) for value, shape, _ in shapes}, ours.outputs)


def _loadable(model: _Model, read: ir.Model) -> str | os.PathLike[str] | bytes:
    return model if isinstance(model, (str, os.PathLike, bytes)) else write.to_bytes(read)


def _common_inputs(ours: Signature, theirs: Signature) -> dict[str, str]:
    """By name, else in order; of the same types."""
    names = list(theirs.inputs)
    pairs = dict(zip(ours.inputs, ours.inputs if set(names) == set(ours.inputs) else names, strict=False))
    same = len(names) == len(ours.inputs) and all(
        ours.inputs[one].dtype == theirs.inputs[other].dtype and _fits(ours.inputs[one], theirs.inputs[other])
        for one, other in pairs.items()
    )
    if not same:
        listed = ["; ".join(map(signature_of, side.inputs.values())) or "none" for side in (ours, theirs)]
        raise InvalidArgument(
            "the two files do not take the same inputs",
            why=f"the first takes {listed[0]}; the second {listed[1]}",
        )
    return pairs


def _fits(one: ir.Value, other: ir.Value) -> bool:
    if one.shape is None or other.shape is None:
        return True
    pairs = zip(one.shape, other.shape, strict=False)
    return len(one.shape) == len(other.shape) and all(
        not isinstance(x, int) or not isinstance(y, int) or x == y for x, y in pairs
    )


def _common_outputs(ours: Signature, theirs: Signature) -> dict[str, str]:
    if len(ours.outputs) != len(theirs.outputs):
        raise InvalidArgument(
            "the two files do not give the same outputs",
            why=f"the first gives {', '.join(ours.outputs)}; the second {', '.join(theirs.outputs)}",
        )
    by_name = set(ours.outputs) == set(theirs.outputs)
    return dict(zip(ours.outputs, ours.outputs if by_name else theirs.outputs, strict=True))
