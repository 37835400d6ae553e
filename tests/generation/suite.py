"""Language models of transformers: exported, proven, and generating the same tokens. ``make test-generate``.

Each family in a process of its own, with a time limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.site_data import write_page

from tests.generation.families import FAMILIES

SECONDS = 600
PACKAGES = "\n## Packages\n"
NOT_APPLICABLE = "no keys and values"
PAGE = """# Generation: language models of transformers

Written by `make test-generate`: tiny models of each family (2 layers, width 32, random weights), opset {opset}, dynamic
batch, sequence and past, default proof. transformers {transformers}, PyTorch {torch}, ONNX Runtime {onnxruntime}.

- **as it is**: `tonnx.export(model, (ids,))`; the cache is among the outputs.
- **with its cache**: the same with a cache among the inputs, the mask's length given as `past + sequence`.
- **by hand**: a wrapper with flat tensors, names that do not say that the mask is as long as past and sequence.
- **tokens**: {tokens} greedy tokens of the file with the cache equal those of `generate`, at batch 1 and 2, with a
  prompt that is given at once, after 1 token and after 7.

| family | {columns} |
|---|{rule}|
{rows}

{counts}
"""


def run_case(family: str) -> dict[str, str]:
    """All columns of a family, in this process."""
    from tests.generation.case import COLUMNS, Case
    from tonnx.errors import TonnxError

    results: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            case = Case(family, Path(folder))
        except Exception as error:
            return dict.fromkeys(COLUMNS, f"no tiny model: {line(error)}")
        for name, column in COLUMNS.items():
            try:
                results[name] = column(case)
            except Exception as error:
                kind = "refused" if isinstance(error, TonnxError) else "fails"
                results[name] = f"{kind}: {line(error)}"
    return results


def line(error: Exception) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}"[:160].replace("|", "/")


def in_process(family: str) -> dict[str, str]:
    from tests.generation.case import COLUMNS

    command = [sys.executable, "-m", "tests.generation.suite", "--case", family]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return dict.fromkeys(COLUMNS, f"more than {SECONDS} s")
    last = done.stdout.strip().splitlines()[-1:] or [""]
    if done.returncode or not last[0].startswith("{"):
        return dict.fromkeys(COLUMNS, f"the process ends with {done.returncode}")
    results: dict[str, str] = json.loads(last[0])
    return results


def is_right(result: str) -> bool:
    return result == "ok" or result.startswith(("right where", NOT_APPLICABLE))


def _count(results: list[str]) -> str:
    tried = [result for result in results if not result.startswith(NOT_APPLICABLE)]
    return f"{sum(map(is_right, tried))} of {len(tried)}"


def page(results: dict[str, dict[str, str]]) -> str:
    import onnxruntime
    import torch
    import transformers

    from tests.generation.case import COLUMNS, NEW_TOKENS, OPSET

    rows = [f"| {family} | {' | '.join(row[name] for name in COLUMNS)} |" for family, row in results.items()]
    counts = [f"{name}: {_count([row[name] for row in results.values()])}" for name in COLUMNS]
    return PAGE.format(
        opset=OPSET, tokens=NEW_TOKENS, transformers=transformers.__version__, torch=torch.__version__,
        onnxruntime=onnxruntime.__version__, columns=" | ".join(COLUMNS), rule="|".join(["---"] * len(COLUMNS)),
        rows="\n".join(rows), counts=" · ".join(counts),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", default=",".join(FAMILIES), help="a,b; or all that transformers has")
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--case", help="one family, in this process; prints JSON")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(run_case(options.case)))
        return 0
    families = options.families.split(",")
    if families == ["all"]:
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

        families = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    results = {}
    for family in families:
        results[family] = in_process(family)
        print(family, results[family], flush=True)
    if options.write:
        written = options.write.read_text(encoding="utf-8") if options.write.exists() else ""
        _, mark, packages = written.partition(PACKAGES)  # written by tests.generation.packages
        write_page(options.write, page(results) + mark + packages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
