"""Layers whose Python asks what Paddle's own capture refuses at dynamic sizes: bools and numbers of sizes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F
from paddle.static import InputSpec

import tonnx
from tonnx.errors import CaptureError, TonnxError, VerificationFailed


class _Layer(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 3, stride=2, padding=1)


class ComparedLists(_Layer):
    """A check of sizes that holds at all of them."""

    def forward(self, x):
        y = self.conv(x)
        assert [y.shape[0], 4] == [x.shape[0], y.shape[1]]
        z = F.interpolate(y, size=x.shape[2:])
        if [z.shape[2], z.shape[3]] != [x.shape[2], x.shape[3]]:
            raise ValueError("sizes")
        return z


class Smallest(_Layer):
    """min and max of sizes are operators."""

    def forward(self, x):
        side = min(x.shape[2:])
        return F.interpolate(self.conv(x), size=[side, max(x.shape[2], x.shape[3], 8)])


class RoundedUp(_Layer):
    def forward(self, x):
        rows = math.ceil(x.shape[2] / 4) * 4 - x.shape[2]
        return F.pad(x, [0, 0, 0, rows])


class InAList(_Layer):
    """As many parts as the example has rows: no other number is right."""

    def forward(self, x):
        return paddle.concat([x[:, :, i : i + 1] * (i + 1) for i in range(x.shape[2])], axis=2)


class FarAway(_Layer):
    """One list is larger than another at sizes that are far from the example's."""

    def forward(self, x):
        if [x.shape[3]] > [300]:
            return x * 2.0
        return x * 3.0


class SidesThatDiffer(_Layer):
    """Paddle cannot join a dict with a tensor."""

    def forward(self, x):
        y = {"a": x} if x.shape[2] > 1000000 else self.conv(x)
        return y["a"] if isinstance(y, dict) else y


class OfValues(_Layer):
    def forward(self, x):
        return x * float(np.float32([x.mean()][0]))


def _export(layer: nn.Layer, to: Path, **options: Any) -> Any:
    x = paddle.rand([2, 3, 6, 9])
    return tonnx.export(layer, (x,), to, input_spec=[InputSpec([None, 3, None, None], "float32", "x")], **options)


@pytest.mark.parametrize("kind", [ComparedLists, Smallest, RoundedUp, SidesThatDiffer])
def test_right_at_every_size(kind: type[nn.Layer], tmp_path: Path) -> None:
    layer = kind()
    _export(layer, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    for shape in ([2, 3, 6, 9], [1, 3, 17, 8], [3, 3, 5, 30]):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        with paddle.no_grad():
            want = layer(paddle.to_tensor(x)).numpy()
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "line", "size"), [(InAList, "range", "DIM_0=12"), (FarAway, "> [300]", "DIM_1=301")])
def test_wrong_at_other_sizes_is_refused(kind: type[nn.Layer], line: str, size: str, tmp_path: Path) -> None:
    with pytest.raises(VerificationFailed) as error:
        _export(kind(), tmp_path / "net.onnx")
    assert line in str(error.value.where) and "test_decided_sizes.py" in str(error.value.where)
    assert size in str(error.value.where)
    assert not (tmp_path / "net.onnx").exists()


def test_without_a_proof_the_user_is_told(tmp_path: Path) -> None:
    result = _export(InAList(), tmp_path / "net.onnx", verify=False)
    assert any("other sizes may go another way" in note and "range" in note for note in result.notes)


def test_what_depends_on_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="Paddle cannot turn OfValues"):
        _export(OfValues(), tmp_path / "net.onnx")


def test_paddle_is_left_as_it_was(tmp_path: Path) -> None:
    from paddle.jit import dy2static
    from paddle.jit.dy2static import program_translator

    names = ("__bool__", "__int__", "__float__", "__index__", "__iter__")
    before = [getattr(paddle.pir.Value, name, None) for name in names]
    others = (dy2static.Call, dy2static.IfElse, dy2static.While, program_translator._FUNCTION_CACHE)
    for kind in (SidesThatDiffer, OfValues):
        try:
            _export(kind(), tmp_path / "net.onnx")
        except TonnxError:
            assert kind is OfValues
    assert [getattr(paddle.pir.Value, name, None) for name in names] == before
    assert (dy2static.Call, dy2static.IfElse, dy2static.While, program_translator._FUNCTION_CACHE) == others
