"""Schemas that an older onnx lacks: the file that stands in for them says what onnx itself says."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

import onnx
import pytest

from tonnx.ir import newer_schemas
from tonnx.ir.schema import as_signature, histories, in_force
from tonnx.ir.target import CANON
from tonnx.legalise.schemas import structure, types

NEEDS_ALL = pytest.mark.skipif(
    onnx.defs.onnx_opset_version() < CANON, reason=f"onnx {onnx.__version__} does not know opset {CANON} itself"
)


@pytest.fixture
def old_onnx(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """onnx as it was before the schemas of the file came."""
    newer_schemas.schemas.cache_clear()
    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: newer_schemas.OLDEST_ONNX)
    yield
    newer_schemas.schemas.cache_clear()


@NEEDS_ALL
def test_file_is_what_onnx_says() -> None:
    content = resources.files("tonnx.ir").joinpath("newer_schemas.json").read_text()
    assert content == newer_schemas.encoded(), (
        "write it anew: python -c 'from tonnx.ir import newer_schemas as n; print(n.encoded(), end=\"\")'"
    )


@NEEDS_ALL
def test_schemas_read_from_the_file_are_onnx_own(old_onnx: None) -> None:
    from_file = [schema for schemas in newer_schemas.schemas().values() for schema in schemas]
    assert len(from_file) > 40
    for schema in from_file:
        own = onnx.defs.get_schema(schema.name, schema.since_version)
        assert (structure(schema), types(schema)) == (structure(own), types(own)), schema.name
        assert as_signature(schema) == as_signature(own)


def test_an_older_onnx_is_completed(old_onnx: None) -> None:
    assert in_force("Swish", 24) is newer_schemas.schemas()["Swish"][0]
    assert in_force("Swish", 23) is None
    assert in_force("Attention", 26).since_version == 25 and in_force("Attention", 23).since_version == 23
    assert newer_schemas.schemas()["Attention"][-1] in histories()["Attention"]
