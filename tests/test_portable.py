"""Nothing in the package works on one operating system only, but for what is named here with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "tonnx"

POSIX_MODULES = set("fcntl grp posix pty pwd readline resource select selectors syslog termios tty".split())
SYSTEM_CALLS = set(
    "os.fork os.forkpty os.kill os.killpg os.setsid os.setpgid os.getuid os.geteuid os.umask os.chmod os.chown os.link "
    "os.mkfifo os.rename os.symlink os.uname os.nice os.sched_getaffinity os.wait os.waitpid os.sysconf os.O_CLOEXEC "
    "signal.alarm signal.setitimer signal.pause signal.SIGALRM signal.SIGHUP signal.SIGKILL signal.SIGUSR1 "
    "multiprocessing.Process multiprocessing.Pool multiprocessing.get_context multiprocessing.set_start_method "
    "tempfile.NamedTemporaryFile tempfile.mkstemp tempfile.mktemp mmap.mmap np.memmap time.tzset".split()
)
_LAST_PARTS = {name.rpartition(".")[2] for name in SYSTEM_CALLS}
PATH_METHODS = {"rename", "chmod", "lchmod", "symlink_to", "hardlink_to"}
SHELL_OPTIONS = {"shell", "preexec_fn", "start_new_session", "process_group", "pass_fds"}
SYSTEM_PATHS = ("/dev/", "/proc/", "/tmp", "/etc/", "/usr/", "/var/", "/sys/", "/home/", "~/")

ALLOWED = {
    ("benching/memory.py", "import resource"): "tried after /proc, for macOS; without both no peak is measured",
    ("benching/memory.py", "path /proc/self/status"): "Linux; others are asked by resource",
    ("io/mappings.py", "path /proc/self/smaps"): "Linux; elsewhere weights are found by their contents",
    ("io/write.py", "mmap.mmap"): "only asked whether something is one; where MADV_DONTNEED is",
    ("io/write.py", "np.memmap"): "not where OPEN_FILES_STAY: the file is read there",
    ("frontends/paddle/read/params.py", "np.memmap"): "no file of ours takes the place of a Paddle model's weights",
    ("zoo/process.py", "option start_new_session"): "Windows takes the option and has no sessions",
    ("zoo/process.py", "os.killpg"): "where there is one; elsewhere the process alone is ended",
    ("zoo/child.py", "os.killpg"): "where there is one; elsewhere the process alone ends",
    ("zoo/child.py", "signal.SIGKILL"): "only where os.killpg is",
    ("zoo/child.py", "path /proc/self/oom_score_adj"): "Linux; elsewhere the kernel chooses by itself",
}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def unportable(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What should not be there: the line, and its name in `ALLOWED`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from ((node.lineno, f"import {module}") for module in modules if module in POSIX_MODULES)
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from ((node.lineno, name) for name in names if name in SYSTEM_CALLS)
        elif isinstance(node, ast.Attribute) and node.attr in _LAST_PARTS and dotted(node) in SYSTEM_CALLS:
            yield node.lineno, dotted(node)
        elif isinstance(node, ast.Call):
            yield from ((node.lineno, problem) for problem in call_problems(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(SYSTEM_PATHS):
            yield node.lineno, f"path {node.value}"


def call_problems(call: ast.Call) -> Iterator[str]:
    options = {keyword.arg for keyword in call.keywords}
    name = dotted(call.func).rpartition(".")[2]
    yield from (f"option {option}" for option in options & SHELL_OPTIONS)
    if isinstance(call.func, ast.Attribute) and name in PATH_METHODS:
        yield f"method {name}"
    if {"text", "universal_newlines"} & options and "encoding" not in options:
        yield "text of a process without encoding"
    if "encoding" in options or None in options:
        return
    if len(call.args) < {"read_text": 1, "write_text": 2}.get(name, 0):
        yield f"{name} without encoding"
    if name in ("open", "fdopen") and dotted(call.func) in ("open", "io.open", "os.fdopen"):
        modes = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        if not any(isinstance(mode, ast.Constant) and "b" in str(mode.value) for mode in modes):
            yield f"{name} without encoding"


FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def test_the_package_is_portable() -> None:
    problems = {
        (file, name): f"{file}:{line}: {name}"
        for file in FILES
        for line, name in unportable(ast.parse((PACKAGE / file).read_text(encoding="utf-8")))
    }
    assert not [place for key, place in problems.items() if key not in ALLOWED]
    assert not set(ALLOWED) - set(problems), "no longer needed"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import resource", "import resource"),
        ("from select import poll", "import select"),
        ("from os import fork", "os.fork"),
        ("os.rename(a, b)", "os.rename"),
        ("Path(a).rename(b)", "method rename"),
        ("signal.signal(signal.SIGALRM, f)", "signal.SIGALRM"),
        ("tempfile.NamedTemporaryFile()", "tempfile.NamedTemporaryFile"),
        ("open('/dev/null', 'wb')", "path /dev/null"),
        ("open(a)", "open without encoding"),
        ("open(a, mode='w')", "open without encoding"),
        ("os.fdopen(handle, 'w')", "fdopen without encoding"),
        ("path.read_text()", "read_text without encoding"),
        ("path.write_text(text)", "write_text without encoding"),
        ("subprocess.run(a, text=True)", "text of a process without encoding"),
        ("subprocess.Popen(a, preexec_fn=f)", "option preexec_fn"),
    ],
)
def test_the_search_finds(code: str, name: str) -> None:
    assert name in [problem for _, problem in unportable(ast.parse(code))]


@pytest.mark.parametrize(
    "code", ["open(a, 'rb')", "path.read_text('utf-8')", "open(a, encoding='utf-8')", "os.replace(a, b)", "x = 'a/b'"]
)
def test_the_search_passes(code: str) -> None:
    assert not list(unportable(ast.parse(code)))
