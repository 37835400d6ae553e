"""Calibrated int8 beside onnxruntime.quantization.quantize_static: loss, time, memory and latency.

The network of a published package takes its weights from there: ``--ocr`` names the file, which rapidocr-onnxruntime
installs as ch_ppocr_mobile_v2.0_cls_infer.onnx.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parent))
from document import write_section
from quant_networks import MODELS, Network, Task, networks

METHODS = ("MinMax", "Percentile", "Entropy")
SAMPLES = 256
MANY = 4000
TURNS = 3
"""In which both are timed; the fastest counts."""
TESTED = 400  # lines of text: results are probabilities, and the few that are near to a half count most


@dataclass(frozen=True)
class Made:
    """A quantised file: which method was best, what it lost, and the processor time it took."""

    path: Path
    method: str
    loss: float
    seconds: float


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def loss_of(path: Path, network: Network, wanted: np.ndarray) -> float:
    """Mean square error of the output by its mean square, on samples that were not calibrated with."""
    got = np.concatenate([session(path).run(None, {"x": network.task.test})[0]])
    return float(np.square(got - wanted, dtype=np.float64).sum() / np.square(wanted, dtype=np.float64).sum())


def ours(network: Network, wanted: np.ndarray, folder: Path) -> Made:
    import tonnx

    path = folder / "ours.onnx"
    began = time.process_time()
    result = tonnx.quantize(network.path, path, data=network.task.calibration[:SAMPLES], verify=False)
    seconds = time.process_time() - began
    assert result.calibrated is not None
    return Made(path, result.calibrated.method, loss_of(path, network, wanted), seconds)


def theirs(network: Network, wanted: np.ndarray, folder: Path) -> tuple[Made, float]:
    """The best of its methods, and the time that all of them took: which is best is known afterwards."""
    import onnxruntime.quantization as tool
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(tool.CalibrationDataReader):
        def __init__(self) -> None:
            self._rows = iter(range(SAMPLES))

        def get_next(self) -> dict[str, np.ndarray] | None:
            row = next(self._rows, None)
            return None if row is None else {"x": network.task.calibration[row : row + 1]}

    made = []
    for method in METHODS:
        path = folder / f"{method}.onnx"
        began = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            # Its inference of symbolic shapes fails on some of these networks.
            quant_pre_process(str(network.path), str(folder / "prepared.onnx"), skip_symbolic_shape=True)
            tool.quantize_static(
                folder / "prepared.onnx", path, Reader(), quant_format=tool.QuantFormat.QDQ, per_channel=True,
                activation_type=tool.QuantType.QUInt8, calibrate_method=getattr(tool.CalibrationMethod, method),
            )  # fmt: skip
        seconds = time.process_time() - began
        made.append(Made(path, method, loss_of(path, network, wanted), seconds))
    return min(made, key=lambda one: one.loss), sum(one.seconds for one in made)


def latencies(paths: list[Path], x: np.ndarray) -> list[float]:
    """Processor time of the fastest of many runs of each, in turns: others may be busy beside it."""
    sessions = [session(path) for path in paths]
    best = [np.inf] * len(paths)
    for _ in range(200):
        for i, one in enumerate(sessions):
            began = time.process_time()
            one.run(None, {"x": x})
            best[i] = min(best[i], time.process_time() - began)
    return best


MEMORY = """
import resource, sys, numpy as np
kind, path, shape = sys.argv[1], sys.argv[2], tuple(map(int, sys.argv[3].split(",")))
rng = np.random.default_rng(0)
samples = ({"x": rng.standard_normal((1, *shape), np.float32)} for _ in range(int(sys.argv[4])))
if kind == "inference":
    from tonnx.api.calibrated import finished, prepared  # so that both have the same libraries in memory
    from tonnx.proof.session import Session
    run = Session(path).run
    for sample in samples: run(sample)
else:
    import tonnx
    tonnx.quantize(path, None, data=samples, method="mse", verify=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def memory(network: Network) -> float:
    """Peak memory of calibrating with 4,000 samples, by that of running them."""
    shape = ",".join(map(str, network.task.test.shape[1:]))
    peaks = [
        int(subprocess.run([sys.executable, "-c", MEMORY, kind, str(network.path), shape, str(MANY)], check=True,
                           capture_output=True, text=True).stdout)
        for kind in ("inference", "calibration")
    ]  # fmt: skip
    return peaks[1] / peaks[0]


def text_lines(path: Path) -> Network:
    """The package's network that tells upright lines of text from others, on lines that are drawn here."""
    import onnx
    from PIL import Image, ImageDraw

    import tonnx

    rng, pictures = np.random.default_rng(2), []
    for number in range(SAMPLES + TESTED):
        picture = Image.new("RGB", (192, 48), tuple(int(c) for c in rng.integers(150, 256, 3)))
        words = "".join(chr(c) for c in rng.integers(65, 123, 14))
        ImageDraw.Draw(picture).text((6, 8), words, fill=tuple(int(c) for c in rng.integers(0, 100, 3)), font_size=24)
        picture = picture.rotate(180) if number % 2 else picture
        pictures.append((np.asarray(picture, np.float32).transpose(2, 0, 1) / 255 - 0.5) / 0.5)
    array = np.stack(pictures)
    model = onnx.load(path)
    renamed = path.with_name("lines.onnx")
    old, model.graph.input[0].name = model.graph.input[0].name, "x"
    for node in model.graph.node:
        node.input[:] = ["x" if name == old else name for name in node.input]
    onnx.save(model, renamed)
    tonnx.retarget(renamed, 13, renamed, verify=False)  # at 11 the other tool writes files that do not load
    return Network("lines of text (rapidocr)", renamed, Task(array[:SAMPLES], array[SAMPLES:], np.zeros(TESTED)))


def row(network: Network, with_memory: bool) -> str:
    wanted = session(network.path).run(None, {"x": network.task.test})[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        turns = [(ours(network, wanted, folder), *theirs(network, wanted, folder)) for _ in range(TURNS)]
        mine, other, _ = turns[-1]
        mine_s, other_s = (min(turn[i].seconds for turn in turns) for i in (0, 1))
        tried_s = min(tried for _, _, tried in turns)
        fast = latencies([network.path, mine.path, other.path], network.task.test[:4])
    cells = [
        network.name,
        f"{10 * np.log10(1 / mine.loss):.1f} ({mine.method})",
        f"{10 * np.log10(1 / other.loss):.1f} ({other.method})",
        f"{mine.loss / other.loss:.2f}",
        f"{mine_s / tried_s:.2f}",
        f"{mine_s / other_s:.2f}",
        f"{fast[1] / fast[2]:.2f}",
        f"{fast[1] / fast[0]:.2f}",
        f"{memory(network):.2f}" if with_memory else "–",
    ]
    print(json.dumps(cells, ensure_ascii=False), flush=True)
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(".venv/quant-networks"), help="of trained networks")
    parser.add_argument("--ocr", type=Path, help="ch_ppocr_mobile_v2.0_cls_infer.onnx of rapidocr-onnxruntime")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--only", default="", help="networks with this in their name")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    import onnxruntime.quantization.shape_inference  # noqa: F401 (what is timed imports nothing)

    import tonnx.api.quantize  # noqa: F401

    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = networks(options.folder)
    assert len(chosen) == len(MODELS)
    if options.ocr is not None:
        chosen.append(text_lines(options.ocr))
    chosen = [network for network in chosen if options.only in network.name]
    rows = [row(network, not options.no_memory and number == 0) for number, network in enumerate(chosen)]
    head = (
        "| network | tonnx, dB | quantize_static, dB | loss | time | by the best method's | latency | "
        "latency by float32 | memory |\n|---|---|---|---|---|---|---|---|---|"
    )
    if options.write is not None:
        write_section(options.write, "calibration", "Calibration beside quantize_static", "\n".join([head, *rows]))


if __name__ == "__main__":
    main()
