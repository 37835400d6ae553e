"""PyTorch's compiler is imported by an export only if somebody asks for it, and then it is whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXPORT = """
import sys, threading
import torch
import tonnx
from tonnx.frontends.torch import late_compiler

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.layer = torch.nn.BatchNorm2d(4), torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)

    def forward(self, x):
        y = self.layer(self.norm(x).flatten(2))
        return y[:, : x.shape[0]], y[:, -1]

net, x = Net().eval(), torch.randn(2, 4, 2, 4)

def export(**options):
    tonnx.export(net, (x,), verify=False, **options)
"""

CASES = {
    "an export does without": """
export()
export(dynamic_axes={"x": {0: "batch"}})
assert "torch._dynamo.eval_frame" not in sys.modules
""",
    "an export of fixed sizes does without more": """
export()
unused = ("torch._dynamo.utils", "torch.onnx", "numpy.random", "tonnx.frontends.torch.script.walk")
assert not [name for name in unused if name in sys.modules]
""",
    "the model asks what nobody has imported": """
import numpy as np

class Asks(torch.nn.Module):
    def forward(self, x):
        return x * float(np.random.rand()) if torch.onnx.is_in_onnx_export() else x.nonexistent

result = tonnx.export(Asks(), (x,), verify=False)
assert any("numpy.random" in note for note in result.notes), result.notes
assert "torch.onnx" in sys.modules and not torch.onnx.is_in_onnx_export()
assert [node.op_type for node in result.model.graph] == ["Mul"]
assert not [finder for finder in sys.meta_path if type(finder).__module__ == "tonnx.frontends.patching"]
""",
    "the model compiles while functions are replaced, and others afterwards": """
class Loops(torch.nn.Module):
    def forward(self, x):
        until, half = lambda i, y: i < 4, lambda i, y: (i + torch.tensor(1), y * 0.5)
        return torch._higher_order_ops.while_loop(until, half, (torch.tensor(0), x))[1]

tonnx.export(Loops(), (x,), capture="export", verify=False)
compiled = torch.compile(lambda x: x + torch.tensor(1.0), fullgraph=True, backend="eager")
assert torch.equal(compiled(x), x + 1)
""",
    "another thread asks for a name of the package": """
export()
seen = []
thread = threading.Thread(target=lambda: seen.append(torch._dynamo.optimize))
thread.start()
thread.join()
assert callable(seen[0]) and torch._dynamo.utils.counters is not None
""",
    "the model asks for it": """
class Asks(torch.nn.Module):
    def forward(self, x):
        return x + 1 if torch._dynamo.is_compiling() else x * torch._dynamo.disable(net)(x)[1].sum()

result = tonnx.export(Asks(), (x,), dynamic_axes={"x": {0: "batch"}}, verify=False)
assert "torch._dynamo.eval_frame" in sys.modules and not late_compiler._not_disabled
assert len(result.model.graph) < 60, len(result.model.graph)
""",
    "torch.export afterwards": """
export()
torch.export.export(net, (x,), strict=False)
""",
    "a part of it is imported": """
export()
from torch._dynamo.variables.builder import TrackedFake
assert torch._dynamo.variables is sys.modules["torch._dynamo.variables"]
assert torch._dynamo.variables.lazy is sys.modules["torch._dynamo.variables.lazy"]
assert torch._dynamo.variables.__spec__.origin.endswith("__init__.py")
""",
    "torch.compile afterwards": """
export()
assert late_compiler._not_disabled
torch.testing.assert_close(torch.compile(net, backend="eager")(x), net(x))
assert not late_compiler._not_disabled
export()
""",
}


@pytest.mark.parametrize("name", CASES)
def test_in_a_fresh_process(name: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", EXPORT + CASES[name]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
