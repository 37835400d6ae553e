"""Everything of others that is changed while a model is captured: what, by what, and why."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import _lru_cache_wrapper, partial
from types import BuiltinFunctionType, ModuleType

import torch

from tonnx.frontends.patching import How, Patch
from tonnx.frontends.torch import versions
from tonnx.frontends.torch.call.plain import original_of
from tonnx.frontends.torch.capture.explain import Frozen, quiet_torch
from tonnx.frontends.torch.capture.patches import (
    attention,
    autograd,
    checks,
    losses,
    packed_sequences,
    recurrent,
    torchvision,
)
from tonnx.frontends.torch.capture.patches.associative_scan import associative_scan
from tonnx.frontends.torch.capture.patches.fake_quantisers import fake_quantisers
from tonnx.frontends.torch.capture.patches.fast_lengths import fast_lengths
from tonnx.frontends.torch.capture.patches.multiples import multiples
from tonnx.frontends.torch.capture.patches.numbers import python_numbers
from tonnx.frontends.torch.capture.patches.numpy_sizes import numpy_sizes
from tonnx.frontends.torch.capture.patches.plain_sizes import plain_sizes
from tonnx.frontends.torch.capture.patches.pools import pools
from tonnx.frontends.torch.capture.patches.quantised_layers import quantised_layers
from tonnx.frontends.torch.capture.patches.ramps import ramps
from tonnx.frontends.torch.capture.patches.resizing import resizing
from tonnx.frontends.torch.capture.patches.shapes import shapes
from tonnx.frontends.torch.capture.patches.short_sizes import short_sizes
from tonnx.frontends.torch.capture.patches.size_questions import size_questions
from tonnx.frontends.torch.capture.python_flow.replace_code import Rewrites
from tonnx.frontends.torch.capture.python_flow.values import number_kept
from tonnx.frontends.torch.capture.python_flow.variables import register_buffer, set_module_attribute
from tonnx.frontends.torch.capture.settled_values import number_patches
from tonnx.frontends.torch.capture.sizes_in_tensors import proxy_patches
from tonnx.frontends.torch.late_compiler import function_rules

_UNROLLED = "its shape is found by unrolling the loop over time, which fixes the time axis"
_PACKED = "shapes that depend on the lengths' values; here the padded tensor and its lengths go all the way"
_BOXES = "it asks how many boxes there are, which a capture cannot know"

_BYTES = "a mask of bytes is one for the kernel, but not where PyTorch finds the shape"
_NESTED = "torch.export sets it, and forgets it in the middle of another one that is around it"

FOREIGN = (
    *(Patch("torch._VF", kind, partial(recurrent.recurrent, kind), _UNROLLED)
      for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")),
    Patch(
        "torch.nn.modules.transformer", "_detect_is_causal_mask", recurrent.is_causal,
        "it looks into the mask for a hint that is for speed only", optional=True,
    ),
    Patch("torch", "max_pool1d", recurrent.max_pool1d, "it reads the length as a plain number, which fixes it"),
    Patch("torch", "istft", recurrent.istft, "it takes the length as a plain number, which fixes it"),
    Patch("torch", "affine_grid_generator", recurrent.affine_grid, "it reads the sizes as plain numbers"),
    Patch(
        "torch.nn.functional", "gaussian_nll_loss", losses.gaussian_nll_loss,
        "it checks that no variance is negative", How.CODE,
    ),
    Patch(
        "torch.nn.functional", "linear_cross_entropy", losses.linear_cross_entropy,
        "chunks are a custom operator", How.CODE, optional=True,
    ),
    Patch("torch", "_is_all_true", checks.all_true, "torch.distributions look at the values of their arguments"),
    *versions.since((2, 15), Patch(
        "torch.distributions.distribution", "_all_true_or_runtime_assert", checks.all_true_or_told,
        "the same; it would assert in the program",
    )),
    Patch("torch", "_check_with", checks.check_with, "a check of values is no part of the file"),
    Patch(
        "torch.nn.functional", "scaled_dot_product_attention", attention.attention,
        "whether it is causal may depend on a size, and it takes plain answers only",
    ),
    Patch(
        "torch.backends.opt_einsum", "enabled", False, "it counts what an order of products costs in plain numbers",
        How.VALUE,
    ),
    Patch("torch._VF", "_pack_padded_sequence", packed_sequences.pack, _PACKED),
    Patch("torch.nn.utils.rnn", "pad_packed_sequence", packed_sequences.pad_packed_sequence, _PACKED, How.CODE),
    Patch(
        "torch.nn.utils.rnn", "pad_sequence", packed_sequences.pad_sequence,
        "it goes through a list, of which only the run knows the length", How.CODE,
    ),
    Patch("torch.nn.LSTM", "forward", packed_sequences.layer_forward, _PACKED),
    Patch("torch.nn.GRU", "forward", packed_sequences.layer_forward, _PACKED),
    Patch("torch.nn.RNN", "forward", packed_sequences.layer_forward, _PACKED),
    Patch("torchvision.ops.boxes", "batched_nms", torchvision.batched_nms, _BOXES, optional=True),
    Patch("torchvision.models.detection._utils.BoxCoder", "decode", torchvision.decode, _BOXES, optional=True),
    Patch("torchvision.models.detection._utils", "_topk_min", torchvision.topk_min, _BOXES, optional=True),
    Patch("torchvision.ops.poolers", "_infer_scale", torchvision.infer_scale, "it makes a tensor of sizes",
          optional=True),
    Patch(
        "torch._higher_order_ops.associative_scan", "associative_scan", associative_scan,
        "it is one operator for the graphics card only, else it is unrolled", How.CODE, optional=True,
    ),
    Patch(
        "torch.autograd.function.FunctionMeta", "__getattribute__", autograd.class_attribute,
        "classes with a `symbolic` stay whole",
    ),
    Patch("torch.nn.Module", "__setattr__", set_module_attribute, "what the sides of a branch set is put back"),
    Patch("torch.nn.Module", "register_buffer", register_buffer, "the same"),
    Patch("torch._subclasses.fake_tensor.SymNumberMemoDescriptor", "__set__", number_kept,
          "a number that one side of a branch found out is not there after it", optional=True),
    Patch("torch.onnx", "is_in_onnx_export", lambda original: True, "models ask it, to take a way that exports",
          How.CODE, when_imported="torch.onnx"),
    Patch("torch._dynamo.trace_rules", "get_torch_obj_rule_map", function_rules,
          "made meanwhile, it serves the process ever after", when_imported="torch._dynamo.trace_rules"),
    Patch("torch.Tensor", "as_subclass", checks.as_subclass, "a tensor of a capture is one of its own class"),
    Patch("torch", "where", checks.where, _BYTES),
    Patch("torch.Tensor", "where", checks.tensor_where, _BYTES),
)  # fmt: skip
"""Functions of PyTorch and torchvision."""

OF_TORCH_EXPORT = (
    Patch(
        "torch.fx.passes.runtime_assert", "insert_deferred_runtime_asserts", lambda original, *args, **kwargs: None,
        "a file asserts nothing, and it fails at expressions that it cannot write as nodes", How.CODE,
    ),
    Patch(
        "torch._export.verifier.Verifier", "check", lambda original, verifier, program: None,
        "it allows few functions of sizes, and what a program computes is proven anyway", optional=True,
    ),
    Patch(
        "torch.fx.experimental.symbolic_shapes.DimConstraints", "solve", checks.solved_if_possible,
        "what sympy cannot solve was to be a hint to the user, and the program is there already", optional=True,
    ),
    Patch("torch.export._trace", "_EXPORT_FLAGS", None, _NESTED, How.KEPT, optional=True),
    Patch("torch.export._trace", "_EXPORT_MODULE_HIERARCHY", None, _NESTED, How.KEPT, optional=True),
)  # fmt: skip
"""What torch.export does around the run of the model, and keeps in its module."""


_OF_C = (BuiltinFunctionType, _lru_cache_wrapper)


def _imported(model: torch.nn.Module, patches: Iterable[Patch]) -> Iterator[Patch]:
    """The same by the names that modules of the model have for them: a function of C has no code to replace."""
    owners = [(patch, patch.resolved()) for patch in patches if patch.how is How.FUNCTION and not patch.when_imported]
    functions = {
        id(original): patch
        for patch, owner in owners
        if isinstance(owner, ModuleType) and isinstance(original := vars(owner).get(patch.name), _OF_C)
    }
    parts = [original_of(model), *model.modules()]
    code = {one for part in parts for one in (*type(part).__mro__, type(part).forward)}
    packages = {str(getattr(one, "__module__", "")).partition(".")[0] for one in code} - {"torch", "tonnx", "builtins"}
    for module in [module for path, module in sys.modules.items() if path.partition(".")[0] in packages]:
        for name, value in list(vars(module).items()):
            if (patch := functions.get(id(value))) is not None:
                yield Patch(module, name, patch.replacement, patch.reason)


def capture_patches(model: torch.nn.Module, froze: Frozen, rewrites: Rewrites) -> Iterator[Patch]:
    """All that one capture changes, in the order in which it is changed."""
    yield from FOREIGN
    yield from versions.patches()
    yield from size_questions()
    yield from shapes()
    yield from multiples()
    yield from short_sizes()
    numbers = [*python_numbers(), *ramps(), *pools(), *resizing(), *plain_sizes(), *numpy_sizes(), *fast_lengths()]
    yield from numbers
    yield from _imported(model, [*FOREIGN, *numbers])
    yield from fake_quantisers(model)
    yield from quantised_layers(model)
    yield from number_patches(model)
    yield from proxy_patches()
    yield from rewrites.patches()
    yield from froze.patches()
    yield from quiet_torch()


def export_patches(model: torch.nn.Module, froze: Frozen, rewrites: Rewrites) -> Iterator[Patch]:
    """All that one capture by torch.export changes."""
    yield from capture_patches(model, froze, rewrites)
    yield from OF_TORCH_EXPORT
    yield from versions.export_patches()
