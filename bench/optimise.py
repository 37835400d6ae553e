"""`tonnx.optimise` beside onnxslim and onnxsim on files of torch.onnx.export: nodes, time, and whether they agree.

    python bench/optimise.py --anchors /path/to/python --write docs/optimise.md

``--anchors`` is a Python that has onnxslim and onnxsim: they live in an environment of their own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import torch
from document import write_section

import tonnx
from tonnx.io import read as reading
from tonnx.proof.examples import random_examples
from tonnx.proof.session import Session
from tonnx.proof.signature import Signature

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.models import torchvision_schemas

ANCHORS = {
    "onnxslim": "import sys, onnx, onnxslim; onnx.save(onnxslim.slim(sys.argv[1]), sys.argv[2])",
    "onnxsim": "import sys, onnx, onnxsim; m, ok = onnxsim.simplify(onnx.load(sys.argv[1])); onnx.save(m, sys.argv[2])",
}
INTRODUCTION = """Twenty files of `torch.onnx.export` (opset 17, random weights). A cell is the number of nodes that are
left, Constants not counted, and the processor time in ONNX Runtime by that of the file as it was, on one thread.
ONNX Runtime optimises files itself when it loads them, so fewer nodes seldom mean less time there; they do for other
runtimes, and for people who read the file. The one file of which onnxsim leaves less, convnext_atto, takes longer: the
factor ½ of each GELU has gone into the next layer's weights, and ONNX Runtime no longer recognises the GELU. That is
left alone."""
DYNAMIC = """The same with a dynamic batch and, of sequences, a dynamic length."""
Made = Callable[[], tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]


def networks() -> dict[str, Made]:
    """Twenty networks: pictures, attention, language, recurrence."""
    torchvision_schemas.declare()
    import timm
    import torchvision
    import transformers as hf

    picture = torch.zeros(1, 3, 224, 224).normal_(generator=torch.Generator().manual_seed(0))
    ids = torch.arange(16).reshape(1, 16)
    sizes = {"vocab_size": 99, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    result: dict[str, Made] = {}
    for name, config in {
        "bert": lambda: hf.BertModel(hf.BertConfig(**sizes, intermediate_size=128)),
        "distilbert": lambda: hf.DistilBertModel(hf.DistilBertConfig(vocab_size=99, n_layers=2, dim=64, n_heads=4)),
        "albert": lambda: hf.AlbertModel(hf.AlbertConfig(**sizes, embedding_size=32, intermediate_size=128)),
    }.items():
        result[name] = lambda config=config: (Tuple(config()), (ids,))
    sequence = torch.zeros(1, 12, 32).normal_(generator=torch.Generator().manual_seed(0))
    result["lstm"] = lambda: (torch.nn.LSTM(32, 64, 2, batch_first=True, bidirectional=True), (sequence,))
    result["gru"] = lambda: (torch.nn.GRU(32, 64, 2, batch_first=True), (sequence,))
    vision = "resnet18 mobilenet_v2 mobilenet_v3_small efficientnet_b0 squeezenet1_1 shufflenet_v2_x0_5 mnasnet0_5 "
    for name in f"{vision} googlenet densenet121 regnet_y_400mf".split():
        result[name] = lambda name=name: (getattr(torchvision.models, name)(weights=None), (picture,))
    for name in "vit_tiny_patch16_224 convnext_atto mixer_s32_224 ghostnet_100 levit_128s".split():
        result[name] = lambda name=name: (timm.create_model(name), (picture,))
    return result


class Tuple(torch.nn.Module):
    """The last hidden state of a model of transformers."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, return_dict=False)[0]


def like_trained(model: torch.nn.Module) -> torch.nn.Module:
    """The model without parameters that are still what they began as: adding a bias of zeros could be left out."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.numel() > 1 and (parameter == parameter.flatten()[0]).all():
                parameter += 0.05 * torch.randn_like(parameter)
    return model.eval()


def nodes(path: Path) -> int:
    return sum(1 for node in onnx.load(path).graph.node if node.op_type != "Constant")


def compared(original: Path, other: Path) -> tuple[float, float]:
    """The largest difference by the largest number, and the ratio of processor time, turn by turn."""
    sessions = [Session(path, threads=1) for path in (original, other)]
    feeds = next(iter(random_examples(Signature.of(reading.reader(original)()), {})))
    one, two = (list(session.run(dict(feeds)).values()) for session in sessions)
    error = max(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-9)) for a, b in zip(one, two, strict=True))
    seconds: list[list[float]] = [[], []]
    start = time.perf_counter()
    while len(seconds[1]) < 5 or (time.perf_counter() - start < 1 and len(seconds[1]) < 100):
        for session, taken in zip(sessions, seconds, strict=True):
            began = time.process_time()
            session.run(dict(feeds))
            taken.append(time.process_time() - began)
    return error, median(seconds[1][1:]) / median(seconds[0][1:])


def row(name: str, made: Made, anchors: str, folder: Path, dynamic: bool = False) -> list[str]:
    model, example = made()
    axes = {0: "batch", 1: "length"} if example[0].dim() < 4 else {0: "batch"}
    options = {"input_names": ["x"], "dynamic_axes": {"x": axes}} if dynamic else {}
    original = folder / f"{name}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(like_trained(model), example, str(original), dynamo=False, opset_version=17, **options)
        except Exception as failure:
            return [name, f"torch.onnx.export: {type(failure).__name__}", "", "", ""]
    cells = [name, str(nodes(original))]
    for tool in ("tonnx", *ANCHORS):
        result = folder / f"{name}-{tool}.onnx"
        try:
            if tool == "tonnx":
                tonnx.optimise(original, result)
            else:
                command = [anchors, "-c", ANCHORS[tool], str(original), str(result)]
                subprocess.run(command, check=True, capture_output=True, timeout=600)
            error, ratio = compared(original, result)
            cells.append(f"{nodes(result)} · {ratio:.2f}" + (f" · differs by {error:.1e}" if error > 1e-3 else ""))
        except (tonnx.TonnxError, subprocess.SubprocessError) as failure:
            cells.append(f"fails: {type(failure).__name__}")
    return cells


def write(page: Path, rows: list[list[str]], dynamic: bool) -> None:
    """What there is so far."""
    table = ["| network | nodes | tonnx | onnxslim | onnxsim |", "|---|---:|---:|---:|---:|"]
    table += [f"| {' | '.join(cells)} |" for cells in rows]
    if dynamic:
        write_section(page, "dynamic", "With dynamic sizes", "\n".join([DYNAMIC, "", *table]))
    else:
        write_section(page, "optimise", "tonnx optimise beside others", "\n".join([INTRODUCTION, "", *table]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--anchors", required=True)
    parser.add_argument("--write", metavar="PAGE")
    parser.add_argument("--only", default="")
    parser.add_argument("--dynamic", action="store_true", help="files with dynamic sizes")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, made in networks().items():
            if not options.only or name in options.only.split(","):
                torch.manual_seed(0)
                rows.append(row(name, made, options.anchors, Path(folder), options.dynamic))
                print(" | ".join(rows[-1]), flush=True)
                if options.write:
                    write(Path(options.write), rows, options.dynamic)


if __name__ == "__main__":
    main()
