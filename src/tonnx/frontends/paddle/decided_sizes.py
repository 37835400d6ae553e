"""What Python asks of sizes while a layer is captured, answered by the example's.

Paddle turns ``if``, ``for`` and ``while`` into operators where it reads the code itself. Elsewhere (lists that are
compared or made in one line, ``range``, numpy, Paddle's own functions) Python wants a bool or a number of a tensor, and
the capture ends. Where that is made of the sizes of tensors alone, the program so far tells it at the example's sizes;
and the whole program tells at which other sizes it is something else. There the proof compares the file with the layer.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

import numpy as np
import onnx_ir as ir
import paddle
from paddle.jit.dy2static.program_translator import FunctionCache

from tonnx.errors import TonnxError
from tonnx.frontends.paddle.lower.walk import ProgramWalk
from tonnx.frontends.paddle.read.graph import Op, Program, Value
from tonnx.frontends.paddle.read.load import Loaded, read_program
from tonnx.frontends.paddle.user_line import place_now
from tonnx.frontends.patching import How, Patch
from tonnx.ir.build import Builder

Shapes = Mapping[str, Sequence[int]]
_SHAPES = frozenset(f"pd_op.{name}" for name in ("shape", "shape64", "numel"))
_LARGEST = 4096  # a size at which the model is run to see whether it goes another way; or twice that of the example
_PATIENCE = 120.0  # seconds for one capture, from which on nothing more is answered
_SECONDS = 5.0  # for the search of such sizes


@dataclass(frozen=True)
class Decision:
    """An answer that stands in the program."""

    value: Any
    """Paddle's, of the program that is captured."""
    answer: np.ndarray
    place: str
    number: int
    """Of operators that were there when it was asked."""

    def is_otherwise(self, answer: np.ndarray | None) -> bool:
        return False if answer is None else not np.array_equal(answer, self.answer)


@dataclass
class Decisions:
    """The answers of one capture. ``shapes`` are those of the example, by input; None: nothing is answered."""

    shapes: Shapes | None = None
    branches: bool = False
    """Whether ``if`` and ``while`` on sizes are decided, too: Paddle cannot make operators of all of them."""
    taken: list[Decision] = field(default_factory=list)
    _program: Any = None
    """The one that they stand in."""
    _sizes: Sizes = field(default_factory=lambda: Sizes({}))
    _before: list[Decision] = field(default_factory=list)
    _until: float = field(default_factory=lambda: time.perf_counter() + _PATIENCE)

    def patches(self) -> list[Patch]:
        """What is replaced while the layer is captured."""
        kind, reason = paddle.pir.Value, "Python asks a size for a number"
        names = {"__bool__": bool, "__int__": int, "__index__": int, "__float__": float}
        # Without __iter__, Python asks for x[0], x[1] and so on, without an end.
        patches = [Patch(kind, "__iter__", self._iterator(), "a tensor of unknown length has no end", How.VALUE)]
        patches.append(Patch(kind, "__len__", _length, "Paddle's own functions ask it of windows", How.VALUE))
        patches.append(Patch("paddle._C_ops", "pad", _padded, "it takes numbers alone", optional=True))
        # What Paddle makes of code is kept, and is not that which it made before.
        translator, calls = (
            "paddle.jit.dy2static.program_translator",
            "paddle.jit.dy2static.transformers.call_transformer",
        )
        patches.append(
            Patch(translator, "_FUNCTION_CACHE", _converted(), "calls are converted that Paddle leaves", How.VALUE)
        )
        patches.append(Patch(calls, "is_builtin", _is_left, "min and max of sizes are operators", optional=True))
        if self.shapes is None:
            return patches
        patches += [Patch(kind, name, self._converter(kind, name, to), reason, How.VALUE) for name, to in names.items()]
        patches.append(Patch("paddle.jit.dy2static", "Call", _call, "Python's functions on sizes are operators"))
        if self.branches:
            patches.append(Patch("paddle.jit.dy2static", "IfElse", self._if_else, "Paddle cannot join the sides"))
            patches.append(Patch("paddle.jit.dy2static", "While", self._while, "Paddle cannot carry what it changes"))
        return patches

    def ask(self, value: Any) -> np.ndarray | None:
        """What a value is at the example's sizes, which is a decision then; None if it depends on more than sizes."""
        if self.shapes is None:
            return None
        program = paddle.static.default_main_program()
        if program is not self._program:  # Paddle captures twice, and the same
            self._before, self.taken, self._program, self._sizes = self.taken, [], program, Sizes(self.shapes)
        for decision in self.taken:
            if decision.value.is_same(value):
                return decision.answer
        if not _is_outside(program, value) or time.perf_counter() > self._until:
            return None
        number = program.global_block().num_ops()
        before = self._before[len(self.taken)] if len(self.taken) < len(self._before) else None
        same = before is not None and before.number == number
        answer = before.answer if before is not None and same else self._sizes.of(_so_far(program, value))[0]
        if answer is not None:
            self.taken.append(Decision(value, answer, place_now(), number))
        return answer

    def _converter(self, kind: Any, name: str, to: Callable[[Any], Any]) -> Callable[[Any], Any]:
        before = getattr(kind, name, None)

        def convert(value: Any) -> Any:
            answer = self.ask(value)
            if answer is not None:
                return to(answer.item())
            if before is None:
                raise TypeError(f"{name.strip('_')}(Tensor) is not supported in static graph mode")
            return before(value)

        return convert

    def _iterator(self) -> Callable[[Any], Iterator[Any]]:
        def iterate(value: Any) -> Iterator[Any]:
            shape = list(value.shape)
            if not shape:
                raise TypeError("a tensor of rank 0 has no parts")
            if shape[0] >= 0:
                return (value[i] for i in range(shape[0]))
            answer = self.ask(value)
            if answer is None:
                raise TypeError("Python cannot go through a tensor whose length only the run knows")
            return iter(answer.tolist())

        return iterate

    def _if_else(self, original: Any, predicate: Any, *rest: Any, **names: Any) -> Any:
        return original(self._decided(predicate), *rest, **names)

    def _while(self, original: Any, condition: Any, body: Any, *rest: Any, **names: Any) -> Any:
        if not isinstance(self._decided(condition()), bool):
            return original(condition, body, *rest, **names)
        while self._decided(condition()):
            body()
        return None

    def _decided(self, predicate: Any) -> Any:
        answer = self.ask(predicate) if isinstance(predicate, paddle.pir.Value) else None
        return predicate if answer is None else bool(answer.item())

    def values(self) -> list[Any]:
        """What the program has to give beside its outputs, to be asked at other sizes."""
        return [decision.value for decision in self.taken]


def _length(value: Any) -> int:
    if not value.shape or value.shape[0] < 0:
        raise TypeError("Python asks for the length of a tensor that only the run knows")
    return int(value.shape[0])


def _is_outside(program: Any, value: Any) -> bool:
    """Whether a value stands outside of loops and branches, and what is being captured does, too."""
    block = program.global_block()
    op = value.get_defining_op()
    here = paddle.base.libpaddle.pir.get_current_insertion_point().block()
    return op is not None and op.get_parent_block() == block and here == block


def _so_far(program: Any, value: Any) -> Program:
    """The program that is being captured, with one value as its output."""
    block = program.global_block()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.json"
        paddle._pir_ops.fetch(value, "asked", 0)
        try:
            paddle.base.core.serialize_pir_program(program, str(file), True, False, True)
        finally:
            block.remove_op(block.ops[-1])
        return read_program(file)


# At any sizes


class Sizes:
    """What a program makes of the sizes of its inputs, which are fixed here.

    Of a program that grows, each operator is lowered once.
    """

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._op = Builder.of_model(shapes)
        self._inputs: dict[str, ir.Value] = {}
        self._weights: dict[str, ir.Value] = {}
        self._made: dict[int, list[Any]] = {}
        """By the place of an operator: what its results are."""

    def of(self, program: Program) -> list[np.ndarray | None]:
        """The outputs; None for those that depend on more than sizes."""
        ops = program.block.ops
        makers = {result: op for op in ops for result in op.results}
        asked = {name: value for name, value in program.outputs.items() if _chain(value, makers) is not None}
        block = replace(program.block, ops=[op for i, op in enumerate(ops) if i not in self._made])
        walk = ProgramWalk(self._op, replace(program, outputs=asked, block=block), {}, trust_shapes=False)
        for parameter in program.parameters.values():
            walk.define(parameter, self._weight(parameter))
        for i, things in self._made.items():
            for value, thing in zip(ops[i].results, things, strict=True):
                if value is not None:
                    walk.define(value, thing)
        try:
            with self._op:
                results = walk.run({name: self._input(value) for name, value in program.inputs.items()})
        except TonnxError:
            return [None] * len(program.outputs)
        for i, op in enumerate(ops):
            things = [None if value is None else walk.defined(value) for value in op.results]
            if any(thing is not None for thing in things):
                self._made[i] = things
        arrays = (None if result.const_value is None else result.const_value.numpy() for result in results)
        answers = dict(zip(asked, arrays, strict=True))
        return [answers.get(name) for name in program.outputs]

    def _input(self, value: Value) -> ir.Value:
        if value.name not in self._inputs:
            dtype, shape = value.dtype or ir.DataType.FLOAT, ir.Shape(self._shapes[value.name])
            self._inputs[value.name] = ir.Value(name=value.name, type=ir.TensorType(dtype), shape=shape)
            self._op.graph.inputs.append(self._inputs[value.name])
        return self._inputs[value.name]

    def _weight(self, value: Value) -> ir.Value:
        """In the place of a weight, of which only the shape counts."""
        if value.name not in self._weights:
            dtype = value.dtype or ir.DataType.FLOAT
            shape = ir.Shape(value.shape or ())
            self._weights[value.name] = ir.Value(name=value.name, type=ir.TensorType(dtype), shape=shape)
        return self._weights[value.name]


def _chain(value: Value | None, makers: Mapping[Any, Op]) -> list[Op] | None:
    """The operators between sizes and a value that is made of them alone; None if it is made of anything else."""
    chain: dict[int, Op] = {}
    waiting = [value]
    while waiting:
        asked = waiting.pop()
        if asked is None:
            continue
        op = makers.get(asked)
        if op is None or op.blocks:  # an input, a weight, or what a loop gives
            return None
        if id(op) not in chain:
            chain[id(op)] = op
            waiting += [] if op.name in _SHAPES else op.operands
    return list(chain.values())


# Sizes that decide otherwise


def split(loaded: Loaded, count: int) -> tuple[Loaded, Program]:
    """A captured program without its last outputs, and one with only those: what decided."""
    outputs = list(loaded.program.outputs.items())
    own, asked = dict(outputs[: len(outputs) - count]), dict(outputs[len(outputs) - count :])
    return replace(loaded, program=replace(loaded.program, outputs=own)), replace(loaded.program, outputs=asked)


def other_ways(
    decisions: Sequence[Decision],
    program: Program,
    shapes: Callable[[Mapping[str, int]], Shapes],
    example: dict[str, int],
) -> list[tuple[dict[str, int], str]]:
    """Sizes near the example's that decide otherwise, each with the places in the user's code that do."""
    open_ones = dict(enumerate(decisions))
    ways: list[tuple[dict[str, int], str]] = []
    until = time.perf_counter() + _SECONDS
    for sizes in _candidates(example, _thresholds(program)):
        if not open_ones or time.perf_counter() > until:
            break
        answers = Sizes(shapes(sizes)).of(program)
        turned = [i for i, decision in open_ones.items() if decision.is_otherwise(answers[i])]
        if turned:
            places = dict.fromkeys(open_ones.pop(i).place for i in turned)
            ways.append((sizes, ", ".join(places)))
    return ways


def _candidates(example: dict[str, int], thresholds: Sequence[int]) -> Iterator[dict[str, int]]:
    """Each size alone, then all of them; first those that most models take."""
    limit = max(_LARGEST, 2 * max(example.values(), default=0))
    changes: list[Callable[[int], int]] = [
        lambda n: 2 * n, lambda n: n + 1, lambda n: n // 2, lambda n: n - 1, lambda n: 3 * n, lambda n: n + 2,
    ]  # fmt: skip
    seen = [example]
    alone = [{**example, name: change(n)} for change in changes for name, n in example.items()]
    together = [{name: change(n) for name, n in example.items()} for change in changes]
    far = [{**example, name: n + d} for n in thresholds for d in (1, 0, -1) for name in example]
    for sizes in (*alone, *together, *far):
        if sizes not in seen and all(0 < n <= limit for n in sizes.values()):
            seen.append(sizes)
            yield sizes


def _thresholds(program: Program) -> list[int]:
    """The numbers that sizes are compared with or divided by, in ascending order."""
    makers = {result: op for op in program.block.ops for result in op.results}
    chains = (_chain(value, makers) or [] for value in program.outputs.values())
    numbers = {op.attributes.get("value") for chain in chains for op in chain if op.name == "pd_op.full"}
    return sorted({int(n) for n in numbers if isinstance(n, (int, float)) and math.isfinite(n) and 2 < n < _LARGEST})


# Python's functions, as operators


@cache
def _converted() -> Any:
    """The code that Paddle has converted for our captures."""
    return FunctionCache()


def _is_left(original: Any, function: Any, *name: Any) -> Any:
    return original(function, *name) and _symbolic(function) is None


def _symbolic(function: Any) -> Callable[..., Any] | None:
    return _SYMBOLIC.get(function) if isinstance(function, BuiltinFunctionType) else None


def _call(original: Any, function: Any) -> Any:
    """What a call in the user's code comes to: functions of numbers become operators where the numbers are tensors."""
    symbolic = _symbolic(function)
    if symbolic is None:
        return original(function)

    def called(*args: Any, **kwargs: Any) -> Any:
        parts = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
        tensors = [part for part in parts if isinstance(part, paddle.pir.Value)]
        return symbolic(*args) if tensors and not kwargs else function(*args, **kwargs)

    return called


def _padded(original: Any, x: Any, paddings: Any, value: Any) -> Any:
    """Constant padding; by amounts that only the run knows, it is more of the same number on either side."""
    import paddle

    if not any(isinstance(amount, paddle.pir.Value) for amount in paddings):
        return original(x, paddings, value)
    for axis in range(len(x.shape)):
        before, after = (_filled(x, axis, amount, value) for amount in paddings[2 * axis : 2 * axis + 2])
        x = paddle.concat([*before, x, *after], axis) if before or after else x
    return x


def _filled(x: Any, axis: int, amount: Any, value: Any) -> list[Any]:
    import paddle

    if isinstance(amount, int) and amount == 0:
        return []
    own = x.shape if min(x.shape) >= 0 else [paddle.shape(x)[i] for i in range(len(x.shape))]
    return [paddle.full([*own[:axis], amount, *own[axis + 1 :]], value, x.dtype)]


def _folded(name: str) -> Callable[..., Any]:
    def fold(*args: Any) -> Any:
        parts = list(args[0]) if len(args) == 1 else list(args)
        is_tensor = [isinstance(part, paddle.pir.Value) for part in parts]
        whole = all("int" in str(p.dtype) if t else isinstance(p, int) for p, t in zip(parts, is_tensor, strict=True))
        dtype = "int64" if whole else "float32"
        numbers = (p.cast(dtype) if t else paddle.full([], p, dtype) for p, t in zip(parts, is_tensor, strict=True))
        return reduce(getattr(paddle, name), numbers)

    return fold


def _rounded(name: str) -> Callable[..., Any]:
    def round_to(x: Any) -> Any:
        return paddle.cast(getattr(paddle, name)(x), "int64") if "float" in str(x.dtype) else x

    return round_to


_SYMBOLIC: dict[Any, Callable[..., Any]] = {
    min: _folded("minimum"),
    max: _folded("maximum"),
    math.ceil: _rounded("ceil"),
    math.floor: _rounded("floor"),
}
