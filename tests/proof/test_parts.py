"""A file that is run part by part gives what it gives as a whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import tonnx
from tests.stacks import onnx_stack
from tonnx.proof import parts
from tonnx.proof.judge import open_session
from tonnx.proof.session import Session

MODEL = """<ir_version: 8, opset_import: ["": 18]>
g (float[n, 4] x, int64[1] k) => (float[n, 4] y, float[4, 4] w, float[n, 8] z, float[n, 4] x2)
<float[4, 4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, float[4, 4] v = {1,0,0,0,0,2,0,0,0,0,3,0,0,0,0,4},
 float[4, 4] u = {1,0,0,1,0,2,0,0,0,0,3,0,0,0,0,4}, float[4, 4] last = {1,0,2,1,0,2,0,0,0,0,3,0,0,0,0,4},
 int64[1] zero = {0}>
{
    p = MatMul(x, u)
    a = MatMul(p, w)
    s = SequenceConstruct(a, x)
    b = MatMul(a, v)
    t = SequenceInsert(s, b)
    z = ConcatFromSequence <axis=1>(s)
    zero_d = Squeeze(zero)
    c = SequenceAt(t, zero_d)
    x2 = MatMul(b, last)
    y = Add(c, b)
}
"""


def _stored(path: Path) -> Path:
    model = onnx.parser.parse_model(MODEL)
    onnx.save(model, path, save_as_external_data=True, size_threshold=0, location=f"{path.name}.data")
    return path


@pytest.mark.parametrize("size", [1, 150, 1 << 20])
def test_same_results(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_PART", size)
    path = _stored(tmp_path / "m.onnx")
    session, whole = parts.PartedSession(path), Session(path)
    assert len(session._parts) == {1: 3, 150: 2, 1 << 20: 1}[size]
    assert (session.inputs, session.outputs, session.shapes) == (whole.inputs, whole.outputs, whole.shapes)
    feeds = {"x": np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32), "k": np.zeros(1, np.int64)}
    want, got = whole.run(feeds), session.run(feeds)
    assert list(want) == list(got)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-6)


def test_big_files_are_run_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = onnx_stack(tmp_path / "m.onnx", 3, 16)
    assert type(open_session(path)) is Session
    monkeypatch.setattr(parts, "WHOLE_UP_TO", 3000)
    monkeypatch.setattr(parts, "_PART", 1500)
    assert isinstance(open_session(path), parts.PartedSession)
    result = tonnx.retarget(path, 13, tmp_path / "o.onnx", weights="reference")
    assert "run part by part" in str(result) and result.verification is not None and result.verification.ok
    assert tonnx.verify(tmp_path / "o.onnx", path).ok
    assert not tonnx.verify(onnx_stack(tmp_path / "other.onnx", 4, 16), path).ok
