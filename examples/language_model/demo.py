"""Train a small language model on the licence of Python, make an ONNX package of it, and let the package write.

    python examples/language_model/demo.py

Needs transformers and tokenizers for the training and the export; the package runs with ONNX Runtime and tokenizers.
Writes `out/checkpoint` and `out/package` beside this file.
"""

from __future__ import annotations

import argparse
import sysconfig
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import tonnx

OUT = Path(__file__).with_name("out")
CONTEXT = 96
PROMPT = "PYTHON SOFTWARE"


def licence() -> str:
    """The text that Python itself comes with."""
    file = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    if not file.exists():
        raise SystemExit(f"this Python was installed without its licence ({file})")
    return file.read_text(encoding="utf-8")


def tokenizer_of(text: str) -> PreTrainedTokenizerFast:
    """One token for each character of the text."""
    vocabulary = {character: number for number, character in enumerate(["<unk>", "<s>", *sorted(set(text))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="<s>")


def trained(tokens: torch.Tensor, vocabulary: int, steps: int) -> LlamaForCausalLM:
    """A decoder of three layers, after so many steps of sixteen pieces of the text each."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    model = LlamaForCausalLM(config).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        starts = torch.randint(len(tokens) - CONTEXT, (16,))
        rows = torch.stack([tokens[start : start + CONTEXT] for start in starts.tolist()])
        loss = model(input_ids=rows, labels=rows).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 100 == 0 or step == steps:
            print(f"step {step}: {loss.item():.2f} nats a character", flush=True)
    return model.eval()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500, help="how long to train (500: a minute on two cores)")
    options = parser.parse_args()
    text = licence()
    tokenizer = tokenizer_of(text)
    model = trained(torch.tensor(tokenizer(text).input_ids), len(tokenizer), options.steps)
    model.save_pretrained(OUT / "checkpoint")
    tokenizer.save_pretrained(OUT / "checkpoint")

    print()
    print(tonnx.export_package(OUT / "checkpoint", OUT / "package"))
    package = tonnx.load(OUT / "package")
    print(f"\n{PROMPT}", end="")
    for piece in package.stream(PROMPT, max_new_tokens=300):
        print(piece, end="", flush=True)
    print()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
