"""Files for the target ort-web in a real browser: ONNX Runtime Web in headless Chromium gives native's numbers.

    python -m tests.web.suite --ort node_modules/onnxruntime-web/dist --write docs/web.md

The pages and files come from a server on this machine; the browser asks nobody else.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import tonnx
from tests import networks
from tonnx.proof.compare import Comparison, compare, incomparable
from tonnx.proof.session import Session

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run --disable-dev-shm-usage"
).split()
TIMEOUT = 180


class Words(nn.Module):
    """Ids to classes: embedding, attention, layer normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(50, 32), nn.LayerNorm(32)
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.encoder(self.embedding(ids))).mean(1)


class Lines(nn.Module):
    """A bidirectional LSTM with a head."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True), nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0]).log_softmax(-1)


class Choice(nn.Module):
    """A branch on values, and the positions of the largest."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2 if x.sum() > 0 else x - 1
        return y, y.topk(3).indices


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def cases() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    torch.manual_seed(0)
    image = torch.randn(1, 3, 16, 16)
    grid = torch.rand(1, 8, 8, 2) * 2 - 1
    return {
        "super-resolution": (networks.SuperResolution(), (torch.randn(1, 1, 12, 12),)),
        "convolution, batch norm": (networks.conv_bn_relu().eval(), (image,)),
        "SiLU": (networks.silu_net(), (image,)),
        "two outputs": (networks.TwoOutputs(), (torch.randn(2, 4), torch.randn(2, 2))),
        "attention on ids": (Words().eval(), (torch.randint(0, 50, (2, 7)),)),
        "LSTM": (Lines().eval(), (torch.randn(2, 6, 8),)),
        "branch and TopK": (Choice(), (torch.randn(2, 5),)),
        "grid sample": (Function(lambda x, g: F.grid_sample(x, g, align_corners=False)), (image, grid)),
        "resize, pad, pool": (
            Function(lambda x: F.max_pool2d(F.pad(F.interpolate(x, scale_factor=2, mode="bilinear"), (1, 2, 1, 2)), 3)),
            (image,),
        ),
        "einsum, cumsum, where": (
            Function(lambda x: torch.where(x > 0, torch.einsum("bij,bkj->bik", x, x).cumsum(1)[..., :5], x)),
            (torch.randn(2, 5, 5),),
        ),
    }


def prepare(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Export all, run them natively; gives the outputs, and leaves files and cases.json."""
    listed, expected = [], {}
    for number, (name, (model, example)) in enumerate(cases().items()):
        file = folder / f"{number}.onnx"
        tonnx.export(model, example, file, target="ort-web")
        session = Session(file)
        inputs = [
            {"name": port, "dtype": str(array.dtype), "shape": list(array.shape), "file": f"{number}.{i}.bin"}
            for i, (port, array) in enumerate(zip(session.inputs, (x.numpy() for x in example), strict=True))
        ]
        for spec, tensor in zip(inputs, example, strict=True):
            (folder / spec["file"]).write_bytes(tensor.numpy().tobytes())
        feeds = {spec["name"]: tensor.numpy() for spec, tensor in zip(inputs, example, strict=True)}
        expected[name] = session.run(feeds)
        listed.append({"name": name, "model": file.name, "inputs": inputs})
    (folder / "cases.json").write_text(json.dumps(listed), encoding="utf-8")
    return expected


def browse(folder: Path, ort: Path, chromium: str) -> dict[str, Any]:
    """What the browser posts."""
    posted: list[dict[str, Any]] = []
    done = threading.Event()

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            kind, _, name = path.lstrip("/").partition("/")
            places = {"ort": ort / name, "files": folder / name}
            return str(places.get(kind, Path(__file__).with_name("page.html")))

        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            done.set()

        def log_message(self, *_: Any) -> None:
            pass

    Handler.extensions_map = {**Handler.extensions_map, ".mjs": "text/javascript", ".wasm": "application/wasm"}
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, tempfile.TemporaryDirectory() as profile:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}/page.html"
        command = [chromium, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", address]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            done.wait(TIMEOUT)
        finally:
            browser.terminate()
            browser.wait(30)
            server.shutdown()
    if not posted:
        sys.exit(f"the browser gave no results within {TIMEOUT} s")
    return posted[0]


def judge(name: str, expected: dict[str, np.ndarray], result: dict[str, Any]) -> list[Comparison]:
    if "error" in result:
        return [incomparable(name, next(iter(expected.values())), result["error"])]
    actual = {
        output["name"]: np.frombuffer(base64.b64decode(output["data"]), output["dtype"]).reshape(output["shape"])
        for output in result["outputs"]
    }
    return [compare(output, array, actual[output]) for output, array in expected.items()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ort", type=Path, required=True, help="the folder dist of onnxruntime-web")
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        expected = prepare(Path(folder))
        posted = browse(Path(folder), options.ort.resolve(), options.chromium)
    lines = ["| file | outputs | largest difference | as native |", "|---|---|---:|---|"]
    failed = False
    for result in posted["results"]:
        comparisons = judge(result["name"], expected[result["name"]], result)
        ok = all(comparison.ok for comparison in comparisons)
        failed |= not ok
        shapes = ", ".join(str(list(array.shape)) for array in expected[result["name"]].values())
        worst = max(comparison.max_abs for comparison in comparisons)
        verdict = "yes" if ok else result.get("error", "no")
        lines.append(f"| {result['name']} | {shapes} | {worst:.1e} | {verdict} |")
    page = [
        "# Files in the browser",
        "",
        "Ten files that `tonnx export --target ort-web` made, run in headless Chromium by ONNX Runtime Web",
        f"{posted['version']} (WebAssembly), beside the same files in ONNX Runtime's CPU. By `make test-web`.",
        "",
        *lines,
        "",
    ]
    print("\n".join(page))
    if options.write:
        options.write.write_text("\n".join(page), encoding="utf-8")
    sys.exit(failed)


if __name__ == "__main__":
    main()
