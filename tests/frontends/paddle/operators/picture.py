"""Normalisation, padding, interpolation."""

import numpy as np
import paddle
import paddle.nn.functional as F

from tests.frontends.paddle.operators.table import case, floats, given, given2, ints, variance, weight

X, Y = floats(2, 3, 4), floats(2, 3, 4)
IMAGE = floats(2, 4, 7, 6)

case("bn", lambda x: F.batch_norm(x, weight(4), variance(4), weight(4), weight(4)), IMAGE)
case("bn1d", lambda x: F.batch_norm(x, weight(4), variance(4), weight(4), weight(4)), floats(3, 4))
case(
    "bn_nhwc",
    lambda x: F.batch_norm(x, weight(4), variance(4), weight(4), weight(4), data_format="NHWC"),
    floats(2, 3, 3, 4),
)
case("ln", lambda x: F.layer_norm(x, 4, weight(4), weight(4)), X)
case("ln2", lambda x: F.layer_norm(x, [3, 4], weight(12), weight(12)), X)
case("ln_n", lambda x: F.layer_norm(x, 4), X)
case("gn", lambda x: F.group_norm(x, 2, 1e-4, weight(4), weight(4)), IMAGE)
case("gn3", lambda x: F.group_norm(x, 2), floats(2, 4, 5))
case("gn_nhwc", lambda x: F.group_norm(x, 2, data_format="NHWC"), floats(2, 3, 3, 4))
case("in", lambda x: F.instance_norm(x, weight=weight(4), bias=weight(4)), IMAGE)
case("lrn", lambda x: F.local_response_norm(x, 3), IMAGE)
for m in ("constant", "reflect", "replicate", "circular"):
    case("pad_" + m, given(F.pad, [1, 2, 0, 1], m, 1.5), IMAGE)
case("pad_all", lambda x: F.pad(x, [0, 0, 1, 1, 2, 0, 0, 1]), IMAGE)
case("pad1d", lambda x: F.pad(x, [1, 2], data_format="NCL"), floats(2, 3, 4))
case("pad3d_", lambda x: F.pad(x, [1, 2, 0, 1, 1, 0], data_format="NCDHW"), floats(2, 3, 4, 4, 4))
case("pad_nhwc", lambda x: F.pad(x, [1, 2, 0, 1], data_format="NHWC"), floats(2, 5, 5, 3))
for n, d in (("", (0,)), ("_dyn", (0, 2, 3))):
    for m in ("nearest", "bilinear", "bicubic"):
        case(f"{m}_s{n}", given(F.interpolate, scale_factor=2, mode=m), IMAGE, dyn=d)
        case(f"{m}_z{n}", given(F.interpolate, [10, 5], mode=m), IMAGE, dyn=d)
    case("bil_ac" + n, lambda x: F.interpolate(x, [10, 5], mode="bilinear", align_corners=True), IMAGE, dyn=d)
    case("bil_m1" + n, lambda x: F.interpolate(x, scale_factor=[1.5, 2.5], mode="bilinear", align_mode=1), IMAGE, dyn=d)
    case(
        "bil_t" + n,
        lambda x: F.interpolate(x, [paddle.shape(x)[2] * 2, paddle.shape(x)[3] + 3], mode="bilinear"),
        IMAGE,
        dyn=d,
    )
    case("near_15" + n, lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest"), IMAGE, dyn=d)
case("lin1d", lambda x: F.interpolate(x, [7], mode="linear", data_format="NCW"), floats(2, 3, 4))
case("tri", lambda x: F.interpolate(x, [5, 6, 7], mode="trilinear", data_format="NCDHW"), floats(2, 2, 3, 4, 3))
case("near_nhwc", lambda x: F.interpolate(x, scale_factor=2, mode="nearest", data_format="NHWC"), floats(2, 5, 5, 3))
for m in ("bilinear", "nearest"):
    for p in ("zeros", "border", "reflection"):
        case(
            f"gs_{m}_{p}",
            given2(F.grid_sample, m, p, align_corners=False),
            IMAGE,
            floats(2, 4, 5, 2, lo=-1.3, hi=1.3) + np.float32(0.0037),  # never half-way between two pixels
        )
case("affine_grid", lambda x: F.affine_grid(x, [2, 3, 4, 5], align_corners=False), floats(2, 2, 3), dyn=())
case("linear", lambda x: F.linear(x, weight(4, 5), weight(5)), X)
case("mean_int", lambda x: paddle.mean(x.astype("float32"), 1), ints(2, 3))
case("ssq", lambda x: F.cosine_similarity(x, x * 2 + 1), X)
case("smooth", lambda x: F.label_smooth(x), floats(2, 5))
case("silu_sq", lambda x: paddle.multiply(F.silu(x), x.sum()), X)
case("cross", lambda x, y: paddle.cross(x, y, 1), X, Y)
case("unpool", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, 2, return_mask=True), 2, 2), floats(2, 3, 4, 6))
