"""All of PyTorch's operator database, and `docs/torch-operators.md` which tells what came of it.

    python -m tests.opinfo.suite [--operators conv] [--jobs 2] [--details] [--write]

Prints the failures. About ten minutes long: `make test-ops`.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tools.site_data import write_page

from tests.opinfo.oracle import (
    CRASHED,
    DTYPES,
    FAILURES,
    REFUSED,
    RIGHT,
    Outcome,
    Outcomes,
    Verdict,
    operators,
    run,
)

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "torch-operators.md"
COLUMNS = (*(str(dtype).removeprefix("torch.") for dtype in DTYPES), "dynamic")
SECONDS = 300.0
"""An operator that takes longer is stopped and counts as a failure."""
_NAN = "PyTorch takes NaN for the largest and the smallest, ONNX leaves it open"
_NO_FACTOR = "of a matrix that is not positive-definite PyTorch leaves open what it gives"
_RANK = "a size of 1 at run time changes the rank, which is fixed in ONNX"
KNOWN = {
    **{("linalg.cholesky_ex", dtype): _NO_FACTOR for dtype in ("float32", "dynamic")},
    ("masked.argmax", "float32"): _NAN,
    ("masked.argmax", "float16"): _NAN,
    ("masked.argmin", "float32"): _NAN,
    ("masked.argmin", "float16"): _NAN,
    ("grid_sampler_3d", "float16"): "rounding: both differ from float32, PyTorch's half precision by more",
    ("lu_unpack", "float32"): "PyTorch writes beyond its memory where a pivot is out of range, and dies",
    ("lu_unpack", "dynamic"): "PyTorch writes beyond its memory where a pivot is out of range, and dies",
    ("__rpow__", "int64"): "powers beyond the range of int64",
    ("histogram", "float32"): "edges of bins must be sorted, and some samples' are drawn at random",
    ("histogramdd", "float32"): "edges of bins must be sorted, and some samples' are drawn at random",
    ("diff", "dynamic"): "an order above the size of the example is cut to that size while the graph is captured",
    **{(name, "dynamic"): _RANK for name in ("squeeze", "squeeze_copy", "cov", "corrcoef")},
}
"""Failures, by operator and dtype, that are not worth a longer file, or not ours."""


def run_all(names: Sequence[str], jobs: int) -> Iterator[Outcomes]:
    """Every operator as it is done, in ``jobs`` processes. One that dies or hangs fails, and the others go on."""
    waiting = list(reversed(names))
    workers = [_Worker() for _ in range(min(jobs, len(names)))]
    for worker in workers:
        worker.give(waiting.pop())
    while busy := [worker for worker in workers if worker.name]:
        ready = wait([worker.pipe for worker in busy], timeout=5)
        for worker in busy:
            outcomes = worker.take() if worker.pipe in ready else worker.overdue()
            if outcomes is not None:
                worker.give(waiting.pop() if waiting else "")
                yield outcomes
    for worker in workers:
        worker.end()


class _Worker:
    """A process that runs one operator after the other."""

    def __init__(self) -> None:
        self.name = ""
        self.start()

    def start(self) -> None:
        # Spawned, not forked: torch and ONNX Runtime have threads.
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other,), daemon=True)
        self.process.start()
        other.close()

    def give(self, name: str) -> None:
        self.name, self.since = name, time.monotonic()
        if name:
            self.pipe.send(name)

    def take(self) -> Outcomes:
        try:
            return self.pipe.recv()
        except EOFError:
            self.process.join()
            return self._lost(f"the process died with code {self.process.exitcode}")

    def overdue(self) -> Outcomes | None:
        if time.monotonic() - self.since < SECONDS:
            return None
        self.process.kill()
        return self._lost(f"not done after {SECONDS:.0f} s")

    def _lost(self, reason: str) -> Outcomes:
        name = self.name
        self.start()
        return Outcomes(name, (Outcome(name, COLUMNS[0], "", Verdict(CRASHED, reason)),))

    def end(self) -> None:
        self.pipe.close()
        self.process.join()


def _work(pipe: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    while True:
        try:
            pipe.send(run(pipe.recv()))
        except EOFError:
            return


def failures(outcomes: Iterable[Outcomes]) -> list[Outcome]:
    """The samples whose file is wrong, or whose export ended with an error that is not a refusal."""
    samples = (one for each in outcomes for one in each.samples)
    return [one for one in samples if one.verdict.kind in FAILURES and (one.operator, one.dtype) not in KNOWN]


def document(outcomes: Sequence[Outcomes]) -> str:
    """The whole of docs/torch-operators.md."""
    tried = [each for each in outcomes if each.samples]
    samples = [one for each in tried for one in each.samples]
    whole = [each for each in tried if _kinds(each) <= set(RIGHT)]
    none = [each for each in tried if _kinds(each) == {REFUSED}]
    failing = [each for each in tried if _kinds(each) & set(FAILURES)]
    partly = len(tried) - len(whole) - len(none) - len(failing)
    lines = [
        "# PyTorch's operators",
        "",
        "Made by `make test-ops`. PyTorch tests its own operators with a database of samples (`op_db`); here they",
        "are exported at opset 18, and each file is run in ONNX Runtime and compared with eager PyTorch. Up to 6",
        "samples of each dtype; *dynamic* is one float32 sample with every size of every input dynamic, compared at",
        "other sizes too. *Refused* means an error that names the operator and the reason, and no file. *Order open*:",
        "PyTorch leaves open which of several equal elements an index points to; the indices differ, the elements are",
        "equal. *Rounding*: PyTorch computes in float16, the file in float32 in between, and agrees with PyTorch's",
        "float32. *Wrong* files are found by the proof and not delivered either.",
        "",
        f"**{len(tried)} operators: {len(whole)} pass with every sample, {partly} with some and refuse the others, "
        f"{len(none)} are refused, {len(failing)} fail.**",
        "",
        "| samples | passed | order open | rounding | refused | failed |",
        "|---|---|---|---|---|---|",
        *(_totals(column, [one for one in samples if one.dtype == column]) for column in COLUMNS),
        _totals("**all**", samples),
        "",
        "## By operator",
        "",
        "Passed of tried (order open and rounding count as passed); the reasons are those of what did not pass.",
        "",
        f"| operator | {' | '.join(COLUMNS)} | not passed because |",
        f"|---|{'---|' * len(COLUMNS)}---|",
        *(_row(each) for each in sorted(tried, key=lambda each: each.operator)),
        "",
        "## Left out",
        "",
        "| reason | operators |",
        "|---|---|",
    ]
    reasons: dict[str, list[str]] = {}
    for each in outcomes:
        if each.left_out:
            reasons.setdefault(each.left_out, []).append(f"`{each.operator}`")
    lines += [f"| {reason} | {', '.join(sorted(names))} |" for reason, names in sorted(reasons.items())]
    return "\n".join(lines) + "\n"


def _kinds(each: Outcomes) -> set[str]:
    return {one.verdict.kind for one in each.samples}


def _totals(label: str, samples: Sequence[Outcome]) -> str:
    counts = Counter(one.verdict.kind for one in samples)
    failed = sum(counts[kind] for kind in FAILURES)
    told = " | ".join(str(counts[kind]) for kind in (*RIGHT, REFUSED))
    return f"| {label}: {len(samples)} | {told} | {failed} |"


def _row(each: Outcomes) -> str:
    cells = []
    for column in COLUMNS:
        kinds = [one.verdict.kind for one in each.samples if one.dtype == column]
        passed = sum(kind in RIGHT for kind in kinds)
        failed = sum(kind in FAILURES for kind in kinds)
        cells.append(f"{passed}/{len(kinds)}{' ✗' if failed else ''}" if kinds else "")
    reasons = Counter(_reason(one) for one in each.samples if one.verdict.kind not in RIGHT)
    told = "; ".join(_cell(reason) for reason, _ in reasons.most_common(2))
    more = f" (and {len(reasons) - 2} more)" if len(reasons) > 2 else ""
    return f"| `{each.operator}` | {' | '.join(cells)} | {told}{more} |"


def _reason(one: Outcome) -> str:
    if one.verdict.kind not in FAILURES:
        return one.verdict.reason
    return f"**{one.verdict.kind}** {KNOWN.get((one.operator, one.dtype)) or one.verdict.reason}"


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= 160 else text[:157] + "…"


def _print(each: Outcomes, details: bool) -> None:
    for one in each.samples:
        failed = one.verdict.kind in FAILURES and (one.operator, one.dtype) not in KNOWN
        if failed or (details and one.verdict.kind == REFUSED):
            print(f"{one.operator} {one.dtype} [{one.sample}]: {one.verdict.kind}: {one.verdict.reason}", flush=True)
        if failed and details:
            print(one.verdict.detail, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operators", default="", help="only those whose names contain this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--details", action="store_true", help="print the whole of every error, and the refusals")
    parser.add_argument("--write", action="store_true", help="write docs/torch-operators.md")
    options = parser.parse_args()
    start = time.perf_counter()
    outcomes = []
    for each in run_all([name for name in operators() if options.operators in name], options.jobs):
        outcomes.append(each)
        _print(each, options.details)
    samples = [one for each in outcomes for one in each.samples]
    print(dict(Counter(one.verdict.kind for one in samples)), f"{time.perf_counter() - start:.0f} s")
    if options.write:
        write_page(DOCUMENT, document(outcomes))
    sys.exit(bool(failures(outcomes)))


if __name__ == "__main__":
    main()
