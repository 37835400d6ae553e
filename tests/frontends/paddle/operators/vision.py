"""Convolution, pooling."""

import paddle
import paddle.nn.functional as F

from tests.frontends.paddle.operators.table import case, floats, variance, weight

X, Y = floats(2, 3, 4), floats(2, 3, 4)

IMAGE = floats(2, 4, 7, 6)
K = floats(6, 4, 3, 3, lo=-0.5, hi=0.5)
KG = floats(6, 2, 3, 3)
KT = floats(4, 6, 3, 3)
B6 = floats(6)
case("conv2d", lambda x: F.conv2d(x, paddle.to_tensor(K), paddle.to_tensor(B6), stride=2, padding=1), IMAGE)
case("conv_g", lambda x: F.conv2d(x, paddle.to_tensor(KG), None, 1, [1, 2], 2, 2), IMAGE)
case("conv_same", lambda x: F.conv2d(x, paddle.to_tensor(K), None, 2, "SAME"), IMAGE)
case("conv_same_d", lambda x: F.conv2d(x, paddle.to_tensor(K), None, 2, "SAME"), IMAGE, dyn=(0, 2, 3))
case("conv_samedil", lambda x: F.conv2d(x, paddle.to_tensor(K), None, 1, "SAME", 2), IMAGE)
case("conv_valid", lambda x: F.conv2d(x, paddle.to_tensor(K), None, 1, "VALID"), IMAGE)
case("conv_p4", lambda x: F.conv2d(x, paddle.to_tensor(K), None, 1, [1, 2, 0, 1]), IMAGE)
case(
    "conv_nhwc",
    lambda x: F.conv2d(x, paddle.to_tensor(K), paddle.to_tensor(B6), 1, 1, data_format="NHWC"),
    floats(2, 7, 8, 4),
)
case("conv1d", lambda x: F.conv1d(x, paddle.to_tensor(K[:, :, 0]), paddle.to_tensor(B6), 2, 1), floats(2, 4, 9))
case("conv3d", lambda x: F.conv3d(x, weight(6, 4, 2, 3, 2), paddle.to_tensor(B6), 1, 1), floats(2, 4, 5, 6, 4))
case("dwconv", lambda x: F.conv2d(x, weight(4, 1, 3, 3), None, 1, 1, groups=4), IMAGE)
case("convt", lambda x: F.conv2d_transpose(x, paddle.to_tensor(KT), paddle.to_tensor(B6), 2, 1), IMAGE)
case("convt_op", lambda x: F.conv2d_transpose(x, paddle.to_tensor(KT), paddle.to_tensor(B6), 2, 1, 1), IMAGE)
case("convt_os", lambda x: F.conv2d_transpose(x, paddle.to_tensor(KT), None, 2, 1, output_size=[14, 12]), IMAGE)
case("convt_g", lambda x: F.conv2d_transpose(x, weight(4, 3, 3, 3), None, 1, 1, 0, 1, 2), IMAGE)
case("conv1dt", lambda x: F.conv1d_transpose(x, paddle.to_tensor(KT[:, :, 0]), None, 2), floats(2, 4, 9))
case("conv3dt", lambda x: F.conv3d_transpose(x, weight(4, 2, 2, 2, 2), None, 2), floats(2, 4, 3, 4, 3))
for n, d in (("", (0,)), ("_dyn", (0, 2, 3))):
    case("maxpool" + n, lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE, dyn=d)
    case("maxpool_ceil" + n, lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True), IMAGE, dyn=d)
    case("avgpool" + n, lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE, dyn=d)
    case("avgpool_in" + n, lambda x: F.avg_pool2d(x, 3, 2, 1, exclusive=False), IMAGE, dyn=d)
    case("avgpool_ceil" + n, lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), IMAGE, dyn=d)
    case("avgpool_ceil_in" + n, lambda x: F.avg_pool2d(x, 2, 2, 0, ceil_mode=True, exclusive=False), IMAGE, dyn=d)
    case("avgpool_same" + n, lambda x: F.avg_pool2d(x, 3, 2, "SAME"), IMAGE, dyn=d)
    case("aavg1" + n, lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE, dyn=d)
    case("aavg" + n, lambda x: F.adaptive_avg_pool2d(x, [4, 3]), IMAGE, dyn=d)
    case("amax" + n + "p", lambda x: F.adaptive_max_pool2d(x, [4, 3]), IMAGE, dyn=d)
case("maxpool_idx", lambda x: F.max_pool2d(x, 3, 2, 1, return_mask=True), IMAGE)
case("maxpool1d", lambda x: F.max_pool1d(x, 2), floats(2, 3, 9))
case("avgpool1d", lambda x: F.avg_pool1d(x, 3, 2, 1), floats(2, 3, 9))
case("maxpool3d", lambda x: F.max_pool3d(x, 2), floats(2, 3, 4, 6, 5))
case("avgpool3d", lambda x: F.avg_pool3d(x, 2, 2), floats(2, 3, 4, 6, 5))
case("aavg3d", lambda x: F.adaptive_avg_pool3d(x, 2), floats(2, 3, 5, 6, 5))
case("aavg1d", lambda x: F.adaptive_avg_pool1d(x, 4), floats(2, 3, 9))
case("maxpool_nhwc", lambda x: F.max_pool2d(x, 3, 2, 1, data_format="NHWC"), floats(2, 7, 8, 4))
case("aavg_nhwc", lambda x: F.adaptive_avg_pool2d(x, 3, data_format="NHWC"), floats(2, 7, 8, 4))
case("aavg_none", lambda x: F.adaptive_avg_pool2d(x, [None, 1]), IMAGE)


def lenet(x):
    x = F.conv2d(x, weight(6, 4, 3, 3), weight(6), padding=1)
    x = F.relu(F.batch_norm(x, weight(6), variance(6), weight(6), weight(6)))
    x = F.max_pool2d(x, 2, 2)
    x = F.relu6(F.conv2d(x, weight(4, 6, 1, 1)))
    x = paddle.flatten(F.adaptive_avg_pool2d(x, 2), 1)
    return F.softmax(F.linear(x, weight(16, 3), weight(3)))


case("lenet", lenet, IMAGE)
