"""What depends on the version of PyTorch: private names, schemas that change, calls that meant something else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch.fx.immutable_collections import immutable_list

import tonnx
from tonnx.errors import MissingDependency, UnsupportedArgument
from tonnx.frontends.torch import versions
from tonnx.frontends.torch.operators.bind import bind
from tonnx.ir.build import Builder, Names
from tonnx.ir.target import CANON
from tonnx.lowering.rules import rule_of

SOURCES = Path(tonnx.__file__).parent


def test_private_names_exist() -> None:
    assert not (lost := versions.missing()), f"PyTorch {torch.__version__} no longer has {', '.join(lost)}"


def test_a_lost_name_says_what_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PRIVATE", {"torch._no_such.thing": "recurrent layers", "torch._VF": "others"})
    assert versions.missing() == ["torch._no_such.thing (recurrent layers)"]


def private_names(tree: ast.AST) -> Iterator[str]:
    """Names below torch that PyTorch does not promise: with an underscore, or under torch.fx.experimental."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("torch.")]
        elif isinstance(node, ast.Attribute) and (text := _dotted(node)).startswith("torch."):
            names = [text]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"torch(\.\w+)+", str(node.value)):
            names = [str(node.value)]  # the owner of a patch
        for name in names:
            parts = name.split(".")
            private = [i for i, part in enumerate(parts) if part.startswith("_") and not part.startswith("__")]
            if private or name.startswith("torch.fx.experimental."):
                yield name


def _dotted(node: ast.expr) -> str:
    """``torch.nn.Module``; of what does not begin with a plain name, something that is no name."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def test_every_private_name_is_listed() -> None:
    listed = tuple(versions.PRIVATE)
    for path in SOURCES.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path == Path(versions.__file__) or "torch" not in text:
            continue
        for name in private_names(ast.parse(text)):
            is_listed = any(name == entry or name.startswith(f"{entry}.") for entry in listed)
            is_part = any(entry.startswith(f"{name}.") for entry in listed)
            assert is_listed or is_part, f"{path.relative_to(SOURCES)} uses {name}: enter it in PRIVATE, with what for"


def test_every_listed_name_is_used() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py") if path != Path(versions.__file__)]
    texts.append(Path(versions.__file__).read_text(encoding="utf-8").partition("PRIVATE =")[0])
    unused = [name for name in versions.PRIVATE if not any(name.rpartition(".")[2] in text for text in texts)]
    assert not unused


# A schema of another version


def operator(schema: str) -> Any:
    """What stands in a graph for an operator with this schema."""
    attributes = {"_schema": torch._C.parse_schema(schema), "__str__": lambda self: "aten.relu6.default"}
    return type("Overload", (), attributes)()


def builder() -> Builder:
    return Builder(ir.Graph([], [], nodes=[], opset_imports={"": CANON}), names=Names())


def bound(schema: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    def relu6(op: Builder, x: Any, slope: float = 0.5) -> Any: ...

    return bind(operator(schema), rule_of(relu6), args, kwargs, builder(), lambda value: value)


TENSOR = object()
NEWER = "aten::relu6(Tensor self, *, float slope=0.5, int[] dims=[1, 2], bool exact=False, str? mode=None) -> Tensor"


def test_an_argument_that_a_newer_schema_has_is_refused_only_where_it_is_used() -> None:
    assert bound(NEWER, TENSOR) == {"x": TENSOR, "slope": 0.5}
    assert bound(NEWER, TENSOR, slope=0.25) == {"x": TENSOR, "slope": 0.25}
    told = {"exact": False, "mode": None, "dims": immutable_list([1, 2])}
    assert bound(NEWER, TENSOR, **told) == {"x": TENSOR, "slope": 0.5}


@pytest.mark.parametrize("used", [{"exact": True}, {"mode": "fast"}, {"dims": [1, 3]}, {"exact": 0}], ids=str)
def test_an_argument_that_is_used_is_refused_by_its_name(used: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedArgument, match=f"the argument {next(iter(used))}="):
        bound(NEWER, TENSOR, **used)


def test_an_argument_that_got_lost_is_told() -> None:
    def pair(op: Builder, x: Any, other: Any) -> Any: ...

    shorter = operator("aten::relu6(Tensor self) -> Tensor")
    with pytest.raises(UnsupportedArgument, match="has no argument other in PyTorch"):
        bind(shorter, rule_of(pair), (1,), {}, builder(), lambda value: value)


# Calls and names of older versions


@pytest.mark.parametrize(("version", "end"), [((2, 13), 5), ((2, 14), 5.5)])
def test_arange_counted_whole_numbers_before(
    version: tuple[int, int], end: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "VERSION", version)
    arguments = {"end": 5.5, "dtype": ir.DataType.INT64}
    assert versions.adapted("aten::arange", builder(), arguments)["end"] == end
    assert versions.adapted("aten::arange", builder(), {**arguments, "dtype": None})["end"] == 5.5


def test_modules_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "VERSION", (2, 8))
    assert versions.module_name("_globals") == "torch.onnx._globals"


def test_sizes_of_the_example() -> None:
    assert versions.example_sizes(SimpleNamespace(var_to_val={"s0": 2})) == {"s0": 2}
    assert versions.example_sizes(SimpleNamespace(backed_var_to_val={"s0": 3}, var_to_val={})) == {"s0": 3}


def test_a_version_that_cannot_be_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tonnx.frontends.torch.convert", None)
    with pytest.raises(MissingDependency, match="does not work with this torch") as caught:
        tonnx.export(torch.nn.ReLU(), (torch.ones(1),))
    assert "tested with torch 2.8 to 2.15" in str(caught.value)
