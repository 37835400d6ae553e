"""Binds the operands and attributes of one operator to the parameters of its rule, in either format."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Rule
from tonnx.frontends.paddle.read import dtypes, schema
from tonnx.frontends.paddle.read.graph import Op, Opaque
from tonnx.ir import facts
from tonnx.ir.build import Builder, Size
from tonnx.ir.infer import as_constant, constant

_IGNORED = frozenset(
    """use_cudnn use_mkldnn use_onednn mkldnn_data_type onednn_data_type use_quantizer exhaustive_search
    workspace_size_MB force_fp32_output use_addto is_test fix_seed seed force_cpu place place_type infer_flags is_sparse
    is_distributed remote_prefetch trainer_id entry entry_config entry_type table_names table_class epmap slot
    height_sections grad_inplace name dist_attr stop_gradient persistable skip_quant quantization_type fuse_alpha
    fuse_beta in_dtype activation_bits bit_length out_threshold in_threshold str_value head_number
    all_kernels_must_compute_runtime_shape""".split()
)
"""Attributes that change nothing in what is computed: kernels, training, distribution, bookkeeping."""

_IDLE = {
    **dict.fromkeys("scale_in scale_out scale_x scale_y scale_in_eltwise scale_data".split(), (1.0, [1.0])),
    "scale_weights": ([1.0],),
    "data_format": ("AnyLayout", "NCHW"),
}
"""Attributes that change nothing if they have one of these values; old programs write many of them."""

_MEASURED = re.compile(r"[a-z_]+[0-9]+_threshold")
"""What quantisation has measured at a slot, ``Out0_threshold``, written down for other tools."""

_KEYWORDS = {"lambda": "lambda_"}  # no parameter can be called so in Python

Resolve = Callable[[Any], Any]


def bind(node: Op, rule: Rule, op: Builder, resolve: Resolve) -> dict[str, Any]:
    """The keyword arguments for the rule. ``resolve`` turns the program's values into what was made of them."""
    arguments: dict[str, Any] = {}
    where = _old(node, arguments) if "." not in node.name else _pir(node, rule, arguments)
    bound: dict[str, Any] = {}
    for name, raw in arguments.items():
        if rule.kinds.get(name) == "Unused":
            continue
        if name in rule.kinds:
            value = _resolved(raw, resolve)
            bound[name] = _convert(value, rule.kinds[name], name, op)
        elif not _is_idle(name, raw) and not _is_switched_off(name, raw, arguments):
            kind, shown = where.get(name, "attribute"), "(a tensor)" if hasattr(raw, "type") else repr(raw)[:60]
            raise UnsupportedArgument(f"{node.name}: the {kind} {name}={shown} is not supported")
    if "node" in rule.kinds:
        bound["node"] = node
    return bound


def _pir(node: Op, rule: Rule, arguments: dict[str, Any]) -> dict[str, str]:
    where = {}
    arguments.update({_KEYWORDS.get(name, name): value for name, value in node.attributes.items()})
    for i, operand in enumerate(node.operands):
        name = rule.operands[i] if i < len(rule.operands) else f"#{i}"
        where[name] = "operand"
        if operand is not None:
            arguments[name] = operand
    return where


def _old(node: Op, arguments: dict[str, Any]) -> dict[str, str]:
    """Tensors win over attributes of the same meaning: Paddle reads them first."""
    where = {}
    names = schema.synonyms(node.name)
    for old, value in node.attributes.items():
        name = names.parameter(old)
        if arguments.get(name, []) == []:  # of several for one parameter, the one that is filled
            arguments[name] = value
    for slot, operands in node.inputs.items():
        present = [operand for operand in operands if operand is not None]
        if not present:
            continue
        name = names.parameter(slot)
        where[name] = "input"
        arguments[name] = list(present) if len(present) > 1 else present[0]
    return where


def _is_idle(name: str, raw: Any) -> bool:
    """Whether an argument that the rule does not name can be left out: it says nothing, or nothing of the result."""
    if name in _IGNORED or _MEASURED.fullmatch(name) or raw is None or isinstance(raw, (tuple, Opaque)):
        return True
    return raw in (False, 0, "", -1) or raw == [] or any(raw == value for value in _IDLE.get(name, ()))


def _is_switched_off(name: str, raw: Any, given: Mapping[str, Any]) -> bool:
    """Whether an argument is a number for a fused part that the operator does not have: ``fuse_brelu_threshold``."""
    part = name.rpartition("_")[0]
    return part.startswith("fuse_") and isinstance(raw, (int, float)) and raw is not True and not given.get(part)


def _resolved(raw: Any, resolve: Resolve) -> Any:
    if isinstance(raw, list):
        return [resolve(item) for item in raw]
    return resolve(raw)


def _convert(raw: Any, kind: str, name: str, op: Builder) -> Any:
    """One argument in the form that the rule wants."""
    if kind == "ir.DataType":
        return _dtype(raw)
    if isinstance(raw, Opaque):
        raise UnsupportedArgument(f"the attribute {name} has the unknown type {raw.type}")
    if kind == "Values":
        return raw if isinstance(raw, list) else [raw]
    if kind == "Array":
        return raw
    if kind == "Value":
        if isinstance(raw, list) and len(raw) == 1 and isinstance(raw[0], ir.Value):
            return raw[0]
        return raw if isinstance(raw, ir.Value) or raw is None else op.constant(raw)
    if kind == "Sizes":
        return sizes_of(op, raw)
    if kind == "Ints":
        sizes = sizes_of(op, raw)
        if any(isinstance(size, ir.Value) for size in sizes):
            raise UnsupportedArgument(f"{name} is computed at run time, but ONNX wants a fixed number there")
        return sizes
    if kind == "Floats":
        return [_fixed(item, name) for item in (raw if isinstance(raw, list) else elements(raw, name))]
    if kind == "Size":
        return next(iter(sizes_of(op, raw)), 0)
    if kind == "Number":
        return number(op, raw)
    return _plain(raw, kind, name)


def _plain(raw: Any, kind: str, name: str) -> Any:
    value = _fixed(raw, name)
    if value is None:
        return None
    if kind == "int":
        return int(value)
    if kind == "float":
        return float(value)
    return bool(value) if kind == "bool" else str(value)


def _dtype(raw: Any) -> ir.DataType | None:
    if raw is None or isinstance(raw, ir.DataType):
        return raw
    return dtypes.PROTO.get(raw) if isinstance(raw, int) else None  # -1: as the input


def elements(value: Any, name: str) -> list[Any]:
    array = constant(value)
    if array is None:
        if isinstance(value, (int, float)):
            return [value]
        raise UnsupportedArgument(f"{name} is computed at run time, but ONNX wants fixed numbers there")
    return list(array.reshape(-1).tolist())


def _fixed(raw: Any, name: str) -> Any:
    if isinstance(raw, list) and len(raw) == 1:
        raw = raw[0]
    if not isinstance(raw, ir.Value):
        return raw
    values = elements(raw, name)
    if len(values) != 1:
        raise UnsupportedArgument(f"{name} has {len(values)} elements, not one")
    return values[0]


def number(op: Builder, raw: Any) -> Any:
    """A number, or a value of rank 0."""
    if isinstance(raw, list) and len(raw) == 1:
        raw = raw[0]
    raw = as_constant(raw)
    if not isinstance(raw, ir.Value):
        return raw
    return raw if op.rank(raw) == 0 else op.Reshape(raw, op.constant([], ir.DataType.INT64))


def known_sizes(value: ir.Value) -> list[Size] | None:
    """The elements of a vector of sizes, one by one, where they are constants or it is known what they were made of."""
    if value in facts.PADDLE_SIZES:
        return list(facts.PADDLE_SIZES[value])
    array = constant(value)
    return None if array is None else [int(size) for size in array.reshape(-1).tolist()]


def holding(vector: ir.Value, sizes: list[Size] | None) -> ir.Value:
    """A vector with its elements, for `known_sizes`; those of a constant are there anyway."""
    if sizes is not None and vector.const_value is None:
        facts.PADDLE_SIZES[vector] = sizes
    return vector


def sizes_of(op: Builder, raw: Any) -> list[Size]:
    """Integers one by one: from an attribute, from a vector, or from a list of tensors with one element each."""
    if raw is None:
        return []
    if isinstance(raw, (list, tuple)):
        return [size for item in raw for size in sizes_of(op, item)]
    if not isinstance(raw, ir.Value):
        return [int(raw)]
    if (sizes := known_sizes(raw)) is not None:
        return sizes
    vector = op.cast(raw, ir.DataType.INT64)
    if op.rank(raw) == 0:
        return [op.Reshape(vector, [1])]
    length = raw.shape[0] if raw.shape is not None else None
    if not isinstance(length, int):
        raise UnsupportedArgument("a list of sizes whose length is known only at run time")
    if length == 1:
        return [vector]
    return list(op.Split(vector, [1] * length, axis=0, _outputs=length))
