"""All programs of one operator at many opsets, and `docs/paddle-operators.md` which tells what came of it.

    python -m tests.frontends.paddle.table [--opsets 7,9,11] [--operators nms] [--jobs 2] [--write]

A program stands for the rarest operator in it. Prints what is wrong. Some minutes long: `make docs-paddle`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tools.site_data import write_page

from tests.frontends.paddle import archive, test_flow
from tonnx.errors import InvalidModel, RetargetError, TonnxError
from tonnx.frontends.paddle.read import schema
from tonnx.frontends.paddle.read.load import load

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "paddle-operators.md"
OPSETS = (7, 9, 11, 13, 17, 20, 26)
KINDS = {"pir": "PIR", "old": "old"}
Case = tuple[str, str, str]
"""Where the program lies (``flow`` or nothing), its format, its name."""

LIMITS = {
    "as_strided": "refused: ONNX has no memory layouts",
    "box_clip": "one picture, or boxes by picture (batch, boxes, 4): LoD is not in the file",
    "collect_fpn_proposals": "several pictures by their number of regions, not by LoD",
    "density_prior_box": "steps, or fixed sizes",
    "dequantize_linear": "integers of 8 bits or fewer become DequantizeLinear, wider ones arithmetic",
    "dropout": "in training it is refused: no file can reproduce what Paddle draws",
    "fft_c2r": "a spectrum of a fixed size",
    "histogram": "bounds that are given, no weights",
    "index_put": "indices that are tensors or masks, side by side",
    "lrn": "an odd number of channels",
    "fractional_max_pool2d": "fixed sizes, and `random_u`",
    "fractional_max_pool3d": "fixed sizes, and `random_u`",
    "max_pool2d_with_index": "fixed windows, or adaptive to a fixed size; no `ceil_mode` with a window beside the data",
    "multiclass_nms": "boxes of four numbers",
    "multiclass_nms2": "boxes of four numbers",
    "multiclass_nms3": "boxes of four numbers; by class with RoisNum, not by LoD",
    "polygamma": "NaN for x ≤ 0",
    "quantize_linear": "a zero point that is fixed",
    "roi_align": "several pictures by their number of regions, not by LoD",
    "roi_pool": "several pictures by their number of regions, not by LoD; no positions",
    "psroi_pool": "several pictures by their number of regions, not by LoD",
    "set_value": "steps that are fixed",
    "uniform": "other numbers than Paddle's, of the same distribution",
    "gaussian": "other numbers than Paddle's, of the same distribution",
    "randint": "other numbers than Paddle's, of the same distribution",
    "randperm": "other numbers than Paddle's, of the same distribution",
    "bernoulli": "other numbers than Paddle's, of the same distribution",
    "multinomial": "other numbers than Paddle's, of the same distribution",
}
"""What a rule refuses, for those who want to know it before they try."""


KNOWN: dict[tuple[str, int], str] = {}
"""What is wrong, by case and opset, and not ours or not worth a longer file; the proof finds these too."""


@dataclass
class Row:
    """What is known of an operator."""

    names: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    verdicts: dict[Case, dict[int, str]] = field(default_factory=dict)
    """By case and opset: nothing if it is right, else why not."""


def found() -> list[Case]:
    """All programs there are."""
    made = [("", kind, name) for kind in KINDS for name in archive.cases(kind)]
    return made + [("flow", kind, name) for kind in KINDS for name in test_flow.cases(kind)]


def operators(case: Case) -> dict[str, str]:
    """The operators of a program: by the name of the rule, the name that the program has for it."""
    where, kind, name = case
    with tempfile.TemporaryDirectory() as folder:
        path = (test_flow if where else archive).unpacked(kind, name, Path(folder))
        ops = [op.name for op in load(path).program.walk()]
    return {schema.rule_name(op): op.removeprefix("pd_op.").rstrip("_") for op in ops if not op.startswith("builtin.")}


def tried(case: Case, opsets: Sequence[int]) -> tuple[Case, dict[int, str]]:
    """A program at every opset."""
    where, kind, name = case
    verdicts = {}
    for opset in opsets:
        with tempfile.TemporaryDirectory() as folder:
            verdicts[opset] = _verdict(where, kind, name, opset, Path(folder))
    return case, verdicts


def _verdict(where: str, kind: str, name: str, opset: int, folder: Path) -> str:
    try:
        (test_flow if where else archive).check(kind, name, opset, folder)
    except RetargetError as error:
        return f"refused: {_reason(error)}"
    except InvalidModel as error:
        return f"no kernel: {_first_line(error.why or str(error))}"
    except TonnxError as error:
        return f"refused: {_first_line(str(error))}"
    except Exception as error:  # other numbers, or a file that onnx's checker does not take
        known = KNOWN.get((name, opset))
        return f"wrong: {known}" if known else f"WRONG: {type(error).__name__} {_first_line(str(error).strip())}"
    return ""


def _reason(error: RetargetError) -> str:
    """Why a node cannot be expressed: ``TopK (/TopK): K is …; works from opset 10``, without the name."""
    lines = [line.strip() for line in str(error).splitlines()[1:] if "): " in line or line.startswith("  ")]
    first = lines[0] if lines else _first_line(str(error))
    what, _, why = first.partition(" (")
    return f"{what}: {why.partition('): ')[2].partition('; works from')[0]}" if why else first


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0][:160]


def rows_of(cases: Iterable[Case]) -> dict[str, Row]:
    """The operators, with the programs that stand for each."""
    contents = {case: operators(case) for case in cases}
    frequency = Counter(rule for ops in contents.values() for rule in ops)
    rows: dict[str, Row] = defaultdict(Row)
    for case, ops in contents.items():
        rarest = min((frequency[rule] for rule in ops), default=0)
        for rule, name in ops.items():
            if frequency[rule] == rarest:
                rows[rule].names[case[1]].add(name)
                rows[rule].verdicts[case] = {}
    return dict(rows)


# The document


def _span(opsets: Sequence[int], tested: Sequence[int]) -> str:
    """``7–26``; with holes, what lies between them: ``7–11, 16–26``."""
    runs: list[list[int]] = []
    for opset in tested:
        if opset not in opsets:
            runs.append([])
        elif runs and runs[-1]:
            runs[-1].append(opset)
        else:
            runs.append([opset])
    return ", ".join(f"{r[0]}–{r[-1]}" if r[0] != r[-1] else str(r[0]) for r in runs if r) or "none"


def _line(rule: str, row: Row, opsets: Sequence[int]) -> str:
    every = [o for o in opsets if all(not verdicts[o] for verdicts in row.verdicts.values())]
    some = [o for o in opsets if any(not verdicts[o] for verdicts in row.verdicts.values())]
    olds = sorted(row.names["old"] - {rule})
    name = f"`{rule}`" + (f" ({', '.join(f'`{o}`' for o in olds)})" if olds else "")
    formats = ", ".join(shown for kind, shown in KINDS.items() if row.names[kind])
    notes = [LIMITS[rule]] if LIMITS.get(rule) else []
    why = Counter(v for verdicts in row.verdicts.values() for o, v in verdicts.items() if v)
    notes += [text.removeprefix("refused: ").replace("|", "\\|") for text, _ in why.most_common(2)]
    span = _span(every, opsets) + (f"; some {_span(some, opsets)}" if some != every else "")
    return f"| {name} | {formats} | {len(row.verdicts)} | {span} | {'; '.join(notes)} |"


def document(rows: dict[str, Row], opsets: Sequence[int]) -> str:
    """The whole text."""
    cases = {case: verdicts for row in rows.values() for case, verdicts in row.verdicts.items()}
    lines = [f"| {o} | {_count(cases, o, '')} | {_count(cases, o, 'refused')} | {_count(cases, o, 'no kernel')} | "
             f"{_count(cases, o, 'wrong')} |" for o in opsets]  # fmt: skip
    table = [_line(rule, rows[rule], opsets) for rule in sorted(rows)]
    head = _HEAD.format(operators=len(rows), programs=len(cases)).splitlines()
    return "\n".join([*head, *lines, *_MIDDLE, *table, ""])


def _count(cases: dict[Case, dict[int, str]], opset: int, kind: str) -> int:
    return sum(v[opset].lower().startswith(kind) if kind else not v[opset] for v in cases.values())


_HEAD = """# Paddle's operators

Made by `make docs-paddle`. Small programs, saved by PaddlePaddle 3.3.1 (PIR) and 2.6.2 (the old format), are
converted at several opsets; each file is checked by onnx, run in ONNX Runtime, and compared with what Paddle computed.
A program stands for the rarest operator in it. *Refused* is an error that names the node and the reason, and no file.
*No kernel*: the file is valid, but ONNX Runtime (1.31) cannot run it. Random numbers are compared by their
distribution.

**{operators} operators in {programs} programs.**

| opset | right | refused | no kernel | wrong |
|---|---|---|---|---|"""
_MIDDLE = (
    "",
    "## By operator",
    "",
    "The opsets are those at which all programs of the operator are right, then those at which some are.",
    "",
    "| operator (old name) | formats | programs | opsets | limits |",
    "|---|---|---|---|---|",
)


def main() -> int:
    """Run everything; 1 if anything is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--opsets", default=",".join(map(str, OPSETS)))
    parser.add_argument("--operators", default="", help="only those whose name contains this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    opsets = [int(opset) for opset in options.opsets.split(",")]
    rows = {rule: row for rule, row in rows_of(found()).items() if options.operators in rule}
    cases = sorted({case for row in rows.values() for case in row.verdicts})
    with multiprocessing.Pool(options.jobs) as pool:
        results = dict(pool.imap_unordered(partial(tried, opsets=opsets), cases, chunksize=4))
    wrong = 0
    for row in rows.values():
        row.verdicts = {case: results[case] for case in row.verdicts}
    for case, verdicts in sorted(results.items()):
        for opset, verdict in verdicts.items():
            if verdict.startswith("WRONG"):
                wrong += 1
                print(f"{case[1]} {case[2]} at opset {opset}: {verdict}")
    text = document(rows, opsets)
    if options.write:
        write_page(DOCUMENT, text)
    else:
        print(text)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
