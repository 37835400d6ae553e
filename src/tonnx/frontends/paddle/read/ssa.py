"""From variables that are assigned again and again to values that are assigned once.

Old programs assign over names, also over names of the blocks around. PIR is in SSA form on paper, but an operator
that works in place (``pd_op.array_write_``) changes what later readers of its operand see, even out of the body of
a loop that does not carry it. Its reader says so by giving operand and result the same key; from there on both
formats are the same to this file.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tonnx.frontends.paddle.read.damaged_file import at, damaged, quoted
from tonnx.frontends.paddle.read.graph import LOOPS, Block, Kind, Op, Type, Value, Write
from tonnx.ir.reach import reached

Key = Hashable

MAX_DEPTH = 64
"""Blocks inside blocks. The readers go down by recursion, which must end before Python's stack does."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a block."""

    name: str
    type: Type
    is_parameter: bool = False


@dataclass(slots=True)
class RawOp:
    """An operator over keys of variables."""

    name: str
    inputs: dict[str, list[Key | None]]
    outputs: dict[str, list[Key | None]]
    attributes: dict[str, Any]
    blocks: list[RawBlock] = field(default_factory=list)
    place: str = ""
    source: str = ""
    types: list[Type] = field(default_factory=list)
    """Of the positional outputs, where the format has them apart from the variables."""


@dataclass(eq=False, slots=True)
class RawBlock:
    """A block: the variables that are its own, its operators, and the keys of what it takes and gives."""

    variables: dict[Key, Variable] = field(default_factory=dict)
    arguments: list[Key] = field(default_factory=list)
    ops: list[RawOp] = field(default_factory=list)
    results: list[Key | None] = field(default_factory=list)
    writes: list[Key] = field(default_factory=list)
    """Filled here: the variables of blocks around that it assigns, itself or through its inner blocks."""


@dataclass(slots=True)
class _Scope:
    """What the variables hold at one point of a block."""

    raw: RawBlock
    parent: _Scope | None
    values: dict[Key, Value] = field(default_factory=dict)

    def find(self, key: Key) -> tuple[Value | None, Variable | None]:
        value, variable = self.values.get(key), self.raw.variables.get(key)
        if value is None and variable is None and self.parent is not None:
            return self.parent.find(key)
        return value, variable  # an own variable hides one of the same name outside

    def variable(self, key: Key) -> Variable:
        if (variable := self.raw.variables.get(key)) is not None:
            return variable
        if self.parent is None:
            raise damaged(f"the variable {quoted(key)} is not declared")
        return self.parent.variable(key)


class Versions:
    """Turns raw blocks into blocks."""

    def __init__(self, root: RawBlock) -> None:
        self._taken = _names(root)
        self._counts: dict[str, int] = {}
        self._given: set[str] = set()
        self._root = root
        self.parameters: dict[Key, Value] = {}

    def program(self) -> Block:
        """The root block, with all others inside."""
        _find_writes(self._root)
        scope = _Scope(self._root, None)
        for key, variable in self._root.variables.items():
            if variable.is_parameter:
                scope.values[key] = self.parameters[key] = self._new(variable)
                self.parameters[key].is_parameter = True
        return self._block(self._root, scope, None, ())

    def _block(self, raw: RawBlock, scope: _Scope, parent: Block | None, carried: Sequence[Key]) -> Block:
        block = Block([], parent=parent)
        for key in (*raw.arguments, *carried):
            scope.values[key] = value = self._new(scope.variable(key))
            block.arguments.append(value)
        for op in raw.ops:
            with at(op.place):
                block.ops.append(self._op(op, scope, block))
        block.results = [self._read(scope, key) for key in raw.results]
        return block

    def _op(self, raw: RawOp, scope: _Scope, block: Block) -> Op:
        inputs = {slot: [self._read(scope, key) for key in keys] for slot, keys in raw.inputs.items()}
        op = Op(raw.name, inputs, {}, raw.attributes, place=raw.place, source=raw.source)
        if raw.blocks:
            self._inner(raw, op, scope, block)
        for slot, keys in raw.outputs.items():
            op.outputs[slot] = [self._assign(scope, key) for key in keys]
        for value, type_ in zip(op.results, raw.types, strict=False):
            if value is not None:
                value.type = type_
        return op

    def _inner(self, raw: RawOp, op: Op, scope: _Scope, around: Block) -> None:
        written = list(dict.fromkeys(key for inner in raw.blocks for key in inner.writes))
        before = [scope.find(key)[0] for key in written]
        for inner in raw.blocks:
            inside = _Scope(inner, scope)
            inner_block = self._block(inner, inside, around, written if raw.name in LOOPS else ())
            inner_block.results += [inside.find(key)[0] for key in written]
            op.blocks.append(inner_block)
        loop = raw.name in LOOPS
        for i, (key, value) in enumerate(zip(written, before, strict=True), start=-len(written)):
            after = self._assign(scope, key)
            assert after is not None
            last = [block.results[i] for block in op.blocks]
            after.type = next((v.type for v in last if v is not None and v is not value), after.type)
            if loop:
                # What a loop takes in is what came before it; an array that nothing was written to says little.
                op.blocks[0].arguments[i].type = after.type if value is None or value.dtype is None else value.type
            op.writes.append(Write(value, after))

    def _read(self, scope: _Scope, key: Key | None) -> Value | None:
        if key is None:
            return None
        value, variable = scope.find(key)
        if value is None and (variable is None or variable.type.kind is not Kind.ARRAY):
            # An array needs no creation in old programs: it is empty until it is written to.
            shown = variable.name if variable is not None else key
            raise damaged(f"{quoted(shown)} is read before it is assigned, or outside of the block that has it")
        return value

    def _assign(self, scope: _Scope, key: Key | None) -> Value | None:
        if key is None:
            return None
        scope.values[key] = value = self._new(scope.variable(key))
        return value

    def _new(self, variable: Variable) -> Value:
        name = variable.name
        if name in self._given:  # its own name is kept for the first assignment
            while name in self._taken:
                self._counts[variable.name] = count = self._counts.get(variable.name, 0) + 1
                name = f"{variable.name}@{count}"
            self._taken.add(name)
        self._given.add(name)
        return Value(name, variable.type)


def _inside(block: RawBlock) -> Iterable[RawBlock]:
    for op in block.ops:
        yield from op.blocks


def _names(root: RawBlock) -> set[str]:
    return {variable.name for block in reached([root], _inside) for variable in block.variables.values()}


def _find_writes(root: RawBlock) -> None:
    """From the innermost blocks outwards."""
    for block in reversed(list(reached([root], _inside))):
        written: dict[Key, None] = {}
        for op in block.ops:
            for inner in op.blocks:
                written.update(dict.fromkeys(inner.writes))
            for keys in op.outputs.values():
                written.update(dict.fromkeys(key for key in keys if key is not None))
        block.writes = [key for key in written if key not in block.variables]
