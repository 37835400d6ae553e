"""Products of matrices, reductions, sorting."""

import paddle
import paddle.nn.functional as F

from tests.frontends.paddle.operators.table import bools, case, floats, given, ints

X, Y = floats(2, 3, 4), floats(2, 3, 4)

case("matmul", lambda x, y: paddle.matmul(x, y), floats(2, 3, 4), floats(2, 4, 5))
case("matmul_t", lambda x, y: paddle.matmul(x, y, True, True), floats(2, 4, 3), floats(2, 5, 4))
case("matmul_v", lambda x, y: paddle.matmul(x, y), floats(2, 3, 4), floats(4), dyn=())
case("bmm", lambda x, y: paddle.bmm(x, y), floats(2, 3, 4), floats(2, 4, 5))
case("mv", lambda x, y: paddle.mv(x, y), floats(3, 4), floats(4), dyn=())
case("dot", lambda x, y: paddle.dot(x, y), floats(3, 4), floats(3, 4))
case("einsum", lambda x, y: paddle.einsum("bij,bkj->bik", x, y), floats(2, 3, 4), floats(2, 5, 4))
case("outer", lambda x, y: paddle.outer(x, y), floats(3), floats(4), dyn=())
case("kron", lambda x, y: paddle.kron(x, y), floats(2, 3), floats(2, 2), dyn=())
case("t", lambda x: paddle.t(x), floats(2, 3))
for n in ("sum", "mean", "max", "min", "prod", "amax", "amin", "logsumexp", "std", "var"):
    g = getattr(paddle, n)
    case(n, given(g), X)
    case(n + "_1", given(g, axis=1), X)
    if n != "prod":
        case(n + "_k", given(g, axis=[0, -1], keepdim=True), X)
case("sum_int", lambda x: paddle.sum(x, 1), ints(2, 3))
case("sum_bool", lambda x: paddle.sum(x.astype("int64"), 1), bools(2, 3))
case("all", lambda x: paddle.all(x, 1), bools(2, 3))
case("any", lambda x: paddle.any(x, 1, keepdim=True), bools(2, 3))
case("all_all", lambda x: paddle.all(x), bools(2, 3))
case("max_int", lambda x: paddle.max(x, 1), ints(2, 3))
for p in (1, 2, 3.5, float("inf"), float("-inf"), 0):
    case(f"norm_{p}".replace("-", "m").replace(".", "_"), given(paddle.norm, p, 1), X)
case("norm_fro", lambda x: paddle.norm(x, "fro", [1, 2]), X)
case("norm_all", lambda x: paddle.norm(x), X)
case("normalize", lambda x: F.normalize(x, axis=1), X)
case("dist", lambda x, y: paddle.dist(x, y, 2), X, Y)
case("argmax", lambda x: paddle.argmax(x, 1), X)
case("argmax_f", lambda x: paddle.argmax(x), X)
case("argmin_k", lambda x: paddle.argmin(x, -1, keepdim=True, dtype="int32"), X)
case("topk", lambda x: paddle.topk(x, 2, 1), X)
case("topk_s", lambda x: paddle.topk(x, 2, largest=False), X)
case("sort", lambda x: paddle.sort(x, 1), X)
case("argsort", lambda x: paddle.argsort(x, 1, True), X)
case("kthvalue", lambda x: paddle.kthvalue(x, 2, 1), X)
case("median", lambda x: paddle.median(x, 1), X)
case("mode", lambda x: paddle.mode(x, 1), ints(2, 5, hi=3).astype("float32"))
case("cumsum", lambda x: paddle.cumsum(x, 1), X)
case("cumsum_f", lambda x: paddle.cumsum(x), X)
case("cumprod", lambda x: paddle.cumprod(x, 1), X)
case("logcumsumexp", lambda x: paddle.logcumsumexp(x, 1), X)
case("cummax", lambda x: paddle.cummax(x, 1), X)
case("trace", lambda x: paddle.trace(x, 1), floats(3, 4), dyn=())
case("count_nonzero", lambda x: paddle.count_nonzero(x, 1), ints(2, 3, hi=2).astype("float32"))
