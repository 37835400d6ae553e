"""What a runtime needs and ONNX does not: the passes of a runtime profile, for a file that is right as it is.

Each gives lines for the user: what it changed, and what that costs.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from tonnx.ir.domains import complete
from tonnx.ir.rewrite import remove_dead
from tonnx.ir.target import ORT
from tonnx.passes.attention import flatten_heads
from tonnx.passes.attention_masks import be_causal, drop_zeros
from tonnx.passes.contrib import use_contrib_operators
from tonnx.passes.integer_relu import clip_integers
from tonnx.passes.kernels import Touched, use_kernels_of, use_ort_kernels
from tonnx.passes.matmul_nbits import use_matmul_nbits
from tonnx.passes.nibbles import store_nibbles
from tonnx.passes.unsigned import store_unsigned
from tonnx.passes.wrong_fusions import keep_from_fusing
from tonnx.targets import Profile

_KEEPS = "(runtime=None keeps them as they are)"


def fit_kernels(model: ir.Model, runtime: str | None) -> list[str]:
    """Element types that the runtime has kernels for. Before constants are folded: casts of weights go with them."""
    touched = use_ort_kernels(model) if runtime is not None else Counter()
    return [f"for ONNX Runtime's CPU: {_told(touched)} {_KEEPS}"] if touched else []


def fit_profile(model: ir.Model, profile: Profile | None) -> list[str]:
    """Element types that a named target has; at its opset."""
    touched = use_kernels_of(model, profile) if profile is not None else Counter()
    return [f"for {profile.name}: {_told(touched)}"] if profile is not None and touched else []


def fit_opset(model: ir.Model, runtime: str | None) -> list[str]:
    """What depends on the asked opset: older versions of an operator have fewer kernels, and other integers."""
    if runtime == ORT and drop_zeros(model):
        remove_dead(model)  # what told where they are reads the mask
    if runtime is not None and flatten_heads(model) + be_causal(model):
        remove_dead(model)
    notes = fit_kernels(model, runtime) + _fit_integers(model, runtime)
    keep_from_fusing(model, runtime)  # also what only older versions are: floats in the place of 8 bits
    return notes


def fit_operators(model: ir.Model, runtime: str | None, opset: int) -> list[str]:
    """The runtime's own operators. At CANON: below opset 23 there is no Attention left to see."""
    counts = use_contrib_operators(model, opset) if runtime == ORT else Counter()
    named = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in counts.items())
    note = f"for ONNX Runtime, operators of com.microsoft: {named} (runtime='ort-cpu' keeps ONNX's own)"
    if counts:
        complete(model, {})
    return [note] if counts else []


def _fit_integers(model: ir.Model, runtime: str | None) -> list[str]:
    """Integers that the runtime's kernels multiply without saturating; some opsets have none of them."""
    notes = fit_blocks(model, runtime)
    if runtime is not None and clip_integers(model):  # before integers are shifted, together with these
        remove_dead(model)
    count = store_unsigned(model) if runtime is not None else 0
    tensors = f"{count} int8 tensor{'s are' if count != 1 else ' is'}"
    notes += [f"for ONNX Runtime's CPU, {tensors} stored as uint8: the same numbers {_KEEPS}"] if count else []
    if nibbles := store_nibbles(model) if runtime is not None else 0:
        remove_dead(model)
        plural = "s of 4 bits or fewer are" if nibbles != 1 else " of 4 bits or fewer is"
        notes.append(f"for ONNX Runtime's CPU, {nibbles} weight{plural} stored in 4 bits {_KEEPS}")
    return notes


def fit_blocks(model: ir.Model, runtime: str | None) -> list[str]:
    """Products with weights in blocks; at CANON for all opsets, since before 21 there are no blocks to see."""
    products = use_matmul_nbits(model) if runtime == ORT else 0
    plural = "s" if products != 1 else ""
    told = f"for ONNX Runtime, {products} product{plural} with blocks of integers: MatMulNBits of com.microsoft"
    if products:
        complete(model, {})
    return [told] if products else []


def fit_runtime(model: ir.Model, runtime: str | None) -> list[str]:
    """All of it, for a finished model at any opset."""
    return fit_operators(model, runtime, model.opset_imports.get("", 0)) + fit_opset(model, runtime)


def fitted(model: ir.Model, runtime: str) -> ir.Model | None:
    """A copy of a finished model for a runtime; None if that has nothing to change."""
    copy = model.clone()
    changed = keep_from_fusing(copy, ORT)  # to what is wrong; what is slow does no harm in a copy
    return copy if fit_runtime(copy, runtime) or changed else None


def _told(touched: Touched) -> str:
    """``Conv ×2, Erf in float32 instead of float64, which lowers the precision``."""
    parts = []
    for own, other in sorted({(own, other) for _, own, other in touched}):
        counts = {name: count for (name, *pair), count in sorted(touched.items()) if pair == [own, other]}
        named = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in counts.items())
        lost = ", which lowers the precision" if own == ir.DataType.DOUBLE else ""
        parts.append(f"{named} in {_name(other)} instead of {_name(own)}{lost}")
    return "; ".join(parts)


def _name(dtype: ir.DataType) -> str:
    return str(dtype.numpy())
