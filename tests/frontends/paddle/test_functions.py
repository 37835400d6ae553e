"""Single operators in layers, at sizes that Paddle itself cannot name in a saved program, or does not survive."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn
from paddle.static import InputSpec

import tonnx
from tonnx.proof.session import Session


class Of(nn.Layer):
    """A function as a layer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class OfTwo(Of):
    def forward(self, x, y):
        return self.function(x, y)


class OfThree(Of):
    def forward(self, x, y, z):
        return self.function(x, y, z)


def unpooled(x):
    y, places = F.max_pool2d(x, 2, 2, return_mask=True)
    return F.max_unpool2d(y, places, 2, 2)


def sampled(x):
    return F.affine_grid(x[:, 0, :2, :3], paddle.shape(x))


def of_complex(x):
    y = x.astype("complex64")
    return paddle.abs(paddle.fft.fft2(y)), paddle.as_real(y * paddle.complex(x, x)), paddle.real(y)


def beside(x):
    """Windows that lie beside the data."""
    return (
        F.max_pool2d(x, 3, 3, 1, ceil_mode=True),
        F.avg_pool2d(x, 1, 2, 0, ceil_mode=True, exclusive=False),
        F.avg_pool2d(x, 3, 4, 1, ceil_mode=True),
    )


def uneven(x):
    """Padding that is longer at the end."""
    return F.avg_pool2d(x, 3, 2, "SAME", exclusive=False), F.avg_pool2d(x, 3, 2, [1, 0, 0, 2], exclusive=False)


def quantiles(x):
    return paddle.quantile(x, [0.25, 0.7], axis=1), paddle.nanquantile(x, 0.3, axis=-1, keepdim=True)


def powers(x):
    return F.lp_pool2d(x, float("inf"), 3, 2, 1), F.lp_pool2d(paddle.abs(x), 3.0, 2, 3, 1, ceil_mode=True)


def enlarged(x):
    filters = paddle.linspace(-1, 1, 72).reshape([3, 2, 3, 4])
    wanted = paddle.shape(x)[2:] * 2 + 1
    return (
        F.conv2d_transpose(x, filters, stride=[3, 2], padding="SAME"),
        F.conv2d_transpose(x, filters[..., :3], stride=2, padding=0, output_size=wanted),
    )


def fractional(x):
    return F.fractional_max_pool2d(x, (3, 4), random_u=0.3), *F.fractional_max_pool2d(
        x, (3, 4), 2, random_u=0.6, return_mask=True
    )


WEIGHTS = [0.5, 1.0, 2.0, 4.0]
PICTURES = [None, 3, None, None]


@pytest.mark.parametrize("opset", [9, 20])
@pytest.mark.parametrize(
    ("function", "shape", "dtype"),
    [
        pytest.param(of_complex, [None, 5, 6], "float32", id="complex"),
        pytest.param(beside, PICTURES, "float32", id="pooling beside the data"),
        pytest.param(uneven, PICTURES, "float32", id="pooling with uneven padding"),
        pytest.param(quantiles, [None, 7], "float32", id="quantile"),
        pytest.param(powers, PICTURES, "float32", id="lp_pool2d"),
        pytest.param(enlarged, PICTURES, "float32", id="conv2d_transpose"),
        pytest.param(fractional, [None, 3, 8, 9], "float32", id="fractional_max_pool2d"),
        pytest.param(lambda x: F.group_norm(x, 4), [None, 8], "float32", id="group_norm of pairs"),
        pytest.param(
            lambda x: F.interpolate(x, [7, 5], mode="bicubic", data_format="NHWC"),
            [None, None, 6, 3],
            "float32",
            id="bicubic, channels last",
        ),
        pytest.param(lambda x: paddle.round(paddle.floor(x * 4) / 2), [None, 9], "float32", id="round halves"),
        pytest.param(lambda x: paddle.lerp(x, x * 3, x), [None, 4], "float32", id="lerp"),
        pytest.param(lambda x: paddle.clip(x, -0.5, 0.5), [None, 4], "float64", id="clip of doubles"),
        pytest.param(
            lambda x: F.binary_cross_entropy_with_logits(x, F.sigmoid(x), pos_weight=paddle.to_tensor(WEIGHTS)),
            [None, 4],
            "float32",
            id="pos_weight",
        ),
        pytest.param(unpooled, [None, 3, None, 12], "float32", id="max_unpool2d"),
        pytest.param(sampled, [None, 2, 4, 5], "float32", id="affine_grid"),
        pytest.param(lambda x: paddle.linspace(-1, 2, paddle.shape(x)[0]), [None, 6], "float32", id="linspace"),
        pytest.param(lambda x: paddle.linspace(0, 9, paddle.shape(x)[0], "int64"), [None], "float32", id="int"),
        pytest.param(lambda x: paddle.mean(x - 3, -1), [None, 4, None], "int64", id="mean of int64"),
        pytest.param(lambda x: paddle.mean(3 - x, [0, 1], keepdim=True), [None, 4], "int32", id="mean of int32"),
        pytest.param(lambda x: paddle.mean(x), [None, 4], "int64", id="mean of all"),
        pytest.param(lambda x: paddle.unique_consecutive(x, True, True), [None, 4], "int64", id="unique_consecutive"),
    ],
)
def test_functions(function: Callable[..., Any], shape: list[int | None], dtype: str, opset: int) -> None:
    result = tonnx.export(Of(function), input_spec=[InputSpec(shape, dtype, "x")], opset_version=opset)
    assert result.verification is not None and result.verification.ok and result.verification.compared
    assert len({trial.sizes.get("batch") for trial in result.verification.trials}) > 2


@pytest.mark.parametrize(
    ("function", "shape", "dtype", "opset"),
    [
        pytest.param(lambda x: paddle.unique(x, True, True, True, dtype="int32"), [6], "int64", 11, id="unique, int32"),
        pytest.param(
            lambda x: paddle.vision.ops.yolo_box(x, paddle.full([2, 2], 64, "int32"), [10, 13, 16, 30], 2, 0.01, 32),
            [2, 14, 4, 4], "float64", 9, id="yolo_box of doubles",
        ),
        pytest.param(lambda x: F.max_pool2d(paddle.clip(x, -0.5, 0.5), 2), [1, 2, 6, 6], "float64", 7, id="no kernels"),
    ],
)  # fmt: skip
def test_dtypes(function: Callable[..., Any], shape: list[int], dtype: str, opset: int) -> None:
    result = tonnx.export(Of(function), input_spec=[InputSpec(shape, dtype, "x")], opset_version=opset)
    assert result.verification is not None and result.verification.ok and result.verification.compared


def test_sizes_at_which_paddle_would_end_the_process() -> None:
    """In a process of its own: without the guard, it is ended by the system."""
    code = """
import paddle, tonnx
from paddle.static import InputSpec
for layer, shape in ((paddle.nn.Conv1D(4, 6, 3, data_format="NLC"), [None, None, 4]),
                     (paddle.nn.Conv2D(4, 4, 3, groups=4, data_format="NHWC"), [None, None, 7, 4])):
    before = paddle._C_ops.conv2d
    result = tonnx.export(layer, input_spec=[InputSpec(shape, "float32", "x")])
    assert result.verification.compared and result.verification.ok
    assert paddle._C_ops.conv2d is before
print("still here")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "still here" in done.stdout, done.stderr[-2000:]


def test_regions_at_which_paddle_would_end_the_process() -> None:
    from paddle.vision.ops import roi_align

    layer = OfThree(lambda x, boxes, number: roi_align(x, boxes, number, 3))
    image, boxes = paddle.rand([1, 3, 9, 9]), paddle.to_tensor(np.array([[0, 0, 4, 4], [1, 1, 6, 5]], np.float32))
    result = tonnx.export(layer, (image, boxes, paddle.to_tensor([2], dtype="int32")))
    assert result.verification is not None and result.verification.compared
    result = tonnx.export(layer, (image, boxes, paddle.to_tensor([7], dtype="int32")))
    assert result.verification is not None and not result.verification.compared
    assert any("boxes_num sums to 7, and there are 2 boxes" in note for note in result.notes)


def test_a_saved_model_where_paddle_may_not_be_imported(tmp_path: Path) -> None:
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("paddle", "torch"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent())
import tonnx
result = tonnx.export({str(tmp_path)!r} + "/net", f={str(tmp_path)!r} + "/a.onnx")
assert not result.verification.compared
assert any("paddlepaddle is not installed" in note for note in result.notes), result.notes
assert not {{"paddle", "torch"}} & set(sys.modules)
"""
    layer = nn.Linear(4, 3)
    paddle.jit.save(layer, str(tmp_path / "net"), input_spec=[InputSpec([None, 4], "float32", "x")])
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("function", "shapes", "named"),
    [
        pytest.param(lambda x, y: x + y, ([None, 3], [None, 3]), ["batch", "batch"], id="add"),
        pytest.param(lambda x, y: paddle.concat([x, y]), ([None, 3], [None, 3]), ["batch", "batch_of_y"], id="rows"),
        pytest.param(lambda x, y: paddle.concat([x, y], 1), ([None, 3], [None, 2]), ["batch", "batch"], id="columns"),
        pytest.param(lambda x, y: x @ y.t(), ([None, 3], [None, 3]), ["batch", "batch_of_y"], id="matmul"),
        pytest.param(
            lambda q, m: F.softmax(q @ q.transpose([0, 2, 1]) + m) @ q,
            ([None, None, 4], [None, None]),
            ["batch", "DIM_0"],
            id="mask",
        ),
        pytest.param(
            lambda q, k: paddle.bmm(F.softmax(paddle.bmm(q, k.transpose([0, 2, 1]))), k),
            ([None, 3, 4], [None, 5, 4]),
            ["batch", "batch"],
            id="attention",
        ),
    ],
)
def test_leading_dimensions_have_one_name_where_they_are_one(
    function: Callable[..., Any], shapes: tuple[list[int | None], ...], named: list[str]
) -> None:
    specs = [InputSpec(shape, "float32", name) for shape, name in zip(shapes, "xy", strict=True)]
    result = tonnx.export(OfTwo(function), input_spec=specs, opset_version=13)
    assert result.verification is not None and result.verification.ok and result.verification.compared
    assert [str(value.shape[0]) for value in result.model.graph.inputs] == named


def test_states_have_the_batch_of_the_sequence() -> None:
    layer = nn.GRU(4, 5, num_layers=2)
    specs = [InputSpec([None, None, 4], "float32", "x"), InputSpec([2, None, 5], "float32", "h")]
    result = tonnx.export(layer, input_spec=specs, opset_version=13)
    assert [str(value.shape) for value in result.model.graph.inputs] == ["[batch,DIM_0,4]", "[2,batch,5]"]
    assert result.verification is not None and result.verification.compared
    assert len({trial.sizes["batch"] for trial in result.verification.trials}) > 2


def test_a_threshold_that_falls_from_box_to_box() -> None:
    from paddle.vision.ops import generate_proposals

    def proposals(scores, deltas, anchors, eta=0.8):
        sizes = paddle.to_tensor([[60.0, 60.0], [50.0, 70.0]])
        how = {"pre_nms_top_n": 50, "post_nms_top_n": 40, "nms_thresh": 0.7, "min_size": 2.0, "return_rois_num": True}
        return generate_proposals(scores, deltas, sizes, anchors, paddle.ones_like(anchors), **how, eta=eta)

    rng = np.random.default_rng(4)
    anchors = rng.random((4, 5, 3, 4)) * [20, 20, 10, 10] + [0, 0, 20, 20]
    arrays = (rng.random((2, 3, 4, 5)), rng.standard_normal((2, 12, 4, 5)) / 4, anchors)
    given = tuple(paddle.to_tensor(array.astype("float32")) for array in arrays)
    assert len(proposals(*given)[0]) < len(proposals(*given, eta=1.0)[0])
    result = tonnx.export(OfThree(proposals), given, opset_version=12)
    assert result.verification is not None and result.verification.ok and result.verification.compared


def test_regions_are_not_pictures(tmp_path: Path) -> None:
    from paddle.vision.ops import roi_align

    layer = OfThree(lambda x, boxes, number: roi_align(x, boxes, number, 3, 0.5))
    specs = [InputSpec([None, 3, 9, 9]), InputSpec([None, 4]), InputSpec([None], "int32")]
    tonnx.export(layer, f=tmp_path / "a.onnx", input_spec=specs, opset_version=16, verify=False)
    image, corners = np.random.default_rng(0).random((2, 3, 9, 9), np.float32), np.arange(10, dtype="f4").reshape(5, 2)
    feeds = {"x": image, "y": np.concatenate([corners, corners + 6], 1), "z": np.array([2, 3], "i4")}
    (got,) = Session(tmp_path / "a.onnx", threads=1).run(feeds).values()
    np.testing.assert_allclose(got, layer(*map(paddle.to_tensor, feeds.values())).numpy(), atol=1e-5)
