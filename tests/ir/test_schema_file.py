"""The operators of ONNX as tonnx has them are those of onnx itself, whichever onnx is installed."""

from __future__ import annotations

import onnx
import pytest
from tools import schemas_file

from tonnx.ir.schema import history, operators, signature

NEWEST = max(version.since for name in operators() for version in history(name))
INSTALLED = min(NEWEST, onnx.defs.onnx_opset_version())


@pytest.mark.skipif(INSTALLED < NEWEST, reason=f"onnx {onnx.__version__} does not know opset {NEWEST}")
def test_file_is_what_onnx_says() -> None:
    assert schemas_file.FILE.read_text(encoding="utf-8") == schemas_file.encoded(NEWEST), (
        "python tools/schemas_file.py, with the newest onnx"
    )


def test_every_version_of_every_operator_is_there() -> None:
    ours = {(name, version.since) for name in operators() for version in history(name) if version.since <= INSTALLED}
    theirs = {(s.name, s.since_version) for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""}
    assert ours == {(name, since) for name, since in theirs if since <= INSTALLED}


def test_what_is_in_force_at_an_opset() -> None:
    assert signature("Swish", 23) is None and signature("NoSuchOperator", 18) is None
    assert [signature("Attention", opset).since for opset in (23, 24, 26)] == [23, 24, 25]  # type: ignore[union-attr]
    assert signature("Upsample", 10) is None and signature("Upsample", 10, deprecated=True).deprecated  # type: ignore[union-attr]


def test_parameters_and_attributes() -> None:
    conv = signature("Conv", 11)
    assert conv is not None and conv.input(2).name == "B" and conv.min_outputs == 1
    assert conv.attributes["group"].default == 1 and conv.attributes["pads"].default is None
    concat = signature("Concat", 13)
    assert concat is not None and concat.input(7).variadic and concat.attributes["axis"].required
    assert "seq(tensor(float))" in signature("SequenceAt", 11).inputs[0].types  # type: ignore[union-attr]
