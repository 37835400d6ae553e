"""The GitHub Action and the pre-commit hook do what their files say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tonnx.cli import main
from tonnx.zoo.summary import summary

ROOT = Path(__file__).resolve().parents[2]
yaml = pytest.importorskip("yaml")


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.skipif(shutil.which("bash") is None or os.name == "nt", reason="the action's step is of bash")
@pytest.mark.parametrize(("against", "code"), [("", 1), ("out", 0)])
def test_the_step_of_the_action(against: str, code: int, zoo: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(zoo, tmp_path / "zoo"))
    (tmp_path / "bin").mkdir()
    for name, module in (("tonnx", "-m tonnx"), ("python", "")):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    step = next(step for step in read("action.yml")["runs"]["steps"] if step.get("id") == "zoo")
    files = {name: str(tmp_path / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    inputs = {"MANIFEST": "models.toml", "OUTPUT": "out", "AGAINST": against, "JOBS": "1", "ARGUMENTS": "--only '*_*'"}
    assert set(step["env"]) == set(inputs)
    environment = {**os.environ, **files, **inputs, "RUNNER_TEMP": str(tmp_path)}
    environment["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    call = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == code, done.stderr
    outputs = dict(line.split("=", 1) for line in (tmp_path / "GITHUB_OUTPUT").read_text("utf-8").splitlines())
    assert outputs["page"] == "out/index.html" and json.loads(outputs["result"])["unchanged"] == 4
    told = (tmp_path / "GITHUB_STEP_SUMMARY").read_text("utf-8")
    assert "2 of 4 ok" in told and "| aborts | 17 | crashed: it ended by the signal SIGABRT |" in told


def test_a_summary_of_an_error() -> None:
    error = {"what": "no such key", "where": "models.toml:3", "why": None, "hint": "opset?"}
    assert summary({"error": error}, ".") == "**no such key**\n\nmodels.toml:3\n\nopset?\n"


def test_what_examples_name_is_there(tmp_path: Path) -> None:
    hook = next(hook for hook in read(".pre-commit-hooks.yaml") if hook["id"] == "tonnx-zoo")
    config = read("examples/ci/pre-commit-config.yaml")
    assert config["repos"][0]["hooks"][0]["id"] == hook["id"]
    assert "--quiet" not in hook["args"], "pre-commit shows what a hook prints where it fails, and only there"
    command = [*hook["entry"].split()[1:], *hook["args"], "--dry-run"]
    (tmp_path / "models.toml").write_text((ROOT / "examples/ci/models.toml").read_text("utf-8"), encoding="utf-8")
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        assert main(command) == 0
    finally:
        os.chdir(before)
    steps = read("examples/ci/zoo.yml")["jobs"]["zoo"]["steps"]
    inputs = next(step for step in steps if "tonnx@" in step.get("uses", ""))["with"]
    assert set(inputs) <= set(read("action.yml")["inputs"])
