"""Reading and writing by index."""

import numpy as np
import paddle
import paddle.nn.functional as F

from tests.frontends.paddle.operators.table import bools, case, floats, ints

X, Y = floats(2, 3, 4), floats(2, 3, 4)
W = floats(3)

case("slice", lambda x: x[:, 1:3, ::2], X)
case("slice_n", lambda x: x[:, -2:, 0], X)
case("slice_1", lambda x: x[0], X)
case("slice_neg", lambda x: x[:, ::-1], X)
case("slice_t", lambda x: paddle.slice(x, [0, 1], [0, 1], [paddle.shape(x)[0] - 1, 3]), X)
case("sslice", lambda x: paddle.strided_slice(x, [1, 2], [-1, 0], [-10, 4], [-1, 2]), X)
case("none", lambda x: x[:, None, :, 1], X)
case("ell", lambda x: x[..., 1], X)
case("gather", lambda x, y: paddle.gather(x, y, 1), X, np.array([2, 0]), dyn=())
case("gather_0", lambda x, y: paddle.gather(x, y), X, np.array([1, 0, 1]), dyn=())
case("gather_nd", lambda x, y: paddle.gather_nd(x, y), X, np.array([[0, 1], [1, 2]]), dyn=())
case("index_select", lambda x, y: paddle.index_select(x, y, 1), X, np.array([2, 0]), dyn=())
case("index_sample", lambda x, y: paddle.index_sample(x, y), floats(2, 4), ints(2, 3, hi=4))
case("take_along", lambda x, y: paddle.take_along_axis(x, y, 1), floats(2, 4), ints(2, 3, hi=4))
case(
    "put_along",
    lambda x, y, z: paddle.put_along_axis(x, y, z, 1),
    floats(2, 4),
    np.array([[0, 2], [3, 1]]),
    floats(2, 2),
    dyn=(),
)
case(
    "put_along_add",
    lambda x, y, z: paddle.put_along_axis(x, y, z, 1, "add"),
    floats(2, 4),
    np.array([[0, 2], [3, 3]]),
    floats(2, 2),
    dyn=(),
)
case("scatter", lambda x, y, z: paddle.scatter(x, y, z), floats(4, 3), np.array([2, 0]), floats(2, 3), dyn=())
case(
    "scatter_add",
    lambda x, y, z: paddle.scatter(x, y, z, overwrite=False),
    floats(4, 3),
    np.array([2, 2]),
    floats(2, 3),
    dyn=(),
)
case(
    "scatter_nd_add",
    lambda x, y, z: paddle.scatter_nd_add(x, y, z),
    floats(4, 3),
    np.array([[2], [2]]),
    floats(2, 3),
    dyn=(),
)
case("scatter_nd", lambda y, z: paddle.scatter_nd(y, z, [4, 3]), np.array([[2], [1]]), floats(2, 3), dyn=())
case("index_add", lambda x, y, z: paddle.index_add(x, y, 0, z), floats(4, 3), np.array([2, 0]), floats(2, 3), dyn=())
case("where", lambda x, y, z: paddle.where(x, y, z), bools(2, 3), floats(2, 3), floats(2, 3))
case("nonzero", lambda x: paddle.nonzero(x), bools(2, 3))
case("masked_select", lambda x, y: paddle.masked_select(x, y), floats(2, 3), bools(2, 3))
case("masked_fill", lambda x, y: paddle.masked_fill(x, y, 7.0), floats(2, 3), bools(2, 3))
case("mask_idx", lambda x, y: x[y], floats(2, 3), bools(2, 3))
case("tensor_idx", lambda x, y: x[y], floats(4, 3), np.array([2, 0]), dyn=())
case("embedding", lambda x: F.embedding(x, paddle.to_tensor(W.repeat(4).reshape(6, 2))), ints(2, 3))
case("embedding_p", lambda x: F.embedding(x, paddle.to_tensor(W.repeat(4).reshape(6, 2)), padding_idx=2), ints(2, 3))
case("unique", lambda x: paddle.unique(x), ints(6), dyn=())
case("unique_all", lambda x: paddle.unique(x, True, True, True), ints(6), dyn=())
case("searchsorted", lambda x, y: paddle.searchsorted(x, y), np.float32([1, 2, 3, 4]), floats(2, 3, lo=0, hi=5), dyn=())
case("bincount", lambda x: paddle.bincount(x), ints(6), dyn=())
case(
    "multiplex",
    lambda x, y, z: paddle.multiplex([x, y], z),
    floats(3, 2),
    floats(3, 2),
    np.int32([[1], [0], [1]]),
    dyn=(),
)
case("index_put", lambda x, y, z: paddle.index_put(x, [y], z), floats(4, 3), np.array([2, 0]), floats(2, 3), dyn=())


def sv(x):
    x = x + 0
    x[:, 1] = 3.0
    return x


def sv2(x):
    x = x + 0
    x[0:1, ::2, 1:3] = x[0:1, ::2, 0:2] * 2
    return x


def sv3(x, y):
    x = x + 0
    x[:, 0] = y
    return x


case("setvalue", sv, X)
case("setvalue_s", sv2, X, dyn=())
case("setvalue_t", sv3, X, floats(2, 4))
