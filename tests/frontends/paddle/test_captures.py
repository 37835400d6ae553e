"""What a layer may hold and ask for that Paddle's own capture or its way of saving does not take as it is."""

from __future__ import annotations

from collections.abc import Callable
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

ROWS = [InputSpec([None, 8], "float32", "x")]
PICTURES = [InputSpec([None, None, None, 3], "float32", "x")]
SIGNALS = [InputSpec([None, None], "float32", "x")]

TABLE = [paddle.arange(8, dtype="float32"), paddle.to_tensor([1, 2])]
NETS = {"net": nn.Linear(8, 3)}
WINDOW = paddle.audio.functional.get_window("hann", 64, dtype="float32")
COMPLEX = paddle.complex(paddle.rand([8, 4]), paddle.rand([8, 4]))


def _globals(x: Any) -> Any:
    return x * TABLE[0] + TABLE[1].sum()


def _hidden_layers(x: Any) -> Any:
    return NETS["net"](x)


def _numbers_of_sizes(x: Any) -> Any:
    return x * 2, x.shape[0], x.shape[0] * 2 + 1


def _sum_from_zero(x: Any) -> Any:
    total = 0
    for row in x:
        total = total + row.sum()
    return total


def _padded(x: Any) -> Any:
    height, width = x.shape[1], x.shape[2]
    amounts = [0, 0, 0, (4 - height % 4) % 4, 0, (4 - width % 4) % 4, 0, 0]
    return F.pad(x, amounts), F.pad(x, [0, 0, 1, 0, 0, (4 - width % 4) % 4, 0, 0], value=2.0)


def _windows(x: Any) -> Any:
    return paddle.signal.stft(x, 64, 16, window=WINDOW).abs()


def _overlapping(x: Any) -> Any:
    frames = paddle.signal.frame(x, 5, 3)
    return paddle.signal.overlap_add(frames, 3), paddle.signal.overlap_add(frames.transpose([2, 1, 0]), 2, axis=0)


def _products_of_complex(x: Any) -> Any:
    z = paddle.complex(x, x * 2 + 1)
    sums = paddle.as_real(paddle.sum(z, 1)), paddle.as_real(paddle.exp(z * 0.1))
    return (z @ COMPLEX).real(), paddle.as_real(paddle.einsum("bi,io->bo", z, COMPLEX)), *sums


def _parts_of_complex(x: Any) -> Any:
    z = paddle.complex(x, x * 2 + 1)
    a, b = z[:, :4], z[:, 4:]
    pairs = (paddle.stack([a, b], 1), paddle.roll(z, 2, 1), paddle.flip(z, [1]), paddle.where(x > 0, z, z * 0.5))
    return [paddle.as_real(pair) for pair in pairs]


def _spectra_of_a_size(x: Any) -> Any:
    spectrum = paddle.fft.rfft(x)
    return paddle.fft.irfft(spectrum * paddle.shape(spectrum)[1], n=8)


def _factors(x: Any) -> Any:
    g = x.t() @ x + paddle.diag(paddle.arange(1, 9).astype("float32") * 3)
    q, r = paddle.linalg.qr(g)
    p, low, up = paddle.linalg.lu_unpack(*paddle.linalg.lu(g))
    return q @ r, r.abs(), p @ low @ up, paddle.linalg.lstsq(g, x.t())[0]


def _spectrum(x: Any) -> Any:
    g = x.t() @ x + paddle.diag(paddle.arange(1, 9).astype("float32") * 3)
    values = paddle.linalg.eigvalsh(g), paddle.linalg.eigh(g)[0], paddle.linalg.svd(g)[1]
    return *values, paddle.linalg.svdvals(g), paddle.linalg.pinv(g), paddle.linalg.cond(g)


CASES: list[tuple[Callable[[Any], Any], Any]] = [
    (_globals, ROWS),
    (_hidden_layers, ROWS),
    (_numbers_of_sizes, ROWS),
    (_sum_from_zero, ROWS),
    (_padded, PICTURES),
    (_windows, SIGNALS),
    (_overlapping, ROWS),
    (_products_of_complex, ROWS),
    (_parts_of_complex, ROWS),
    (_spectra_of_a_size, ROWS),
    (_factors, ROWS),
    (_spectrum, ROWS),
]


@pytest.mark.parametrize(("forward", "spec"), CASES, ids=[forward.__name__ for forward, _ in CASES])
def test_right_at_every_size(forward: Callable[[Any], Any], spec: Any) -> None:
    result = tonnx.export(forward, input_spec=spec, opset_version=17)
    assert result.verification is not None and result.verification.ok and result.verification.compared
    assert len(result.verification.trials) > 3


def test_forward_of_another_name(tmp_path: Path) -> None:
    """Outputs are told apart, and sizes asked, also where the method is not called ``forward``."""

    def run(self: Any, x: Any) -> Any:
        rows = [n > 0 for n in x.shape]
        assert all(rows)
        return x + 1

    named = type("Named", (nn.Layer,), {"forward": run})()
    tonnx.export(named, input_spec=ROWS, f=tmp_path / "named.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "named.onnx"))
    (got,) = session.run(None, {"x": np.zeros((3, 8), np.float32)})
    assert (got == 1).all() and got.shape == (3, 8)


def test_random_numbers() -> None:
    """What a layer draws is compared by its shape alone, the rest by its values; the user's next numbers stay."""

    def forward(x: Any) -> Any:
        return paddle.randn(x.shape) + x, paddle.bernoulli(F.sigmoid(x)), x * 2

    paddle.seed(7)
    wanted = paddle.rand([4]).numpy()
    paddle.seed(7)
    result = tonnx.export(forward, input_spec=ROWS)
    assert (paddle.rand([4]).numpy() == wanted).all()
    assert result.verification is not None
    assert [output.drawn for output in result.verification.per_output()] == [True, True, False]
