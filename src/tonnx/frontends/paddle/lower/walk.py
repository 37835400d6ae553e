"""Walks a Paddle program once and lowers operator by operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from tonnx.errors import LoweringError, UnsupportedOp
from tonnx.frontends.paddle.lower import control, loops, rules
from tonnx.frontends.paddle.lower.arrays import Array, Listed
from tonnx.frontends.paddle.lower.bind import bind
from tonnx.frontends.paddle.read import schema
from tonnx.frontends.paddle.read.branches import join_branches
from tonnx.frontends.paddle.read.graph import BRANCHES, LOOPS, POSITIONAL, Block, Kind, Op, Program, Type, Value
from tonnx.frontends.paddle.read.liveness import Needed, results_of
from tonnx.ir import facts
from tonnx.ir.build import Builder
from tonnx.ir.infer import UNKNOWN, Dim, dims_of
from tonnx.ir.provenance import forget
from tonnx.lowering.complex import part
from tonnx.lowering.values import is_float, is_integer
from tonnx.lowering.walk import GraphWalk, Origin, StandIn

_COMPLEX = (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)
_COMPONENTWISE = frozenset(
    """assign stack unstack unbind split split_with_num sum mean mean_all cumsum roll flip reverse pad expand expand_as
    tile gather gather_nd index_select index_sample take_along_axis where tril triu diagonal diag_embed flatten
    strided_slice broadcast_tensors repeat_interleave trace masked_select""".split()
)
"""Operators for which the real and the imaginary part go the same way, each for itself."""
_MAIN = ("Out", "Output", "Y", "Result", "out")
"""Output slots of old operators that hold their only result, the most usual first."""


class ProgramWalk(GraphWalk):
    """The lowering of one program into one ONNX graph."""

    to_report = "together with the program file"

    def __init__(
        self, op: Builder, program: Program, params: Mapping[str, ir.Tensor], *, trust_shapes: bool = True
    ) -> None:
        super().__init__(op)
        self.program = program
        join_branches(program.block)
        self.needed = Needed(program.block, program.outputs.values())
        self.trusts = trust_shapes
        """Whether the program is believed in what it says of shapes."""
        self.trusts_ranks = True
        """Whether it is believed in what it says of ranks: no longer once two branches differ in that."""
        self.budget = loops.BUDGET
        self._root = op
        self._params = params
        self._rules = rules.load()
        self._values: dict[Value, Any] = {}
        self._keeps_names = program.format == "pdmodel"  # PIR's values are numbered, not named

    def run(self, inputs: Mapping[str, ir.Value]) -> list[ir.Value]:
        """Lower everything; returns the outputs in order."""
        for name, value in self.program.inputs.items():
            self._values[value] = inputs[name]
        self.block(self.program.block)
        results = [self.resolve(value) for value in self.program.outputs.values()]
        if self.unsupported:
            raise UnsupportedOp(self.unsupported)
        for value, result in zip(self.program.outputs.values(), results, strict=True):
            if not isinstance(result, ir.Value):
                raise LoweringError(f"the output {value.name!r} is a list of tensors, not a tensor")
            if value.dtype in _COMPLEX:
                raise LoweringError(
                    f"the output {value.name!r} has complex numbers, which runtimes do not have",
                    hint="return paddle.as_real(y), or its real and imaginary parts",
                )
            if result.shape is None and value.shape is not None:  # a file has to say how many axes they have
                result.shape = ir.Shape([UNKNOWN] * len(value.shape))
        return results

    def block(self, block: Block) -> None:
        """Lower the operators of a block that somebody needs."""
        self.ops(self.needed.ops(block))

    def ops(self, nodes: Iterable[Op]) -> None:
        for node in nodes:
            self._lower(node)

    @contextmanager
    def building(self, inner: Builder) -> Iterator[None]:
        """Lower into the graph of a loop or branch."""
        outer = self.op
        self.op = inner
        try:
            with inner, inner.beside(outer):
                yield
        finally:
            self.op = outer

    def defined(self, value: Value | None) -> Any:
        """What was made of a value, or None: a branch that did not run has assigned nothing."""
        if value is None or (value not in self._values and not value.is_parameter):
            return None
        return self.resolve(value)

    def define(self, value: Value, thing: Any) -> None:
        """Say what a value of the program is from now on; None: it has not been assigned."""
        if thing is None:
            self._values.pop(value, None)
        else:
            self._values[value] = thing

    def resolve(self, value: Any) -> Any:
        """What was made of a value of the program; anything else as it is."""
        if not isinstance(value, Value):
            return value
        if value not in self._values:
            if not value.is_parameter:
                raise LoweringError(f"the value {value.name!r} is used where nothing has computed it")
            tensor = self._params.get(value.name)
            if tensor is None:
                raise LoweringError(
                    f"the parameter {value.name!r} is used, but it is not in the weights file",
                    hint="save the model again with paddle.jit.save",
                )
            weight = self._root.initializer(value.name, _as_pairs(tensor))  # everywhere in reach
            facts.WEIGHT.add(weight)
            self._values[value] = weight
        return self._values[value]

    # One operator

    def _lower(self, node: Op) -> None:
        origin = self.origin_of(node)
        with self.op.origin(origin.module, node.name, "" if origin.module else _relative(node.source)):
            self.results_of(node)

    def compute(self, node: Op) -> None:
        """Lower an operator, and say what its results are."""
        self._define(node, self._computed(node))

    def origin_of(self, node: Op) -> Origin:
        path = node.source.strip("/") if self.program.format == "pir" else ""
        line = "" if path else _relative(node.source)
        where = " ".join(part for part in (node.source, f"({node.place})") if part)
        return Origin(node.name, path.replace("/", "."), line or node.place, where)

    def operands_of(self, node: Op) -> Iterator[Any]:
        operands = [self._values.get(value) for values in node.inputs.values() for value in values if value is not None]
        yield from operands
        for array in operands:
            if isinstance(array, Array):
                yield from vars(array).values()
        for block in node.blocks:
            for inner in block.ops:
                yield from self.operands_of(inner)

    def stand_in_for(self, node: Op) -> Any:
        results = tuple(self._placeholder(value) for value in _results(node))
        self._define(node, results)
        return results

    def _computed(self, node: Op) -> Any:
        if node.name == "builtin.combine":
            return [self.resolve(operand) for operand in node.operands]
        if node.name == "builtin.split":
            return tuple(self.resolve(node.operands[0]))
        if node.name == "builtin.slice":
            return self.resolve(node.operands[0])[node.attributes["index"]]
        if node.name in LOOPS:
            return loops.lower_loop(self, node)
        if node.name in BRANCHES:
            return control.lower_branch(self, node)
        if node.name in control.SELECTS:
            return (control.lower_select(self, node),)
        name = schema.rule_name(node.name)
        rule = (self._rules.get(f"{name}@array") if self._takes_array(node) else None) or self._rules.get(name)
        called = node.name
        if _takes_complex(node):  # pairs of reals, on which the same formula would mean something else
            if name in _COMPONENTWISE and rule is not None:
                return self._by_parts(node, rule)
            rule, called = self._rules.get(f"{name}@complex"), f"{node.name} of complex numbers"
        if rule is None:
            return self.refuse(node, called)
        return rule.function(self.op, **bind(node, rule, self.op, self.resolve))

    def _by_parts(self, node: Op, rule: rules.Rule) -> Any:
        """What the rule for reals gives for the real and for the imaginary part, side by side."""

        def resolve(which: int, raw: Any) -> Any:
            made = self.resolve(raw)
            if not _is_complex(raw):
                return made
            return [part(self.op, v, which) for v in made] if isinstance(made, list) else part(self.op, made, which)

        halves = [rule.function(self.op, **bind(node, rule, self.op, partial(resolve, which))) for which in (0, 1)]
        return _side_by_side(self.op, *halves)

    def _takes_array(self, node: Op) -> bool:
        operands = (value for values in node.inputs.values() for value in values if value is not None)
        return any(isinstance(self._values.get(value), Array) for value in operands)

    def _placeholder(self, result: Value | list[Value | None] | None) -> Any:
        """A stand-in for a result that nobody could compute, so that the walk finds all the other faults too."""
        if isinstance(result, list):
            return [self._placeholder(part) for part in result]
        if result is not None and result.kind is Kind.LIST:
            return [_stand_in(element) for element in result.type.elements]
        if result is not None and result.kind is Kind.ARRAY:
            return Listed((_stand_in(result.type),))
        return _stand_in(result.type if result is not None else Type())

    # Results

    def _define(self, node: Op, returned: Any) -> None:
        results = _results(node)
        values = returned if isinstance(returned, tuple) else (returned,)
        for result, value in zip(results, values, strict=False):
            if isinstance(result, list):
                parts = value if isinstance(value, list) else [value]
                for part, item in zip(result, parts, strict=True):
                    self._assign(part, item)
            else:
                if result is not None and self._is_misdeclared(node):
                    result.type = replace(result.type, dtype=None)
                self._assign(result, value)

    def _is_misdeclared(self, node: Op) -> bool:
        """Whether the program's dtype of the results is wrong, or follows from one that was."""
        operands = (value for values in node.inputs.values() for value in values)
        before = (value for value in operands if value is not None and value.kind is Kind.TENSOR)
        return schema.rule_name(node.name) in _MISDECLARED or any(value.dtype is None for value in before)

    def _assign(self, result: Value | None, value: Any) -> None:
        if result is None or value is None:
            return
        if isinstance(value, list):
            if result.kind is Kind.LIST:
                elements = result.type.elements
                value = [self._stamp(v, t) for v, t in zip(value, elements, strict=True)]
            elif len(value) == 1:
                value = self._stamp(value[0], result.type)
        else:
            value = self._stamp(value, result.type)
        self._values[result] = value
        if isinstance(value, ir.Value) and (maker := value.producer()) is not None and maker.graph is self._root.graph:
            facts.VALUE.setdefault(value, result.name)
        if self._keeps_names and isinstance(value, ir.Value) and _is_made(value):
            value.name = self.op.names.unique(result.name)

    def _stamp(self, value: Any, declared: Type) -> Any:
        """Write the program's own dtype and shape on what a rule made."""
        if not isinstance(value, ir.Value):
            return value
        if declared.dtype is not None and value.dtype != declared.dtype and _same_kind(value.dtype, declared.dtype):
            before, value = value, self.op.cast(value, declared.dtype)
            facts.copy(before, value)
            forget(value)
        own = dims_of(value)
        if declared.shape is None or (own is None and not self.trusts_ranks):
            return value
        if own is not None and len(own) != len(declared.shape):
            # Paddle before 2.5 has no tensors of rank 0: what is a number elsewhere is a vector of one there.
            if (own, declared.shape) in (([], (1,)), ([1], ())):
                before, value = value, self.op.Reshape(value, self.op.constant(list(declared.shape), ir.DataType.INT64))
                facts.copy(before, value)
                forget(value)
            return value
        if value.const_value is None and not value.is_graph_input():
            value.shape = ir.Shape(self._merged(own, declared.shape))
        return value

    def _merged(self, own: Sequence[Dim] | None, declared: Sequence[int]) -> list[Dim]:
        """What was inferred is exact where it is known; the program knows the rest, unless its input was resized."""
        inferred = own if own is not None else [UNKNOWN] * len(declared)
        # 0 is what older versions write for a size that a tensor gives (interpolation), not the size of nothing.
        said = [size if size > 0 and self.trusts else None for size in declared]
        return [
            size if size is not None and not isinstance(dim, int) and (dim.value is None) else dim
            for dim, size in zip(inferred, said, strict=True)
        ]


_MISDECLARED = frozenset(("yolo_box",))
"""Operators whose results programs call float32 whatever they are."""


def _takes_complex(node: Op) -> bool:
    return any(_is_complex(value) for values in node.inputs.values() for value in values)


def _is_complex(value: Any) -> bool:
    types = (value.type, *value.type.elements) if isinstance(value, Value) else ()
    return any(one.dtype in _COMPLEX for one in types)


def _as_pairs(weight: ir.Tensor) -> ir.Tensor:
    if weight.dtype not in _COMPLEX:
        return weight
    numbers = weight.numpy()
    return ir.Tensor(np.stack([numbers.real, numbers.imag], -1))


def _side_by_side(op: Builder, real: Any, imaginary: Any) -> Any:
    if isinstance(real, (list, tuple)):
        return type(real)(_side_by_side(op, *pair) for pair in zip(real, imaginary, strict=True))
    return None if real is None else op.Concat(op.Unsqueeze(real, [-1]), op.Unsqueeze(imaginary, [-1]), axis=-1)


def _same_kind(inferred: ir.DataType | None, declared: ir.DataType) -> bool:
    """Integers stay integers: programs call some results floats that never were (equal_all, unique, kthvalue)."""
    return (is_integer(inferred) and is_integer(declared)) or (is_float(inferred) and is_float(declared))


def _is_made(value: ir.Value) -> bool:
    """Whether a value has the name that the builder gave it."""
    name = value.name or ""
    return name == "t" or name.startswith("t_")


def _stand_in(declared: Type) -> ir.Value:
    shape = None if declared.shape is None else ir.Shape([d if d >= 0 else None for d in declared.shape])
    return StandIn(declared.dtype or ir.DataType.FLOAT, shape)


def _results(node: Op) -> list[Value | list[Value | None] | None]:
    """The results in the order in which rules return them; an old slot with several values is a list."""
    if node.blocks:
        return list(results_of(node))
    if POSITIONAL in node.outputs:
        return list(node.results)
    slots = schema.synonyms(node.name).outputs or [s for s in _MAIN if s in node.outputs][:1] or list(node.outputs)
    results: list[Value | list[Value | None] | None] = []
    for slot in slots:
        values = node.outputs.get(slot, [])
        results.append(values[0] if len(values) == 1 else list(values) if values else None)
    return results


def _relative(source: str) -> str:
    """The user's file without the folders of the machine that the program was made on."""
    return "/".join(source.replace("\\", "/").split("/")[-2:])
