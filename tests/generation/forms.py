"""Packages of a few families at every opset, and with ONNX Runtime's own operators. ``make test-generate-forms``.

The table of opsets, token for token; and what ``runtime="ort"`` finds in families with caches of several kinds.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tools.site_data import write_page

from tests.generation.packages import SECONDS, TOKENS, in_fork

OPSETS = (11, 14, 17, 18, 21, 23, 24)
FAMILIES = (
    "CAUSAL_LM:llama", "CAUSAL_LM:qwen3", "CAUSAL_LM:gpt2", "SEQ_TO_SEQ_CAUSAL_LM:t5", "SPEECH_SEQ_2_SEQ:whisper",
)  # fmt: skip
OWN = """
llama qwen2 qwen3 mistral gemma2 gemma3_text phi3 gpt2 gpt_neox gptj glm4 cohere2 falcon bloom opt stablelm mixtral
qwen3_moe deepseek_v3 gpt_oss smollm3 olmo2 granite
""".split()
PAGE = """# Forms of language models: opsets, and ONNX Runtime's own operators

Written by `make test-generate-forms`: tiny models (2 layers, random weights) made packages by `tonnx.export_package`
with its default proof: the files compute what the model does, and {tokens} greedy tokens are `generate`'s at batch 1
and 3, with padding in front, with scores compared after a past of 0, 1 and 7. transformers {transformers}, ONNX Runtime
{onnxruntime}; {seconds} seconds of processor time for each.

## Opsets

From opset 23 on there is one Attention for each layer, with past and present, and RotaryEmbedding and RMSNormalization;
below, they are written out.

| family |{columns}|
|---|{rule}
{rows}

## `runtime="ort"`

The operators of com.microsoft in the files. Without an opset a package is one of opset 24, at which attention is ONNX's
own operator in every layer: it hides later tokens and padding by itself. At opset 18 GroupQueryAttention stands where a
layer has a cache, a mask that shows no token a later one (windows and padding are in its bias) and heads of a multiple
of 8; elsewhere attention is written out. Several tokens after a past are for one text at a time with it, which the
result says and `tonnx generate` minds.

| family | package | at opset 18 |
|---|---|---|
{own}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", help="parts of names, such as llama@23,gemma2@ort; all if not given")
    parser.add_argument("--results", type=Path, required=True, help="JSON; what is in it is not tried again")
    parser.add_argument("--write", type=Path, help="the page that is written")
    options = parser.parse_args()
    import transformers

    import tonnx.packages.export  # noqa: F401 (before the first fork)

    transformers.logging.set_verbosity_error()
    results = json.loads(options.results.read_text()) if options.results.exists() else {}
    asked = {f"{family}@{opset}": {"opset_version": opset} for family in FAMILIES for opset in OPSETS}
    asked |= {f"CAUSAL_LM:{family}@ort": {"runtime": "ort", "opset_version": None} for family in OWN}
    asked |= {f"CAUSAL_LM:{family}@ort18": {"runtime": "ort", "opset_version": 18} for family in OWN}
    for case, how in asked.items():
        is_wanted = options.cases is None or any(part in case for part in options.cases.split(","))
        if is_wanted and (case not in results or options.cases):
            results[case] = in_fork(case.partition("@")[0], **how)
            print(case, results[case], flush=True)
            options.results.write_text(json.dumps(results, indent=1))
    if options.write:
        write_page(options.write, page(results))
    return 0


def page(results: dict[str, str]) -> str:
    """The page of what there is so far."""
    import onnxruntime
    import transformers

    lines = []
    for family in FAMILIES:
        cells = [results.get(f"{family}@{opset}", "not run") for opset in OPSETS]
        lines.append(f"| {family.partition(':')[2]} | {' | '.join(cells)} |")
    own = []
    for family in OWN:
        forms = [results.get(f"CAUSAL_LM:{family}@{form}", "not run") for form in ("ort", "ort18")]
        own.append(f"| {family} | {' | '.join(forms)} |")
    return PAGE.format(
        tokens=TOKENS, seconds=SECONDS, transformers=transformers.__version__, onnxruntime=onnxruntime.__version__,
        columns=" | ".join(f" {opset} " for opset in OPSETS), rule="---|" * len(OPSETS), rows="\n".join(lines),
        own="\n".join(own),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
