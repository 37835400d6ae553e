"""Half precision beside onnxconverter-common's and onnxruntime's converters: does it load, how close, how many casts.

    python bench/half.py --folder .venv/quant-networks [--models FILE ...] [--write docs/quantise.md]

Files are of float32 at their own opset; all converters keep inputs and outputs float32.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(Path(__file__).parent))
from document import write_section

import tonnx


def ours(path: Path, target: Path) -> None:
    tonnx.quantize(path, target, to="fp16", keep_io=True, verify=False)


def common(path: Path, target: Path) -> None:
    from onnxconverter_common import float16

    onnx.save(float16.convert_float_to_float16(onnx.load(path), keep_io_types=True), target)


def runtime(path: Path, target: Path) -> None:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(path), keep_io_types=True), target)


USUAL = ((1, 3, 96, 192), (1, 3, 48, 192))
"""Sizes of pictures that are tried, where a file leaves them open."""
CONVERTERS: dict[str, Callable[[Path, Path], None]] = {
    "tonnx": ours, "onnxconverter-common": common, "onnxruntime": runtime,
}  # fmt: skip


def session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feeds_of(path: Path) -> dict[str, np.ndarray]:
    """Random inputs that the original runs on."""
    rng, run = np.random.default_rng(0), session(path)
    for usual in USUAL:
        feeds = {}
        for port in run.get_inputs():
            sizes = [d if isinstance(d, int) and d > 0 else usual[i] for i, d in enumerate(port.shape)]
            feeds[port.name] = rng.standard_normal(sizes).astype(np.float32)
        try:
            run.run(None, feeds)
        except Exception:  # noqa: S112 (ONNX Runtime's errors have no base class; other sizes are tried)
            continue
        return feeds
    raise SystemExit(f"{path} runs at none of the sizes")


def cell(convert: Callable[[Path, Path], None], path: Path, feeds: dict[str, np.ndarray], folder: Path) -> str:
    target = folder / "half.onnx"
    try:
        convert(path, target)
        results = session(target).run(None, feeds)
    except Exception as error:  # a converter that fails, or whose file does not load, is a result
        return f"{type(error).__name__}"
    wanted = session(path).run(None, feeds)
    noise = sum(float(np.square(a.astype(np.float64) - b).sum()) for a, b in zip(results, wanted, strict=True))
    signal = sum(float(np.square(b.astype(np.float64)).sum()) for b in wanted)
    casts = sum(node.op_type == "Cast" for node in onnx.load(target).graph.node)
    if not np.isfinite(noise):
        return f"not finite, {casts} casts"
    size = target.stat().st_size / path.stat().st_size
    return f"{10 * np.log10(signal / max(noise, 1e-30)):.1f} dB, {casts} casts, {size:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(".venv/quant-networks"))
    parser.add_argument("--models", type=Path, nargs="*", default=[])
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    lines = ["| network | " + " | ".join(CONVERTERS) + " |", "|---" * (len(CONVERTERS) + 1) + "|"]
    for path in [*sorted(options.folder.glob("*.onnx")), *options.models]:
        with tempfile.TemporaryDirectory() as name:
            feeds = feeds_of(path)
            cells = [cell(convert, path, feeds, Path(name)) for convert in CONVERTERS.values()]
        lines.append(f"| {path.stem} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    if options.write is not None:
        write_section(options.write, "half", "Half precision beside others", "\n".join(lines))


if __name__ == "__main__":
    main()
