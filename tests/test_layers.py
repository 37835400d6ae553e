"""Imports point one way: from the command line down to the graph. Function-level imports count like any other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

LEVELS = (
    ("tonnx.errors", "tonnx.late_modules", "tonnx.stages", "tonnx.versions"),
    ("tonnx.toml",),
    ("tonnx.targets",),  # data, and how it is read
    ("tonnx.ir",),
    ("tonnx.io",),
    ("tonnx.lowering", "tonnx.passes", "tonnx.legalise", "tonnx.quant"),
    ("tonnx.proof",),
    ("tonnx.quant.training",),  # PyTorch's side of quantisation: compares files with models, and knows no front end
    ("tonnx.frontends",),  # what front ends share: the request, what they hand over, dynamic axes
    ("tonnx.frontends.torch", "tonnx.frontends.paddle"),
    ("tonnx.frontends.named",),  # the user's model by a name, of either framework
    ("tonnx.run",),  # files in use: they need no front end, and an export may put a recipe into one
    ("tonnx.benching",),
    ("tonnx.comparing",),  # two files side by side
    ("tonnx.reporting",),  # with timings, and asked for by an export
    ("tonnx.api",),
    ("tonnx.packages",),  # several exports, and what belongs beside them
    ("tonnx.zoo",),  # jobs in processes: what they run they know by its command line
    ("tonnx.paddle", "tonnx.linger", "tonnx.ray", "tonnx.snapshots"),  # drop-ins; Ray Data; what pytest compares
    ("tonnx.cli", "tonnx.pytest_plugin"),
    ("tonnx", "tonnx.__main__"),
)
"""A room may import itself and the rooms above it in this list, but none that stands beside it or below."""

ONLY_FOR_TYPES = {
    "tonnx": "public names are imported when they are first used",
    "tonnx.errors": "a failed proof carries what was tried",
    "tonnx.quant": "public names are imported when they are first used",
}
"""Modules whose imports under TYPE_CHECKING do not count, and why."""

WITHOUT_FRAMEWORK = ("errors", "stages", "toml", "ir", "io", "lowering", "passes", "legalise", "quant", "proof")
WITH_FRAMEWORK = ("tonnx.quant.training",)
"""Rooms inside of those that are for one framework."""
FRAMEWORKS = ("torch", "torchvision", "paddle")

INSIDE_TORCH = tuple(
    tuple(f"tonnx.frontends.torch.{name}" for name in names)
    for names in (("call", "operators"), ("reference",), ("capture",), ("fx", "script"))
)
"""The same for the rooms of one front end: what is captured is known by the walks, and not the other way round."""

APART = (("tonnx.frontends.torch.fx", "tonnx.frontends.torch.script"),)
"""Front ends inside of one that do not know each other."""


@cache
def modules() -> dict[str, str]:
    """The text of every module by its name."""
    texts = {}
    for file in sorted((SOURCE / "tonnx").rglob("*.py")):
        name = ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        texts[name] = file.read_text()
    return texts


def imports(module: str, text: str) -> Iterator[tuple[str, int]]:
    """The modules that one imports, and the lines."""
    tree = ast.parse(text)
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if module in ONLY_FOR_TYPES and isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((name if name in modules() else str(node.module), node.lineno) for name in names)


def inside(module: str, room: str) -> bool:
    return module == room or (room != "tonnx" and module.startswith(f"{room}."))


def room_of(module: str) -> str:
    """The room with the longest name that a module is in."""
    return max((room for level in LEVELS for room in level if inside(module, room)), key=len)


def may_import(room: str, other: str) -> bool:
    level = {name: place for place, names in enumerate(LEVELS) for name in names}
    return room == other or level[other] < level[room]


def test_every_module_has_a_room() -> None:
    assert all(any(inside(module, room) for level in LEVELS for room in level) for module in modules())


@pytest.mark.parametrize("room", [room for level in LEVELS for room in level])
def test_layers_point_one_way(room: str) -> None:
    wrong = [
        f"{module}:{line} imports {imported}"
        for module, text in modules().items()
        if room_of(module) == room
        for imported, line in imports(module, text)
        if imported.startswith("tonnx.") and not may_import(room, room_of(imported))
    ]
    assert not wrong


@pytest.mark.parametrize("place", range(len(INSIDE_TORCH)))
def test_rooms_of_a_front_end_point_one_way(place: int) -> None:
    above = [room for rooms in INSIDE_TORCH[place + 1 :] for room in rooms]
    for room in INSIDE_TORCH[place]:
        beside = [other for other in INSIDE_TORCH[place] if other != room]
        wrong = [
            f"{module}:{line} imports {imported}"
            for module, text in modules().items()
            if inside(module, room)
            for imported, line in imports(module, text)
            if any(inside(imported, other) for other in (*above, *beside))
        ]
        assert not wrong


@pytest.mark.parametrize("room", WITHOUT_FRAMEWORK)
def test_no_framework_below_the_front_ends(room: str) -> None:
    wrong = [
        f"{module}:{line} imports {imported}"
        for module, text in modules().items()
        if inside(module, f"tonnx.{room}") and room_of(module) not in WITH_FRAMEWORK
        for imported, line in imports(module, text)
        if imported.partition(".")[0] in FRAMEWORKS
    ]
    assert not wrong


@pytest.mark.parametrize(("one", "other"), [*APART, *(pair[::-1] for pair in APART)])
def test_front_ends_stay_apart(one: str, other: str) -> None:
    wrong = [
        f"{module}:{line} imports {imported}"
        for module, text in modules().items()
        if inside(module, one)
        for imported, line in imports(module, text)
        if inside(imported, other)
    ]
    assert not wrong


def test_every_kind_of_import_is_seen() -> None:
    text = """
import torch.fx
from tonnx.ir import build
from tonnx.cli.specs import names
if TYPE_CHECKING:
    from tonnx.api.result import ExportResult
def late():
    from tonnx import cli
"""
    seen = ["torch.fx", "tonnx.ir.build", "tonnx.cli.specs", "tonnx.api.result", "tonnx.cli"]
    assert [name for name, _ in sorted(imports("tonnx.ir.fold", text), key=lambda found: found[1])] == seen
    assert "tonnx.api.result" not in dict(imports("tonnx.errors", text))
    assert not may_import("tonnx.ir", "tonnx.cli") and not may_import("tonnx.passes", "tonnx.legalise")
    assert may_import("tonnx.cli", "tonnx.ir") and room_of("tonnx.frontends.named") == "tonnx.frontends.named"
