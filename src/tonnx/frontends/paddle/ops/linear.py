"""Products of matrices, and linear algebra."""

from __future__ import annotations

import onnx_ir as ir

from tonnx.errors import UnsupportedArgument
from tonnx.frontends.paddle.lower.rules import Value, direct, lower
from tonnx.ir.build import Builder
from tonnx.lowering.ops import factors, linalg, spectral
from tonnx.lowering.ops import linear as like_torch
from tonnx.lowering.ops import parts as torch_parts
from tonnx.lowering.ops.linalg import identity, power, root_of, solved, turned
from tonnx.lowering.values import promote

direct("bmm(x, y)", lambda op, x, y: op.MatMul(x, y))
direct("mv(x, vec)", lambda op, x, vec: op.MatMul(x, vec))
direct("batch_fc(input, w, bias)", lambda op, input, w, bias: op.Add(op.MatMul(input, w), op.Unsqueeze(bias, [1])))
direct("addmm(input, x, y, *, beta: float = 1.0, alpha: float = 1.0)", like_torch.baddbmm)
direct("baddbmm(input, x, y, *, beta: float = 1.0, alpha: float = 1.0)", like_torch.baddbmm)
direct("bilinear(x, y, weight, bias=None)", like_torch.bilinear)
direct("kron(x, y)", torch_parts.kron)
direct("multi_dot(x: Values)", like_torch.chain_matmul)
direct("einsum(operands: Values, *, equation: str)", lambda op, operands, text: like_torch.einsum(op, text, operands))


@lower("matmul")
def matmul(op: Builder, x: Value, y: Value, *, transpose_x: bool = False, transpose_y: bool = False) -> ir.Value:
    pairs = zip(promote(op, x, y), (transpose_x, transpose_y), strict=True)
    return op.MatMul(*(turned(op, v) if transpose and op.rank(v) > 1 else v for v, transpose in pairs))


@lower("matmul_with_alpha")
def matmul_with_alpha(
    op: Builder, x: Value, y: Value, *, transpose_x: bool = False, transpose_y: bool = False, alpha: float = 1.0
) -> ir.Value:
    product = matmul(op, x, y, transpose_x=transpose_x, transpose_y=transpose_y)
    return product if alpha == 1 else product * alpha


@lower("dot")
def dot(op: Builder, x: Value, y: Value) -> ir.Value:
    x, y = promote(op, x, y)
    return op.ReduceSum(op.Mul(x, y), [-1], keepdims=0)


@lower("mul", "matmul_with_flatten")
def mul(op: Builder, x: Value, y: Value, *, x_num_col_dims: int = 1, y_num_col_dims: int = 1) -> ir.Value:
    """The product of both as matrices: axes up to ``num_col_dims`` are rows, the others columns."""
    rows, columns = op.sizes(x)[:x_num_col_dims], op.sizes(y)[y_num_col_dims:]
    if y_num_col_dims == 1 and op.rank(y) == 2 and x_num_col_dims == op.rank(x) - 1:
        return op.MatMul(x, y)
    left = op.reshape(x, [op.product(rows), op.product(op.sizes(x)[x_num_col_dims:])])
    right = op.reshape(y, [op.product(op.sizes(y)[:y_num_col_dims]), op.product(columns)])
    return op.reshape(op.MatMul(left, right), [*rows, *columns])


@lower("linear_v2")
def linear_v2(
    op: Builder, input: Value, weight: Value, bias: Value | None = None, *, transpose_weight: bool = False
) -> ir.Value:
    product = matmul(op, input, weight, transpose_y=transpose_weight)
    return product if bias is None else op.Add(product, bias)


@lower("fc", "gemm_epilogue")
def fc(
    op: Builder,
    input: Value,
    w: Value,
    bias: Value | None = None,
    *,
    in_num_col_dims: int = 1,
    activation_type: str = "",
) -> ir.Value:
    if activation_type not in ("", "relu"):
        raise UnsupportedArgument(f"fc with the activation {activation_type!r}")
    product = mul(op, input, w, x_num_col_dims=in_num_col_dims)
    product = product if bias is None else op.Add(product, op.reshape(bias, [-1]))
    return op.Relu(product) if activation_type == "relu" else product


@lower("cross")
def cross(op: Builder, x: Value, y: Value, *, axis: int = 9) -> ir.Value:
    """Along the axis that is asked for; 9 stands for the first that has size 3."""
    assert x.shape is not None
    at = next(i for i, dim in enumerate(x.shape) if dim == 3) if axis == 9 else axis % op.rank(x)
    (a, b), (c, d) = ([op.Gather(v, order, axis=at) for order in ([1, 2, 0], [2, 0, 1])] for v in (x, y))
    return op.Sub(op.Mul(a, d), op.Mul(b, c))


# Linear algebra: the loops are those of the torch rules


direct("inverse(x)", lambda op, x: solved(op, x, identity(op, x)))
direct("cholesky(x, *, upper: bool = False)", root_of)
direct("solve(x, y)", linalg.solve)
direct("cholesky_solve(x, y, *, upper: bool = False)", linalg.cholesky_solve)
direct(
    "triangular_solve(x, y, *, upper: bool = True, transpose: bool = False, unitriangular: bool = False)",
    lambda op, x, y, *form: linalg.triangular_solve(op, y, x, *form)[0],
)

# Factors

direct("qr(x, *, mode: str = 'reduced')", lambda op, x, mode: tuple(factors.qr(op, x, mode)))
direct("lu(x, *, pivot: bool = True)", lambda op, x, pivot: tuple(factors.lu_factor_ex(op, x, pivot)))
direct(
    "lu_unpack(x, y, *, unpack_ludata: bool = True, unpack_pivots: bool = True)",
    lambda op, *lu: tuple(factors.lu_unpack(op, *lu)),
)
direct(
    "lu_solve(b, lu, pivots, *, trans: str = 'N')",
    lambda op, b, lu, pivots, trans: factors.lu_solve(op, lu, pivots, b, adjoint=trans != "N"),
)
direct("eigh(x, *, UPLO: str = 'L')", lambda op, x, half: tuple(spectral.eigh(op, x, half)))
direct("eigvalsh(x, *, uplo: str = 'L')", lambda op, x, half: (spectral.eigh(op, x, half, compute_v=False)[0], None))
direct("svd(x, *, full_matrices: bool = False)", lambda op, x, full: tuple(spectral.svd(op, x, full)))
direct("svdvals(x)", lambda op, x: spectral.svd(op, x, compute_uv=False)[1])
direct(
    "lstsq(x, y, rcond: Number, *, driver: str = 'gels')",
    lambda op, x, y, rcond, driver: tuple(spectral.lstsq(op, x, y, rcond, driver)),
)

# Determinants

direct("det(x)", linalg.det)
direct("determinant(x)", linalg.det)
direct("matrix_power(x, *, n: int)", power)


@lower("slogdet")
def slogdet(op: Builder, x: Value) -> ir.Value:
    """Sign and logarithm side by side."""
    return op.Concat(*(op.Unsqueeze(part, [0]) for part in slogdet_v2(op, x)), axis=0)


@lower("slogdet_v2")
def slogdet_v2(op: Builder, x: Value) -> tuple[ir.Value, ir.Value]:
    """Of the determinant itself, which may overflow: so it does in Paddle."""
    value = linalg.det(op, x)
    return op.Sign(value), op.Log(op.Abs(value))
