"""Which generator functions may be written as functions that fill a list."""

from __future__ import annotations

import ast

import pytest

from tonnx.frontends.torch.capture.python_flow.generators import gives_a_list

LOOP = "for i in range(n):\n  "
CASES = [
    (f"{LOOP}yield i", True),
    (f"{LOOP}if i: yield i\n  else: yield -i\nprint(n)", True),
    (f"{LOOP}for j in i: yield j", True),
    (f"{LOOP}yield i\nyield n", False),  # no loop that a size decides
    ("while True: yield n", False),  # has no end
    (f"{LOOP}while i: yield n", False),
    (f"{LOOP}a = yield i", False),  # something comes back
    (f"{LOOP}yield from i", False),
    (f"{LOOP}with i: yield i", False),  # closed when the caller is done
    (f"try:\n  for i in n: yield i\nfinally: pass\n{LOOP}yield i", False),
    (f"if n: return\n{LOOP}yield i", False),
]


@pytest.mark.parametrize(("body", "expected"), CASES)
@pytest.mark.parametrize("decorator", ["", "@contextmanager\n"])
def test_what_gives_a_list(body: str, expected: bool, decorator: str) -> None:
    source = "\n".join("  " + line for line in body.splitlines())
    (function,) = ast.parse(f"{decorator}def f(n):\n{source}").body
    assert isinstance(function, ast.FunctionDef)
    assert gives_a_list(function) == (expected and not decorator)
