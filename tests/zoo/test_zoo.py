"""``tonnx zoo`` from the manifest to the page. Jobs are mostly retargeted files: they need no framework."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.zoo.conftest import write_net
from tonnx.cli import main
from tonnx.zoo import compare, process, results, work
from tonnx.zoo.engines import LocalEngine
from tonnx.zoo.manifest import Job
from tonnx.zoo.process import Limits
from tonnx.zoo.run import run_zoo
from tonnx.zoo.sources import Sources
from tonnx.zoo.store import Store


def rows_of(folder: Path) -> dict[str, Any]:
    return results.read_rows(Store(str(folder)))


def test_every_job_is_a_row_and_a_file(zoo: Path) -> None:
    rows = rows_of(zoo / "out")
    assert {name: row["status"] for name, row in rows.items()} == {
        "net_opset9": "ok", "net_opset13": "ok", "aborts_opset17": "crashed", "missing_opset17": "failed",
    }  # fmt: skip
    row = rows["net_opset9"]
    assert row["nodes"] == 2 and row["difference"] == 0 and row["latency"] > 0 and row["seconds"] > 0
    assert row["size"] == (zoo / "out/net_opset9.onnx").stat().st_size
    assert onnx.load(zoo / "out/net_opset9.onnx").opset_import[0].version == 9
    assert rows["missing_opset17"]["error"]["what"].startswith("there is no file")
    assert "SIGABRT" in (zoo / "out/aborts_opset17.log").read_text(encoding="utf-8")
    page = (zoo / "out/index.html").read_text(encoding="utf-8")
    data = json.loads(page.split('<script id="data" type="application/json">')[1].split("</script>")[0])
    shown = {entry["job"]: entry for entry in data["rows"]}
    assert shown["net_opset9"]["page"] == "net_opset9.html" and (zoo / "out/net_opset9.html").exists()
    assert shown["aborts_opset17"]["log"] == "aborts_opset17.log"
    assert not [path for path in (zoo / "out").iterdir() if path.name.startswith(".")]


def copy_of(zoo: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(zoo, tmp_path / "zoo", dirs_exist_ok=True))


def done_by(folder: Path, *words: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The jobs that a run does; each is only entered as done."""
    main(["zoo", str(folder / "models.toml"), "-o", str(folder / "out"), "--jobs", "1", "--json", *words])
    return sorted(json.loads(capsys.readouterr().out)["done"])


ALL = ["aborts_opset17", "missing_opset17", "net_opset13", "net_opset9"]
CHANGES = {
    "nothing": (lambda folder: None, [], []),
    "a model": (lambda folder: write_net(folder / "net.onnx", 3.0), [], ["net_opset13", "net_opset9"]),
    "a missing file": (lambda folder: write_net(folder / "missing.onnx"), [], ["missing_opset17"]),
    "a module": (lambda folder: (folder / "bad.py").write_text("1\n", encoding="utf-8"), [], ["aborts_opset17"]),
    "an option": (
        lambda folder: replace(folder, "opset = [9, 13]", 'opset = [9, 13]\nruntime = "ort-cpu"'), [],
        ["net_opset13", "net_opset9"],
    ),
    "a lost file": (lambda folder: (folder / "out/net_opset9.onnx").unlink(), [], ["net_opset9"]),
    "a half line": (lambda folder: half_line(folder), [], ["missing_opset17"]),
    "by name": (lambda folder: None, ["--force", "--only", "net"], ["net_opset13", "net_opset9"]),
    "by pattern": (lambda folder: None, ["--force", "--only", "*9"], ["net_opset9"]),
    "the failed": (lambda folder: None, ["--failed"], ["aborts_opset17", "missing_opset17"]),
    "all": (lambda folder: None, ["--force"], ALL),
}  # fmt: skip


def replace(folder: Path, old: str, new: str) -> None:
    text = (folder / "models.toml").read_text(encoding="utf-8")
    (folder / "models.toml").write_text(text.replace(old, new), encoding="utf-8")


def half_line(folder: Path) -> None:
    """As if the run had been stopped while the last row was written."""
    text = (folder / "out/results.jsonl").read_text(encoding="utf-8")
    (folder / "out/results.jsonl").write_text(text[:-40], encoding="utf-8")


@pytest.mark.parametrize("change", CHANGES)
def test_only_what_changed_is_done_again(
    change: str, zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tonnx.zoo.engines.do", entered)
    folder = copy_of(zoo, tmp_path)
    act, words, expected = CHANGES[change]
    act(folder)
    assert done_by(folder, *words, capsys=capsys) == expected
    assert sorted(rows_of(folder / "out")) == ALL


def test_the_exit_code_is_about_what_was_asked_for(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of(zoo, tmp_path)
    call = ["zoo", str(folder / "models.toml"), "-o", str(folder / "out"), "--jobs", "1"]
    assert main([*call, "--only", "net"]) == 0
    assert "2 of 4 jobs, 2 ok, 0 not" in capsys.readouterr().out
    assert main(call) == 1


def test_a_dry_run_lists_the_selected_jobs(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["zoo", str(zoo / "models.toml"), "-o", str(zoo / "out"), "--dry-run", "--json"]
    for words, expected in (([], ALL), (["--only", "net"], ALL[2:]), (["--failed"], ALL[:2])):
        assert main([*call, *words]) == 0
        assert sorted(job["job"] for job in json.loads(capsys.readouterr().out)["jobs"]) == expected


LINES = {
    "all": ({"what": "it is so\nand so"}, "it is so"),
    "why": ({"what": "the model itself fails", "why": "ValueError: boo"}, "the model itself fails (ValueError: boo)"),
    "one": ({"what": "1 operator:\n    1 × aten.a  net.py:3"}, "1 operator: 1 × aten.a net.py:3"),
    "many": ({"what": "5 operators:\n  a\n  b\n  c\n  d\n  e"}, "5 operators: a; b; c; 2 more"),
    "none": (None, ""),
}


@pytest.mark.parametrize("kind", LINES)
def test_the_line_of_a_failure_names_what_its_list_names(kind: str) -> None:
    error, line = LINES[kind]
    assert work.error_line({"error": error}) == line


def entered(job: Job, _store: Store, _mark: str, _stop: object) -> work.Row:
    return work.empty_row(job, "failed", "entered")


def test_tonnx_and_frameworks_are_part_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_net(tmp_path / "net.onnx")
    job = Job("a", "a", "net.onnx", 9, ("retarget", "net.onnx"), str(tmp_path))
    marks = [Sources().fingerprint(job)]
    monkeypatch.setattr("tonnx.zoo.sources._tonnx", lambda: "another")
    marks.append(Sources().fingerprint(job))
    monkeypatch.setattr("tonnx.zoo.sources._version", lambda name: "2.99" if name == "torch" else "1")
    marks.append(Sources().fingerprint(job))
    assert len(set(marks)) == 3


@pytest.mark.parametrize(
    "changed", ["net.py", "parts/layers.py", "parts/__init__.py", "weights.bin", "extra/a.txt", "x.npz"]
)
def test_what_a_model_leads_to_is_part_of_it(changed: str, tmp_path: Path) -> None:
    contents = {
        "net.py": "import torch\nfrom parts import layers\nPATH = 'weights.bin'\n",
        "parts/__init__.py": "",
        "parts/layers.py": "from .deep import thing\n",
        "parts/deep.py": "thing = 1\n",
        "weights.bin": "w",
        "extra/a.txt": "a",
        "x.npz": "x",
        "unrelated.py": "",
    }
    for name, text in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = ("export", "net.py:Net", "--inputs", "x=x.npz")
    job = Job("a", "a", "net.py:Net", 9, words, str(tmp_path), depends=("extra",))
    before = Sources().fingerprint(job)
    (tmp_path / "unrelated.py").write_text("1", encoding="utf-8")
    assert Sources().fingerprint(job) == before
    (tmp_path / "parts/deep.py").write_text("thing = 2\n", encoding="utf-8")
    deep = Sources().fingerprint(job)
    assert deep != before
    (tmp_path / changed).write_text(contents[changed] + "\n# more", encoding="utf-8")
    assert Sources().fingerprint(job) != deep


def test_more_time_is_another_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def timeout(job: Job, _store: Store, mark: str, _stop: object) -> work.Row:
        done.append(job.name)
        return work.empty_row(job, "timeout", "too long") | {"fingerprint": mark}

    monkeypatch.setattr("tonnx.zoo.engines.do", timeout)
    for seconds in (10, 10, 20):
        job = Job("a", "a", "a.onnx", 9, ("retarget", "a.onnx"), str(tmp_path), Limits(seconds))
        run_zoo([job], Store(str(tmp_path / "out")), LocalEngine(1))
    assert done == ["a", "a"]


def row(**figures: Any) -> dict[str, Any]:
    base = {"job": "a", "status": "ok", "seconds": 10.0, "size": 10**6, "nodes": 100, "difference": 1e-6}
    return base | {"latency": 0.01, "compared": True} | figures


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        (row(), row(), []),
        (row(), row(status="crashed", error={"what": "SIGSEGV"}), ["newly failing"]),
        (row(status="failed"), row(status="failed"), []),
        (row(), row(latency=0.0149), []),
        (row(), row(latency=0.016), ["slower"]),
        (row(latency=1e-5), row(latency=1e-4), []),
        (row(), row(seconds=29.0), []),
        (row(), row(seconds=31.0), ["slower"]),
        (row(), row(size=1_040_000), []),
        (row(), row(size=1_060_000), ["larger"]),
        (row(), row(nodes=106), ["larger"]),
        (row(), row(difference=1.2e-5), ["less precise"]),
        (row(difference=0.0), row(difference=5e-7), []),
        (row(), row(difference=None, compared=False), ["less precise"]),
    ],
)
def test_what_counts_as_worse(before: dict, after: dict, kinds: Sequence[str]) -> None:
    assert [one.kind for one in compare.regressions({"a": before}, {"a": after})] == list(kinds)
    assert compare.regressions({}, {"a": after}) == []


def test_a_regression_is_the_exit_code(zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copy_of(zoo, tmp_path)
    call = ["zoo", str(folder / "models.toml"), "-o", str(folder / "out"), "--jobs", "1"]
    assert main([*call, "--against", str(zoo / "out")]) == 0, "what failed before is no regression"
    assert "nothing is worse" in capsys.readouterr().out
    earlier = [
        json.dumps(row | {"nodes": 1} if row["job"] == "net_opset9" else row) for row in rows_of(zoo / "out").values()
    ]
    (folder / "earlier.jsonl").write_text("\n".join(earlier), encoding="utf-8")
    assert main([*call, "--against", str(folder / "earlier.jsonl")]) == 1
    assert "net_opset9: larger: nodes 1 → 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--only", "nte"], "no job is called 'nte'"),
        (["--against", "nowhere"], "there is no run in nowhere"),
        (["--jobs", "0"], "at least one job"),
        (["--address", "x"], "--engine ray"),
        (["--larger", "0.5"], "at least 1"),
    ],
)
def test_wrong_calls(words: list[str], told: str, zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (zoo / "out/results.jsonl").read_text(encoding="utf-8")
    assert main(["zoo", str(zoo / "models.toml"), "-o", str(zoo / "out"), *words]) == 1
    assert told in capsys.readouterr().err
    assert (zoo / "out/results.jsonl").read_text(encoding="utf-8") == before


def test_any_place_of_fsspec(zoo: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    folder = copy_of(zoo, tmp_path)
    replace(folder, "opset = [9, 13]", "opset = 9\nlatency = false")
    call = ["zoo", str(folder / "models.toml"), "-o", f"file://{tmp_path}/far/away", "--only", "net", "-q"]
    assert main(call) == 0
    rows = rows_of(tmp_path / "far/away")
    assert rows["net_opset9"]["status"] == "ok" and rows["net_opset9"]["latency"] is None
    names = {path.name for path in (tmp_path / "far/away").iterdir()}
    assert names == {"net_opset9.onnx", "net_opset9.html", "results.jsonl", "index.html", "manifest.json"}
    store = Store(f"file://{tmp_path}/far/away")
    assert store.left_by("net_opset9") == ["net_opset9.html", "net_opset9.onnx"] and not store.left_by("net")


def test_a_stopped_run_ends_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "probe.py").write_text("import sys, time\ntime.sleep(float(sys.argv[1]))\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    ends: list[process.Ended] = []

    def probe(words: list[str], limits: Limits, **how: Any) -> process.Ended:
        ends.append(process.run_limited(["probe", words[1]], limits, **how))
        return ends[-1]

    monkeypatch.setattr(work, "run_limited", probe)
    tasks = [(Job(name, name, "-", 9, (seconds,), str(tmp_path)), "") for name, seconds in (("a", "0"), ("b", "60"))]
    store = Store(str(tmp_path / "out"))
    store.write("b.onnx", "of an earlier run")
    rows = LocalEngine(2).run(tasks, store)
    assert next(rows)["job"] == "a"
    rows.close()
    assert store.left_by("b") == ["b.onnx"]
    assert [ended.status for ended in ends] == ["ok", "killed"] and ends[1].seconds < 50


def test_a_worker_without_torch_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text("def Net(): return 1\n", encoding="utf-8")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/torch.py").write_text("raise ImportError('No module named torch')\n", encoding="utf-8")
    path = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "lib"), *filter(None, [path])]))
    job = Job("a", "a", "net.py:Net", 9, ("export", "net.py:Net", "--opset", "9"), str(tmp_path))
    row = work.do(job, Store(str(tmp_path / "out")))
    assert row["status"] == "failed" and row["error"]["type"] == "MissingDependency"
    assert "torch" in row["error"]["what"] and "pip install" in row["error"]["hint"]
