"""Another ONNX file as what a file is verified against."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from tonnx.errors import CaptureError, InvalidModel, VerificationFailed
from tonnx.io import read as reading
from tonnx.ir.provenance import origin_of
from tonnx.proof.examples import first_that_runs
from tonnx.proof.locate.cut import Cutter
from tonnx.proof.locate.trace import Step, Take
from tonnx.proof.signature import Signature, match_inputs, match_outputs
from tonnx.proof.subject import Subject
from tonnx.proof.trials.saturation import dependable

_AT_ONCE = 32


def original_file(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    examples: Callable[[], Iterable[dict[str, np.ndarray]]],
    signature: Signature,
) -> Subject:
    reading.reader(path)  # is it there?
    session = dependable(path)
    places = match_inputs(signature.inputs, session.inputs, "the other file")
    chosen = match_outputs(signature.outputs, list(session.outputs))
    own = list(session.outputs)

    def reference(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        results = session.run({places[name]: array for name, array in feeds.items()})
        return [results[own[place]] for place in chosen]

    complete = set(arrays) == set(signature.inputs)
    example = dict(arrays) if complete else first_that_runs(reference, examples())
    return Subject(
        reference,
        example,
        signature.outputs,
        signature.dynamic(),
        framework="ONNX",
        trace=lambda: OnnxTrace(_read(path), places),
    )


def _read(path: Path) -> ir.Model:
    model = reading.reader(path)()
    reading.infer(model)
    return model


class OnnxTrace:
    """The values of an ONNX file, run in parts."""

    framework = "ONNX"

    def __init__(self, model: ir.Model, places: Mapping[str, str]) -> None:
        self._cutter, self._places = Cutter(model), dict(places)

    def steps(self) -> list[Step]:
        """One value after the other, in the file's order."""
        steps = []
        for index, node in enumerate(self._cutter.nodes):
            origin = origin_of(node)
            for value in node.outputs:
                if value.name and self._cutter.is_tensor(value.name):
                    operator = f"{node.op_type} {node.name!r}" if node.name else node.op_type
                    read = tuple(self._cutter.reads[index])
                    steps.append(Step(value.name, operator, origin.module, origin.source, read))
        return steps

    def run(self, feeds: dict[str, np.ndarray], wanted: Collection[str], take: Take) -> None:
        """A few nodes at a time; what later ones need is kept."""
        run_in_parts(self._cutter, {self._places[name]: array for name, array in feeds.items()}, wanted, take)


def run_in_parts(cutter: Cutter, feeds: dict[str, np.ndarray], wanted: Collection[str], take: Take) -> None:
    """Run a file a few nodes at a time, and hand over each wanted value; what later nodes need is kept."""
    held, inputs, wanted = dict(feeds), set(feeds), set(wanted)
    for start in range(0, len(cutter.nodes), _AT_ONCE):
        stop = min(start + _AT_ONCE, len(cutter.nodes))
        values = [name for index in range(start, stop) for name in cutter.proto.graph.node[index].output if name]
        later = [name for name in values if any(reader >= stop for reader in cutter.readers.get(name, ()))]
        needed = [n for n in dict.fromkeys([*later, *(v for v in values if v in wanted)]) if cutter.is_tensor(n)]
        try:
            results = cutter.run(cutter.between(needed, held), held, needed) if needed else {}
        except (VerificationFailed, InvalidModel) as error:
            raise CaptureError("the file does not run in parts", why=error.why or error.what) from error
        for name in needed:
            if name in wanted:
                take(name, results[name])
        held.update({name: results[name] for name in later if name in results})
        for name in [name for name in held if name not in inputs]:
            if all(reader < stop for reader in cutter.readers.get(name, ())):
                del held[name]
