"""The process of a job: it runs a module with arguments, and ends when its parent does.

stdin is a pipe that only the parent holds: when it closes, the parent is gone, and nobody is left to watch the limits.
The kernel, short of memory, is told to end this process before others.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys
import threading
from pathlib import Path


def main() -> None:
    watched = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # a model that asks for input gets none, in the place of waiting for ever
    os.close(nothing)
    threading.Thread(target=_end_with_parent, args=(watched,), daemon=True).start()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("800", encoding="ascii")
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with_parent(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():  # with whatever the module has started
        os.killpg(os.getpid(), signal.SIGTERM)
        threading.Event().wait(5)
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
