"""ONNX operator schemas: every version of every operator of the default domain.

They are read from ``schemas.json``, not from the installed onnx: that may be older than the files that are read and
written, and takes 12 MB for its own. `tools/schemas_file.py` writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from importlib import resources
from typing import Any

import onnx_ir as ir

T = ir.DataType
"""The element types, as rules write them: ``T.FLOAT``."""
_ELEMENT_TYPES = {f"tensor({dtype.name.lower()})": dtype for dtype in ir.DataType if dtype.name != "UNDEFINED"}


class Option(IntEnum):
    """How often a formal parameter may stand there, by onnx's numbers."""

    SINGLE = 0
    OPTIONAL = 1
    VARIADIC = 2


@dataclass(frozen=True)
class Formal:
    """A formal input or output. ``type_str`` is a type variable such as "T", or a fixed type."""

    name: str
    type_str: str
    option: Option
    homogeneous: bool
    types: frozenset[str]
    """As onnx writes them: ``tensor(float)``, ``seq(tensor(float))``."""

    @cached_property
    def dtypes(self) -> frozenset[ir.DataType]:
        """The element types of the tensors among the types."""
        return frozenset(_ELEMENT_TYPES[t] for t in self.types if t in _ELEMENT_TYPES)

    @property
    def variadic(self) -> bool:
        return self.option is Option.VARIADIC

    @property
    def fixed(self) -> ir.DataType | None:
        """The only dtype this parameter can have, if there is only one."""
        return next(iter(self.dtypes)) if len(self.dtypes) == 1 else None


@dataclass(frozen=True)
class Attribute:
    """An attribute of an operator; ``default`` is None where there is none."""

    type: ir.AttributeType
    required: bool
    default: Any


@dataclass(frozen=True)
class Signature:
    """One version of one operator."""

    op_type: str
    since: int
    deprecated: bool
    min_outputs: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    attributes: Mapping[str, Attribute]

    def input(self, index: int) -> Formal:
        """The formal of the input at ``index``; the last one repeats when it is variadic."""
        if index < len(self.inputs):
            return self.inputs[index]
        if self.inputs and self.inputs[-1].variadic:
            return self.inputs[-1]
        raise TypeError(f"{self.op_type}-{self.since} takes {len(self.inputs)} inputs, not {index + 1}")

    def output(self, index: int) -> Formal:
        """The formal of the output at ``index``; the last one repeats when it is variadic."""
        return self.outputs[min(index, len(self.outputs) - 1)]


@cache
def _file() -> tuple[list[frozenset[str]], dict[str, str]]:
    """The sets of types, and for each operator the text about it: few of them are ever asked for."""
    text = resources.files(__package__).joinpath("schemas.json").read_text(encoding="utf-8")
    types, _, schemas = text.rstrip("}\n").partition(',\n"schemas": {\n"')
    parts = (part.partition('": ') for part in schemas.split(',\n"'))
    return [frozenset(names) for names in json.loads(types + "}")["types"]], {name: text for name, _, text in parts}


@cache
def history(op_type: str) -> tuple[Signature, ...]:
    """All versions of an operator of the default domain, oldest first; none if ONNX has no such operator."""
    sets, schemas = _file()

    def formals(side: list[Any]) -> tuple[Formal, ...]:
        return tuple(Formal(name, var, Option(kind), bool(same), sets[types]) for name, var, kind, same, types in side)

    return tuple(
        Signature(
            *(op_type, since, bool(deprecated), least, formals(inputs), formals(outputs)),
            attributes={
                name: Attribute(ir.AttributeType(kind), bool(required), default)
                for name, (kind, required, default) in attributes.items()
            },
        )
        for since, deprecated, least, inputs, outputs, attributes in json.loads(schemas.get(op_type, "[]"))
    )


def operators() -> Sequence[str]:
    """The names of all operators of the default domain."""
    return list(_file()[1])


@cache
def signature(op_type: str, opset: int, *, deprecated: bool = False) -> Signature | None:
    """The version of a default-domain operator that is in force at ``opset``; None if it does not exist there.

    ``deprecated`` also gives those that may no longer be written: files of that opset have them all the same.
    """
    schema = next((version for version in reversed(history(op_type)) if version.since <= opset), None)
    return None if schema is None or (schema.deprecated and not deprecated) else schema


def attribute_type(op_type: str, name: str, opset: int) -> ir.AttributeType | None:
    """The type of an attribute in the version that is in force; None if there is none, or it became an input."""
    schema = signature(op_type, opset, deprecated=True)
    attribute = None if schema is None else schema.attributes.get(name)
    return None if attribute is None else attribute.type


# The dtype to compute in where an operator does not take the one at hand, in ONNX itself or in a runtime


# What holds every value of a dtype, in order of preference; only double to float loses digits. An integer never turns
# into a float here: a rule that hands one to a function of real numbers has forgotten to promote it.
INSTEAD: Mapping[ir.DataType, tuple[ir.DataType, ...]] = {
    T.BOOL: (T.INT32, T.UINT8, T.INT64),
    **dict.fromkeys((T.INT8, T.UINT8, T.INT16, T.UINT16), (T.INT32, T.INT64)),
    **dict.fromkeys((T.INT32, T.UINT32), (T.INT64,)),
    **dict.fromkeys((T.BFLOAT16, T.DOUBLE), (T.FLOAT,)),
}


def instead(
    schema: Signature,
    inputs: Sequence[ir.Value | None],
    runs: Callable[[str, ir.DataType], bool] = lambda op_type, dtype: True,
    others: Mapping[ir.DataType, tuple[ir.DataType, ...]] = INSTEAD,
) -> dict[str, ir.DataType]:
    """The dtype to compute in, for each type variable whose dtype the schema does not take or does not ``run``."""
    result: dict[str, ir.DataType] = {}
    for i, value in enumerate(inputs):
        if value is None or value.dtype is None:
            continue
        formal = schema.input(i)
        if formal.type_str in result or not formal.dtypes:
            continue
        for dtype in (value.dtype, *others.get(value.dtype, ())):
            if dtype in formal.dtypes and runs(schema.op_type, dtype):
                if dtype != value.dtype:
                    result[formal.type_str] = dtype
                break
    return result
