"""What of a finished model a named target does not take: by node and line, whoever made the file."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from tonnx.errors import Blocker, RetargetError
from tonnx.ir.provenance import origin_of
from tonnx.ir.rewrite import all_graphs
from tonnx.ir.schema import Signature, signature
from tonnx.ir.target import Target
from tonnx.targets import Profile

_PAIRS = frozenset(("QuantizeLinear", "DequantizeLinear"))
_WHOLE = frozenset(("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"))
_HAND_ON = frozenset(("Cast", "If", "Loop", "Scan", "SequenceMap"))
"""What converts element types, or hands on values of several: what computes with those is looked at by itself."""
_FORMS = {"none": _PAIRS | _WHOLE, "qdq": _WHOLE, "symmetric": _WHOLE, "operators": _PAIRS, "any": frozenset[str]()}
"""The operators of forms of quantisation that a target does not take."""


def require(model: ir.Model, target: Target) -> None:
    """Raise everything that the target does not take."""
    if target.profile is not None and (blockers := misfits(model, target.profile)):
        raise RetargetError(target.opset, blockers, target=target.profile.name)


def misfits(model: ir.Model, profile: Profile) -> list[Blocker]:
    """Everything that the target does not take, as far as its documentation says it."""
    opset = model.opset_imports.get("", 0)
    return [
        *_of_the_file(model, profile, opset),
        *_of_the_signature(model, profile),
        *(
            Blocker(node.name or node.op_type, node.op_type, reason, origin_of(node).source)
            for graph in all_graphs(model)
            for node in graph
            for reason in _of_a_node(model, node, profile, opset)
        ),
    ]


def _of_the_file(model: ir.Model, profile: Profile, opset: int) -> Iterator[Blocker]:
    if not profile.lowest_opset <= opset <= profile.highest_opset:
        takes = f"{profile.name} takes {profile.lowest_opset} to {profile.highest_opset}"
        yield Blocker("model", "opset", f"it is {opset}, and {takes}")
    if (model.ir_version or 0) > profile.highest_ir:
        yield Blocker("model", "IR version", f"it is {model.ir_version}, and {profile.name} takes {profile.highest_ir}")
    tensors = [value.const_value for value in model.graph.initializers.values()]
    outside = sum(isinstance(tensor, ir.ExternalTensor) for tensor in tensors)
    if outside and not profile.external_data:
        yield Blocker("model", "external data", f"{outside} weights lie in other files, and {profile.name} reads one")


def _of_the_signature(model: ir.Model, profile: Profile) -> Iterator[Blocker]:
    for kind, values in (("input", model.graph.inputs), ("output", model.graph.outputs)):
        for value in values:
            name, dtype = str(value.name), value.dtype.name.lower() if value.dtype else ""
            if value.is_initializer():
                continue
            free = [str(dim) for dim in value.shape or () if not isinstance(dim, int) or dim < 0]
            if kind == "input" and profile.static and (free or value.shape is None):
                reason = f"{', '.join(free) or 'its rank'} is not fixed, and {profile.name} takes fixed shapes only"
                yield Blocker(name, kind, f"{reason}: give it a size" + (f", as {free[0]}=1" if free else ""))
            if (dtype == "int64" and profile.int64 == "none") or not _known(profile, dtype):
                yield Blocker(name, kind, f"{profile.name} has no {dtype}")


def _of_a_node(model: ir.Model, node: ir.Node, profile: Profile, opset: int) -> Iterator[str]:
    if node.domain != "":
        if (node.domain, node.op_type, node.overload) not in model.functions:
            yield f"it is of the domain {node.domain}, and {profile.name} is only known to have ONNX's own operators"
        return
    if not profile.has(node.op_type):
        yield f"{profile.name} has no operator {node.op_type}"
        return
    if node.op_type in _FORMS[profile.quantisation]:
        form = {"none": "no quantised operators", "operators": "quantised operators such as QLinearConv only"}
        takes = form.get(profile.quantisation, "QuantizeLinear and DequantizeLinear only")
        yield f"{profile.name} takes {takes}"
    if profile.quantisation == "symmetric" and node.op_type in _PAIRS and not _symmetric(node):
        yield f"{profile.name} takes zero point 0 only"
    schema = signature(node.op_type, opset, deprecated=True)
    if schema is not None and node.op_type not in _HAND_ON:
        lacking = {dtype for dtype in _dtypes(node, schema) if not _takes(profile, node.op_type, dtype)}
        yield from (f"{profile.name} has no {node.op_type} of {dtype}" for dtype in sorted(lacking))


def _known(profile: Profile, dtype: str) -> bool:
    return not dtype or dtype == "int64" or not profile.dtypes or dtype in profile.dtypes


def _takes(profile: Profile, operator: str, dtype: str) -> bool:
    """int64 that a target computes in 32 bits is int32 there."""
    if dtype == "int64" and profile.int64 == "narrowed":
        dtype = "int32"
    return profile.takes(operator, dtype)


def _dtypes(node: ir.Node, schema: Signature) -> Iterator[str]:
    """Of a node's first operands: what its other inputs are, such as shapes and indices, is the operator's own."""
    if not schema.inputs:
        return
    variable = schema.input(0).type_str
    for i, value in enumerate(node.inputs):
        if value is not None and value.dtype is not None and _formal(schema, i) == variable:
            yield value.dtype.name.lower()


def _formal(schema: Signature, index: int) -> str:
    try:
        return schema.input(index).type_str
    except TypeError:  # more inputs than the operator has: onnx's checker says so
        return ""


def _symmetric(node: ir.Node) -> bool:
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return True  # uint8 by default, and zero
    zero = node.inputs[2].const_value
    return zero is not None and not zero.numpy().astype("int64").any()
