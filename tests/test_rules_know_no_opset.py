"""Operators are lowered once, to the newest opset; what another opset wants is the legaliser's business alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tonnx

PACKAGE = Path(tonnx.__file__).parent
SOURCES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}

READS_THE_OPSET = {
    "errors.py": "says which opset would do",
    "ir/target.py": "refuses what tonnx does not write",
    "ir/schema.py": "of an operator's schemas, the one in force",
    "ir/build.py": "may be told to write at another opset than the graph's",
    "io/read.py": "onnx infers no types of old files, and a file may leave its opset out",
    "api/calibrated.py": "refuses 16 bits where ONNX has none",
    "api/halved.py": "refuses a half precision that ONNX does not have yet",
    "api/optimise.py": "refuses what is newer than tonnx",
    "api/quantize.py": "takes that of the original where none is given",
    "api/retarget.py": "brings functions of a file to the opset of the file",
    "cli/retarget.py": "asks for an opset or a target",
    "packages/export.py": "takes the first with 4 bits, or with Attention, where none is given",
    "passes/moves.py": "files of others have a Reshape or Slice that takes attributes",
    "passes/kernels.py": "which kernels ONNX Runtime has for a dtype depends on it",
    "passes/attention_masks.py": "where every runtime gives numbers for queries without keys",
    "passes/contrib.py": "ONNX's own operators are the faster ones where there are some",
    "proof/judge.py": "onnx's reference evaluator may be too old for a file",
    "proof/session.py": "onnx's checker may be too old for a file",
    "proof/upward.py": "a file below opset 7 is brought up to be run",
    "pytest_plugin.py": "takes the default where none is given",
    "run/embed.py": "the recipe's steps alone are run at opset 7 at least",
    "zoo/manifest.py": "an opset is part of a job's name",
}
"""Outside of the legaliser: who compares opsets, and why. Nobody lowers anything differently by it."""


def opset_tests(text: str) -> list[int]:
    """The lines of comparisons and conditions that have an opset in them."""
    lines: list[int] = []
    for node in ast.walk(ast.parse(text)) if "opset" in text.lower() else ():
        tests: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            tests = [node]
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
            tests = [node.test]
        elif isinstance(node, ast.Match):
            tests = [node.subject]
        lines += [test.lineno for test in tests if any("opset" in name.lower() for name in _names_in(test))]
    return lines


def _names_in(node: ast.AST) -> Iterator[str]:
    """What is compared: not what a function is told, which may well ask onnx for a schema."""
    if isinstance(node, ast.Name):
        yield node.id
    if isinstance(node, ast.Attribute):
        yield node.attr
    for child in [node.func] if isinstance(node, ast.Call) else ast.iter_child_nodes(node):
        yield from _names_in(child)


def test_nobody_else_asks_for_the_opset() -> None:
    assert len(SOURCES) > 300
    tests = {name: opset_tests(path.read_text()) for name, path in SOURCES.items() if not name.startswith("legalise/")}
    assert {name: lines for name, lines in tests.items() if lines and name not in READS_THE_OPSET} == {}
    assert [name for name in READS_THE_OPSET if not tests[name]] == [], "nothing is compared there any more"


def test_comparisons_and_conditions_are_seen() -> None:
    text = "a = 1 if op.opset else 2\nif op.opset >= 13:\n    pass\nb = {'x': opset < 7}\nc = f(opset)\n"
    assert sorted(set(opset_tests(text))) == [1, 2, 4]
    assert opset_tests('d = 1 if attribute_type("Cast", "to", opset) else 2') == []


def test_no_lowering_holds_for_some_opsets_only() -> None:
    declared = [
        f"{name}:{node.value.lineno}"
        for name, path in SOURCES.items()
        if name.startswith(("frontends/", "lowering/")) and "when" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.keyword) and node.arg == "when"
    ]
    assert declared == []
