"""ONNX operator schemas, read once from onnx.defs into the small form that the builder and the legaliser need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
import onnx_ir as ir

from tonnx.ir import newer_schemas

T = ir.DataType
"""The element types, as rules write them: ``T.FLOAT``."""
_OPTION = onnx.defs.OpSchema.FormalParameterOption
_ELEMENT_TYPES = {f"tensor({dtype.name.lower()})": dtype for dtype in ir.DataType if dtype.name != "UNDEFINED"}


@dataclass(frozen=True)
class Formal:
    """A formal input or output. ``type_str`` is a type variable such as "T", or a fixed type."""

    name: str
    type_str: str
    variadic: bool
    homogeneous: bool
    dtypes: frozenset[ir.DataType]
    containers: frozenset[str] = frozenset()
    """The sequence and optional types that are accepted, as onnx writes them."""

    @property
    def fixed(self) -> ir.DataType | None:
        """The only dtype this parameter can have, if there is only one."""
        return next(iter(self.dtypes)) if len(self.dtypes) == 1 else None


@dataclass(frozen=True)
class Signature:
    """One version of one operator."""

    op_type: str
    since: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    attributes: Mapping[str, ir.AttributeType]
    min_outputs: int

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


def _formal(parameter: Any) -> Formal:
    return Formal(
        name=parameter.name,
        type_str=parameter.type_str,
        variadic=parameter.option == _OPTION.Variadic,
        homogeneous=parameter.is_homogeneous,
        dtypes=frozenset(_ELEMENT_TYPES[t] for t in parameter.types if t in _ELEMENT_TYPES),
        containers=frozenset(t for t in parameter.types if t.startswith(("seq(", "optional("))),
    )


def in_force(op_type: str, opset: int) -> Any:
    """The schema of a default-domain operator at ``opset``, as onnx.defs has it; None if it does not exist there."""
    for schema in reversed(newer_schemas.schemas().get(op_type, ())):
        if schema.since_version <= opset:
            return schema
    if not onnx.defs.has(op_type, max_inclusive_version=opset):
        return None
    return onnx.defs.get_schema(op_type, max_inclusive_version=opset)


def histories() -> dict[str, list[Any]]:
    """Every operator of the default domain with all its schemas, oldest first."""
    schemas: dict[str, list[Any]] = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            schemas[schema.name].append(schema)
    for name, newer in newer_schemas.schemas().items():
        schemas[name] += newer
    return {name: sorted(versions, key=lambda s: s.since_version) for name, versions in schemas.items()}


@cache
def signature(op_type: str, opset: int, *, deprecated: bool = False) -> Signature | None:
    """The version of a default-domain operator that is in force at ``opset``; None if it does not exist there.

    ``deprecated`` also gives those that may no longer be written: files of that opset have them all the same.
    """
    schema = in_force(op_type, opset)
    if schema is None or (schema.deprecated and not deprecated):
        return None
    return as_signature(schema)


def as_signature(schema: Any) -> Signature:
    """A schema in the small form."""
    return Signature(
        op_type=schema.name,
        since=schema.since_version,
        inputs=tuple(_formal(p) for p in schema.inputs),
        outputs=tuple(_formal(p) for p in schema.outputs),
        attributes={name: ir.AttributeType(int(a.type)) for name, a in schema.attributes.items()},
        min_outputs=schema.min_output,
    )


def attribute_type(op_type: str, name: str, opset: int) -> ir.AttributeType | None:
    """The type of an attribute in the version that is in force; None if there is none, or it became an input."""
    schema = signature(op_type, opset, deprecated=True)
    return None if schema is None else schema.attributes.get(name)


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
