"""A Paddle program in memory: one form for the old format and for PIR, every value assigned once.

What differs between the formats and stays different here: operator names (``conv2d``, ``pd_op.conv2d``),
attribute names, and slots. Old operators have named slots; PIR's operands and results are positional and lie in
the slot ``POSITIONAL``. What is the same in both, because the readers make it so:

* A model input is an argument of the root block, a model output one of its results: there are no feed, fetch,
  data, parameter and yield operators.
* A loop (``LOOPS``) has the operands ``[condition, *start]`` and one block with the arguments
  ``[*start, *writes]`` and the results ``[condition, *next, *writes]``. Its outputs are the last ``next``.
  Old programs have no ``start``: their loops work through writes alone.
* A branch (``BRANCHES``) has the operand ``[condition]`` and one or two blocks without arguments, with the
  results ``[*outputs, *writes]``. With a single block, nothing happens when the condition is false.
* ``Op.writes`` are the variables of the blocks around that the operator's blocks assign, which both formats
  allow (PIR for operators that work in place, such as ``pd_op.array_write_``). Each is a pair: the value
  ``before``, the value ``after``. So ONNX's Loop carries ``start + before`` and gives ``outputs + after``; its
  If gives ``outputs + after``, where a missing branch gives ``before``.
* A block may use every value of the blocks around it, as in ONNX.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from onnx_ir import DataType

POSITIONAL = ""
LOOPS = frozenset({"while", "pd_op.while"})
BRANCHES = frozenset({"conditional_block", "conditional_block_infer", "pd_op.if"})


class Kind(Enum):
    """What a value holds."""

    TENSOR = "tensor"
    ARRAY = "array"
    """A list that grows at run time; its elements have the value's dtype and shape."""
    LIST = "list"
    """A fixed number of values side by side, of the types in ``Type.elements``: PIR's builtin.combine."""
    SCALAR = "scalar"
    OTHER = "other"
    """Nothing that ONNX has: scopes, sparse tensors, readers, an output that is not there."""


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a value, as far as the file tells it. -1 is a dynamic dimension."""

    kind: Kind = Kind.OTHER
    dtype: DataType | None = None
    shape: tuple[int, ...] | None = None
    elements: tuple[Type, ...] = ()


@dataclass(eq=False, slots=True)
class Value:
    """One assignment of a variable. ``name`` is unique in the program: ``x``, then ``x@1``; ``%7`` in PIR."""

    name: str
    type: Type
    is_parameter: bool = False

    @property
    def dtype(self) -> DataType | None:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape, -1 for a dynamic dimension; None if even the rank is unknown."""
        return self.type.shape

    @property
    def kind(self) -> Kind:
        return self.type.kind


@dataclass(frozen=True, slots=True)
class Write:
    """An outer variable that an operator's blocks assign. ``before`` is None if it had no value: an array is
    then empty, a tensor must not be read."""

    before: Value | None
    after: Value


@dataclass(frozen=True, slots=True)
class Opaque:
    """An attribute of a type that the reader does not know, which matters only to a rule that asks for it."""

    type: str


@dataclass(eq=False, slots=True)
class Op:
    """An operator. An operand that is None is an optional input that was not given."""

    name: str
    inputs: dict[str, list[Value | None]]
    outputs: dict[str, list[Value | None]]
    attributes: dict[str, Any]
    blocks: list[Block] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    place: str = ""
    """Where it is in the file, for messages: ``block 0, op 3 (conv2d)``."""
    source: str = ""
    """The user's file and line (old programs), or the layer's path (PIR)."""

    @property
    def operands(self) -> list[Value | None]:
        return self.inputs.get(POSITIONAL, [])

    @property
    def results(self) -> list[Value | None]:
        return self.outputs.get(POSITIONAL, [])


@dataclass(eq=False, slots=True)
class Block:
    """A list of operators in the order in which they run."""

    arguments: list[Value]
    ops: list[Op] = field(default_factory=list)
    results: list[Value | None] = field(default_factory=list)
    """None: the variable has no value at the end of the block (see ``Write``)."""
    parent: Block | None = None

    def inside(self) -> Iterator[Block]:
        return (block for op in self.ops for block in op.blocks)

    def walk(self) -> Iterator[Op]:
        """All operators, those of inner blocks after the one that has them."""
        for op in self.ops:
            yield op
            for block in op.blocks:
                yield from block.walk()


@dataclass(eq=False, slots=True)
class Program:
    """A whole model but for its weights."""

    format: str
    """``"pir"`` or ``"pdmodel"``."""
    version: int
    block: Block
    inputs: dict[str, Value]
    outputs: dict[str, Value]
    parameters: dict[str, Value]
    """Weights and buffers by their name in the weights file. Names are unique."""
    unsaved: frozenset[str] = frozenset()
    """Parameters that Paddle does not save: work memory of recurrent layers. Nothing reads them at inference."""

    def walk(self) -> Iterator[Op]:
        """All operators, those of inner blocks after the one that has them."""
        return self.block.walk()
