"""Tokens per second of tonnx's package, beside the files of optimum-onnx and of onnxruntime-genai's builder.

    python bench/generate.py [--turns 9] [--optimum PYTHON] [--builder PYTHON] [--write docs/bench.md]

A Llama of random weights, 4 layers of width 512: a prompt of 128 tokens, then 128 tokens one by one, one thread. All
files run by ONNX Runtime in one process, in turns, with the keys and values handed on as they come; a ratio is the
median of the turns' ratios, in processor time: machines are shared. What an export costs is the processor time of a
process, with and without that of importing. Each peer has an environment of its own; one that fails is a result, too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from document import write_section

ROOT = Path(__file__).resolve().parent.parent

SIZES = {
    "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 512,
}  # fmt: skip
PROMPT, NEW = 128, 128
PLAIN, OWN, OPTIMUM, BUILDER = "tonnx", "tonnx, `--runtime ort`", "optimum-onnx", "onnxruntime-genai's builder"
EXPORTS = {
    PLAIN: "import tonnx; work = lambda: tonnx.export_package(source, out)",
    OWN: "import tonnx; work = lambda: tonnx.export_package(source, out, runtime='ort')",
    f"{PLAIN}, not proven": "import tonnx; work = lambda: tonnx.export_package(source, out, verify=False)",
    OPTIMUM: "from optimum.exporters.onnx import main_export; "
    "work = lambda: main_export(source, out, task='text-generation-with-past', do_validation=True)",
    BUILDER: "import runpy, sys, onnxruntime_genai; "
    "sys.argv = ['builder', '-i', source, '-o', out, '-p', 'fp32', '-e', 'cpu', '-c', out + '/cache']; "
    "work = lambda: runpy.run_module('onnxruntime_genai.models.builder', run_name='__main__')",
}
"""What is run for each, in a process of its own: what is imported first is not counted."""
TIMED = """
import json, resource, sys, warnings
warnings.simplefilter("ignore")
source, out, how, root = sys.argv[1:]
import torch
if "import tonnx" in how:
    sys.path.insert(0, root)
    import tests.generation.families
    import tonnx.packages.export
import transformers, onnxruntime
transformers.LlamaForCausalLM  # its module: some import it before they are called, others when they are
torch.set_num_threads(1)
namespace = dict(source=source, out=out)
exec(how, namespace)
def seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
before = seconds()
namespace["work"]()
print(json.dumps([seconds() - before, seconds()]))
"""


@dataclass
class Turn:
    """Processor seconds of one run."""

    prefill: float
    decode: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--optimum", default="", help="the Python of an environment with optimum-onnx")
    parser.add_argument("--builder", default="", help="the Python of an environment with onnxruntime-genai and torch")
    parser.add_argument("--write", type=Path, help="put the table into this Markdown file")
    options = parser.parse_args()
    pythons = {OPTIMUM: options.optimum, BUILDER: options.builder}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        write_checkpoint(source)
        costs: dict[str, tuple[float, float] | str] = {}
        for place, name in enumerate(EXPORTS):
            python = pythons.get(name, sys.executable)
            costs[name] = exported(source, Path(folder) / str(place), name, python) if python else "not tried"
            print(f"{name}: {costs[name]}", file=sys.stderr, flush=True)
        files = {
            name: next((Path(folder) / str(place)).rglob("*.onnx"))
            for place, name in enumerate(EXPORTS)
            if isinstance(costs[name], tuple) and not name.endswith("not proven")
        }
        turns = measured(files, options.turns)
    page = render(costs, turns, options.turns)
    if options.write:
        write_section(options.write, "generate", "Tokens per second", page)
    print(page)


def write_checkpoint(folder: Path) -> None:
    """A model of random weights with a tokenizer that the builder finds something to copy of."""
    sys.path.insert(0, str(ROOT))
    import tests.generation.families  # noqa: F401 (first: transformers imports torchvision)
    import tokenizers

    # isort: split
    import torch
    import transformers

    torch.manual_seed(0)
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **special)).save_pretrained(folder)
    words = {f"w{place}": place for place in range(SIZES["vocab_size"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "w0", "bos_token": "w1", "eos_token": "w2"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    # What versions before 5 read
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": 10000.0, "torch_dtype": "float32"}))


def exported(source: Path, out: Path, name: str, python: str) -> tuple[float, float] | str:
    """Processor seconds of an export, and of the process with its imports; or why there are none."""
    script = source.parent / "timed.py"
    script.write_text(TIMED)
    ended = subprocess.run(
        [python, str(script), str(source), str(out), EXPORTS[name], str(ROOT)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    last = (ended.stderr.strip().splitlines() or [""])[-1]
    if ended.returncode:
        return f"fails: {last}"
    alone, whole = json.loads(ended.stdout.strip().splitlines()[-1])
    return alone, whole


class File:
    """A decoder with its keys and values."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs = {port.name: port for port in self._session.get_inputs()}
        self._outputs = [port.name for port in self._session.get_outputs()]

    def run(self) -> tuple[Turn, list[int]]:
        """The prompt, then tokens one by one, the likeliest each: what both cost, and the tokens."""
        rng = np.random.default_rng(0)
        ids = rng.integers(3, SIZES["vocab_size"], (1, PROMPT))
        width = SIZES["hidden_size"] // SIZES["num_attention_heads"]
        empty = np.zeros((1, SIZES["num_key_value_heads"], 0, width), np.float32)
        names = [name for name in self._inputs if name.startswith("past_key_values.")]
        state: dict[str, Any] = {name: onnxruntime.OrtValue.ortvalue_from_numpy(empty) for name in names}
        begun = time.process_time()
        token, state = self._step(ids, 0, state)
        prefilled = time.process_time()
        tokens = [token]
        for count in range(NEW):
            token, state = self._step(np.array([[token]]), PROMPT + count, state)
            tokens.append(token)
        return Turn(prefilled - begun, time.process_time() - prefilled), tokens

    def _step(self, ids: np.ndarray, past: int, state: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        total = past + ids.shape[1]
        known = {
            "input_ids": ids,
            "attention_mask": np.ones((1, total)),
            "position_ids": np.arange(past, total)[None],
        }
        feeds = dict(state)
        for name, array in known.items():
            if name in self._inputs:
                feeds[name] = onnxruntime.OrtValue.ortvalue_from_numpy(array.astype(np.int64))
        results = dict(zip(self._outputs, self._session.run_with_ort_values(self._outputs, feeds), strict=True))
        token = int(results["logits"].numpy()[0, -1].argmax())
        return token, {name: results[name.replace("past_key_values", "present")] for name in state}


def measured(files: dict[str, Path], count: int) -> dict[str, list[Turn]]:
    """So many turns of each, after one that is not counted; all must generate the same."""
    loaded = {name: File(path) for name, path in files.items()}
    tokens = {name: file.run()[1] for name, file in loaded.items()}
    for name in tokens:
        if tokens[name] != tokens[PLAIN]:
            print(f"{name} generates other tokens than {PLAIN}", file=sys.stderr)
    turns: dict[str, list[Turn]] = {name: [] for name in files}
    for _ in range(count):
        for name, file in loaded.items():
            turns[name].append(file.run()[0])
    return turns


def render(costs: dict[str, tuple[float, float] | str], turns: dict[str, list[Turn]], count: int) -> str:
    """The table."""
    lines = [
        f"`make bench-generate`: a Llama of 4 layers, width {SIZES['hidden_size']}, random weights: a prompt of "
        f"{PROMPT} tokens, then {NEW} one by one, by ONNX Runtime {onnxruntime.__version__} on one thread, {count} "
        "turns of all files; medians of processor time. Ratios are of tokens per second, ours over the peer's.",
        "",
        "| file | prefill, tokens/s | decode, tokens/s | export, s: alone / the process |",
        "|---|---|---|---|",
    ]
    for name, cost in costs.items():
        speeds = ["", ""]
        if name in turns:
            speeds = [
                f"{PROMPT / statistics.median(turn.prefill for turn in turns[name]):,.0f}",
                f"{NEW / statistics.median(turn.decode for turn in turns[name]):,.0f}",
            ]
        told = f"{cost[0]:.1f} / {cost[1]:.1f}" if isinstance(cost, tuple) else cost
        lines.append(f"| {name} | {speeds[0]} | {speeds[1]} | {told} |")
    lines += ["", "| ratio | prefill | decode |", "|---|---|---|"]
    for ours in (PLAIN, OWN):
        for peer in (OPTIMUM, BUILDER):
            if ours in turns and peer in turns:
                pairs = list(zip(turns[ours], turns[peer], strict=True))
                prefill = statistics.median(theirs.prefill / own.prefill for own, theirs in pairs)
                decode = statistics.median(theirs.decode / own.decode for own, theirs in pairs)
                lines.append(f"| {ours} : {peer} | {prefill:.2f} | {decode:.2f} |")
    proven, other = costs[PLAIN], costs.get(OPTIMUM)
    if isinstance(proven, tuple) and isinstance(other, tuple):
        alone, whole = (own / theirs for own, theirs in zip(proven, other, strict=True))
        named = "optimum-onnx's with its validation"
        lines += ["", f"Export with its proof: {alone:.2f} of {named}, {whole:.2f} with imports."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
