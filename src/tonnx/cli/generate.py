"""Continue a text with a package, token by token; or rewrite it (translate, summarise), with one that has an encoder.

Examples:
  tonnx generate smollm-onnx "Once upon"
  tonnx generate smollm-onnx "Once upon" "The end" --max-new-tokens 20 --sample --temperature 0.8 --top-p 0.9
  tonnx generate smollm-onnx "Once upon" --beams 4 --json
  tonnx generate opus-mt-en-de-onnx "Good morning" --beams 4
  tonnx generate llava-onnx "What is this? " --image cat.png
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tonnx.cli import specs
from tonnx.cli.console import Console, Report

if TYPE_CHECKING:
    from tonnx.run.package import Package


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package", metavar="PACKAGE", help="the folder that `tonnx export FOLDER` wrote")
    help = "texts to continue or to rewrite; one is shown as it comes"
    parser.add_argument("prompts", nargs="+", metavar="PROMPT", help=help)
    help = "a picture that the text speaks of; one for each prompt"
    parser.add_argument("--image", action="append", metavar="FILE", help=help)
    parser.add_argument("--max-new-tokens", type=int, default=64, metavar="N", help="at most so many; 64 if not given")
    choice = parser.add_argument_group("how tokens are chosen; the likeliest one if nothing is given")
    choice.add_argument("--sample", action="store_true", help="draw them by their probabilities")
    choice.add_argument("--temperature", type=float, default=1.0, metavar="T", help="below 1: likely ones more often")
    choice.add_argument("--top-k", type=int, default=0, metavar="K", help="draw of the K likeliest only")
    choice.add_argument("--top-p", type=float, default=1.0, metavar="P", help="and of those that together have P")
    choice.add_argument("--seed", type=int, default=0, metavar="N", help="repeats the draws")
    choice.add_argument("--beams", type=int, default=1, metavar="N", help="keep so many candidates")
    specs.add(parser, "--provider")
    specs.add(parser, "--threads")


def run(options: argparse.Namespace, console: Console) -> Report:
    console.stage("load")
    from tonnx.errors import InvalidArgument
    from tonnx.run.model import load
    from tonnx.run.package import Package

    package = load(options.package, providers=options.provider, threads=options.threads)
    if not isinstance(package, Package):
        raise InvalidArgument(f"{options.package} is a file, not a package", hint="tonnx run runs a file")
    asked: dict[str, Any] = {
        **specs.same(options, "max_new_tokens temperature top_k top_p seed"),
        "do_sample": options.sample,
        "num_beams": options.beams,
        "images": options.image,
    }
    if len(options.prompts) == 1 and options.beams == 1 and not options.json and not options.quiet:
        stream = package.stream(options.prompts[0], **asked)
        first = next(stream, "")  # what is wrong with the options is said before anything is shown
        return Report("", dict, pieces=_after(_shown(package, options.prompts[0]) + first, stream))
    console.stage("generate")
    results = package.generate(options.prompts, **asked)
    data = [
        {"prompt": prompt, "text": result.text, "tokens": result.tokens}
        for prompt, result in zip(options.prompts, results, strict=True)
    ]
    lines = [f"{_shown(package, prompt)}{result}" for prompt, result in zip(options.prompts, results, strict=True)]
    return Report("\n".join(lines), lambda: {"results": data})


def _shown(package: Package, prompt: str) -> str:
    """What stands before the result: a prompt that is continued."""
    return prompt if package.continues else ""


def _after(first: str, pieces: Any) -> Any:
    yield first
    yield from pieces
