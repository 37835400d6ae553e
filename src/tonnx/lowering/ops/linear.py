"""Linear layers and the products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from string import ascii_lowercase, ascii_uppercase

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.ir.build import Builder, T
from tonnx.lowering.ops.math import mul
from tonnx.lowering.rules import lower
from tonnx.lowering.values import is_float, promote

Number = int | float

int_mm = lower("aten._int_mm")(lambda op, x, mat2: op.MatMulInteger(x, mat2))
outer = lower("aten.outer", "aten.ger")(lambda op, x, vec2: mul(op, op.Unsqueeze(x, [1]), op.Unsqueeze(vec2, [0])))
chain_matmul = lower("aten.chain_matmul", "aten.linalg_multi_dot")(lambda op, x: reduce(op.MatMul, x))


SECOND = "mat2=other vec=other tensor=other"
"""What the products call their second operand."""


@lower("aten.mm", "aten.bmm", "aten.mv", "aten.dot", "aten.vdot", "aten.matmul", "aten.linalg_matmul", renamed=SECOND)
def matmul(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
    return op.MatMul(x, other)


# The second is the same as an operator of that library, for dtypes that PyTorch's own does not take when captured.
@lower("aten._grouped_mm", unused="out_dtype")
@lower("transformers.grouped_mm_fallback", renamed="weight=mat2")
def grouped_mm(
    op: Builder, x: ir.Value, mat2: ir.Value, offs: ir.Value | None = None, bias: ir.Value | None = None
) -> ir.Value:
    """Groups of rows, each times a matrix of its own: group g ends at row ``offs[g]``, which only the run knows."""
    if offs is None:
        product = matmul(op, x, mat2)
        return product if bias is None else op.Add(product, bias)
    groups = op.size(mat2, 0)
    if op.rank(x) != 2 or op.rank(mat2) != 3 or bias is not None or not isinstance(groups, int):
        raise UnsupportedArgument("grouped_mm of other operands than rows and a fixed number of matrices")
    ends = op.cast(offs, T.INT64)
    bounds: list[ir.Value] = [op.constant([0], T.INT64), *(op.Slice(ends, [g], [g + 1], [0]) for g in range(groups))]
    products = []
    for g in range(groups):
        rows = op.Slice(x, bounds[g], bounds[g + 1], [0])
        products.append(matmul(op, rows, op.Gather(mat2, g, axis=0)))
    left = op.Sub(op.vector([op.size(x, 0)]), bounds[-1])  # rows of no group: PyTorch leaves open what they give
    none = op.Expand(op.constant(0.0, products[0].dtype), op.Concat(left, op.vector([op.size(mat2, 2)]), axis=0))
    return op.Concat(*products, none, axis=0)


@lower("aten.linear")
def linear(op: Builder, x: ir.Value, weight: ir.Value, bias: ir.Value | None = None) -> ir.Value:
    if op.rank(x) == 2 and op.rank(weight) == 2 and is_float(x.dtype):
        return op.Gemm(x, weight, bias, transB=1)
    y = op.MatMul(x, op.Transpose(weight, perm=[1, 0]) if op.rank(weight) == 2 else weight)
    return y if bias is None else op.Add(y, bias)


def _weighted_sum(op: Builder, x: ir.Value, product: ir.Value, beta: Number, alpha: Number) -> ir.Value:
    """``beta * x + alpha * product``; with a beta of 0, x is not looked at, not even for NaN."""
    scaled = product if alpha == 1 else op.Mul(product, alpha)
    if beta == 0:
        return scaled
    return op.Add(x if beta == 1 else op.Mul(x, beta), scaled)


@lower("aten.addmm")
def addmm(op: Builder, x: ir.Value, mat1: ir.Value, mat2: ir.Value, beta: Number = 1, alpha: Number = 1) -> ir.Value:
    is_empty = mat1.shape is not None and mat1.shape[1] == 0  # ONNX Runtime's Gemm forgets beta then
    if is_float(x.dtype) and not is_empty:
        return op.Gemm(mat1, mat2, x if beta != 0 else None, alpha=alpha, beta=beta)
    return _weighted_sum(op, x, op.MatMul(mat1, mat2), beta, alpha)


@lower("aten.baddbmm")
@lower("aten.addbmm", summed=True)
def baddbmm(
    op: Builder,
    x: ir.Value,
    batch1: ir.Value,
    batch2: ir.Value,
    beta: Number = 1,
    alpha: Number = 1,
    *,
    summed: bool = False,
) -> ir.Value:
    products = matmul(op, batch1, batch2)
    return _weighted_sum(op, x, op.ReduceSum(products, [0], keepdims=0) if summed else products, beta, alpha)


@lower("aten.inner")
def inner(op: Builder, x: ir.Value, other: ir.Value) -> ir.Value:
    """Over the last axis of both; a number multiplies all of the other."""
    if 0 in (op.rank(x), op.rank(other)):
        return op.Mul(x, other)
    return tensordot(op, x, other, [-1], [-1])


@lower("aten.tensordot")
def tensordot(
    op: Builder, x: ir.Value, other: ir.Value, dims_self: Sequence[int], dims_other: Sequence[int]
) -> ir.Value:
    letters = iter(ascii_lowercase + ascii_uppercase)
    first = [next(letters) for _ in range(op.rank(x))]
    second = [next(letters) for _ in range(op.rank(other))]
    for a, b in zip(dims_self, dims_other, strict=True):
        second[b] = first[a]
    result = [c for c in first if c not in second] + [c for c in second if c not in first]
    return contract(op, [first, second], result, [x, other])


@lower("aten.bilinear")
def bilinear(
    op: Builder, input1: ir.Value, input2: ir.Value, weight: ir.Value, bias: ir.Value | None = None
) -> ir.Value:
    """``input1ᵀ · weight[o] · input2`` for every output o."""
    batch = list(ascii_lowercase[: op.rank(input1) - 1])
    y = contract(op, [[*batch, "x"], ["z", "x", "y"], [*batch, "y"]], [*batch, "z"], [input1, weight, input2])
    return y if bias is None else op.Add(y, bias)


# Einsum

Term = list[str]
"""The labels of one operand, axis by axis."""


@lower("aten.einsum", unused="path")
def einsum(op: Builder, equation: str, tensors: Sequence[ir.Value]) -> ir.Value:
    terms, result = _parse(equation, [op.rank(x) for x in tensors])
    return contract(op, terms, result, promote(op, *tensors))  # torch multiplies, where it sums nothing


def _parse(equation: str, ranks: Sequence[int]) -> tuple[list[Term], Term]:
    """The terms with ``...`` written out. An output that is not given holds the labels that occur once, in order."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = [part.replace("...", ".") for part in left.split(",")]
    hidden = max((rank - len(part) + 1 for part, rank in zip(parts, ranks, strict=True) if "." in part), default=0)
    ellipsis = [f".{i}" for i in range(hidden)]

    def expand(part: str, rank: int | None) -> Term:
        at = part.find(".")
        if at < 0:
            return list(part)
        count = hidden if rank is None else rank - len(part) + 1
        return [*part[:at], *ellipsis[hidden - count :], *part[at + 1 :]]

    terms = [expand(part, rank) for part, rank in zip(parts, ranks, strict=True)]
    if arrow:
        return terms, expand(right.replace("...", "."), None)
    labels = [label for term in terms for label in term if not label.startswith(".")]
    return terms, ellipsis + sorted(label for label in set(labels) if labels.count(label) == 1)


def contract(op: Builder, terms: Sequence[Term], result: Term, tensors: Sequence[ir.Value]) -> ir.Value:
    """The sum of products over the labels that the result lacks; of one operand it needs no Einsum."""
    operands = list(tensors)
    terms = [list(term) for term in terms]
    for i, term in enumerate(terms):
        terms[i], operands[i] = _without_broadcast(op, i, term, terms, operands)
    if len(operands) == 1 and len(set(terms[0])) == len(terms[0]):
        return _rearranged(op, terms[0], result, operands[0])
    labels = dict.fromkeys(label for term in terms for label in term)
    letters = dict(zip(labels, ascii_lowercase + ascii_uppercase, strict=False))
    equation = ",".join("".join(letters[c] for c in term) for term in terms)
    return op.Einsum(*operands, equation=f"{equation}->{''.join(letters[c] for c in result)}")


def _without_broadcast(
    op: Builder, index: int, term: Term, terms: Sequence[Term], operands: Sequence[ir.Value]
) -> tuple[Term, ir.Value]:
    """torch repeats an axis of size 1 where another operand has more; ONNX's Einsum does not: drop it."""

    def is_one(x: ir.Value, axis: int) -> bool:
        return x.shape is not None and x.shape[axis] == 1

    x = operands[index]
    larger = {
        label
        for i, other in enumerate(terms)
        for axis, label in enumerate(other)
        if i != index and not is_one(operands[i], axis)
    }
    dropped = [axis for axis, label in enumerate(term) if is_one(x, axis) and label in larger]
    if not dropped:
        return term, x
    return [label for axis, label in enumerate(term) if axis not in dropped], op.Squeeze(x, dropped)


def _rearranged(op: Builder, term: Term, result: Term, x: ir.Value) -> ir.Value:
    summed = [axis for axis, label in enumerate(term) if label not in result]
    if summed:
        x = op.ReduceSum(x, summed, keepdims=0)
    left = [label for label in term if label in result]
    perm = [left.index(label) for label in result]
    return x if perm == sorted(perm) else op.Transpose(x, perm=perm)


@lower("aten._scaled_mm", unused="use_fast_accum")
def scaled_mm(
    op: Builder,
    x: ir.Value,
    mat2: ir.Value,
    scale_a: ir.Value,
    scale_b: ir.Value,
    bias: ir.Value | None = None,
    scale_result: ir.Value | None = None,
    out_dtype: ir.DataType | None = None,
) -> ir.Value:
    """The product of eight-bit floats times what one of each stands for: of all, of a row, of a column."""
    result = op.MatMul(op.cast(x, T.FLOAT), op.cast(mat2, T.FLOAT)) * scale_a * scale_b
    if bias is not None:
        result = result + op.cast(bias, T.FLOAT)
    if scale_result is not None:
        result = result * scale_result
    return op.cast(result, out_dtype or x.dtype)


@lower("aten._scaled_mm_v2", unused="use_fast_accum")
def scaled_mm_by_recipe(
    op: Builder,
    x: ir.Value,
    mat2: ir.Value,
    scale_a: Sequence[ir.Value],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[ir.Value],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: ir.Value | None,
    out_dtype: ir.DataType | None,
) -> ir.Value:
    if any((*swizzle_a, *swizzle_b)) or any(list(recipe) not in ([0], [1]) for recipe in (recipe_a, recipe_b)):
        raise UnsupportedArgument("_scaled_mm_v2 with scales of blocks", why="they may be of all or of rows or columns")
    return scaled_mm(op, x, mat2, scale_a[0], scale_b[0], bias, None, out_dtype)
