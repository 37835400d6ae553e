"""Real Ray on this machine: a worker dies, a cluster grows, ten thousand pictures. ``make test-ray``, docs/scale.md.

Figures are taken on whatever machine this is, however busy: each says how it was had.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench.document import write_section

from tests.zoo.conftest import write_net
from tonnx.zoo.compare import regressions
from tonnx.zoo.engines import LocalEngine, RayEngine
from tonnx.zoo.manifest import Job, Needs
from tonnx.zoo.page import page_data, write_page
from tonnx.zoo.process import Limits
from tonnx.zoo.results import Journal, read_rows
from tonnx.zoo.run import run_zoo
from tonnx.zoo.sources import Sources
from tonnx.zoo.store import Store
from tonnx.zoo.work import empty_row

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
JOBS, SLEEP = 6, 15.0
"""Of the scaling test: jobs, and seconds that each waits, so that other work on the machine plays a small part."""


def sleepers(folder: Path, name: str, count: int) -> list[Job]:
    """Jobs of equal length: each waits in `tonnx retarget` for values, of which a pipe has none after a while."""
    write_net(folder / "net.onnx")
    jobs = []
    for i in range(count):
        pipe = f"{name}-{i}.npy"
        os.mkfifo(folder / pipe)
        threading.Thread(target=keep_waiting, args=(folder / pipe,), daemon=True).start()
        words = ("retarget", "net.onnx", "--opset", "9", "--inputs", f"x={pipe}")
        jobs.append(Job(f"{name}{i}", f"{name}{i}", "net.onnx", 9, words, str(folder), Limits(300), False))
    return jobs


def keep_waiting(pipe: Path) -> None:
    """The reader gets an empty file, after a while."""
    with pipe.open("wb"):  # returns when there is a reader
        time.sleep(SLEEP)


def files(folder: Path, count: int) -> list[Job]:
    """Jobs that are real and short: small files retargeted, without the timing of what comes of them."""
    write_net(folder / "net.onnx")
    words = ("retarget", "net.onnx", "--opset", "9")
    return [Job(f"f{i}", f"f{i}", "net.onnx", 9, words, str(folder), Limits(300), False) for i in range(count)]


def busy_workers() -> list[int]:
    """Processes of Ray that have a job's process below them."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if not (entry / "cmdline").read_bytes().startswith(b"ray::"):
                continue
            children = (entry / "task" / entry.name / "children").read_text(encoding="ascii").split()
            threads = [(task / "children").read_text(encoding="ascii").split() for task in (entry / "task").iterdir()]
            if children or any(threads):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def killed_worker(folder: Path) -> str:
    """Two workers, one of which is killed while it works: no job lost, none twice."""
    jobs = files(folder, 12)
    killed: list[int] = []

    def kill() -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end and not killed:
            time.sleep(0.5)
            if len(read_rows(Store(str(folder / "out")))) >= 2 and (busy := busy_workers()):
                os.kill(busy[0], signal.SIGKILL)
                killed.append(busy[0])

    engine = RayEngine(jobs=2)
    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    steps: list[str] = []
    try:
        outcome = run_zoo(jobs, Store(str(folder / "out")), engine, progress=lambda step: steps.append(step.row["job"]))
    finally:
        engine.close()
    assert killed, "no worker was killed"
    assert sorted(steps) == sorted(job.name for job in jobs), "a job was lost, or came twice"
    assert [row["status"] for row in outcome.rows.values()] == ["ok"] * len(jobs)
    lines = (folder / "out/results.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(json.loads(line)["job"] for line in lines) == sorted(steps)
    assert all((folder / "out" / f"{job.name}.onnx").is_file() for job in jobs)
    assert not [path for path in (folder / "out").iterdir() if path.name.startswith(".")], "something was left behind"
    return (
        f"{len(jobs)} jobs on 2 workers, one of them killed (SIGKILL) while it worked: "
        f"{len(steps)} rows of {len(set(steps))} jobs, all ok"
    )


def lost_node(folder: Path) -> str:
    """A cluster of two nodes, one of which goes away."""
    import ray
    from ray.cluster_utils import Cluster

    jobs = files(folder, 8)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    steps: list[str] = []

    def gone(step: Any) -> None:
        steps.append(step.row["job"])
        if len(steps) == 2:
            cluster.remove_node(nodes[0], allow_graceful=False)

    try:
        outcome = run_zoo(jobs, Store(str(folder / "out")), RayEngine(), progress=gone)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert sorted(steps) == sorted(job.name for job in jobs)
    assert [row["status"] for row in outcome.rows.values()] == ["ok"] * len(jobs)
    return f"{len(jobs)} jobs on 2 nodes, one of them taken away after 2 jobs: {len(steps)} rows, all ok"


def refused(folder: Path) -> str:
    """Jobs that no worker has room for are rows, at once."""
    job = Job("big", "big", "net.onnx", 9, ("retarget", "net.onnx"), str(folder), needs=Needs(cpus=64))
    engine = RayEngine(jobs=2)
    try:
        outcome = run_zoo([job], Store(str(folder / "out")), engine)
    finally:
        engine.close()
    row = outcome.rows["big"]
    assert row["status"] == "failed" and "CPU 64" in row["error"]["what"]
    return f"a job that asks for 64 processors: {row['error']['what']}"


def uploaded(folder: Path) -> str:
    """The manifest's folder goes to the workers, and the files to a place of fsspec."""
    write_net(folder / "net.onnx")
    (folder / "models.toml").write_text('[[model]]\nmodel = "net.onnx"\nopset = [9, 13]\nlatency = false\n', "utf-8")
    place = folder / "far" / "away"
    words = ["zoo", str(folder / "models.toml"), "-o", f"file://{place}", "--engine", "ray", "--jobs", "2", "--upload"]
    done = subprocess.run([sys.executable, "-m", "tonnx", *words], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    rows = read_rows(Store(str(place)))
    assert {name: row["status"] for name, row in rows.items()} == {"net_opset9": "ok", "net_opset13": "ok"}
    assert all((place / file).is_file() for row in rows.values() for file in row["files"])
    return "`--upload -o file://…`: 2 jobs in copies of the folder, files put by the workers through fsspec: all ok"


def scaling(folder: Path) -> str:
    """One worker beside two."""
    head = f"{JOBS} jobs that wait {SLEEP:.0f} s each; what is left of their length is starting and ending a process."
    lines = [head, "", "| engine | 1 worker | 2 workers | efficiency |", "|---|---|---|---|"]
    engines: dict[str, Callable[[int], Any]] = {"local": LocalEngine, "ray": lambda count: RayEngine(jobs=count)}
    for name, make in engines.items():
        seconds = []
        for count in (1, 2):
            engine = make(count)
            if name == "ray":  # the workers are there, as they are in a cluster that is not new
                run_zoo(files(folder, count), Store(str(folder / f"warm-{count}")), engine)
            jobs = sleepers(folder, f"{name}-{count}", JOBS)
            start = time.perf_counter()
            outcome = run_zoo(jobs, Store(str(folder / f"{name}-{count}")), engine)
            seconds.append(time.perf_counter() - start)
            assert all("cannot read" in row["error"]["what"] for row in outcome.rows.values()), outcome.rows
            if hasattr(engine, "close"):
                engine.close()
        efficiency = seconds[0] / (2 * seconds[1])
        lines.append(f"| {name} | {seconds[0]:.1f} s | {seconds[1]:.1f} s | {efficiency:.2f} |")
        assert efficiency >= 0.9, lines[-1]
    return "\n".join(lines)


def pictures(folder: Path, count: int) -> str:
    """Small pictures through actors, beside the same in one process."""
    import pyarrow.parquet as parquet
    from PIL import Image

    import tonnx

    classifier(folder / "net.onnx")
    (folder / "shots").mkdir()
    generator = np.random.default_rng(0)
    for i in range(count):
        pixels = generator.integers(0, 256, (16, 16, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "shots" / f"{random.Random(i).getrandbits(40):010x}-{i}.png")
    recipe = folder / "recipe.json"
    recipe.write_text(
        '{"before": [{"color": "rgb"}, "scale", {"layout": "nchw"}], "after": [{"top_k": {"k": 1}}]}', "utf-8"
    )
    call = [
        sys.executable,
        "-m",
        "tonnx",
        "run",
        str(folder / "net.onnx"),
        f"{folder}/shots/*.png",
        "--recipe",
        str(recipe),
    ]
    seconds = {}
    for engine in ("local", "ray"):
        start = time.perf_counter()
        more = ["--engine", engine, "--batch", "50", *(["--actors", "2"] if engine == "ray" else [])]
        done = subprocess.run([*call, "-o", f"{folder}/{engine}.parquet", *more], capture_output=True, encoding="utf-8")
        assert done.returncode == 0, done.stderr
        seconds[engine] = time.perf_counter() - start
    local, far = (parquet.read_table(folder / f"{engine}.parquet") for engine in ("local", "ray"))
    assert local.num_rows == far.num_rows == count and local.column_names == far.column_names
    assert local["input"].to_pylist() == far["input"].to_pylist() == sorted(local["input"].to_pylist())
    assert local["answer"].to_pylist() == far["answer"].to_pylist()
    assert np.array_equal(np.array(local["y"].to_pylist()), np.array(far["y"].to_pylist()))
    model = tonnx.load(folder / "net.onnx", recipe=recipe)
    for i in random.Random(0).sample(range(count), 20):
        path = far["input"][i].as_py()
        assert np.allclose(model.predict(path).outputs["y"], far["y"][i].as_py(), atol=1e-6)
    return (
        f"{count:,} pictures, order and outputs equal to the last bit: {seconds['local']:.0f} s in one process, "
        f"{seconds['ray']:.0f} s by 2 actors, Ray's start among them"
    )


def classifier(path: Path) -> None:
    """A small network, written with onnx alone."""
    from onnx import TensorProto, helper, numpy_helper, save

    generator = np.random.default_rng(1)
    weights = {"k": generator.standard_normal((4, 3, 3, 3)), "w": generator.standard_normal((4, 10))}
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["y"]),
    ]
    ports = [("x", ["batch", 3, 16, 16]), ("y", ["batch", 10])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ports]
    stored = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], stored)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def predictor(folder: Path) -> str:
    """`tonnx.ray.Predictor` on columns, and a loaded model that goes with the task."""
    import ray

    import tonnx
    import tonnx.ray

    write_net(folder / "net.onnx")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        ray.data.DataContext.get_current().enable_progress_bars = False
        ray.data.DataContext.get_current().execution_options.preserve_order = True
        x = np.random.default_rng(0).standard_normal((1000, 4)).astype(np.float32)
        rows = ray.data.from_numpy(x).rename_columns({"data": "x"})
        how = {"fn_constructor_args": (str(folder / "net.onnx"),), "fn_constructor_kwargs": {"threads": 1}}
        pool = ray.data.ActorPoolStrategy(size=2)
        done = rows.map_batches(tonnx.ray.Predictor, batch_size=64, num_cpus=1, compute=pool, **how)
        columns = next(iter(done.iter_batches(batch_size=1000)))
        model = tonnx.load(folder / "net.onnx", threads=1)
        assert np.array_equal(columns["y"], model(x)["y"]) and np.array_equal(columns["x"], x)

        @ray.remote
        def far(loaded: Any, batch: np.ndarray) -> np.ndarray:
            return loaded(batch)["y"]

        assert np.array_equal(ray.get(far.remote(model, x)), columns["y"])
    finally:
        ray.shutdown()
    return "1,000 rows by 2 actors of `tonnx.ray.Predictor`: equal; a model of `tonnx.load` in a task: equal"


HEAD = "A manifest of 10,000 models at two opsets, without the jobs themselves:"


def ten_thousand(folder: Path) -> str:
    """What the zoo itself does with 10,000 models at 2 opsets: all but the jobs."""
    (folder / "nets").mkdir()
    jobs = []
    for i in range(10_000):
        (folder / "nets" / f"net{i}.py").write_text(f"import torch\nWIDTH = {i}\n", encoding="utf-8")
        for opset in (11, 17):
            words = ("export", f"nets/net{i}.py:Net", "--opset", str(opset), "--input", "x[batch,3,224,224]")
            jobs.append(Job(f"net{i}_opset{opset}", f"net{i}", words[1], opset, words, str(folder), Limits(600)))
    store, lines = Store(str(folder / "out")), [HEAD, "", "| | processor time | |", "|---|---|---|"]

    def timed(what: str, act: Callable[[], Any], note: Callable[[], str] = str) -> Any:
        start = time.process_time()
        result = act()
        lines.append(f"| {what} | {time.process_time() - start:.2f} s | {note()} |")
        return result

    sources = Sources()
    marks = timed("content hashes of all jobs", lambda: {job.name: sources.fingerprint(job) for job in jobs})
    rows = {job.name: finished(job, marks[job.name]) for job in jobs}

    def journal() -> None:
        store.write("results.jsonl", "")
        book = Journal(store, {})
        for row in rows.values():
            book.add(row)

    size = lambda name: f"{(folder / 'out' / name).stat().st_size / 1e6:.1f} MB"  # noqa: E731
    timed("20,000 rows taken down one by one", journal, lambda: size("results.jsonl"))
    for row in rows.values():
        (folder / "out" / row["files"][0]).touch()
    timed("the page", lambda: write_page(store, rows.values(), jobs), lambda: size("index.html"))
    timed("compared with an earlier run", lambda: regressions(rows, {name: dict(row) for name, row in rows.items()}))
    engine = LocalEngine(2)
    outcome = timed("a run in which nothing has changed", lambda: run_zoo(jobs, store, engine))
    assert outcome.kept == len(jobs) and len(page_data(outcome.rows.values(), jobs)["rows"]) == len(jobs)
    return "\n".join(lines)


def finished(job: Job, mark: str) -> dict[str, Any]:
    figures = {"size": 10**6, "nodes": 100, "seconds": 5.0, "difference": 1e-6, "latency": 1e-3, "peak": 5 * 10**8}
    operators = {"Conv": 50, "Relu": 49, "Gemm": 1}
    row = empty_row(job, "ok", "") | figures | {"error": None, "operators": operators, "compared": True, "notes": []}
    return row | {"files": [f"{job.name}.onnx", f"{job.name}.html"], "fingerprint": mark}


def one_job(folder: Path) -> str:
    """What a job itself costs, by processor time of its processes: a small PyTorch network, and a file."""
    import resource

    (folder / "net.py").write_text(
        "import torch\n\n\ndef net():\n    torch.manual_seed(0)\n"
        "    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())\n",
        encoding="utf-8",
    )
    write_net(folder / "net.onnx")
    kinds = {
        "a PyTorch network of two layers, exported": (
            "export",
            "net.py:net",
            "--input",
            "x[batch,3,32,32]",
            "--opset",
            "17",
        ),
        "an ONNX file of two nodes, retargeted": ("retarget", "net.onnx", "--opset", "9"),
    }
    lines = ["| a job | processor time | with its latency | peak memory | on disk |", "|---|---|---|---|---|"]
    totals = []
    for what, words in kinds.items():
        spent = []
        for latency in (False, True):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            job = Job("a", "a", words[1], 9, words, str(folder), latency=latency)
            outcome = run_zoo([job], Store(str(folder / f"{words[0]}-{latency}")), LocalEngine(1))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert outcome.rows["a"]["status"] == "ok", outcome.rows["a"]
            spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        peak = outcome.rows["a"]["peak"] / 1e6
        names = outcome.rows["a"]["files"]
        disk = sum((folder / f"{words[0]}-True" / name).stat().st_size for name in names) / 1e3
        lines.append(f"| {what} | {spent[0]:.1f} s | {spent[1]:.1f} s | {peak:.0f} MB | {disk:.0f} kB |")
        totals.append(
            f"- 10,000 such jobs ({what}): {spent[1] * 10_000 / 3600:.0f} processor hours, "
            f"{spent[1] * 10_000 / 3600 / 100:.1f} hours on 100 processors; {disk / 100:.1f} GB of files and pages."
        )
    grow = (
        "What a network of a real size adds is its own: its export ([bench.md](bench.md)), its proof and its weights."
    )
    return "\n".join([*lines, "", *totals, "", grow])


SECTIONS: dict[str, tuple[str, Callable[[Path], str]]] = {
    "killed": ("A worker dies", killed_worker),
    "node": ("A node goes away", lost_node),
    "refused": ("A job that fits nowhere", refused),
    "uploaded": ("Files that travel", uploaded),
    "predictor": ("Batch inference", predictor),
    "pictures": ("Ten thousand pictures", lambda folder: pictures(folder, 10_000)),
    "scaling": ("Two workers beside one", scaling),
    "job": ("What a job costs", one_job),
    "zoo": ("What the zoo itself costs", ten_thousand),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help=f"some of {', '.join(SECTIONS)}, separated by commas")
    parser.add_argument("--write", action="store_true", help="enter what came of it into docs/scale.md")
    options = parser.parse_args()
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    for name in options.only.split(",") if options.only else SECTIONS:
        title, measure = SECTIONS[name]
        folder = Path(tempfile.mkdtemp(prefix="tonnx-ray-"))
        try:
            start = time.perf_counter()
            text = measure(folder)
            print(f"{name}: {time.perf_counter() - start:.0f} s\n{text}\n", flush=True)
            if options.write:
                write_section(DOCUMENT, name, title, text)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
