"""One job from its command line to its row: run it in a process, time what it made, put that into the store."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

from tonnx.zoo.manifest import Job
from tonnx.zoo.process import FAILED, OK, Ended, Limits, run_limited
from tonnx.zoo.store import Store

Row = dict[str, Any]
"""What became of a job, as a line of JSON. Keys are a promise to scripts: they are added, never renamed."""

_BENCH = ("--seconds", "0.5", "--threads", "1", "--no-memory", "--json")
_BENCH_LIMIT = 300.0
_LISTED = 3
"""Things of a list in an error that its line names."""
_LEAST_LEFT = 10.0
"""Seconds that timing a file may take, even if the job has used up its own."""


def do(job: Job, store: Store, fingerprint: str = "", stop: threading.Event | None = None) -> Row:
    """Do a job. Nothing that it does to its process is an error here: it is a row."""
    started = time.time()
    environment = {"OMP_NUM_THREADS": str(max(1, int(job.needs.cpus)))}
    with store.workplace() as place:
        work = Path(place)
        output = job.output
        words = [*job.words, "-o", str(work / output), "--json"]
        if output.endswith(".onnx"):
            words += ["--report", str(work / f"{job.name}.html")]
        ended = run_limited(["tonnx", *words], job.limits, cwd=job.folder, environment=environment, stop=stop)
        row = _row(job, ended) | {"fingerprint": fingerprint, "started": started, "host": socket.gethostname()}
        if stop is not None and stop.is_set():
            return row  # of a run that was stopped: what an earlier one left stays
        if row["status"] == OK and job.latency and output.endswith(".onnx"):
            row |= _latency(job, work / output, ended, stop)
        if row["status"] != OK:
            _without_place(row, place)
            told = f"$ {job.command}\n{ended.told}".replace(place, "").rstrip()
            (work / f"{job.name}.log").write_text(f"{told}\n{ended.reason}\n", encoding="utf-8")
        names = sorted(path.name for path in work.iterdir() if path.name.startswith(job.name))
        row["files"] = names
        store.put(work, names, job.name)
    return row


def empty_row(job: Job, status: str, what: str, why: str = "") -> Row:
    """The row of a job that did not get as far as a process."""
    return _described(job) | {"status": status, "error": {"type": status, "what": what, "why": why or None}}


def error_line(row: Row) -> str:
    """What stopped a job, in one line: a list that the error gives, such as that of operators, is part of it."""
    error = row.get("error") or {}
    lines = [line.strip() for line in (error.get("what") or "").splitlines() if line.strip()]
    told = " ".join(lines[:1])
    if told.endswith(":"):
        listed, others = lines[1 : 1 + _LISTED], len(lines) - 1 - _LISTED
        told = "; ".join([f"{told} {' '.join(listed[:1])}", *listed[1:], *([f"{others} more"] if others > 0 else [])])
    return " ".join([*told.split(), *(f"({error['why']})".split() if error.get("why") else ())])


def _described(job: Job) -> Row:
    figures = dict.fromkeys(("seconds", "peak", "size", "nodes", "difference", "latency", "error"))
    return {
        "job": job.name,
        "model": job.title,
        "source": job.source,
        "opset": job.opset,
        "command": job.command,
        "limits": [job.limits.seconds, job.limits.memory],
        "files": [],
        **figures,
    }


def _row(job: Job, ended: Ended) -> Row:
    row = _described(job) | {"status": ended.status, "seconds": round(ended.seconds, 3), "peak": ended.peak}
    told = _last_json(ended.output)
    if ended.status == OK and told is None:
        return row | {"status": FAILED, "error": {"type": "NoResult", "what": "the command gave no result"}}
    if ended.status == OK:
        assert told is not None
        return row | _figures(told)
    if ended.status == FAILED and told is not None and "error" in told:
        error = {key: told["error"].get(key) for key in ("type", "what", "where", "why", "hint")}
        return row | {"error": error, "difference": _difference(told["error"].get("verification"))}
    last = next((line for line in reversed(ended.told.splitlines()) if line.strip()), "")
    return row | {"error": {"type": ended.status, "what": ended.reason, "why": last.strip()[:300] or None}}


def _last_json(output: str) -> dict[str, Any] | None:
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            try:
                return dict(json.loads(line))
            except ValueError:
                return None
    return None


def _figures(told: dict[str, Any]) -> Row:
    """Of an export, of a retargeted file, or of the files of a package together."""
    if "exports" in told:
        parts = [_figures(one) for one in told["exports"].values()]
        differences = [part["difference"] for part in parts if part["difference"] is not None]
        row: Row = {key: sum(part[key] for part in parts) for key in ("size", "nodes")}
        return row | {"difference": max(differences, default=None), "notes": []}
    nodes = told["nodes"]["after"] if isinstance(told["nodes"], dict) else told["nodes"]
    proof = told["verification"]
    return {
        "size": told["size"],
        "nodes": nodes,
        "opset": told["opset"],
        "operators": told.get("operators"),
        "difference": _difference(proof),
        "compared": bool(proof and proof["compared"]),
        "stages": told["timings"],
        "notes": [note for note in told["notes"] if not note.startswith("report:")],
    }


def _difference(proof: dict[str, Any] | None) -> float | None:
    """The largest absolute difference of any output anywhere; None where nothing was compared, or nothing fits."""
    if not proof or not proof["compared"]:
        return None
    values = [output["max_abs"] for output in proof["outputs"]]
    return max(values, default=None) if None not in values else None


def _latency(job: Job, file: Path, exported: Ended, stop: threading.Event | None) -> Row:
    """Seconds for one run of the file with one thread; where it does not run on invented inputs, why not."""
    left = _BENCH_LIMIT if job.limits.seconds is None else max(_LEAST_LEFT, job.limits.seconds - exported.seconds)
    limits = Limits(min(left, _BENCH_LIMIT), job.limits.memory)
    words = ["tonnx", "bench", str(file), *_BENCH, *_example_sizes(_last_json(exported.output) or {})]
    ended = run_limited(words, limits, cwd=job.folder, environment={"OMP_NUM_THREADS": "1"}, stop=stop)
    told = _last_json(ended.output) or {}
    if ended.status == OK and told.get("timings"):
        return {"latency": told["timings"][0]["p50"]}
    error = told.get("error", {})
    return {"not_timed": error.get("why") or error.get("what") or ended.reason or "no figure came of it"}


def _example_sizes(told: dict[str, Any]) -> list[str]:
    """The sizes of dynamic dimensions that the proof began with, which the model is known to take; of a batch one."""
    trials = (told.get("verification") or {}).get("trials") or [{"sizes": {}}]
    sizes = trials[0]["sizes"]
    later = {dim for value in told.get("inputs", ()) for dim in (value["shape"] or ())[1:] if isinstance(dim, str)}
    return [word for name in sorted(later & set(sizes)) for word in ("--size", f"{name}={sizes[name]}")]


def _without_place(row: Row, place: str) -> None:
    """Paths in an error are those of the store, not of the hidden folder that the job worked in."""
    for key, text in row["error"].items():
        if isinstance(text, str):
            row["error"][key] = text.replace(f"{place}/", "")
