"""Activations and arithmetic."""

import numpy as np
import paddle
import paddle.nn.functional as F

from tests.frontends.paddle.operators.table import bools, case, floats, ints, one, positive, same, two

X, Y = floats(2, 3, 4), floats(2, 3, 4)

same(
    "abs",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "expm1",
    "floor",
    "round",
    "sign",
    "sin",
    "sinh",
    "square",
    "tan",
    "tanh",
    "trunc",
    "neg",
    "isnan",
    "isinf",
    "isfinite",
    "atan",
    "asinh",
    src=X,
)
same("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", src=positive(2, 3, 4))
same("acosh", src=floats(2, 3, lo=1.1, hi=3.0))
same("acos", "asin", "atanh", src=floats(2, 3, lo=-0.9, hi=0.9))
same("logit", src=floats(2, 3, lo=0.1, hi=0.9))
case("abs_int", lambda x: paddle.abs(x), ints(2, 3, lo=-5))
for n in (
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "selu",
    "celu",
    "gelu",
    "sigmoid",
    "log_sigmoid",
    "tanhshrink",
    "silu",
    "swish",
    "mish",
    "hardswish",
    "hardsigmoid",
    "hardtanh",
    "hardshrink",
    "softshrink",
    "thresholded_relu",
    "softplus",
    "softsign",
    "softmax",
    "log_softmax",
):
    case(n, one(getattr(F, n)), floats(2, 3, 4, lo=-4, hi=7))
case("leaky_relu_3", lambda x: F.leaky_relu(x, 0.3), X)
case("elu_2", lambda x: F.elu(x, 2.5), X)
case("celu_2", lambda x: F.celu(x, 0.6), X)
case("gelu_tanh", lambda x: F.gelu(x, True), X)
case("hardtanh_b", lambda x: F.hardtanh(x, -0.7, 1.3), X)
case("softplus_b", lambda x: F.softplus(x, 2.5, 3.0), X)
case("softplus_t", lambda x: F.softplus(x, 0.3, 0.5), X)
case("hardsigmoid_b", lambda x: F.hardsigmoid(x, 0.3, 0.4), X)
case("softshrink_b", lambda x: F.softshrink(x, 0.9), X)
case("thrl", lambda x: F.thresholded_relu(x, 0.3), X)
case("softmax_1", lambda x: F.softmax(x, 1), X)
case("log_softmax_0", lambda x: F.log_softmax(x, 0), X)
case("stanh", lambda x: paddle.stanh(x), X)
case("maxout", lambda x: F.maxout(x, 2), floats(2, 6, 3, 3))
case("glu", lambda x: F.glu(x, 1), floats(2, 6, 3))
W = floats(3)
case("prelu", lambda x: F.prelu(x, paddle.to_tensor(W)), floats(2, 3, 4, 4))
case("prelu1", lambda x: F.prelu(x, paddle.to_tensor(W[:1])), floats(2, 3, 4))
case("rrelu", lambda x: F.rrelu(x, training=False), X)
case("dropout", lambda x: F.dropout(x, 0.4, training=False), X)
case("dropout_d", lambda x: F.dropout(x, 0.4, training=False, mode="downscale_in_infer"), X)
for n in (
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "remainder",
    "floor_divide",
    "atan2",
):
    case(n, two(getattr(paddle, n)), X, np.where(np.abs(Y) < 0.2, 0.5, Y).astype("float32"))
for n in ("add", "subtract", "multiply", "floor_divide", "remainder", "maximum"):
    case(n + "_int", two(getattr(paddle, n)), ints(2, 4, lo=-9, hi=9), np.array([[2, -3, 5, 4], [1, -2, 3, 7]]))
case("div_int", lambda x, y: paddle.divide(x, y), ints(2, 4, lo=-9, hi=9), np.array([[2, -3, 5, 4], [1, -2, 3, 7]]))
case("pow_t", lambda x, y: paddle.pow(x, y), positive(2, 3), floats(2, 3))
case("pow_2", lambda x: paddle.pow(x, 2), X)
case("pow_f", lambda x: paddle.pow(x, 1.7), positive(2, 3))
case("pow_int", lambda x: paddle.pow(x, 3), ints(2, 3, lo=-4))
case("bcast", lambda x, y: x + y * 2 - 1, X, floats(4), dyn=())
case("rsub", lambda x: 3 - x, X)
case("rdiv", lambda x: 1 / x, positive(2, 3))
case("scale", lambda x: paddle.scale(x, 2.5, 0.5, bias_after_scale=False), X)
case("scale_int", lambda x: paddle.scale(x, 3.0, 1.0), ints(2, 3))
for n in ("equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal"):
    case(n, two(getattr(paddle, n)), ints(2, 3), ints(2, 3))
for n in ("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"):
    case(n, two(getattr(paddle, n)), bools(2, 3), bools(2, 3))
for n in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    case(n + "_int", two(getattr(paddle, n)), ints(2, 3, t="int32"), ints(2, 3, t="int32"))
case("logical_not", lambda x: paddle.logical_not(x), bools(2, 3))
case("bitwise_not", lambda x: paddle.bitwise_not(x), ints(2, 3, t="int32"))
case("isclose", lambda x, y: paddle.isclose(x, y, 0.5, 0.1), floats(2, 3), floats(2, 3))
case("allclose", lambda x, y: paddle.allclose(x, y), floats(2, 3), floats(2, 3))
case("equal_all", lambda x, y: paddle.equal_all(x, y), ints(2, 3), ints(2, 3))
case("clip", lambda x: paddle.clip(x, -0.5, 0.7), X)
case("clip_lo", lambda x: paddle.clip(x, min=0.1), X)
case("clip_int", lambda x: paddle.clip(x, 1, 3), ints(2, 3))
case("clip_t", lambda x, m: paddle.clip(x, min=m), X, np.float32([0.3]), dyn=())
case("lerp", lambda x, y: paddle.lerp(x, y, 0.3), X, Y)
case("add_n", lambda x, y: paddle.add_n([x, y, x]), X, Y)
case("heaviside", lambda x, y: paddle.heaviside(x, y), np.float32([[-1, 0, 2]]), floats(1, 3))
case("addmm", lambda x, y, z: paddle.addmm(x, y, z, 0.5, 2.0), floats(2, 4), floats(2, 3), floats(3, 4), dyn=())
case("nan_to_num", lambda x: paddle.nan_to_num(x), np.float32([[1, np.nan, np.inf]]))
