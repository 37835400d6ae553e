"""Matrix products of several batch axes that were joined to one for it, as ``torch.bmm`` wants it: MatMul does not.

Reshape([a, b, m, k] → [a·b, m, k]) and the same of the other operand, MatMul, Reshape back: one MatMul.
"""

from __future__ import annotations

import onnx_ir as ir

from tonnx.ir.build import Builder
from tonnx.ir.infer import dims_of, same_dim
from tonnx.ir.infer.dims import Dims
from tonnx.ir.rewrite import replace_node, rewrite_each


def keep_batches(model: ir.Model) -> int:
    """Look at every MatMul of the main graph; returns how many have their axes back."""
    return rewrite_each(model, "MatMul", _restore)


def _restore(op: Builder, product: ir.Node) -> bool:
    result = product.outputs[0]
    uses = result.uses()
    if len(uses) != 1 or result.is_graph_output():
        return False
    after = next(iter(uses)).node
    joined = [_joined(value) for value in product.inputs]
    wanted = dims_of(after.outputs[0])
    if after.op_type != "Reshape" or after.domain != "" or after.graph is not op.graph or wanted is None:
        return False
    if None in joined or not _keeps_matrix(dims_of(result), wanted):
        return False
    sources = [value for value in joined if value is not None]
    shapes = [dims_of(value) for value in sources]
    if not all(shape is not None and _same(shape[:-2], wanted[:-2]) for shape in shapes):
        return False
    with op.at(after):
        replace_node(after, [op.MatMul(*sources, _shape=wanted)])
    op.graph.remove(product, safe=True)
    return True


def _joined(value: ir.Value | None) -> ir.Value | None:
    """What had several batch axes before they were joined, its last two being left as they are."""
    node = value.producer() if value is not None else None
    if value is None or node is None or node.op_type != "Reshape" or node.domain != "":
        return None
    before, after = dims_of(node.inputs[0]), dims_of(value)
    return node.inputs[0] if before is not None and _keeps_matrix(after, before) else None


def _keeps_matrix(flat: Dims | None, full: Dims) -> bool:
    return flat is not None and len(flat) == 3 and len(full) > 3 and _same(flat[1:], full[-2:])


def _same(one: Dims, other: Dims) -> bool:
    return len(one) == len(other) and all(map(same_dim, one, other))
