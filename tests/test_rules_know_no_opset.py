"""Operators are lowered once, to the newest opset; what another opset wants is the legaliser's business alone."""

from __future__ import annotations

import ast
from pathlib import Path

import tonnx

PACKAGE = Path(tonnx.__file__).parent
SOURCES = sorted(path for part in ("frontends", "lowering") for path in (PACKAGE / part).rglob("*.py"))
DECLARED = 0
"""Lowerings with ``when=``, which hold for some opsets only: each needs a reason, and there are none."""


def names_in(node: ast.AST) -> set[str]:
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return found | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def test_no_rule_asks_for_the_opset() -> None:
    assert len(SOURCES) > 30
    found = []
    declared = 0
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            tests: list[ast.AST] = []
            if isinstance(node, ast.Compare):
                tests = [node]
            elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
                tests = [node.test]
            elif isinstance(node, ast.Match):
                tests = [node.subject]
            elif isinstance(node, ast.keyword) and node.arg == "when":
                declared += 1
            for test in tests:
                if any("opset" in name.lower() for name in names_in(test)):
                    found.append(f"{path.relative_to(PACKAGE)}:{test.lineno}")  # type: ignore[attr-defined]
    assert not found
    assert declared == DECLARED
