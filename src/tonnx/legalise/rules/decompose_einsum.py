"""Einsum as products of matrices: Transpose, Reshape, MatMul, and ReduceSum for what only one operand has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from tonnx.ir.build import Builder, Size
from tonnx.legalise.node_view import Blocked, NodeView
from tonnx.legalise.table import down
from tonnx.legalise.versioned_ops import arange, reduce, squeeze, unsqueeze

Labels = tuple[str, ...]


@dataclass
class _Term:
    """An operand with a label for each of its axes."""

    value: ir.Value
    labels: Labels


@down("Einsum", 12)
def einsum(op: Builder, node: NodeView) -> ir.Value:
    """Operands contracted two at a time, from left to right."""
    values = [v for v in node.inputs if v is not None]
    ranks = []
    for value in values:
        if value.shape is None:
            raise Blocked("the rank of one of its inputs is not known")
        ranks.append(value.shape.rank())
    labels, output = _parse(node.attr("equation"), ranks)
    terms = [_diagonals(op, _Term(v, label)) for v, label in zip(values, labels, strict=True)]
    result = terms[0]
    for i, other in enumerate(terms[1:], 1):
        needed = {*output, *(label for term in terms[i + 1 :] for label in term.labels)}
        result = _contract(op, _summed(op, result, {*needed, *other.labels}), other, needed)
    result = _summed(op, result, set(output))
    order = [result.labels.index(label) for label in output]
    if order != sorted(order):
        return op.Transpose(result.value, perm=order)
    return op.Identity(result.value) if result.value in values else result.value


def _parse(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of every operand and of the result; the axes under "..." are labelled .0, .1 from the right."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = [_labels(term, rank) for term, rank in zip(inputs.split(","), ranks, strict=True)]
    covered = max((len([x for x in term if x.startswith(".")]) for term in terms), default=0)
    dots = tuple(f".{i}" for i in range(covered - 1, -1, -1))
    if not arrow:  # what occurs once, in alphabetical order
        letters = inputs.replace(",", "").replace(".", "")
        return terms, (*dots, *sorted(x for x in set(letters) if letters.count(x) == 1))
    before, ellipsis, after = output.partition("...")
    return terms, (*before, *(dots if ellipsis else ()), *after)


def _labels(term: str, rank: int) -> Labels:
    before, ellipsis, after = term.partition("...")
    covered = rank - len(before) - len(after) if ellipsis else 0
    return (*before, *(f".{i}" for i in range(covered - 1, -1, -1)), *after)


def _diagonals(op: Builder, term: _Term) -> _Term:
    """A label that occurs twice in one operand takes the diagonal of the two axes."""
    value, labels = term.value, term.labels
    while len(set(labels)) < len(labels):
        label = next(x for x in labels if labels.count(x) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        numbers = arange(op, op.size(value, first))
        other = [axis for axis in range(len(labels)) if axis != first]
        same = op.Equal(
            unsqueeze(op, numbers, *[a for a in range(len(labels)) if a != first]),
            unsqueeze(op, numbers, *[a for a in range(len(labels)) if a != second]),
        )
        assert value.dtype is not None
        value = reduce(op, "ReduceSum", value * op.Cast(same, to=int(value.dtype)), [first], keepdims=False)
        labels = tuple(labels[axis] for axis in other)
    return _Term(value, labels)


def _summed(op: Builder, term: _Term, needed: set[str]) -> _Term:
    """Without the axes that nothing else refers to."""
    gone = [axis for axis, label in enumerate(term.labels) if label not in needed]
    if not gone:
        return term
    value = reduce(op, "ReduceSum", term.value, gone, keepdims=False)
    return _Term(value, tuple(x for x in term.labels if x in needed))


def _contract(op: Builder, a: _Term, b: _Term, needed: set[str]) -> _Term:
    """The product of two operands, summed over the labels that only they have."""
    b = _summed(op, b, {*needed, *a.labels})
    shared = [x for x in a.labels if x in b.labels]
    batch = tuple(x for x in shared if x in needed)
    inner = tuple(x for x in shared if x not in needed)
    rows = tuple(x for x in a.labels if x not in shared)
    columns = tuple(x for x in b.labels if x not in shared)
    if not inner:
        return _multiply(op, a, b, (*batch, *rows, *columns))
    left, sizes = _as_matrices(op, a, batch, rows, inner)
    right, more = _as_matrices(op, b, batch, inner, columns)
    product = op.MatMul(left, right)
    sizes |= more
    labels = (*batch, *rows, *columns)
    parts: list[Size]
    if len(rows) == len(columns) == 1:
        return _Term(product, labels)
    if (not batch and len(rows) + len(columns) > 1) or (rows and columns):
        parts = [*[0] * len(batch), *(sizes[x] for x in (*rows, *columns))]
        return _Term(_split_axes(op, product, parts), labels)
    if not rows and not columns:
        return _Term(squeeze(op, product, len(batch), len(batch) + 1), labels)
    product = squeeze(op, product, len(batch) + (1 if rows else 0))
    several = rows or columns
    if len(several) > 1:
        parts = [*[0] * len(batch), *(sizes[x] for x in several)]
        product = _split_axes(op, product, parts)
    return _Term(product, labels)


def _as_matrices(
    op: Builder, term: _Term, batch: Labels, rows: Labels, columns: Labels
) -> tuple[ir.Value, dict[str, Size]]:
    """(batch…, all rows, all columns), and the sizes of the axes that were put together."""
    value, order = term.value, (*batch, *rows, *columns)
    perm = [term.labels.index(label) for label in order]
    several = [x for group in (rows, columns) if len(group) > 1 for x in group]
    sizes = {x: op.size(value, term.labels.index(x)) for x in several}
    sizes |= {x: op.size(value, term.labels.index(x)) for x in (*rows, *columns) if x not in sizes}
    if perm != sorted(perm):
        value = op.Transpose(value, perm=perm)
    if not several:
        for group, at in ((rows, len(batch)), (columns, len(batch) + 1)):
            if not group:
                value = unsqueeze(op, value, at)
        return value, sizes
    merged: list[Size] = [0] * len(batch)
    for group in (rows, columns):
        merged.append(op.product([sizes[x] for x in group]) if group else 1)
    return _split_axes(op, value, merged), sizes


def _split_axes(op: Builder, value: ir.Value, sizes: list[Size]) -> ir.Value:
    """Reshape, with -1 for the only size that is known at run time."""
    unknown = [i for i, size in enumerate(sizes) if isinstance(size, ir.Value)]
    if len(unknown) == 1:
        sizes = [-1 if i == unknown[0] else size for i, size in enumerate(sizes)]
    return op.Reshape(value, op.vector(sizes))


def _multiply(op: Builder, a: _Term, b: _Term, labels: Labels) -> _Term:
    """Nothing to sum over: operands side by side, broadcast against each other."""

    def spread(term: _Term) -> ir.Value:
        order = [label for label in labels if label in term.labels]
        perm = [term.labels.index(label) for label in order]
        value = term.value if perm == sorted(perm) else op.Transpose(term.value, perm=perm)
        missing = [i for i, label in enumerate(labels) if label not in term.labels]
        # Leading axes of size 1 come by themselves.
        while missing and missing == list(range(len(missing))):
            return value
        return unsqueeze(op, value, *missing) if missing else value

    return _Term(spread(a) * spread(b), labels)
