"""What starting costs, in modules: seconds depend on the machine, and what is imported does not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import tonnx
from tonnx.cli import COMMANDS

CHILD = """
import sys
before = set(sys.modules)
{code}
import json
print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""


def imported(code: str) -> set[str]:
    """The modules that ``code`` imports in a fresh process."""
    command = [sys.executable, "-c", CHILD.format(code=code)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def of_others(modules: set[str]) -> set[str]:
    tops = {name.partition(".")[0] for name in modules}
    return tops - set(sys.stdlib_module_names) - {"tonnx", "__mp_main__"}


def test_import_tonnx() -> None:
    modules = imported("import tonnx")
    assert {name for name in modules if name.startswith("tonnx")} == {"tonnx"}
    assert not of_others(modules) and len(modules) < 40


@pytest.mark.parametrize("argv", [["--help"], ["--version"]])
def test_help(argv: list[str]) -> None:
    modules = imported(f"from tonnx.cli import main; assert main({argv!r}) == 0")
    assert {name for name in modules if name.startswith("tonnx")} == {"tonnx", "tonnx.cli"}
    assert not of_others(modules) and len(modules) < 70


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command: str) -> None:
    modules = imported(f"from tonnx.cli import main; assert main([{command!r}, '--help']) == 0")
    other_commands = {f"tonnx.cli.{name}" for name in COMMANDS} - {f"tonnx.cli.{command}"}
    assert not of_others(modules) and len(modules) < 100
    assert len(modules & other_commands) <= 2, "a command imports only those that it builds on"


def test_packages_import_no_quantising() -> None:
    pytest.importorskip("torch")
    assert "tonnx.api.quantize" not in imported("import tonnx.packages.export")


def test_wrong_calls_import_no_more() -> None:
    assert not of_others(imported("from tonnx.cli import main; assert main(['export', '--nonsense']) == 2"))
    assert not of_others(imported("from tonnx.cli import main; assert main(['nonsense']) == 2"))


def test_the_public_names_are_all_there() -> None:
    assert sorted(tonnx._LATER) == sorted(set(tonnx.__all__) - {"__version__"})
    for name in tonnx.__all__:
        assert getattr(tonnx, name) is not None
