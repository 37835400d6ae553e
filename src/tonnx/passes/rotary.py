"""RotaryEmbedding of what a model spells out: pairs of features of a head, turned by an angle for each position.

1. ``x · cos + concat(−x₂, x₁) · sin``, where x₁ and x₂ are the halves of x: as most models of transformers have it.
2. ``concat(x₁ · cos − x₂ · sin, x₂ · cos + x₁ · sin)``: the same, and what the legaliser makes of the operator again.

The tables of the first form have every angle twice; the operator wants it once, so what they are made of is followed
to where the halves were joined. A table is halved once for all layers.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from tonnx.ir.build import Builder, T
from tonnx.ir.infer import constant, dims_of, same_dim
from tonnx.ir.infer.dims import ints_in
from tonnx.ir.operands import attribute, attributes_in
from tonnx.ir.rewrite import builder_of, replace_node
from tonnx.passes.match import is_private, made_by, orders

_MAPS = ("Cos", "Sin", "Neg", "Cast", "Identity")
"""What computes each number of a table of the number in the same place."""


def recognise_rotations(model: ir.Model) -> int:
    """Look at the main graph; returns how many rotations there are."""
    pass_ = _Rotations(builder_of(model))
    nodes = [node for node in model.graph if node.domain == "" and node.op_type in ("Add", "Concat")]
    return sum(pass_.recognise(node) for node in nodes if node.graph is not None)


class _Rotations:
    def __init__(self, op: Builder) -> None:
        self.op = op
        self.tables: dict[ir.Value, ir.Value] = {}
        """Halved tables by what they were made of."""

    def recognise(self, node: ir.Node) -> bool:
        match = _of_halves(node) if node.op_type == "Add" else _of_parts(node)
        if match is None:
            return False
        x, cos, sin, is_doubled = match
        dims = dims_of(x)
        if dims is None or len(dims) != 4 or not isinstance(dims[1], int) or not isinstance(dims[3], int):
            return False
        if x.dtype not in (T.FLOAT, T.FLOAT16) or cos.dtype != x.dtype:
            return False
        with self.op.at(node):
            tables = [self._table(table, x, is_doubled) for table in (cos, sin)]
            if None in tables:
                return False
            result = self.op.RotaryEmbedding(x, *tables, _shape=dims_of(node.outputs[0]))
        replace_node(node, [result])
        return True

    def _table(self, table: ir.Value, x: ir.Value, is_doubled: bool) -> ir.Value | None:
        """[batch, sequence, half a head] of a table that is broadcast over the heads of ``x``."""
        batch, _, sequence, width = x.shape.dims  # type: ignore[union-attr]
        raised = made_by(table, "Unsqueeze")
        if raised is None or ints_in(raised.inputs[1]) not in ([1], [-3]):
            return None
        flat, shape = raised.inputs[0], dims_of(raised.inputs[0])
        if flat is None or shape is None or len(shape) != 3 or not same_dim(shape[1], sequence):
            return None
        if shape[2] != (width if is_doubled else width // 2) or not (shape[0] == 1 or same_dim(shape[0], batch)):  # type: ignore[operator]
            return None
        if flat not in self.tables and (half := self._half(flat) if is_doubled else flat) is not None:
            if not same_dim(shape[0], batch):
                half = self.op.Expand(half, self.op.vector([self.op.size(x, 0), 1, 1]))
                half.shape = ir.Shape([batch, shape[1], width // 2])  # type: ignore[operator]
            self.tables[flat] = half
        return self.tables.get(flat)

    def _half(self, table: ir.Value | None) -> ir.Value | None:
        """The first half of each row, computed of what the rows were joined of: the two halves are the same."""
        node = None if table is None else table.producer()
        if table is None or node is None or node.domain != "":
            return None
        if node.op_type == "Concat":
            return node.inputs[0] if _joins_two(node) and node.inputs[0] is node.inputs[1] else None
        if node.op_type in _MAPS:
            half = self._half(node.inputs[0])
            return None if half is None else self._again(node, lambda value: half)
        if node.op_type in ("Mul", "Div"):
            factor = constant(node.inputs[1])
            half = self._half(node.inputs[0]) if factor is not None and factor.size == 1 else None
            return None if half is None else self._again(node, lambda value: half if value is node.inputs[0] else value)
        return None

    def _again(self, node: ir.Node, instead: Callable[[ir.Value | None], ir.Value | None]) -> ir.Value:
        inputs = [instead(value) for value in node.inputs]
        attributes = attributes_in(node)
        return getattr(self.op, node.op_type)(*inputs, **attributes)


_Match = tuple[ir.Value, ir.Value, ir.Value, bool]
"""What is turned, cosines, sines, and whether they have every angle twice."""


def _of_halves(total: ir.Node) -> _Match | None:
    for straight, crossed in orders(total):
        first, second = made_by(straight, "Mul"), made_by(crossed, "Mul")
        if first is None or second is None or straight is None or crossed is None:
            continue
        if not (is_private(straight) and is_private(crossed)):
            continue
        for swapped, sin in orders(second):
            x = _swapped(swapped)
            cos = None if x is None else next((other for own, other in orders(first) if own is x), None)
            if x is not None and cos is not None and sin is not None:
                return x, cos, sin, True
    return None


def _swapped(value: ir.Value | None) -> ir.Value | None:
    """The x of ``concat(−x₂, x₁)``."""
    joined = made_by(value, "Concat")
    if joined is None or not _joins_two(joined):
        return None
    negated = made_by(joined.inputs[0], "Neg")
    second = _part(negated.inputs[0] if negated is not None else None)
    first = _part(joined.inputs[1])
    is_pair = first is not None and second is not None and first[0] is second[0]
    return first[0] if is_pair and first is not None and (first[1], second[1]) == (0, 1) else None  # type: ignore[index]


def _joins_two(node: ir.Node) -> bool:
    """Whether a Concat joins two values along the last axis."""
    dims = dims_of(node.outputs[0])
    return dims is not None and len(node.inputs) == 2 and attribute(node, "axis") in (-1, len(dims) - 1)


def _of_parts(joined: ir.Node) -> _Match | None:
    if not _joins_two(joined):
        return None
    difference, total = made_by(joined.inputs[0], "Sub"), made_by(joined.inputs[1], "Add")
    if difference is None or total is None:
        return None
    terms = [made_by(value, "Mul") for value in (*difference.inputs, *total.inputs)]
    for cos in terms[0].inputs if terms[0] is not None else ():
        for sin in terms[1].inputs if terms[1] is not None else ():
            one, two = (_factor(term, table) for term, table in ((terms[0], cos), (terms[1], sin)))
            sums = {(_factor(terms[2], cos), _factor(terms[3], sin)), (_factor(terms[3], cos), _factor(terms[2], sin))}
            if one is None or two is None or (two, one) not in sums or cos is None or sin is None:
                continue
            first, second = _part(one), _part(two)
            if first is not None and second is not None and first[0] is second[0] and (first[1], second[1]) == (0, 1):
                return first[0], cos, sin, False
    return None


def _factor(product: ir.Node | None, table: ir.Value | None) -> ir.Value | None:
    return None if product is None else next((other for own, other in orders(product) if own is table), None)


def _part(value: ir.Value | None) -> tuple[ir.Value, int] | None:
    """The value of whose last axis this is a half, and which one."""
    node, dims = made_by(value, "Slice", "Split"), dims_of(value)
    whole = node.inputs[0] if node is not None else None
    full = dims_of(whole)
    if node is None or whole is None or not full or not dims or len(dims) != len(full):
        return None
    last, half = len(full) - 1, dims[-1]
    if not isinstance(half, int) or full[-1] != 2 * half:
        return None
    if node.op_type == "Split":
        is_last = attribute(node, "axis", 0) in (-1, last) and len(node.outputs) == 2
        return (whole, list(node.outputs).index(value)) if is_last else None  # type: ignore[arg-type]
    starts, ends, axes, steps = ([*map(ints_in, node.inputs[1:]), None, None])[:4]
    if axes not in ([-1], [last]) or steps not in (None, [1]) or starts is None or ends is None:
        return None
    start = starts[0] % (2 * half) if starts[0] < 0 else starts[0]
    return (whole, start // half) if start in (0, half) else None
