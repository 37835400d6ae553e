"""The page about versions, and the list of refusals."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.versions import refused, suite
from tonnx import versions
from tonnx.errors import InvalidModel

REPORT = f"""
<testsuites><testsuite>
<testcase classname="tests.a" name="good"/>
<testcase classname="tests.a" name="bad"><failure message="no"/></testcase>
<testcase classname="tests.a" name="older"><skipped type="pytest.xfail" message="torch before 2.13: so"/></testcase>
<testcase classname="tests.a" name="newer"><skipped type="pytest.skip" message="{refused.TOO_OLD}: onnx 1"/></testcase>
<testcase classname="tests.a" name="none"><skipped type="pytest.skip" message="needs paddle"/></testcase>
</testsuite></testsuites>
"""
OUTCOME = {
    "passed": 1,
    "refused": 2,
    "skipped": 1,
    "failed": 1,
    "reasons": {f"{refused.TOO_OLD}: onnx 1": 1, "torch before 2.13: so": 1},
    "failures": ["tests.a::bad"],
}


def test_outcomes_are_told_apart() -> None:
    assert suite.outcome(ElementTree.ElementTree(ElementTree.fromstring(REPORT))) == OUTCOME


def test_an_environment_has_one_row() -> None:
    older = dict.fromkeys(("Python", *suite.PACKAGES.values()), "1.0")
    newer = {**older, "PyTorch": "2.10.0"}
    results = suite.entered([], newer, OUTCOME)
    results = suite.entered(results, {**newer, "PyTorch": "2.9.0"}, OUTCOME)
    results = suite.entered(results, newer, {**OUTCOME, "passed": 1234})
    assert [(entry["versions"]["PyTorch"], entry["passed"]) for entry in results] == [("2.10.0", 1234), ("2.9.0", 1)]
    text = suite.page(results)
    assert "| 2.10.0 |" in text and "| 1,234 | 2 | 1 | 1 |" in text
    assert "- tests.a::bad: Python 1.0, PyTorch 2.10.0; Python 1.0, PyTorch 2.9.0" in text


def test_the_page_is_what_was_seen() -> None:
    assert suite.page(json.loads(suite.RESULTS.read_text())) in suite.PAGE.read_text()


@pytest.mark.parametrize("text", ["Unsupported model IR version: 13, max supported IR version: 10", "no kernel"])
def test_only_a_file_that_is_too_new_is_left_out(text: str) -> None:
    error = InvalidModel("does not load")
    error.__cause__ = RuntimeError(text)
    assert refused.is_too_new(error) == ("IR version" in text)


def test_every_refusal_names_a_test() -> None:
    folder = Path(suite.ROOT, "tests")
    sources = {path.name: path.read_text() for path in folder.rglob("test_*.py")}
    cases = "".join(path.read_text() for path in folder.rglob("*.py") if path.parent.name != "versions")
    for *_, name, _ in refused.REFUSED:
        file, _, test = name.partition("::")
        function, _, case = test.removesuffix("]").partition("[")
        assert f"def {function}(" in sources[file], name
        # pytest itself names values that have no name (dtype0), and joins names by hyphens
        assert case in cases or case.rpartition("-")[0] in cases or re.search(r"[a-z]\d", case), name


MODULES = {"paddlepaddle": "paddle", "onnx-ir": "onnx_ir"}


def test_what_is_installed_is_what_is_tested() -> None:
    text = Path(suite.ROOT, "pyproject.toml").read_text(encoding="utf-8")
    ranges = {MODULES.get(name, name): bounds for name, *bounds in re.findall(r'"([\w-]+)>=([\d.]+),<(\d+)"', text)}
    for module, (oldest, newest) in versions.TESTED.items():
        low, high = ranges[module]
        assert versions.release(low) == oldest, module
        assert newest < (int(high), 0), f"{module}: a newer one runs, with a line that says so"


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("2.8.0", []),
        ("2.15.3+cu132", []),
        ("2.16.0a0+git", ["[!] not tested with torch 2.16.0a0+git (tested: 2.8 to 2.15)"]),
        ("1.13", ["[!] not tested with torch 1.13 (tested: 2.8 to 2.15)"]),
    ],
)
def test_other_versions_get_one_line(version: str, line: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Torch:
        __version__ = version

    monkeypatch.setattr(versions.sys, "modules", {"torch": Torch})
    assert versions.untested() == line
