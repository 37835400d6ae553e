"""Paddle's own predictor as a function on arrays: what the file is compared with.

Paddle runs in a process of its own. A conversion never imports it that way, and where Paddle aborts (it does, on
operators that a build lacks), only that process is lost.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import struct
import subprocess
import sys
import weakref
from collections.abc import Mapping
from typing import IO

import numpy as np

from tonnx.errors import CaptureError
from tonnx.frontends.converted import Reference
from tonnx.frontends.paddle.load import Loaded

NOT_COMPARED = "not compared with Paddle"
_LENGTH = struct.Struct("<Q")


def reference(loaded: Loaded, renamed: Mapping[str, str]) -> tuple[Reference | None, list[str]]:
    """The predictor of a model, or None and the reason why there is none."""
    if importlib.util.find_spec("paddle") is None:
        return None, [f"{NOT_COMPARED}: paddlepaddle is not installed; the file was checked, loaded and run"]
    predictor = Predictor(loaded, renamed)
    return predictor, []


class Predictor:
    """A process that has loaded the model into Paddle; started when it is first asked."""

    def __init__(self, loaded: Loaded, renamed: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", __name__, str(loaded.path), str(loaded.weights or "")]
        self._names = dict(renamed)
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            _send(process.stdin, {name: feeds[new] for name, new in self._names.items()})
            answer = _receive(process.stdout)
        except (OSError, EOFError) as error:
            self.close()
            raise CaptureError("Paddle's predictor stopped", why="its process ended without an answer") from error
        if "error" in answer:
            raise CaptureError("Paddle itself does not run the model", why=str(answer["error"]))
        return [answer[str(i)] for i in range(len(answer))]

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            weakref.finalize(self, _end, self._process)
        return self._process

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            _end(self._process)
            self._process = None


def _end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    process.kill()
    process.wait()


def _send(stream: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    stream.write(_LENGTH.pack(buffer.tell()))
    stream.write(buffer.getbuffer())
    stream.flush()


def _receive(stream: IO[bytes]) -> dict[str, np.ndarray]:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    body = stream.read(_LENGTH.unpack(head)[0])
    with np.load(io.BytesIO(body)) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _serve(program: str, weights: str) -> None:
    """What the other process does: arrays in, arrays out, until there are no more."""
    import os

    # Paddle prints to stdout, from C++ as well: keep the pipe, and give it another place to print to.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    questions = sys.stdin.buffer
    failure, predictor = "", None
    try:
        from paddle import inference

        config = inference.Config(program, weights) if weights else inference.Config(program, "")
        config.disable_glog_info()
        config.switch_ir_optim(False)  # as it was written: fused kernels round differently
        predictor = inference.create_predictor(config)
    except Exception as error:  # whatever Paddle raises is told to the process that asked
        failure = f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:300]}"
    while True:
        try:
            feeds = _receive(questions)
        except EOFError:
            return
        _send(answers, {"error": np.array(failure)} if predictor is None else _predicted(predictor, feeds))


def _predicted(predictor: object, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    try:
        for name, array in feeds.items():
            predictor.get_input_handle(name).copy_from_cpu(np.ascontiguousarray(array))  # type: ignore[attr-defined]
        predictor.run()  # type: ignore[attr-defined]
        names = predictor.get_output_names()  # type: ignore[attr-defined]
        return {str(i): predictor.get_output_handle(n).copy_to_cpu() for i, n in enumerate(names)}  # type: ignore[attr-defined]
    except Exception as error:
        return {"error": np.array(f"{type(error).__name__}: {str(error).strip()[-300:]}")}


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2])
