"""Paddle's own predictor as a function on arrays: what the file is compared with.

Paddle runs in a process of its own. A conversion never imports it that way, and where Paddle aborts (it does, on
operators that a build lacks), only that process is lost.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any

import numpy as np

from tonnx.errors import CaptureError
from tonnx.frontends.paddle.read.graph import LOOPS
from tonnx.frontends.paddle.read.load import Loaded
from tonnx.proof.subject import Reference

PATIENCE = 180
"""Seconds. Some programs with loops never end in Paddle's predictor, though they do elsewhere in Paddle."""
NOT_COMPARED = "not compared with Paddle"
Run = Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]
_LENGTH = struct.Struct("<Q")


def predictor(loaded: Loaded, renamed: Mapping[str, str]) -> Predictor | None:
    """A predictor of the model, which loads it from now on; None where there is no Paddle."""
    return Predictor(loaded, renamed) if installed() else None


def installed() -> bool:
    """Whether there is a Paddle; nothing is imported."""
    try:
        return importlib.util.find_spec("paddle") is not None
    except (ImportError, ValueError):  # someone keeps it from being imported, or has put something into its place
        return False


def first_that_runs(
    paddle: Reference | None, examples: Iterable[dict[str, np.ndarray]]
) -> tuple[dict[str, np.ndarray] | None, list[str]]:
    """The first of the examples that Paddle itself takes; or None, and why nothing can be compared."""
    if paddle is None:
        return None, [f"{NOT_COMPARED}: paddlepaddle is not installed; the file was checked, loaded and run"]
    problem = ""
    for example in examples:
        try:
            paddle(example)
        except CaptureError as error:
            problem = problem or f"{error.what}: {error.why}"
        else:
            return example, []
    return None, [f"{NOT_COMPARED}: {problem}"]


class Predictor:
    """A process that has loaded the model into Paddle."""

    def __init__(self, loaded: Loaded, renamed: Mapping[str, str]) -> None:
        self._names = dict(renamed)
        how = "layer" if _is_endless(loaded) else "predictor"
        self._process = start(self, __name__, str(loaded.path), str(loaded.weights or ""), how)

    def __call__(self, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        assert self._process.stdin is not None and self._process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._process.kill()

        waiting = threading.Timer(PATIENCE, give_up)
        waiting.daemon = True
        waiting.start()
        try:
            send(self._process.stdin, {name: feeds[new] for name, new in self._names.items()})
            answer = receive(self._process.stdout)
        except (OSError, EOFError, ValueError) as error:
            self.close()
            why = f"it did not answer within {PATIENCE} s" if late.is_set() else "its process ended without an answer"
            raise CaptureError("Paddle's predictor stopped", why=why) from error
        finally:
            waiting.cancel()
        if "error" in answer:
            raise CaptureError("Paddle itself does not run the model", why=str(answer["error"]))
        return [answer[str(i)] for i in range(len(answer))]

    def close(self) -> None:
        end(self._process)


def _is_endless(loaded: Loaded) -> bool:
    """Whether the predictor of Paddle 3 never ends: it does not see that the body of a loop writes the condition.

    `paddle.nn.RNN` is such a loop. Loaded as a layer, which takes the weights from beside the program, it does end.
    """
    if loaded.program.format != "pir" or loaded.weights not in (None, loaded.path.with_suffix(".pdiparams")):
        return False
    loops = (op for op in loaded.program.walk() if op.name in LOOPS)
    return any(write.before is loop.operands[0] for loop in loops for write in loop.writes)


def start(owner: object, module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A process that answers questions, and ends with its owner."""
    command, pipe = [sys.executable, "-m", module, *arguments], subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
    weakref.finalize(owner, end, process)
    return process


def answering() -> IO[bytes]:
    """Where to write answers. Paddle prints to stdout, from C++ as well: it gets another place to print to."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def end(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    process.kill()
    process.wait()


def send(stream: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    stream.write(_LENGTH.pack(buffer.tell()))
    stream.write(buffer.getbuffer())
    stream.flush()


def receive(stream: IO[bytes]) -> dict[str, np.ndarray]:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError("the other side has ended")
    body = stream.read(_LENGTH.unpack(head)[0])
    with np.load(io.BytesIO(body)) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _serve(program: str, weights: str, how: str) -> None:
    """What the other process does: arrays in, arrays out, until there are no more."""
    answers, questions = answering(), sys.stdin.buffer
    failure, run = "", None
    try:
        run = _layer(program) if how == "layer" else _inference(program, weights)
    except Exception as error:  # noqa: BLE001 (whatever Paddle raises is told to the process that asked)
        failure = f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:300]}"
    while True:
        try:
            feeds = receive(questions)
        except EOFError:
            return
        send(answers, {"error": np.array(failure)} if run is None else _answer(run, feeds))


def _answer(run: Run, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    try:
        return {str(i): array for i, array in enumerate(run(feeds))}
    except Exception as error:  # noqa: BLE001 (the same)
        return {"error": np.array(f"{type(error).__name__}: {str(error).strip()[-300:]}")}


def plain_predictor(program: str, weights: str) -> Any:
    """Paddle's predictor of a model as it was written: fused kernels round differently."""
    from paddle import inference

    # A folder with a file for each parameter holds the program too, as __model__.
    folder = os.path.isdir(weights)
    config = inference.Config(weights) if folder else inference.Config(program, weights)
    config.disable_glog_info()
    getattr(config, "disable_onednn", config.disable_mkldnn)()  # it lacks operators, and ends the process on some
    config.switch_ir_optim(False)
    return inference.create_predictor(config)


def _inference(program: str, weights: str) -> Run:
    predictor = plain_predictor(program, weights)

    def run(feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        for name, array in feeds.items():
            predictor.get_input_handle(name).copy_from_cpu(np.ascontiguousarray(array))
        predictor.run()
        return [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]

    return run


def _layer(program: str) -> Run:
    import paddle

    layer = paddle.jit.load(os.path.splitext(program)[0])
    layer.eval()

    def run(feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        results = layer(*(paddle.to_tensor(array) for array in feeds.values()))
        return [value.numpy() for value in (results if isinstance(results, (list, tuple)) else [results])]

    return run


if __name__ == "__main__":
    _serve(*sys.argv[1:4])
