"""Files that are newer than the installed onnx or ONNX Runtime: who runs them, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tonnx import retarget
from tonnx.proof import upward
from tonnx.proof.judge import ReferenceSession, checked, open_session
from tonnx.proof.session import Session, TooNew
from tonnx.proof.subject import Subject
from tonnx.proof.trials.prove import prove

SAID = [
    "[ONNXRuntimeError] : 1 : FAIL : Unsupported model IR version: 10, max supported IR version: 9",
    "ONNX Runtime only *guarantees* … Current official support for domain ai.onnx is till opset 20.",
]
NEW = 21
X = np.array([[-1.0, 2.0]], np.float32)


def model(op_type: str = "Relu") -> bytes:
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 2]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node(op_type, ["x"], ["y"])], "g", [x], [y])
    opset = onnx.helper.make_opsetid("", NEW)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString()


@pytest.fixture(params=SAID, ids=["IR version", "opset"])
def old_runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    original = onnxruntime.InferenceSession

    def load(source: str | bytes, *args: Any, **options: Any) -> Any:
        if upward.opset_of(source) == NEW:
            raise RuntimeError(request.param)
        return original(source, *args, **options)

    monkeypatch.setattr(onnxruntime, "InferenceSession", load)


@pytest.fixture
def old_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: NEW - 1)


def test_a_runtime_that_knows_the_file_runs_it() -> None:
    session = open_session(model())
    assert type(session) is Session and not session.remark


def test_the_reference_evaluator_stands_in(old_runtime: None) -> None:
    with pytest.raises(TooNew, match="is too old for the file's opset"):
        Session(model())
    session = open_session(model())
    assert isinstance(session, ReferenceSession) and session.shapes["x"] == ["n", 2]
    np.testing.assert_array_equal(session.run({"x": X})["y"], [[0, 2]])


def test_the_proof_says_who_ran_the_file(old_runtime: None) -> None:
    subject = Subject(lambda feeds: [np.maximum(feeds["x"], 0)], {"x": X}, ["y"], {"x": {0: "n"}})
    result = prove(model(), subject)
    assert result.ok and "sizes tried: n=1,2,3" in str(result)
    assert f"[!] ONNX Runtime {onnxruntime.__version__} is too old" in str(result)
    assert "reference evaluator instead" in str(result)
    assert not prove(model(), replace(subject, reference=lambda feeds: [feeds["x"]])).ok


def test_a_file_that_nobody_knows_is_refused(old_runtime: None, old_onnx: None) -> None:
    with pytest.raises(TooNew) as caught:
        open_session(model())
    assert "knows opsets up to 20" in str(caught.value) and "verify=False" in str(caught.value)


def test_an_operator_that_the_evaluator_lacks_is_refused(old_runtime: None) -> None:
    with pytest.raises(TooNew, match="nor does onnx's reference evaluator load it"):
        open_session(model("NoSuchOperator"))


def test_the_check_is_left_out_by_an_older_onnx(old_onnx: None) -> None:
    (remark,) = checked(model())
    assert remark == f"onnx {onnx.__version__} is too old for the file's opset: the file is not checked by it"


def test_retargeting_compares_with_the_evaluator(old_runtime: None) -> None:
    result = retarget(model(), opset=13)
    assert any("the original: ONNX Runtime" in note for note in result.notes)
    assert result.verification is not None and result.verification.ok
