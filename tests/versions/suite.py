"""Runs the quick suite in the environment of this interpreter, and enters what came of it into docs/versions.md.

    make test-torch TORCH=2.15.0 WRITE=1

What each environment gave is kept in ``results.json``, so that the page can be written anew from one run at a time.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.document import write_section

from tests.versions.refused import TOO_OLD

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "versions.md"
PACKAGES = {
    "torch": "PyTorch",
    "paddlepaddle": "Paddle",
    "onnx": "onnx",
    "onnx-ir": "onnx-ir",
    "onnxruntime": "ONNX Runtime",
    "numpy": "numpy",
}
QUICK = "not models and not opinfo and not paddle_models"


def installed() -> dict[str, str]:
    """The versions of what is here; without the mark of a build."""
    versions = {"Python": platform.python_version()}
    for package, title in PACKAGES.items():
        try:
            versions[title] = version(package).partition("+")[0]
        except PackageNotFoundError:
            versions[title] = "–"
    return versions


def run(arguments: list[str]) -> tuple[dict[str, Any], int]:
    """The outcome of the suite, and pytest's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", QUICK, f"--junitxml={report}", *arguments]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if not report.exists():
            raise SystemExit(f"pytest wrote no report (exit code {code})")
        return outcome(ElementTree.parse(report)), code


def outcome(report: Any) -> dict[str, Any]:
    """How many tests passed, were refused, left out and failed; why, and which."""
    counts: Counter[str] = Counter(passed=0, refused=0, skipped=0, failed=0)
    reasons: Counter[str] = Counter()
    failed = []
    for case in report.iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            counts["failed"] += 1
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif skipped is None:
            counts["passed"] += 1
        else:
            message = skipped.get("message", "")
            refused = skipped.get("type") == "pytest.xfail" or message.startswith(TOO_OLD)
            counts["refused" if refused else "skipped"] += 1
            if refused:
                reasons[message] += 1
    return {**counts, "reasons": dict(sorted(reasons.items())), "failures": sorted(failed)}


def entered(results: list[dict[str, Any]], versions: dict[str, str], outcome: dict[str, Any]) -> list[dict[str, Any]]:
    """The results with those of one environment in the place of its older ones, the newest versions first."""
    kept = [entry for entry in results if entry["versions"] != versions]
    return sorted([*kept, {"versions": versions, **outcome}], key=_rank, reverse=True)


def _rank(entry: dict[str, Any]) -> list[list[int]]:
    names = ("PyTorch", "Python", "onnx", "ONNX Runtime", "Paddle")
    return [[int(n) if n.isdigit() else -1 for n in entry["versions"][name].split(".")] for name in names]


def page(results: list[dict[str, Any]]) -> str:
    """The table, and below it what was refused and what failed, each with where."""
    titles = ["Python", *PACKAGES.values()]
    rows = [[entry["versions"][title] for title in titles] for entry in results]
    counts = [[f"{entry[name]:,}" for name in ("passed", "refused", "failed", "skipped")] for entry in results]
    head = [*titles, "passed", "refused", "failed", "left out"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(titles) + "--:|" * 4]
    lines += [f"| {' | '.join(row + count)} |" for row, count in zip(rows, counts, strict=True)]
    for title, field in (("Refused", "reasons"), ("Failed", "failures")):
        where: dict[str, list[str]] = {}
        for entry in results:
            for text in entry[field]:
                tests = f" ({entry[field][text]:,})" if field == "reasons" else ""
                name = ", ".join(f"{t} {entry['versions'][t]}" for t in ("Python", "PyTorch"))
                where.setdefault(text, []).append(name + tests)
        if where:
            lines += ["", f"{title}:", ""]
            lines += [f"- {text}: {'; '.join(names)}" for text, names in sorted(where.items())]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"enter the outcome into {PAGE.relative_to(ROOT)}")
    options, arguments = parser.parse_known_args()
    result, code = run(arguments)
    if options.write:
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
        results = entered(results, installed(), result)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        write_section(PAGE, "versions", "Versions", page(results))
    return code


if __name__ == "__main__":
    sys.exit(main())
