"""Files are there as a whole or not at all, under any name, with the rights that they should have."""

from __future__ import annotations

import io
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.io.harness import big, make_model, matmul_model, names, run, values_of
from tonnx.errors import TonnxError
from tonnx.io import write

# Staging


def failing() -> ir.LazyTensor:
    def fail() -> ir.TensorProtocol:
        raise RuntimeError("no values today")

    return ir.LazyTensor(fail, dtype=ir.DataType.FLOAT, shape=ir.Shape([64, 64]))


def wrong_size() -> ir.LazyTensor:
    return ir.LazyTensor(lambda: ir.Tensor(big(8, 8)), dtype=ir.DataType.FLOAT, shape=ir.Shape([64, 64]))


def missing_file() -> ir.ExternalTensor:
    return ir.ExternalTensor("nowhere", 0, 16384, ir.DataType.FLOAT, shape=ir.Shape([64, 64]), name="")


@pytest.mark.parametrize("external_data", [False, True])
@pytest.mark.parametrize(
    ("tensor", "why"), [(failing, "no values today"), (wrong_size, "256 bytes"), (missing_file, "nowhere")]
)
def test_a_failure_in_the_middle_leaves_the_older_file(
    tensor: Callable[[], ir.TensorProtocol], why: str, external_data: bool, tmp_path: Path
) -> None:
    path = tmp_path / "m.onnx"
    weight = big()
    write.write(matmul_model(weight), path, external_data=external_data)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(TonnxError, match="initializer 't1'") as caught:
        write.write(make_model(ir.Tensor(big()), tensor()), path, external_data=external_data)
    assert why in str(caught.value.why)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    run(path, weight)


def test_what_cannot_be_encoded_says_so(tmp_path: Path) -> None:
    model = make_model(ir.Tensor(big()))
    model.graph.initializers["t0"].const_value = None
    with pytest.raises(TonnxError, match="'t0' has no value"):
        write.to_bytes(model)
    model = make_model()
    model.graph.node("copy").attributes["broken"] = ir.Attr("broken", ir.AttributeType.SPARSE_TENSOR, 1)
    with pytest.raises(TonnxError, match="could not be encoded") as caught:
        write.to_bytes(model)
    assert len(str(caught.value)) < 300


def test_staging(tmp_path: Path) -> None:
    weight = big()
    path = tmp_path / "m.onnx"
    with write.Staged(path) as staged:
        staged.write(matmul_model(weight))
        assert staged.path.name == "m.onnx"
        assert staged.path.parent.parent == tmp_path
        run(staged.path, weight)
        assert not path.exists()
    assert names(tmp_path) == []
    with write.Staged(path) as staged, write.Staged(path) as second:
        staged.write(matmul_model(weight), external_data=True)
        staged.write(matmul_model(weight))  # a second time, now without data
        second.write(matmul_model(big()))
        staged.commit()
    assert names(tmp_path) == ["m.onnx"]
    run(path, weight)


@pytest.mark.parametrize("external_data", [False, True])
def test_commit_under_another_name(external_data: bool, tmp_path: Path) -> None:
    weight = big()
    with write.Staged(tmp_path / "m.onnx") as staged:
        staged.write(matmul_model(weight), external_data=external_data)
        staged.commit_as(tmp_path / "m.failed.onnx")
    assert names(tmp_path) == ["m.failed.onnx"] + ["m.failed.onnx.data"] * external_data
    run(tmp_path / "m.failed.onnx", weight)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("external_data", [False, True])
def test_rewriting_a_model_over_its_own_data_file(external_data: bool, linked: bool, tmp_path: Path) -> None:
    """The tensors come from the file that is replaced, and stay right afterwards, also at other offsets."""
    path, data = tmp_path / "m.onnx", tmp_path / "m.onnx.data"
    int4, empty = values_of(ml_dtypes.int4, (99, 101)), values_of(np.int8, (0, 3))
    arrays = [big(), big(1, 100), int4, big(512, 600), empty]
    ir.save(make_model(*map(ir.Tensor, arrays)), path, external_data=data.name, size_threshold_bytes=0)
    if linked:
        data.rename(tmp_path / "blob")
        data.symlink_to("blob")
    model = ir.load(path)
    values = list(model.graph.initializers.values())
    old = values[0].const_value
    values[3].const_value.numpy()  # type: ignore[union-attr]  # one is mapped already
    write.write(model, path, external_data=external_data)
    write.write(model, tmp_path / "again.onnx", external_data=external_data)
    if not external_data:
        data.unlink()  # an older export's, left alone; nothing refers to it any more
    for written in (path, tmp_path / "again.onnx"):
        for tensor, array in zip(onnx.load(written).graph.initializer, arrays, strict=True):
            assert tensor.raw_data == ir.Tensor(array).tobytes()
    if external_data:
        assert values[0].const_value is not old
        with pytest.raises(ValueError, match="invalidated"):
            old.numpy()  # type: ignore[union-attr]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_permissions_follow_the_umask_or_the_older_file(tmp_path: Path) -> None:
    path, data = tmp_path / "m.onnx", tmp_path / "m.onnx.data"
    old = os.umask(0o027)
    try:
        write.write(matmul_model(big()), path, external_data=True)
    finally:
        os.umask(old)
    assert [stat.S_IMODE(file.stat().st_mode) for file in (path, data)] == [0o640, 0o640]
    path.chmod(0o604)
    write.write(matmul_model(big()), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_target_is_written(exists: bool, tmp_path: Path) -> None:
    weight = big()
    folder, link = tmp_path / "real", tmp_path / "m.onnx"
    folder.mkdir()
    if exists:
        (folder / "target.onnx").write_bytes(b"old")
    link.symlink_to("real/target.onnx")
    write.write(matmul_model(weight), link)
    assert link.is_symlink()
    assert names(folder) == ["target.onnx"]
    run(link, weight)
    with pytest.raises(TonnxError, match="link"):  # no reader would find the data file
        write.write(matmul_model(weight), link, external_data=True)
    run(link, weight)
    beside = folder / "beside.onnx"
    beside.symlink_to("target.onnx")
    write.write(matmul_model(weight), beside, external_data=True)
    run(beside, weight)


def test_paths_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TonnxError, match="missing") as caught:
        write.Staged(tmp_path / "missing" / "m.onnx")
    assert "does not exist" in str(caught.value.why)
    (tmp_path / "folder.onnx").mkdir()
    for path in (tmp_path / "folder.onnx", *([] if os.name == "nt" else [Path("/dev/null")])):
        with pytest.raises(TonnxError, match="cannot write") as caught:
            write.Staged(path)
        assert "not a regular file" in str(caught.value.why)

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(TonnxError, match=r"cannot write .*m\.onnx") as caught:
        write.write(matmul_model(big()), tmp_path / "m.onnx")
    assert caught.value.why == "Permission denied"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, mode: str) -> io.BufferedWriter:
        return open("/dev/full", "wb")

    monkeypatch.setattr(write, "open", full, raising=False)
    with pytest.raises(TonnxError, match=r"cannot write .*m\.onnx") as caught:
        write.write(matmul_model(big()), tmp_path / "m.onnx")
    assert "No space left" in str(caught.value.why)
    assert names(tmp_path) == []
