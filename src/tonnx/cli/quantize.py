"""Make the numbers of any ONNX file smaller, and say what that costs.

Examples:
  tonnx quantize net.onnx --data photos/ --recipe imagenet -o net-int8.onnx
  tonnx quantize net.onnx --data samples.npz --max-loss 0.02 -o net-int8.onnx
  tonnx quantize net.onnx --to fp16 --keep-io -o net-fp16.onnx
  tonnx quantize model.onnx --to int8 -o model-int8.onnx
  tonnx quantize llm.onnx --to int4 --block 64 --skip 'lm_head*' -o llm-int4.onnx
  tonnx quantize llm.onnx --to int4 --data tokens.npz -o llm-int4.onnx
"""

from __future__ import annotations

import argparse

from tonnx.cli import specs
from tonnx.cli.console import Console, Report
from tonnx.ir.target import ORT_CPU


def add_arguments(parser: argparse.ArgumentParser) -> None:
    specs.add_files(parser)
    add = parser.add_argument
    add("--to", choices=("int8", "int4", "fp16", "bf16"), default="int8", help="the smaller numbers")
    add("--block", type=int, default=32, metavar="N", help="numbers that share a scale; 0: all along the axis")
    add("--asymmetric", action="store_true", help="with a zero point for each scale")
    add("--skip", action="append", default=[], metavar="PATTERN", help="names of weights or nodes that stay floats")
    add(
        "--rounding", choices=("auto", "nearest", "gptq"), default="auto",
        help="of weights alone; gptq: so that they make up for each other on the data; auto: gptq with int4 and data",
    )  # fmt: skip
    calibration = parser.add_argument_group("layers that multiply integers")
    add = calibration.add_argument
    add("--data", action="append", metavar="PATH", help="samples: pictures, .npy or .npz files, or folders of them")
    add("--recipe", metavar="R", help="how pictures become what the network takes")
    add("--samples", type=int, metavar="N", help="how many are looked at; all by default")
    add(
        "--method", choices=("auto", "mse", "minmax", "percentile", "entropy"), default="auto",
        help="how ranges are chosen; auto: minmax, or mse where outputs are closer with it",
    )  # fmt: skip
    add("--percentile", type=float, default=99.99, metavar="P", help="of values within the range")
    add(
        "--activations", choices=("8", "16", "dynamic"), default="8", metavar="BITS",
        help="8; 16, from opset 21 on; dynamic: products round to 8 bits as they go, without data",
    )  # fmt: skip
    add("--max-loss", type=float, metavar="X", help="error of the outputs by magnitude; costly layers stay floats")
    help = "ort-cpu (the default); none: int8 activations, for TensorRT and QNN; ort: MatMulNBits for weights alone"
    add("--no-bias-correction", action="store_true", help="biases stay what they are")
    add("--equalise", action="store_true", help="channels between layers get ranges alike")
    add(
        "--smooth", type=float, metavar="POWER",
        help="SmoothQuant: a power of the activations' ranges goes into the weights; 0.5 is usual",
    )  # fmt: skip
    add = parser.add_argument
    add("--keep-io", action="store_true", help="fp16, bf16: inputs and outputs stay float32")
    specs.add(calibration, "--runtime", help, default=ORT_CPU)
    add("--opset", type=specs.opset, metavar="N", help="of the file; that of the original by default")
    specs.add(parser, "--report")


def run(options: argparse.Namespace, console: Console) -> Report:
    from tonnx.api.quantize import quantize
    from tonnx.cli.arrays import of_two_files

    result = quantize(
        options.model,
        options.output,
        symmetric=not options.asymmetric,
        activations=int(options.activations) if options.activations.isdigit() else options.activations,
        correct_bias=not options.no_bias_correction,
        opset_version=options.opset,
        **specs.same(options, "to block skip rounding data recipe samples method percentile max_loss equalise smooth"),
        **specs.same(options, "keep_io runtime report"),
        **of_two_files(options, console),
    )
    return Report(str(result), result.data)
