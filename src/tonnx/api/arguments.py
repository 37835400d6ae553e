"""What the functions of the API take, in words: the second half of docstrings longer than a function should be."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

ARGUMENTS = """
Args:
    model: a ``torch.nn.Module`` (in any mode; it is put back as it was), a ``torch.export.ExportedProgram``, a
        TorchScript module or function, the path of an archive of ``torch.jit.save`` or ``torch.export.save``, or
        the path of a saved Paddle model: ``inference.json``, ``inference.pdmodel``, or the folder of one.
    args: example inputs: a tensor, or a tuple that may nest lists, tuples and dicts; for a Paddle model arrays by
        input name, or nothing.
    f: a path, a binary file-like object, or None to write nothing.
    kwargs: example keyword inputs.
    input_names, output_names: names of the file's inputs and outputs, in order.
    opset_version: 1 to 26; 18 if not given. ONNX Runtime runs 7 and up.
    target: what the file is for, by name, such as ``"tensorrt-8.6"``: it chooses the opset, if none is asked for, and
        the runtime; operators and element types that the target has not are written with others, shapes are fixed
        where it takes no others, and what is left is refused by node and line. ``tonnx.check`` says it of any file.
    dynamic_axes: ``{"input": {0: "batch"}}`` or ``{"input": [0, 2]}``, for inputs and outputs.
    dynamic_shapes: the same as ``torch.export`` takes it; names as strings are allowed.
    input_spec: the inputs of a Paddle layer, as ``paddle.jit.save`` takes them; tensors in ``args`` do, too.
    params: the weights of a saved Paddle model, if they do not lie beside it.
    input_shapes: ``{"x": [1, 3, 48, 320]}`` fixes or names the dimensions of a Paddle model's inputs; -1 keeps one.
    export_params: False leaves the weights out: they become inputs.
    do_constant_folding: evaluate what depends on weights and constants only.
    fuse_conv_bn: fold batch normalisation into the convolution before it.
    keep_initializers_as_inputs: list the weights among the inputs too, as IR version 3 did.
    training: EVAL (the default), PRESERVE or TRAINING, as ``torch.onnx.TrainingMode`` or by name: the mode that the
        model is in. In training, dropout and batch normalisation are written as such.
    operator_export_type: what becomes of operators that cannot be exported, as ``torch.onnx.OperatorExportTypes``
        or by name. ONNX refuses them. ONNX_ATEN_FALLBACK makes nodes of the domain ``org.pytorch.aten`` of them,
        ONNX_ATEN of all PyTorch operators; no runtime runs such a file.
    custom_opsets: versions of the domains of custom operators, such as ``{"my.domain": 2}``; 1 if not given.
    custom_translation_table: ``{torch.ops.ns.op: function}``; see the page on custom operators, and `tonnx.lower`.
    capture: how a PyTorch model becomes a graph. ``auto``: recorded by tonnx itself; by ``torch.export`` where
        that does not do; by ``torch.jit.script``, else ``torch.jit.trace``, where neither does or scripted parts have
        branches. ``record``, ``export``, ``script`` and ``trace`` force one; a forced trace keeps the
        one path that the example takes.
    external_data: True writes the weights to ``<f>.data``; None does so only above 2 GiB.
    weights: ``copy`` writes them. ``reference`` leaves them in the files that hold them already, which the ONNX file
        points into: those that the weights were mapped from (by ``safetensors`` or ``torch.load(mmap=True)``), a
        Paddle model's ``.pdiparams``, or files beside ``f``; a path or a list of them names ``.safetensors`` files,
        archives of ``torch.save`` or ONNX files with external data. They must lie in the folder of ``f`` or below.
        Weights are compared before they are pointed at, and those that would have to be rewritten are left to the
        runtime; the result says which.
    recipe: what comes before and after the network, kept in the file for ``tonnx run``: a ready recipe's name, a
        TOML or YAML file, or a dict.
    embed_preprocessing: put the recipe's steps before the network into the file, which then takes uint8 pictures.
    runtime: whose gaps and habits the file works around: ``ort-cpu``, ONNX Runtime's CPU; ``ort``, the same with
        its own operators (com.microsoft) for sums that are normalised, weights in blocks of integers and, below opset
        23, attention with a cache and rotations; or
        None, such as for TensorRT or QNN, which want int8 weights with zero point 0. The result says what was done.
    report: also write a page about the file: True beside it, or the path of the page. See `tonnx.report`.
    verbose: print the stages, the nodes and the result.
    verify: check, load and run the file, and compare it with the model, also at other sizes of every dynamic
        dimension. On a mismatch `VerificationFailed` is raised and the file is left as ``<f>.failed.onnx``. True takes
        about as long as three runs of the model, or half a second of processor time; ``"quick"`` tries only what no
        proof goes without (the example, one other size of every dynamic dimension, one other draw), ``"thorough"``
        all there is, a number as many seconds. What was left out is said.
    rtol, atol: tolerances; by default those of each output's dtype (float32: 1e-3 and 1e-5).
    progress: called with the name of each stage as it begins.
    classic: other arguments that ``torch.onnx.export`` has or had, such as ``dynamo``, ``strip_doc_string`` or
        ``use_external_data_format``. What has no meaning here is accepted, and answered in the result's notes.
        Arguments after ``f`` may also come by position, in the classic order.
"""

QUANTIZE = """
Args:
    model: a path, the file's bytes, an ``onnx.ModelProto`` or an onnx-ir model. It is not changed.
    f: where to write; None writes nothing.
    to: ``int8``, ``int4``, ``fp16`` or ``bf16``. Tables that rows are gathered from have 8 bits in both kinds of
        integers; convolutions stay floats in ``int4``. Nodes that overflow or lose too much in half precision are
        found by emulation, on the data or on drawn inputs, and stay in float32.
    block: how many numbers share a scale, along the axis that is summed over; 0: all of them. Convolutions have one
        scale for each channel.
    symmetric: False adds a zero point to each scale: closer for weights that lean to one side.
    skip: patterns such as ``lm_head*``, of the names of weights or nodes that stay floats.
    rounding: of weights alone: ``nearest``, or ``gptq``, which rounds matrices so that errors make up for each other
        in what the data multiply them with. ``auto`` is ``gptq`` for ``int4`` with data; ``int8`` with data has layers
        multiply integers unless this is ``gptq``.
    data: samples to calibrate with: paths of pictures, ``.npy`` or ``.npz`` files, or folders of them; or an
        iterable of arrays, tuples of arrays, or dicts of arrays by input name. With ``int8`` layers multiply integers
        then.
    recipe: how pictures become what the network takes, as in `tonnx.load`.
    samples: how many rows of the data are looked at; all of them by default.
    method: how ranges are chosen: ``mse``, ``minmax``, ``percentile``, ``entropy``; ``auto`` takes
        ``minmax``, or ``mse`` where the outputs are closer with that, on samples that ranges were not found on.
    percentile: the share of values within the range that ``percentile`` chooses.
    activations: bits of what layers multiply by their weights, 8 or 16; 16 need opset 21. ``dynamic``: products
        round to 8 bits in a range that is found anew each time, without data.
    max_loss: the layers that cost most stay floats until the error of the outputs, by their magnitude, is at most
        this: 0.01 is 40 dB. With ``metric``: by how much that may fall.
    metric: the user's own measure, larger is better: called with a function that runs the network on a dict of
        arrays and gives a dict of arrays.
    opset_version: of the file; that of the original by default. Blocks and 4 bits are written out before 21, where
        4 bits take the space of 8.
    correct_bias: biases make up for what rounded weights change of the means of a layer's results.
    equalise: channels between two layers get the same range on both sides, by weights alone (cross-layer equalisation).
    smooth: SmoothQuant: this power of the ranges of activations goes into the weights that they are multiplied by; 0.5
        is usual. Where a normalisation or a layer makes them, the network has no more nodes for it.
    keep_io: of half precision: inputs and outputs stay float32.
    runtime: of networks that multiply integers: ``ort-cpu`` fits the file to ONNX Runtime's CPU, where activations
        are uint8; None keeps int8, which TensorRT and QNN want. ``ort`` with weights alone: products are MatMulNBits
        of com.microsoft, 4 bits in any opset.
    inputs: arrays by input name for the proof and the loss; random ones that fit the input types otherwise.
    verify: run the file beside the original with rounded weights, and that beside the original as it is.
    external_data: True writes the weights to ``<f>.data``; None keeps one file below 2 GiB.
    report: also write a page about the file, with its layers by what each costs: True beside it, or the path.
    progress: called with the name of each stage as it begins.
"""

RETARGET = """
Args:
    model: a path, the file's bytes, an ``onnx.ModelProto`` or an onnx-ir model. It is not changed.
    opset: 1 to 26. Below 7 the file is proven at opset 7, brought up by onnx's own version converter.
        May be left out if there is a ``target``, which chooses one.
    f: where to write; None writes nothing.
    target: what the file is for, by name, as `tonnx.export` takes it.
    sizes: dynamic dimensions that get a fixed size: ``{"batch": 1}``, or ``{"x.2": 224}`` for an axis of an input.
    inputs: arrays by input name for the proof; random ones that fit the input types otherwise.
    verify: run both models in ONNX Runtime and compare; also at other sizes of dynamic dimensions.
    rtol, atol: tolerances, by default those of each output's dtype.
    external_data: True writes the weights to ``<f>.data``; None keeps one file below 2 GiB.
    weights: ``reference`` leaves them in the data file of the original, which has to lie in the folder of ``f`` or
        below; ``copy`` writes them anew.
    runtime: ``ort-cpu`` fits the file to ONNX Runtime's CPU, as `tonnx.export` does, ``ort`` with its own operators
        (at opset 23 and above there are more that it sees); None leaves it as it is.
    report: also write a page about the file: True beside it, or the path of the page. See `tonnx.report`.
    progress: called with the name of each stage as it begins.
"""

PACKAGE = """
Args:
    source: a folder with config.json, safetensors and tokenizer; or one of diffusers, with a model_index.json.
    output: the folder to write; it must not exist, or be an older package.
    task: what it is for; by default what the config says.
    runtime: as of `tonnx.export`; ``"ort"`` writes ONNX Runtime's own operators where they fit, and opset 24 if none is
        asked for, at which attention is an operator of ONNX (ONNX Runtime 1.28 and newer).
    layout: ``"plain"`` has the ONNX files beside the settings, ``"optimum"`` in the folder onnx.
    weights: ``"copy"`` writes them into the ONNX files, or beside them if they are large; with ``"reference"`` the
        package has the checkpoint's safetensors, and all its ONNX files point into those.
    verify: prove the file, as `tonnx.export` does it, and the package by its use: so many greedy ``tokens`` must be
        the model's.
    to: ``"int8"`` or ``"int4"`` stores the weights so, ``"fp16"`` computes in half precision, as `tonnx.quantize` does,
        after the package was proven with floats; the files are named as transformers.js looks for them. 4 bits are of
        opset 21 by default.
    trust_remote_code: run Python code that the checkpoint brings.
    allow_pickle: read weights from pickles, which can run code.
    progress: called with the name of each stage.
"""


def documented(arguments: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Put what is said of the arguments behind a function's docstring, for ``help``."""

    def complete(function: Callable[P, R]) -> Callable[P, R]:
        if function.__doc__:  # not under python -OO
            function.__doc__ = f"{inspect.cleandoc(function.__doc__)}\n\n{arguments.strip()}\n"
        return function

    return complete
