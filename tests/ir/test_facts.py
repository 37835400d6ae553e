"""What is known of values has one place: `tonnx.ir.facts`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import onnx_ir as ir
import pytest

import tonnx
from tonnx.ir import facts

PACKAGE = Path(tonnx.__file__).parent
NAMED = {name: fact for name, fact in vars(facts).items() if isinstance(fact, (facts.Fact, facts.Flag))}
KEYS = {fact.key for fact in NAMED.values()}
FX = ("val", "nn_module_stack", "stack_trace")
"""What nodes of torch.fx, which have a ``meta`` too, are asked for."""


def misplaced(name: str, text: str) -> Iterator[str]:
    """Keys of facts, and uses of ``meta`` that are not torch.fx's."""
    tree = ast.parse(text)
    in_torch = name.startswith("frontends/torch/")
    of_fx = {id(node) for node in ast.walk(tree) if in_torch and _asks_fx(node) for node in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in KEYS:
            yield f"{name}:{node.lineno} has the key {node.value!r}"
        elif isinstance(node, ast.Attribute) and node.attr == "meta" and id(node) not in of_fx:
            yield f"{name}:{node.lineno} looks into meta"


def _asks_fx(node: ast.AST) -> bool:
    """``node.meta["val"]``, ``node.meta.get("val")``, ``"stack_trace" in node.meta``."""
    match node:
        case ast.Subscript(ast.Attribute(attr="meta"), ast.Constant(str(key))):
            return key in FX
        case ast.Call(ast.Attribute(ast.Attribute(attr="meta"), attr="get"), [ast.Constant(str(key)), *_]):
            return key in FX
        case ast.Compare(ast.Constant(str(key)), [ast.In() | ast.NotIn()], [ast.Attribute(attr="meta")]):
            return key in FX
    return False


def test_nobody_else_looks_into_meta() -> None:
    files = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    assert len(files) > 300
    del files["ir/facts.py"]
    assert [line for name, path in files.items() for line in misplaced(name, path.read_text())] == []


@pytest.mark.parametrize(
    "text",
    [
        'value.meta["tonnx.weight"] = True',
        "value.meta.get(KEY)",
        "KEY in value.meta",
        'held = {"tonnx.dim": 1}',
    ],
)
def test_what_is_misplaced_is_seen(text: str) -> None:
    assert list(misplaced("passes/new.py", text)) and list(misplaced("frontends/torch/new.py", text))


def test_nodes_of_torch_fx_are_not_meant() -> None:
    text = 'node.meta["val"]'
    assert list(misplaced("passes/new.py", text)) and not list(misplaced("frontends/torch/new.py", text))


def test_keys_are_told_apart_and_explained() -> None:
    assert len(KEYS) == len(NAMED) > 10
    lines = (PACKAGE / "ir/facts.py").read_text().splitlines()
    for name in NAMED:
        place = next(i for i, line in enumerate(lines) if line.startswith((f"{name}:", f"{name} =")))
        assert lines[place + 1].startswith('"""'), f"{name} does not say who writes and who reads it"


def test_a_fact_is_a_mapping_and_a_flag_a_set() -> None:
    one, other = ir.Value(name="one"), ir.Value(name="other")
    facts.DIM[one] = "batch"
    facts.WEIGHT.add(one)
    assert facts.DIM[one] == "batch" and one in facts.DIM and one in facts.WEIGHT
    assert facts.DIM.get(other) is None and other not in facts.WEIGHT
    facts.copy(one, other)
    assert facts.DIM.setdefault(other, "n") == "batch" and other in facts.WEIGHT
    facts.DIM.discard(one)
    assert one not in facts.DIM
