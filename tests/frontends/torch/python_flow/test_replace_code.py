"""Which functions are taken for what their source file says."""

from __future__ import annotations

import ast
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import tonnx
from tonnx.errors import CaptureError

SOURCE = '''
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        assert (
            x.dim() == 2
        ), "a matrix"
        names = [str(n) for n in range(2)]
        if x.sum() > 0:
            x = x * len(names)
        assert x.dtype == torch.float32
        return x
'''


class RewrittenAsserts(ast.NodeTransformer):
    """What import hooks do to asserts, to say more when they fail."""

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        made = ast.parse("hook_value = None\nif not hook_value:\n    raise AssertionError(repr(hook_value))").body
        made[0].value = node.test  # type: ignore[attr-defined]
        for statement in made:
            for inner in ast.walk(statement):
                if "lineno" in inner._attributes:
                    ast.copy_location(inner, node)
        return made


def load(path: Path, source: str, *, hooked: bool) -> Any:
    tree = ast.parse(source, str(path))
    module = types.ModuleType("net")
    exec(compile(RewrittenAsserts().visit(tree) if hooked else tree, str(path), "exec"), vars(module))
    return module.Net()


@pytest.mark.parametrize("hooked", [False, True])
def test_asserts_may_be_rewritten(hooked: bool, tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    result = tonnx.export(load(path, SOURCE, hooked=hooked), torch.ones(2, 3))
    assert "If" in [node.op_type for node in result.model.graph]
    assert result.verification is not None and result.verification.ok


@pytest.mark.parametrize("change", [("> 0", "< 0"), ("x * len", "x + len")])
def test_a_file_that_was_edited_is_not_believed(change: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(SOURCE.replace(*change))
    net = load(path, SOURCE, hooked=False)
    with pytest.raises(CaptureError, match="forward is not what its source file says"):
        tonnx.export(net, torch.ones(2, 3), capture="export")
