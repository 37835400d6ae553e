"""Weights that stay in their files: what the ONNX file points at, what is written, and what is refused first."""

from __future__ import annotations

import os
import re
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import tonnx
from tests.stacks import paddle_stack
from tonnx.cli import main
from tonnx.errors import InvalidArgument, TonnxError
from tonnx.io.weight_files import entries_of

safetensors = pytest.importorskip("safetensors.torch")

X = torch.randn(2, 3, 64)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(64, 64)
        self.conv = torch.nn.Conv1d(3, 256, 3)
        self.norm = torch.nn.BatchNorm1d(256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(self.inner(x)))


def net(path: Path, how: str) -> Net:
    """A network, and its weights in a file, which they were copied or mapped from."""
    torch.manual_seed(0)
    model = Net().eval()
    if path.suffix == ".safetensors":
        safetensors.save_file(model.state_dict(), path)
        loaded = safetensors.load_file(path)
    elif path.suffix == ".onnx":
        tonnx.export(model, X, path, external_data=True, do_constant_folding=False, fuse_conv_bn=False, verify=False)
        return model
    else:
        torch.save({"model": model.state_dict(), "epoch": 3, "args": Path("a")}, path)
        loaded = torch.load(path, mmap=how == "mapped", weights_only=False)["model"]
    model.load_state_dict(loaded, assign=how == "mapped")
    return model


def pointed_at(path: Path) -> dict[str, str]:
    """The tensors of a file that lie in others, and in which."""
    model = onnx.load(path, load_external_data=False)
    return {t.name: t.external_data[0].value for t in model.graph.initializer if t.external_data}


BIG = {"inner.weight", "conv.weight", "conv.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"}


@pytest.mark.parametrize("how", ["mapped", "copied"])
@pytest.mark.parametrize("name", ["net.safetensors", "net.pt", "below/net.safetensors", "first.onnx"])
def test_reference(name: str, how: str, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    if how == "mapped" and name.endswith(".onnx"):
        pytest.skip("nothing maps the weights of a module from an ONNX file")
    model = net(tmp_path / name, how)
    weights: Any = "reference" if "below" not in name and ".onnx" not in name else [tmp_path / name]
    result = tonnx.export(model, X, tmp_path / "net.onnx", weights=weights)
    assert result.verification is not None and result.verification.ok
    location = name.replace(".onnx", ".onnx.data")
    assert pointed_at(tmp_path / "net.onnx") == dict.fromkeys(BIG, location)
    assert result.size == os.path.getsize(tmp_path / "net.onnx") < 8000
    assert any(note.startswith("7 tensors (30,720 bytes) stay in ") for note in result.notes), result.notes
    assert any("not rewritten: Transpose, BatchNormalization" in note for note in result.notes), result.notes
    assert not [file for file in os.listdir(tmp_path) if file.startswith(".tonnx")]


def test_saved_anywhere_it_has_its_weights(tmp_path: Path) -> None:
    model = net(tmp_path / "net.safetensors", "mapped")
    result = tonnx.export(model, X, tmp_path / "net.onnx", weights="reference")
    (tmp_path / "other").mkdir()
    assert not pointed_at(result.save(tmp_path / "other" / "net.onnx"))


def test_paddle(tmp_path: Path) -> None:
    paddle_stack(tmp_path, 3, 32)
    result = tonnx.export(tmp_path / "stack.pdmodel", f=tmp_path / "net.onnx", weights="reference")
    assert result.verification is not None and result.verification.ok
    assert set(pointed_at(tmp_path / "net.onnx").values()) == {"stack.pdiparams"}
    assert result.size < os.path.getsize(tmp_path / "stack.pdiparams") / 2


def test_retarget_and_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net(tmp_path / "net.onnx", "copied")
    options = ["retarget", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "old.onnx"), "--opset", "13"]
    assert main([*options, "--weights", "reference"]) == 0
    assert "stay in net.onnx.data" in capsys.readouterr().out
    assert set(pointed_at(tmp_path / "old.onnx").values()) == {"net.onnx.data"}
    paddle_stack(tmp_path, 3, 32)
    options = ["export", str(tmp_path / "stack.pdmodel"), "-o", str(tmp_path / "stack.onnx"), "--no-verify"]
    assert main([*options, "--weights", "reference"]) == 0
    assert "stay in stack.pdiparams" in capsys.readouterr().out


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    model = net(tmp_path / "net.safetensors", "mapped")
    model.register_buffer("table", torch.randn(3, 1024))
    model.forward = lambda x: model.norm(model.conv(model.inner(x) + model.table[:, :64]))  # type: ignore[method-assign]
    result = tonnx.export(model, X, tmp_path / "net.onnx", weights="reference")
    assert set(pointed_at(tmp_path / "net.onnx")) == BIG
    assert result.size < 24_000


# What is refused, before anything is written


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 100)


def replaced(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    os.replace(path.with_name("copy"), path)


def overwritten(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(entries_of(path)[0].place.offset)
        file.write(bytes(100))


def linked(path: Path) -> None:
    os.link(path, path.with_name("link"))


def moved(path: Path) -> None:
    path.parent.joinpath("elsewhere").mkdir()
    os.replace(path, path.parent / "elsewhere" / path.name)


def symlinked(path: Path) -> None:
    aside = path.parent.parent / f"{path.parent.name}-aside"
    aside.mkdir()
    os.replace(path, aside / path.name)
    path.symlink_to(aside / path.name)


def no_header(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", 40) + b'{"a": {"dtype": "F32"}}                  ')


@pytest.mark.parametrize(
    ("how", "harm", "named", "error"),
    [
        ("copied", cut, True, "is cut"),
        ("copied", overwritten, True, "has other numbers than the model"),
        ("copied", linked, True, "several hard links"),
        ("copied", moved, True, "there is no weights file"),
        ("copied", moved, False, "are in no file that the ONNX file could point into"),
        ("copied", symlinked, True, "does not lie in"),
        ("copied", no_header, True, "is damaged"),
        ("mapped", cut, False, "is cut"),
        ("mapped", replaced, False, "changed since it was loaded"),
        ("mapped", linked, False, "several hard links"),
    ],
)
def test_refused(how: str, harm: Callable[[Path], None], named: bool, error: str, tmp_path: Path) -> None:
    if how == "mapped" and not Path("/proc/self/smaps").exists():
        pytest.skip("mappings are known on Linux only")
    file = tmp_path / "net.safetensors"
    model = net(file, how)
    harm(file)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(TonnxError, match=re.escape(error)) as raised:
        weights: Any = file if named else "reference"
        tonnx.export(model, X, tmp_path / "net.onnx", weights=weights, verify=False)
    assert raised.value.hint or "no weights file" in error
    assert sorted(os.listdir(tmp_path)) == before


def test_memory_that_was_written_to_is_not_pointed_at(tmp_path: Path) -> None:
    model = net(tmp_path / "net.safetensors", "mapped")
    with torch.no_grad():
        model.inner.weight[0, 0] = 5
    with pytest.raises(TonnxError, match=r"other numbers than the model for 'inner\.weight'"):
        tonnx.export(model, X, tmp_path / "net.onnx", weights="reference")
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(TonnxError, match="does not lie in"):  # the other weights
        tonnx.export(model, X, other / "net.onnx", weights="reference")


def test_changed_while_it_is_exported(tmp_path: Path) -> None:
    model = net(tmp_path / "net.safetensors", "mapped")

    def interfere(stage: str) -> None:
        if stage == "verify":
            os.utime(tmp_path / "net.safetensors", ns=(1, 1))

    with pytest.raises(TonnxError, match="it was written to"):
        tonnx.export(model, X, tmp_path / "net.onnx", weights="reference", progress=interfere)
    assert os.listdir(tmp_path) == ["net.safetensors"]


def test_paddle_weights_that_changed(tmp_path: Path) -> None:
    paddle_stack(tmp_path, 3, 32)

    def interfere(stage: str) -> None:
        if stage == "optimise":
            os.utime(tmp_path / "stack.pdiparams", ns=(1, 1))

    with pytest.raises(TonnxError, match="changed since it was loaded"):
        tonnx.export(
            tmp_path / "stack.pdmodel", f=tmp_path / "n.onnx", weights="reference", verify=False, progress=interfere
        )
    assert sorted(os.listdir(tmp_path)) == ["stack.pdiparams", "stack.pdmodel"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"weights": 3}, "weights must be"),
        ({"weights": "reference", "external_data": True}, "leaves them where they are"),
        ({"weights": "reference", "export_params": False}, "cannot point at them"),
        ({"weights": "reference", "f": None}, "only a file can point"),
    ],
)
def test_arguments(options: dict[str, Any], error: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=error):
        tonnx.export(Net(), X, **{"f": tmp_path / "net.onnx", **options})


# Files of weights


def test_archives_are_only_looked_at(tmp_path: Path) -> None:
    """A pickle may name any function: none is called, and what lies in another order is not pointed at."""
    class Harm:
        def __reduce__(self) -> Any:
            return exec, ("raise SystemExit",)

    wide = torch.arange(24.0).reshape(4, 6)
    torch.save({"a": wide, "part": wide[2], "turned": wide.T, "half": wide.half(), "harm": Harm()}, tmp_path / "a.pt")
    found = {entry.name: entry for entry in entries_of(tmp_path / "a.pt")}
    assert set(found) == {"a", "part", "half"}
    data = (tmp_path / "a.pt").read_bytes()
    for name, array in (("a", wide), ("part", wide[2]), ("half", wide.half())):
        place = found[name].place
        np.testing.assert_array_equal(
            np.frombuffer(data[place.offset : place.offset + place.nbytes], array.numpy().dtype), array.ravel()
        )


def test_compressed_archive(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(1000)}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as plain, zipfile.ZipFile(
        tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED
    ) as packed:
        for member in plain.namelist():
            packed.writestr(member, plain.read(member))
    with pytest.raises(TonnxError, match="is compressed"):
        entries_of(tmp_path / "b.pt")


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(TonnxError, match="not a file of weights"):
        entries_of(tmp_path / "a.txt")
