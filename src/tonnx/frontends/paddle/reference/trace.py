"""The values inside a saved Paddle model, for `tonnx.proof.locate.search`. Paddle runs in a process of its own.

An old program hands over each variable while it runs. A PIR program is run several times, each time with a few more
values as its outputs: the executor gives nothing else.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from tonnx.errors import CaptureError, MissingDependency
from tonnx.frontends.paddle.read.graph import Kind, Op, Program, Value
from tonnx.frontends.paddle.read.load import Loaded
from tonnx.frontends.paddle.reference.predictor import answering, end, installed, plain_predictor, receive, send, start
from tonnx.proof.locate.trace import Step, Take

_BUDGET = 32 << 20
_AT_ONCE = 64
_ERROR = "error"
_NO_OPS = frozenset("builtin.parameter builtin.set_parameter pd_op.data pd_op.feed pd_op.fetch cf.yield".split())
"""What the reader of PIR makes inputs, outputs and parameters of."""


class PaddleTrace:
    """A saved model. Its values have the names of the program's."""

    framework = "Paddle"

    def __init__(self, loaded: Loaded, renamed: Mapping[str, str], keeps: Any = None) -> None:
        if not installed():
            raise MissingDependency("looking into a Paddle model needs paddle", hint="pip install paddlepaddle==3.3.1")
        self._loaded, self._renamed = loaded, dict(renamed)
        self._keeps = keeps  # such as the folder that the model was saved to
        self._places = _places(loaded.program)
        self._process: _Process | None = None

    def steps(self) -> list[Step]:
        """What the operators of the program compute, in order; not what is inside of loops and branches."""
        pir = self._loaded.program.format == "pir"
        steps = []
        for op in self._loaded.program.block.ops:
            read = (value for values in op.inputs.values() for value in values)
            inputs = tuple(value.name for value in read if value is not None and not value.is_parameter)
            path = op.source.strip("/").replace("/", ".") if pir else ""
            source = "" if pir else "/".join(op.source.replace("\\", "/").split("/")[-2:])
            for value in _results(op):
                if value.name in self._places:
                    steps.append(Step(value.name, op.name, path, source, inputs))
        return steps

    def run(self, feeds: dict[str, np.ndarray], wanted: Collection[str], take: Take) -> None:
        """Run the program in another process, and hand over what it sends."""
        names = [name for name in self._places if name in wanted]
        arrays = {name: feeds[new] for name, new in self._renamed.items()}
        process = self._process = self._process or _Process(self._loaded)
        try:
            if self._loaded.program.format != "pir":
                process.ask(arrays, names, take)
                return
            for part in self._parts(names, feeds):
                places = {name: self._places[name] for name in part}
                process.ask(arrays, part, take, places)
        except BaseException:  # answers that nobody has read are still to come
            process.close()
            self._process = None
            raise

    def _parts(self, names: Sequence[str], feeds: Mapping[str, np.ndarray]) -> Iterator[list[str]]:
        """A few names at a time, by what they are likely to hold."""
        batch = max((array.shape[0] for array in feeds.values() if array.ndim), default=1)
        side = max((size for array in feeds.values() for size in array.shape[1:]), default=1)
        types = {v.name: v for op in self._loaded.program.block.ops for v in _results(op)}
        part: list[str] = []
        size = 0
        for name in names:
            shape = types[name].shape or ()
            size += 4 * math.prod(d if d >= 0 else (batch if axis == 0 else side) for axis, d in enumerate(shape))
            part.append(name)
            if size > _BUDGET or len(part) >= _AT_ONCE:
                yield part
                part, size = [], 0
        if part:
            yield part


def _results(op: Op) -> Iterator[Value]:
    for values in op.outputs.values():
        yield from (value for value in values if value is not None and value.kind is Kind.TENSOR)


def _places(program: Program) -> dict[str, list[int]]:
    """The values that can be looked at: in PIR by operator and result, in old programs by a name written once."""
    if program.format == "pir":
        return {
            value.name: [place, index]
            for place, op in enumerate(program.block.ops)
            for index, value in enumerate(op.results)
            if value is not None and value.kind is Kind.TENSOR
        }
    writes = Counter(
        value.name.partition("@")[0]
        for op in program.walk()
        for values in op.outputs.values()
        for value in values
        if value is not None
    )
    names = [value.name for op in program.block.ops for value in _results(op)]
    return {name: [] for name in names if writes[name] == 1 and name not in program.parameters}


class _Process:
    """A Paddle that answers with the values that it is asked for."""

    def __init__(self, loaded: Loaded) -> None:
        form = loaded.program.format
        self._operators = [op.name for op in loaded.program.block.ops] if form == "pir" else []
        self._process = start(self, __name__, form, str(loaded.path), str(loaded.weights or ""))

    def ask(
        self,
        feeds: Mapping[str, np.ndarray],
        names: Sequence[str],
        take: Take,
        places: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        question = json.dumps({"names": list(names), "places": places or {}, "operators": self._operators})
        asked = {f"feed:{name}": array for name, array in feeds.items()}
        try:
            send(self._process.stdin, {**asked, "ask": np.array(question)})
            while True:
                answer = receive(self._process.stdout)
                if _ERROR in answer:
                    raise CaptureError("Paddle does not show its values", why=str(answer[_ERROR]))
                if "done" in answer:
                    return
                take(str(answer["name"]), answer["array"])
        except (OSError, EOFError) as error:
            raise CaptureError("Paddle stopped while its values were looked at", why="its process ended") from error

    def close(self) -> None:
        end(self._process)


# What the other process does


def _serve(form: str, program: str, weights: str) -> None:
    answers, runner = answering(), None
    while True:
        try:
            asked = receive(sys.stdin.buffer)
        except EOFError:
            return
        question = json.loads(str(asked.pop("ask")))
        feeds = {name.removeprefix("feed:"): array for name, array in asked.items()}
        try:
            if runner is None:
                runner = _Static(program, weights, question["operators"]) if form == "pir" else _Old(program, weights)
            runner.run(feeds, question, answers)
            send(answers, {"done": np.array(True)})
        except Exception as error:  # noqa: BLE001 (whatever Paddle raises is told to the process that asked)
            send(answers, {_ERROR: np.array(f"{type(error).__name__}: {str(error).strip()[-300:]}")})


class _Old:
    """The predictor of an old program calls back for every variable that is written."""

    def __init__(self, program: str, weights: str) -> None:
        self._predictor = plain_predictor(program, weights)
        self._wanted: set[str] = set()
        self._answers: IO[bytes] | None = None
        self._failure = ""
        self._predictor.register_output_hook(self._written)

    def _written(self, _: str, name: str, tensor: Any) -> None:
        if name in self._wanted and self._answers is not None:
            try:
                send(self._answers, {"name": np.array(name), "array": _array(tensor)})
            except (RuntimeError, ValueError) as error:  # a variable without memory; an error here would end Paddle
                self._failure = str(error)

    def run(self, feeds: Mapping[str, np.ndarray], question: dict[str, Any], answers: IO[bytes]) -> None:
        self._wanted, self._answers = set(question["names"]), answers
        for name, array in feeds.items():
            self._predictor.get_input_handle(name).copy_from_cpu(np.ascontiguousarray(array))
        self._predictor.run()


class _Static:
    """A PIR program whose results are fetched by operator and place."""

    def __init__(self, program: str, weights: str, operators: list[str]) -> None:
        import paddle

        paddle.enable_static()
        self._executor = paddle.static.Executor(paddle.CPUPlace())
        folder, file = os.path.split(program)
        loaded = paddle.static.load_inference_model(
            folder or ".", self._executor, model_filename=file,
            params_filename=os.path.relpath(weights, folder or ".") if weights else None,
        )  # fmt: skip
        self._program = loaded[0]
        block = self._program.global_block()
        for op in list(block.ops):
            if op.name() == "pd_op.fetch":  # those that are asked for take their names
                block.remove_op(op)
        self._ops = [op for op in block.ops if op.name() not in _NO_OPS]
        if [op.name() for op in self._ops] != operators:
            raise RuntimeError("Paddle reads other operators from the file than tonnx")

    def run(self, feeds: Mapping[str, np.ndarray], question: dict[str, Any], answers: IO[bytes]) -> None:
        places = question["places"]
        values = [self._ops[place].results()[index] for place, index in places.values()]
        results = self._executor.run(self._program, feed=dict(feeds), fetch_list=values, return_numpy=False)
        for name, tensor in zip(places, results, strict=True):
            send(answers, {"name": np.array(name), "array": _array(tensor)})


def _array(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.numpy() if hasattr(tensor, "numpy") else tensor)


if __name__ == "__main__":
    _serve(*sys.argv[1:4])
