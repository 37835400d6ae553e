"""Which names a loop or branch hands on: by hand for the forms that there are, for random bodies by running them."""

from __future__ import annotations

import ast
import itertools
import random
from dataclasses import fields
from typing import Any

import pytest

from tonnx.frontends.torch.capture.python_flow import scope_analysis
from tonnx.frontends.torch.capture.python_flow.scope_analysis import Names, analyse, analyse_branch, first_use, stored

# A function with one loop, and what is expected of it; what is not named is expected to be empty.
LOOPS: dict[str, tuple[str, dict[str, str]]] = {
    "assigned and read after": (
        """
        for i in x:
            y = i
        return y
        """,
        {"assigned": "i y", "bound": "i y", "kept": "y"},
    ),
    "assigned, and nobody reads it": (
        """
        for i in x:
            y = i
        return x
        """,
        {"assigned": "i y", "bound": "i y"},
    ),
    "read before it is assigned": (
        """
        for i in x:
            z = y + i
            y = z
        return x
        """,
        {"assigned": "i y z", "bound": "i y z", "carried": "y", "kept": "y"},
    ),
    "assigned on one side only": (
        """
        for i in x:
            if i > 0:
                y = i
        return y
        """,
        {"assigned": "i y", "bound": "i y", "carried": "y", "kept": "y"},
    ),
    "assigned on both sides": (
        """
        for i in x:
            if i > 0:
                y = i
            else:
                y = -i
            z = y
        return x
        """,
        {"assigned": "i y z", "bound": "i y z"},
    ),
    "changed in place": (
        """
        for i in x:
            y += i
            z[i] = i
        return y
        """,
        {"assigned": "i y z", "bound": "i y", "carried": "y z", "kept": "y z", "inplace": "y z"},
    ),
    "bound anew and changed in place": (
        """
        for i in x:
            y += i
            y = y * 2
        return y
        """,
        {"assigned": "i y", "bound": "i y", "carried": "y", "kept": "y"},
    ),
    "a list that grows": (
        """
        for i in x:
            rows.append(i)
            others += [i]
        return rows
        """,
        {"assigned": "i", "bound": "i", "grown": "others rows"},
    ),
    "a list that grows and is read": (
        """
        for i in x:
            rows.append(i)
            n = len(rows)
        return rows
        """,
        {"assigned": "i n", "bound": "i n", "grown": "rows", "read": "rows"},
    ),
    "a list of the pass itself": (
        """
        for i in x:
            rows = []
            rows.append(i)
        return x
        """,
        {"assigned": "i rows", "bound": "i rows"},
    ),
    "a target of several names": (
        """
        for i, (a, *b) in x:
            y = a
        return b
        """,
        {"assigned": "a b i y", "bound": "a b i y", "kept": "b"},
    ),
    "while": (
        """
        while y < 3:
            y = y + 1
        return x
        """,
        {"assigned": "y", "bound": "y", "carried": "y", "kept": "y"},
    ),
    "while, a name in the test": (
        """
        while (n := n - 1) > 0:
            x = x + n
        return x
        """,
        {"assigned": "n x", "bound": "n x", "carried": "n x", "kept": "n x"},
    ),
    "a loop inside may run no pass": (
        """
        for i in x:
            for j in i:
                y = j
            z = y
        return x
        """,
        {"assigned": "i j y z", "bound": "i j y z", "carried": "j y", "kept": "j y"},
    ),
    "with": (
        """
        for i in x:
            with a as y:
                z = y
        return z
        """,
        {"assigned": "i y z", "bound": "i y z", "kept": "z"},
    ),
    "a comprehension has names of its own": (
        """
        for i in x:
            y = [k for k in i]
        return k
        """,
        {"assigned": "i y", "bound": "i y"},
    ),
    "an import, a function, a class": (
        """
        for i in x:
            import a.b
            from c import d as e
            def f(): pass
            class g: pass
        return e
        """,
        {"assigned": "a e f g i", "bound": "a e f g i", "kept": "e"},
    ),
    "a declaration assigns nothing": (
        """
        for i in x:
            y: int
            z = y
        return x
        """,
        {"assigned": "i y z", "bound": "i y z", "carried": "y", "kept": "y"},
    ),
    "what an outer function sees": (
        """
        nonlocal y
        for i in x:
            y = i
        """,
        {"assigned": "i y", "bound": "i y", "kept": "y"},
    ),
}


def function_of(body: str) -> ast.FunctionDef:
    lines = body.strip("\n").splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    source = "def function(x):\n" + "\n".join("    " + line[margin:] for line in lines)
    made = ast.parse(source).body[0]
    assert isinstance(made, ast.FunctionDef)
    return made


def only(function: ast.FunctionDef, kind: Any) -> Any:
    return next(node for node in ast.walk(function) if isinstance(node, kind))


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    body, wanted = LOOPS[name]
    function = function_of(body)
    names = analyse(only(function, (ast.For, ast.While)), function)
    told = {f.name: " ".join(sorted(getattr(names, f.name))) for f in fields(Names) if getattr(names, f.name)}
    assert told == wanted


# A function with a branch (its first), and the names that it hands on
BRANCHES: dict[str, tuple[str, str]] = {
    "read after": ("if x:\n    y = 1\nelse:\n    z = 2\nreturn y", "y"),
    "read before only": ("y = 0\nw = y\nif x:\n    y = 1\nreturn x", ""),
    "read by nobody": ("y = 0\nif x:\n    y = 1\nreturn x", ""),
    "read on its own side only": ("if x:\n    y = 1\n    z = y\nreturn z", "z"),
    "in a loop, read by the next pass": ("for i in x:\n    if i:\n        z = y\n        y = 1\n", "y"),
    "in a loop, set before it is read": ("for i in x:\n    if i:\n        y = 1\n        z = y\n", ""),
    "elif": ("if x:\n    y = 1\nelif z:\n    y = 2\n    w = 3\nreturn y", "y"),
    "only read on the other side of the branch around": (
        "if x:\n    if z:\n        y = 1\n    return x\nelse:\n    return y", ""),
    "read after the branch around": ("if x:\n    if z:\n        y = 1\nelse:\n    y = 2\nreturn y", "y"),
    "changed in place": ("if x:\n    y += 1\nreturn y", "y"),
    "nonlocal": ("nonlocal y\nif x:\n    y = 1", "y"),
}  # fmt: skip


@pytest.mark.parametrize("name", BRANCHES)
def test_branches(name: str) -> None:
    body, wanted = BRANCHES[name]
    function = function_of(body)
    branches = [node for node in ast.walk(function) if isinstance(node, ast.If)]
    inner = [node for node in branches if not any(isinstance(n, ast.If) for part in node.body for n in ast.walk(part))]
    branch = inner[0] if "around" in name else branches[0]
    assert " ".join(sorted(analyse_branch(branch, function))) == wanted


def test_stored() -> None:
    source = "try:\n    a, b[0], c.d = e\nexcept F as g:\n    del h\n    k += [l for m in (n := o)]"
    statement = ast.parse(source).body[0]
    assert sorted(stored(statement)) == ["a", "g", "h", "k", "n"]
    assert sorted(stored(statement, augmented=False)) == ["a", "g", "h", "n"]


# Random bodies: what the analysis says of a name, and what every way through the body does to it


class Body:
    """A random body. Each branch asks a flag of its own, each inner loop a number of passes of its own."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.flags: list[str] = []
        self.text = "\n".join(self._block(3, 0))

    def _block(self, count: int, depth: int) -> list[str]:
        return [line for _ in range(self._random.randint(1, count)) for line in self._statement(depth)]

    def _statement(self, depth: int) -> list[str]:
        rng = self._random
        kind = rng.choice(["assign", "assign", "assign", "augmented", "if", "if else", "for", "subscript"])
        name, other = rng.choice("abc"), rng.choice("abc1")
        if kind == "augmented":
            return [f"{name} += {other}"]
        if kind == "subscript":
            return [f"print({name})"]
        if kind == "assign" or depth == 2:
            return [f"{name} = {other}"]
        flag = f"flag{len(self.flags)}"
        self.flags.append(flag)
        head = f"for _ in range({flag}):" if kind == "for" else f"if {flag}:"
        lines = [head, *("    " + line for line in self._block(2, depth + 1))]
        if kind == "if else":
            lines += ["else:", *("    " + line for line in self._block(2, depth + 1))]
        return lines


class Watched(dict):
    """The variables of a run; notes which were read before they were assigned."""

    def __init__(self, **given: Any) -> None:
        super().__init__(given)
        self.assigned: set[str] = set()
        self.early: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        if name in ("a", "b", "c") and name not in self.assigned:
            self.early.add(name)
            return 1
        return super().__getitem__(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.assigned.add(name)
        super().__setitem__(name, value)


def by_running(body: Body) -> dict[str, str | None]:
    """For every name: "read" if some way reads it first, "assigned" if every way assigns it first, else None."""
    code = compile(body.text, "body", "exec")
    runs = []
    for choice in itertools.product((0, 1), repeat=len(body.flags)):
        watched = Watched(**dict(zip(body.flags, choice, strict=True)), print=lambda value: None, range=range)
        exec(code, {}, watched)
        runs.append(watched)
    return {
        name: "read" if any(name in run.early for run in runs)
        else "assigned" if all(name in run.assigned for run in runs) else None
        for name in "abc"
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_first_use_of_random_bodies(seed: int) -> None:
    body = Body(seed)
    if len(body.flags) > 8:
        pytest.skip("too many ways")
    told = {name: first_use(ast.parse(body.text).body, name) for name in "abc"}
    assert told == by_running(body), body.text


def test_the_random_bodies_are_of_all_kinds() -> None:
    uses = [by_running(body)[name] for seed in range(60) if len((body := Body(seed)).flags) <= 8 for name in "abc"]
    assert {use: uses.count(use) > 10 for use in uses} == {"read": True, "assigned": True, None: True}


READ_AFTERWARDS = [
    ("y = x\nif y.any():\n    y = None", set()),
    ("y = x\nwith y as z:\n    if z:\n        y = None\n    print(z)\nprint(z)", set()),
    ("y = x\nif y:\n    if z:\n        y = None\nelse:\n    print(y)", set()),
    ("y = x\nif y.any():\n    y = None\nprint(y)", {"y"}),
    ("y = x\nf = lambda: y\nif x:\n    y = None\nf()", {"y"}),
    ("y = x\ng = (i + y for i in x)\nif x:\n    y = None\nlist(g)", {"y"}),
    ("y = x\ntry:\n    if x:\n        y = None\nfinally:\n    print(y)", {"y"}),
    ("y = x\nfor i in x:\n    print(y)\n    if i:\n        y = None", {"y"}),
]


@pytest.mark.parametrize(("text", "names"), READ_AFTERWARDS)
def test_what_a_branch_leaves_is_read_only_afterwards(text: str, names: set[str]) -> None:
    function = function_of(text)
    branch = [node for node in ast.walk(function) if isinstance(node, ast.If)][-1]
    assert analyse_branch(branch, function) == names


def test_the_keywords_of_the_runtime() -> None:
    function = function_of("for i in x:\n    y = i\nreturn y")
    text = analyse(only(function, ast.For), function).literal()
    call: Any = ast.parse(f"f({text})", mode="eval").body
    assert [keyword.arg for keyword in call.keywords] == ["assigned", "carried", "kept", "inplace", "grown", "read"]
    assert ast.literal_eval(call.keywords[0].value) == ("i", "y")
    assert scope_analysis.STOP.isidentifier()
