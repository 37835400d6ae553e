"""Build the sdist and the wheel, look into them, and use the wheel where there is no checkout: ``make dist``.

The wheel is installed into an empty environment. There, without any framework, a saved Paddle model is exported,
retargeted and reported on; then torch is added, and a module is exported and compared.

An index shows the README without the files beside it. Where the project will be found is for the release to say:
``--url https://host/owner/name --ref v1.0`` makes its relative links absolute.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_WHEEL = 1_400_000
"""The code alone takes 1.3 MB: more than this has something inside that does not belong there."""
PADDLE_MODEL = ROOT / "tests" / "frontends" / "paddle" / "fixtures" / "lenet"

_CODE_OR_LINK = re.compile(
    r"```.*?```|`[^`]*`|(?P<image>!?)\[(?P<text>[^]]*)\]\((?P<target>(?!https?:|mailto:|#)[^)\s]+)\)", re.DOTALL
)

NET = '''
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, x):
        return self.layer(x).softmax(-1)


if __name__ == "__main__":
    import tonnx

    options = {"input_names": ["x"], "dynamic_axes": {"x": {0: "batch"}}, "opset_version": 13}
    result = tonnx.export(Net(), (torch.randn(2, 3),), "net.onnx", **options)
    assert result.verification is not None and result.verification.ok, result
'''

EMPTY = '''
import importlib.util
import pathlib
import sys

import tonnx

assert pathlib.Path(tonnx.__file__).is_relative_to(sys.prefix), tonnx.__file__
frameworks = [name for name in ("torch", "paddle", "pytest") if importlib.util.find_spec(name)]
assert not frameworks, f"the environment was to be empty, and has {frameworks}"
'''

WITHOUT_FRAMEWORK = """
python empty.py
tonnx --help
tonnx export lenet.json -o lenet.onnx --opset 11
tonnx retarget lenet.onnx --opset 9 -o lenet-9.onnx
tonnx verify lenet-9.onnx --against lenet.onnx
tonnx report lenet.onnx -o lenet.html
"""

WITH_TORCH = """
python net.py
tonnx verify net.onnx --against net.py:Net
tonnx export net.py:Net -o other.onnx --input x:float32[batch,3]
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", metavar="REQUIREMENT", required=True, help="what is installed for the second part")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER")
    parser.add_argument("--url", help="where the project is published; makes the README's links absolute")
    parser.add_argument("--ref", help="the tag or branch that the links show")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        files = copy_sources(source)
        if options.url:
            readme = source / "README.md"
            readme.write_text(absolute_links(readme.read_text("utf-8"), options.url, options.ref), "utf-8")
        sdist, wheel = build(source, options.out)
        check_sdist(sdist, (ROOT / "README.md").read_text("utf-8"))
        check_wheel(wheel, [name for name in files if name.startswith("src/")])
        run([sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel)])
        try_wheel(wheel, Path(folder) / "trial", options.torch)
    for file in (sdist, wheel):
        print(f"{file.name}: {file.stat().st_size:,} bytes")
    return 0


def copy_sources(target: Path) -> list[str]:
    """Copy what git knows or would add: leftovers of other builds do not get into an archive."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    names = [name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    return names


def relative_links(text: str) -> list[str]:
    """The files that a Markdown text links to or shows."""
    return [match["target"].partition("#")[0] for match in _CODE_OR_LINK.finditer(text) if match["target"]]


def absolute_links(text: str, url: str, ref: str) -> str:
    """``text`` with links into the repository at ``url``: pages for links, the bare file for pictures."""

    def absolute(match: re.Match[str]) -> str:
        if not match["target"]:
            return match[0]
        kind = "raw" if match["image"] else "blob"
        return f"{match['image']}[{match['text']}]({url.rstrip('/')}/{kind}/{ref}/{match['target']})"

    return _CODE_OR_LINK.sub(absolute, text)


def build(source: Path, out: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it."""
    shutil.rmtree(out, ignore_errors=True)
    run([sys.executable, "-m", "build", "--outdir", str(out), str(source)])
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def check_sdist(sdist: Path, readme: str) -> None:
    """Every file that the README links to is there."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    missing = sorted({target.rstrip("/") for target in relative_links(readme)} - names)
    if missing:
        raise SystemExit(f"{sdist.name} lacks what README.md links to: {', '.join(missing)}")


def check_wheel(wheel: Path, sources: Sequence[str]) -> None:
    """The package as it is in the checkout, all of it and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {name.removeprefix("src/") for name in sources}
    assert "tonnx/py.typed" in expected
    if missing := sorted(expected - names):
        raise SystemExit(f"{wheel.name} lacks {', '.join(missing)}: see package-data in pyproject.toml")
    if extra := sorted(names - expected):
        raise SystemExit(f"{wheel.name} has {', '.join(extra)}, which is no part of the package")
    if (size := wheel.stat().st_size) > MAX_WHEEL:
        raise SystemExit(f"{wheel.name} has {size:,} bytes, more than {MAX_WHEEL:,}")


def try_wheel(wheel: Path, folder: Path, torch: str) -> None:
    """Install the wheel where nothing else is, and use it as its users do."""
    venv.create(folder / "env", with_pip=True)
    work = folder / "work"
    work.mkdir()
    (work / "net.py").write_text(NET, "utf-8")
    (work / "empty.py").write_text(EMPTY, "utf-8")
    for suffix in (".json", ".pdiparams"):
        shutil.copy(PADDLE_MODEL.with_suffix(suffix), work)
    programs = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    for requirement, commands in ((str(wheel.resolve()), WITHOUT_FRAMEWORK), (torch, WITH_TORCH)):
        install = ["python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", requirement]
        for program, *arguments in (install, *map(str.split, commands.strip().splitlines())):
            run([str(programs / program), *arguments], cwd=work, env=environment)


def run(command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    """Run it and show its output only if it fails."""
    program = Path(command[0]).stem
    print(f"dist: {program} {' '.join(command[1:])}", flush=True)
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace"
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{program} failed with exit code {done.returncode}")


if __name__ == "__main__":
    sys.exit(main())
