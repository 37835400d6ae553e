"""The examples run as their READMEs say, and come to what they promise."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

CASES = {
    "super_resolution/demo.py": ["bicubic", "network", "[✓] output"],
    "mobilenet_v3/walk.py": [
        "1. Pictures from the test set",
        "2. Paddle to ONNX",
        "3. Pre-processing",
        "4. Run it in ONNX Runtime",
        "5. Post-processing",
        "of 20 recognised",
        "6. Is it the same network?",
        "The difference of results between ONNXRuntime and Paddle looks good!",
        "max_abs_diff: ",
    ],
}


@pytest.mark.parametrize("script", CASES)
def test_example(script: str) -> None:
    framework = "torch" if "super_resolution" in script else "paddle"
    if find_spec(framework) is None:
        pytest.skip(f"needs {framework}")
    done = subprocess.run([sys.executable, EXAMPLES / script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for line in CASES[script]:
        assert line in done.stdout
