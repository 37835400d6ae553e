"""Models of 30 GB: what does not compute with their weights neither reads them nor holds them in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LAYERS, WIDTH = 112, 8192
STEPS = ("retarget", "report", "verify", "paddle", "safetensors")
SCRIPT = '''
import json, sys
from pathlib import Path
import tonnx
from tests import stacks

def tell(step):
    with open("/proc/self/io") as io:
        read = next(int(line.split()[1]) for line in io if line.startswith("rchar"))
    with open("/proc/self/status") as status:  # getrusage's figure is inherited from the process that started this one
        peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    print(json.dumps({"step": step, "peak": peak, "read": read}), flush=True)

folder, layers, width = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
tell("start")
path = stacks.onnx_stack(folder / "m.onnx", layers, width, kind="Gather")
tonnx.retarget(path, 13, folder / "o.onnx", weights="reference", verify=False)
tell("retarget")
tonnx.report(path)
tell("report")
assert tonnx.verify(folder / "o.onnx", path).ok
tell("verify")
program = stacks.paddle_stack(folder, layers, width)
tonnx.export(program, f=folder / "p.onnx", weights="reference", verify=False)
tell("paddle")
import torch
import safetensors.torch
shards = [stacks.safetensors_stack(folder / f"{i}.safetensors", layers // 7, width, i * layers // 7) for i in range(7)]
with torch.device("meta"):
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers))).eval()
state = {name: weight for shard in shards for name, weight in safetensors.torch.load_file(shard).items()}
model.load_state_dict(state, assign=True)
tonnx.export(model, torch.zeros(1, width), folder / "t.onnx", weights="reference", verify=False)
tell("safetensors")
assert sum(f.stat().st_blocks for f in folder.iterdir()) * 512 < 16e6  # holes are still holes
'''


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """What a process says of itself after each step."""
    pytest.importorskip("safetensors")
    if not Path("/proc/self/io").exists():
        pytest.skip("holes in files, and /proc")
    folder = tmp_path_factory.mktemp("big")
    command = [sys.executable, "-c", SCRIPT, str(folder), str(LAYERS), str(WIDTH)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-2000:]
    return {step.pop("step"): step for step in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("step", STEPS)
def test_thirty_gigabytes(step: str, told: dict[str, dict[str, int]]) -> None:
    before = told[("start", *STEPS)[STEPS.index(step)]]
    assert told[step]["peak"] < 1e9
    assert told[step]["read"] - before["read"] < 200e6  # mostly Python's own files
