"""Manifests: what they multiply to, and what is said of a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnx.cli.zoo import _commands
from tonnx.errors import InvalidArgument
from tonnx.zoo.manifest import Job, read_manifest


def jobs_of(tmp_path: Path, text: str) -> list[Job]:
    path = tmp_path / "models.toml"
    path.write_text(text, encoding="utf-8")
    return read_manifest(path, _commands())


FULL = """
[defaults]
opset = [11, 17]
verify = "quick"
capture = "export"      # concerns no .onnx file
memory = "2GiB"

[[model]]
name = "small"
model = "nets.py:Net"
input = ["x:float32[batch,3]", "mask:bool[batch]"]
no-fold = true
external-data = false
input-names = ["x", "mask"]

[[model]]
model = "files/net.onnx"
opset = 9
time = 0

[[model]]
name = "{size}"
model = "nets.py:{size}"
opset = 13
[model.matrix]
size = ["tiny", "large"]
runtime = ["ort-cpu", "none"]
"""
TARGETS = """
[[model]]
name = "a"
model = "nets.py:Net"
matrix = { target = ["tensorrt-8.6", "ncnn"] }
"""


def test_the_jobs_of_a_manifest(tmp_path: Path) -> None:
    jobs = {job.name: job for job in jobs_of(tmp_path, FULL)}
    assert list(jobs) == [
        "small_opset11", "small_opset17", "net_opset9",
        "tiny_runtime=ort-cpu_opset13", "tiny_runtime=none_opset13",
        "large_runtime=ort-cpu_opset13", "large_runtime=none_opset13",
    ]  # fmt: skip
    words = list(jobs["small_opset11"].words)
    assert words[:4] == ["export", "nets.py:Net", "--opset", "11"]
    for part in (["--input", "mask:bool[batch]"], ["--no-fold"], ["--no-external-data"], ["--input-names", "x,mask"]):
        assert part == words[(at := words.index(part[0])) :][: len(part)] or part[-1] in words[at:]
    assert jobs["small_opset11"].limits.memory == 2 << 30
    assert list(jobs["net_opset9"].words) == ["retarget", "files/net.onnx", "--opset", "9"]
    assert jobs["net_opset9"].limits.seconds is None
    assert jobs["large_runtime=none_opset13"].words[1:2] == ("nets.py:large",)


def test_a_target_says_the_opset(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, TARGETS)
    assert [job.name for job in jobs] == ["a_target=tensorrt-8.6", "a_target=ncnn"]
    assert jobs[0].words == ("export", "nets.py:Net", "--target", "tensorrt-8.6") and jobs[0].opset is None


@pytest.mark.parametrize(
    ("text", "line", "what", "hint"),
    [
        ('[[model]]\nmodel = "a.py:b"\nopsett = 11', 3, "has no key 'opsett'", "opset"),
        ('[defaults]\nverfy = 1\n[[model]]\nmodel = "a.py:b"', 2, "has no key 'verfy'", "verify"),
        ('[[models]]\nmodel = "a.py:b"', 1, "has no key 'models'", "model"),
        ('[[model]]\nmodel = "a.py:b"\n\n[[model]]\nname = "x"', 4, "does not say what it is", "model ="),
        ('[[model]]\nmodel = "a.onnx"\ncapture = "export"', 3, "has no key 'capture'", None),
        ('[[model]]\nmodel = "a.py:b"\ncapture = "exprt"', 3, "capture: it is one of", None),
        ('[[model]]\nmodel = "a.py:b"\ninput = "x:floot[1]"', 3, "input: there is no dtype 'floot'", None),
        ('[[model]]\nmodel = "a.py:b"\nopset = [11, 99]', 3, "99 is out of range", None),
        ('[[model]]\nmodel = "a.py:b"\nopset = [11, 11]', 3, "the opsets are", "once"),
        ('[[model]]\nmodel = "a.py:b"\nno-fold = "yes"', 3, "no-fold: it is true or false", None),
        ('[[model]]\nmodel = "a.py:b"\nmemory = "much"', 3, "memory is a size", "8GB"),
        ('[[model]]\nmodel = "a.py:b"\ntime = -1', 3, "time is a number", None),
        ('[[model]]\nmodel = "a.py:b"\n[model.matrix]\nruntine = ["none"]', 4, "has no key 'runtine'", "runtime"),
        ('[[model]]\nmodel = "a.py:b"\nmatrix = { runtime = "none" }', 3, "goes over the values", "list"),
        ('[[model]]\nmodel = "a.py:{b}"', 2, "{b} is not in the matrix", None),
        ('[[model]]\nmodel = "a.py:b"\n[[model]]\nmodel = "c.py:b"', 3, "two jobs are called", "another name"),
        ('[[model]]\nmodel = "a.py:b"\nname = "x', 3, "is not TOML", None),
        ('[[model]]\nmodel = "a.py:b"\nweights = "reference"', 3, "has no key 'weights'", None),
        ('[defaults]\nruntime = "gpu"\n[[model]]\nmodel = "a.py:b"', 2, "runtime: there is no runtime", None),
        ('[[model]]\nmodel = "a.py:b"\ntarget = "tensorrt-8.7"', 3, "tensorrt-8.6", None),
        ("", None, "a manifest has models", r"[[model]]"),
    ],
)
def test_a_mistake_names_line_and_key(text: str, line: int | None, what: str, hint: str | None, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument) as caught:
        jobs_of(tmp_path, text)
    error = caught.value
    assert what in error.what
    assert str(error.where) == str(tmp_path / "models.toml") + (f":{line}" if line else "")
    assert hint is None or hint in (error.hint or "")
