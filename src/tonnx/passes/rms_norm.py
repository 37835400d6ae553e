"""RMSNormalization of what a model spells out: ``x / sqrt(mean(x²) + ε) · weight``.

In half precision the part before the weight is computed in float32 and cast back, as the operator does it itself.
Below opset 23 the legaliser spells it out again, in the form that ONNX Runtime and TensorRT fuse.
"""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.ir.infer import constant, dims_of, known_number
from tonnx.ir.infer.dims import ints_in
from tonnx.ir.operands import attribute
from tonnx.ir.rewrite import replace_node, rewrite_each
from tonnx.passes.match import is_private, made_by, orders


def recognise_rms_norms(model: ir.Model) -> int:
    """Look at every product of the main graph; returns how many normalisations there are."""
    return rewrite_each(model, "Mul", _recognise)


def _recognise(op: Builder, product: ir.Node) -> bool:
    for normalised, weight in orders(product):
        if normalised is None or weight is None or not is_private(normalised):
            continue
        narrowed = made_by(normalised, "Cast")
        wide = narrowed.inputs[0] if narrowed is not None else normalised
        x, epsilon = _normalised(wide)
        if narrowed is not None:
            widened = made_by(x, "Cast")
            if widened is None or wide is None or not is_private(wide) or wide.dtype != T.FLOAT:
                continue
            x = widened.inputs[0]
        if x is None or x.dtype not in (T.FLOAT, T.FLOAT16) or not _fits(x, weight, normalised):
            continue
        with op.at(product):
            result = op.RMSNormalization(x, weight, axis=-1, epsilon=epsilon, _shape=dims_of(product.outputs[0]))
        replace_node(product, [result])
        return True
    return False


def _normalised(value: ir.Value | None) -> tuple[ir.Value | None, float]:
    """What is divided by the root of its mean square, and what was added to that."""
    division = made_by(value, "Div")
    root = made_by(division.inputs[1], "Sqrt") if division is not None else None
    total = made_by(root.inputs[0], "Add") if root is not None else None
    if division is None or root is None or total is None or not is_private(root.outputs[0]):
        return None, 0.0
    x = division.inputs[0]
    for square, added in orders(total):
        mean, epsilon = made_by(square, "ReduceMean"), known_number(added)
        if mean is None or epsilon is None or x is None or not _is_over_last(mean):
            continue
        if is_private(mean.outputs[0]) and is_private(total.outputs[0]) and _is_square(mean.inputs[0], x):
            return x, epsilon
    return None, 0.0


def _is_over_last(mean: ir.Node) -> bool:
    dims = dims_of(mean.inputs[0])
    axes = ints_in(mean.inputs[1]) if len(mean.inputs) > 1 else None
    return dims is not None and attribute(mean, "keepdims", 1) == 1 and axes in ([-1], [len(dims) - 1])


def _is_square(value: ir.Value | None, x: ir.Value) -> bool:
    power = made_by(value, "Pow")
    if power is not None:
        return power.inputs[0] is x and known_number(power.inputs[1]) == 2.0
    product = made_by(value, "Mul")
    return product is not None and product.inputs[0] is x and product.inputs[1] is x


def _fits(x: ir.Value, weight: ir.Value, normalised: ir.Value) -> bool:
    """Whether the weight has a number for each place of the last axis, and is no number of the run."""
    dims, scale = dims_of(x), dims_of(weight)
    is_stored = constant(weight) is not None or weight.is_graph_input()
    return bool(dims) and scale == [dims[-1]] and is_stored and weight.dtype == x.dtype == normalised.dtype  # type: ignore[index]
