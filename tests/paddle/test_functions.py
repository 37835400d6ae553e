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


class Of(nn.Layer):
    """A function as a layer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class OfThree(Of):
    def forward(self, x, y, z):
        return self.function(x, y, z)


def unpooled(x):
    y, places = F.max_pool2d(x, 2, 2, return_mask=True)
    return F.max_unpool2d(y, places, 2, 2)


def sampled(x):
    return F.affine_grid(x[:, 0, :2, :3], paddle.shape(x))


@pytest.mark.parametrize("opset", [9, 20])
@pytest.mark.parametrize(
    ("function", "shape", "dtype"),
    [
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
