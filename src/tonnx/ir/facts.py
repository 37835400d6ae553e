"""What is known of a value beyond its type and shape. Everything that tonnx keeps in ``meta`` is named here.

A fact is a mapping from values, and a flag a set of them: ``facts.DIM[size] = "batch"``, ``value in facts.WEIGHT``.
They are kept with the value itself, so they live as long as it does. Who puts another value in its place says what
goes along: `rewrite.replace_node` the names of `provenance`, `copy` all of them, everybody else nothing.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import onnx_ir as ir

from tonnx.ir.place import Place

T = TypeVar("T")
Carrier = ir.Value | ir.TensorProtocol
"""Most facts are about values; what is true of the bytes, whoever reads them, is about the tensor."""


class Fact(Generic[T]):
    """Something that is known of some values."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __contains__(self, value: Carrier) -> bool:
        return self.key in value.meta

    def __getitem__(self, value: Carrier) -> T:
        return value.meta[self.key]

    def __setitem__(self, value: Carrier, fact: T) -> None:
        value.meta[self.key] = fact

    def get(self, value: Carrier) -> T | None:
        return value.meta.get(self.key)

    def setdefault(self, value: Carrier, fact: T) -> T:
        """The fact; ``fact`` if nothing is known yet."""
        return value.meta.setdefault(self.key, fact)

    def discard(self, value: Carrier) -> None:
        value.meta.pop(self.key, None)


class Flag:
    """Something that is true of some values, or nodes."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __contains__(self, value: ir.Value | ir.Node) -> bool:
        return self.key in value.meta

    def add(self, value: ir.Value | ir.Node) -> None:
        value.meta[self.key] = True


def copy(old: ir.Value, new: ir.Value) -> None:
    """All that is known of ``old`` is true of ``new`` as well."""
    new.meta.update(old.meta)


def stays_in_file(value: ir.Value | None) -> bool:
    """Whether a value is a weight that the ONNX file points at: see `REFERENCE`."""
    return value is not None and value.const_value is not None and value.const_value in REFERENCE


# From a front end to the file

VALUE: Fact[str] = Fact("tonnx.value")
"""The framework's name for the value. Front ends write it, `provenance` carries it over rewrites and into the file (as
metadata of the node that makes the value) and reads it back, `proof.locate` compares by it."""

ORIGINAL: Fact[str] = Fact("tonnx.original")
"""The name of the value in the file that the model was read from: the same for `tonnx.retarget`."""

WEIGHT = Flag("tonnx.weight")
"""A parameter or buffer of the model. Front ends write it, passes pass it on to what they make of weights; the builder
does not fold it, rules of users do not see it as a number, ``export_params=False`` makes an input of it."""

PLACE: Fact[Place] = Fact("tonnx.place")
"""Of a tensor: the part of a file that its bytes were read from. Paddle's front end writes it, `io.reference`
reads it."""

REFERENCE: Fact[Place] = Fact("tonnx.reference")
"""Of a tensor: the same, and there it stays: the ONNX file points at it. `io.reference` writes it, `io.write` reads it,
and passes leave such tensors as they are."""

# While a graph is lowered

DIM: Fact[str] = Fact("tonnx.dim")
"""The name of the symbolic dimension that a size, of shape [1], holds. `Builder.name_size` writes it; shape inference,
reshapes and the arithmetic of sizes read it."""

NUMBER = Flag("tonnx.number")
"""A Python number that is known only at run time: of shape [1] in the graph, a plain number for the user. PyTorch's
front ends write it, and read it where a model returns one."""

WRAPPED = Flag("tonnx.wrapped")
"""The same in the place of a tensor: it promotes as a number does. TorchScript's front end writes it, `lowering.values`
reads it."""

COMPLEX = Flag("tonnx.complex")
"""Pairs of reals on a last axis. Front ends write it on inputs and weights; `lowering.complex` on results, and reads
it."""

INTEGERS: Fact[ir.Value] = Fact("tonnx.integers")
"""Of a quantised tensor of PyTorch's, which stands for reals: what holds its integers (`lowering.ops.quant`)."""

STEP: Fact[Any] = Fact("tonnx.step")
"""Of the same, its `lowering.ops.quant.Step`."""

PADDLE_INTEGERS: Fact[ir.Value] = Fact("tonnx.paddle.integers")
"""Of quantised numbers, which Paddle keeps as floats: the same as int8 (`frontends.paddle.ops.quant`)."""

PADDLE_SIZES: Fact[list[int | ir.Value]] = Fact("tonnx.paddle.sizes")
"""Of a vector of integers: its elements one by one, as int or as value. Paddle's `shape` makes such vectors, slicing,
arithmetic and joining keep them, and whatever takes a shape reads them."""

PADDLE_START: Fact[int] = Fact("tonnx.paddle.start")
"""Of what a loop of Paddle's carries: the integer that it starts with, which says where an array is written."""

# Until the file is legalised

NONNEGATIVE = Flag("tonnx.nonnegative")
"""The counter of a loop. Whoever writes a loop says so; an index that is one needs no wrapping (`legalise.axes`)."""

COUNT = Flag("tonnx.count")
"""Sizes or positions: below opset 6 they are computed in float64 (`legalise.exact_integers`)."""

NAN = Flag("tonnx.nan")
"""A condition that says where another value is NaN (`legalise.versioned_ops`)."""

BLIND_ROWS = Flag("tonnx.blind_rows")
"""Of an Attention node: what queries without any key give is overwritten by a node after it. `lowering.ops.attention`
writes it; the legaliser need not see to such queries then."""

COUNTS = Flag("tonnx.counts")
"""Of a NonZero node: nothing in its input is zero, so it counts. Written and read by the legaliser."""

LEGAL = Flag("tonnx.legal")
"""Of a node that is at the target opset already, although it stands among some that are not (`decompose_sequence`)."""

# Of others

QUANTIZATION: Fact[dict[str, str]] = Fact("quant_parameter_tensor_names")
"""A value's quantization annotation in a file, where onnx-ir keeps it; `io.write` writes it again."""
