"""The passes, in ONE ordered list each, with the reason for the place."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import onnx_ir as ir

from tonnx.ir.rewrite import no_collection, remove_dead
from tonnx.ir.target import CANON, ORT
from tonnx.passes.attention import recognise_caches
from tonnx.passes.batches import keep_batches
from tonnx.passes.bias import fuse_bias
from tonnx.passes.common import merge_common
from tonnx.passes.constants import fold_constants, merge_equal_initializers
from tonnx.passes.conv_bn import fuse_conv_bn as fuse
from tonnx.passes.counting import pick_nothing
from tonnx.passes.joined_products import join_products
from tonnx.passes.noops import remove_noops
from tonnx.passes.padded_conv import fuse_padding
from tonnx.passes.projections import join_projections
from tonnx.passes.reciprocals import divide
from tonnx.passes.rms_norm import recognise_rms_norms
from tonnx.passes.rotary import recognise_rotations
from tonnx.passes.runtime import fit_kernels, fit_operators
from tonnx.passes.wrong_fusions import keep_from_fusing
from tonnx.passes.zero_states import drop_zero_states


@dataclass
class Optimised:
    """What the optimiser did, for the user to read: pass → number of nodes changed, and notes such as folded layers."""

    changes: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def optimise(
    model: ir.Model,
    *,
    fold: bool = True,
    fuse_conv_bn: bool = True,
    share: bool = True,
    runtime: str | None = None,
    opset: int = CANON,
) -> Optimised:
    """At CANON, before legalising to ``opset``: there is one form of every operator to match.

    ``share=False`` keeps weights of equal contents apart: in training they will not stay equal.
    """
    with no_collection():
        return _optimised(model, fold, fuse_conv_bn, share, runtime, opset)


def _optimised(
    model: ir.Model, fold: bool, fuse_conv_bn: bool, share: bool, runtime: str | None, opset: int
) -> Optimised:
    report = Optimised()
    changes = report.changes
    changes["dead code"] += remove_dead(model)  # first: the less there is, the less the others look at
    report.notes += fit_kernels(model, runtime)  # before folding, which casts the weights
    changes["no-ops"] += remove_noops(model)  # before merging, so that what they hid becomes equal
    changes["common subexpressions"] += merge_common(model)
    changes["picks of everything"] += pick_nothing(model)
    changes["reciprocals"] += divide(model)
    changes["zero states"] += drop_zero_states(model)
    if fold:
        changes["batches"] += keep_batches(model)
        changes["constants"] += fold_constants(model)  # after merging: a weight read once may change its form
        changes["padding"] += fuse_padding(model)
        changes["biases"] += fuse_bias(model)  # before batch normalisations, which follow a layer with its bias
        changes["biases"] += join_projections(model)
    if fuse_conv_bn:
        fused = fuse(model)  # after folding, which turns computed statistics into plain ones
        if products := fused.pop("", 0):
            changes["factors"] += products
            changes["biases"] += fuse_bias(model) if fold else 0  # those that come after the factor
        changes["batch normalisations"] += fused.total()
        for layer, count in fused.items():
            plural = "s" if count != 1 else ""
            report.notes.append(
                f"folded {count} BatchNormalization{plural} into {layer} (fuse_conv_bn=False keeps them)"
            )
    changes["normalisations"] += recognise_rms_norms(model)  # after folding: Gemma's weights are 1 + what is stored
    changes["rotations"] += recognise_rotations(model)
    changes["caches"] += recognise_caches(model)
    if share:
        changes["equal initializers"] += merge_equal_initializers(model)
    changes["wrongly fused"] += keep_from_fusing(model, runtime)  # late, when no Pad changes any more
    if fold and runtime == ORT:
        changes["joined products"] += join_products(model)  # after sharing: a weight of several stays one
    report.notes += fit_operators(model, runtime, opset)  # last: they hide what the others look for
    changes["dead code"] += remove_dead(model)  # what the others left without readers
    return report


def optimise_at_own_opset(model: ir.Model) -> None:
    """The passes that need not know the version of an operator, for a file of any opset."""
    with no_collection():
        remove_dead(model)
        remove_noops(model)
        merge_common(model)
        drop_zero_states(model)
        fold_constants(model)
        merge_equal_initializers(model)
        remove_dead(model)


def clean_up(model: ir.Model, *, fold: bool = False) -> None:
    """After legalising: a rule sees one node only, so what several of them leave behind is tidied here, once."""
    with no_collection():
        remove_noops(model)
        merge_common(model)
        if fold:
            fold_constants(model, spare=0)  # integers that stand for reals stay integers
        remove_dead(model)
    if (model.ir_version or 0) < 4:  # there, every initializer is an input as well
        list_initializers(model)


def list_statistics(model: ir.Model) -> None:
    """List the running statistics of batch normalisation in training among the inputs, their values as defaults.

    Each step of training starts from other ones. And ONNX Runtime shares initializers of equal contents, into which it
    then writes the new statistics: an untrained layer's weight and variance are both ones.
    """
    inputs = model.graph.inputs
    for node in model.graph:
        training = node.attributes.get("training_mode")
        if node.op_type == "BatchNormalization" and node.domain == "" and training is not None and training.as_int():
            for value in node.inputs[3:5]:
                if value is not None and value.is_initializer() and not value.is_graph_input():
                    inputs.append(value)


def list_initializers(model: ir.Model) -> None:
    graph = model.graph
    graph.inputs.extend(value for value in graph.initializers.values() if not value.is_graph_input())
