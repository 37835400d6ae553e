"""CPU seconds to take a graph to opset 9, against its number of nodes, and the share of that in an export.

    python bench/legalise_speed.py [--nodes 1000,5000,20000] [--model cait_xxs24_224] [--profile]

Synthetic graphs of mixed operators, most of which change on the way down: the time must grow with the number of nodes,
and no faster.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import onnx_ir as ir

from tonnx.ir.build import Builder, Names
from tonnx.ir.target import CANON, Target
from tonnx.legalise import legalise
from tonnx.passes import clean_up

LARGEST = "cait_xxs24_224"
"""The model of the zoo with most nodes."""


def synthetic(count: int) -> ir.Model:
    """A chain of blocks of a transformer and a convolution network, with about ``count`` nodes at CANON."""
    names = Names()
    x = ir.Value(name=names.unique("x"), type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["batch", 8, 16]))
    graph = ir.Graph([x], [], nodes=[], name="synthetic", opset_imports={"": CANON})
    scale, bias = np.ones(16, np.float32), np.zeros(16, np.float32)
    with Builder(graph, names=names) as op:
        y = x
        for i in range(count):  # far more than enough
            op.scope = f"/block{i}"
            op.source = {"tonnx.source": f"model.py:{i}"}
            y = op.LayerNormalization(y, scale + i, bias, axis=-1) + y
            y = op.Gelu(y * 0.5)
            y = op.HardSwish(y)
            left, right = op.Split(y, [8, 8], axis=-1, _outputs=2)
            y = op.Concat(left, op.Clip(right, -3.0, 3.0), axis=-1)
            y = op.Transpose(op.Softmax(op.Transpose(y, perm=[0, 2, 1]), axis=1), perm=[0, 2, 1])
            mean = op.ReduceMean(y, [-1], keepdims=1)
            y = op.Where(op.GreaterOrEqual(y, mean), y, op.Unsqueeze(op.Squeeze(mean, [-1]), [-1]))
            y = op.Reshape(op.MatMul(y, np.eye(16, dtype=np.float32) * i), [0, 8, 16])
            if len(graph) >= count:
                break
    y.name = "y"
    graph.outputs.append(y)
    return ir.Model(graph, ir_version=Target(CANON).ir_version)


def measure(count: int, repeat: int) -> tuple[int, int, float]:
    """Nodes before and after, and the best of the times."""
    best, before, after = float("inf"), 0, 0
    for _ in range(repeat):
        model = synthetic(count)
        before = len(model.graph)
        gc.collect()
        start = time.process_time()  # of this process alone: machines are shared
        legalise(model, Target(9))
        clean_up(model)
        best = min(best, time.process_time() - start)
        after = len(model.graph)
    return before, after, best


def share(name: str) -> dict[str, float]:
    """The stages of an export to opset 9."""
    from tests.models import zoo

    import tonnx

    example = zoo.example(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = tonnx.export(
            example.model,
            example.args,
            None,
            kwargs=example.kwargs,
            dynamic_axes=example.dynamic,
            opset_version=9,
            atol=zoo.atol(example),
        )
    return result.timings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="1000,2000,5000,10000,20000")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--model", default=LARGEST, help="the model to export; empty for none")
    parser.add_argument("--profile", action="store_true", help="where the time goes, for the last of --nodes")
    options = parser.parse_args()
    counts = [int(n) for n in options.nodes.split(",")]
    if options.profile:
        model = synthetic(counts[-1])
        with cProfile.Profile() as profile:
            legalise(model, Target(9))
            clean_up(model)
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)
        return
    measure(100, 1)  # rules and schemas are read once
    print("| nodes at 26 | nodes at 9 | CPU seconds | µs for each node |")
    print("|---|---|---|---|")
    for count in counts:
        before, after, seconds = measure(count, options.repeat)
        print(f"| {before} | {after} | {seconds:.2f} | {1e6 * seconds / before:.0f} |", flush=True)
    if options.model:
        stages = share(options.model)
        without_proof = sum(seconds for stage, seconds in stages.items() if stage != "verify")
        told = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in stages.items())
        part = stages["legalise"] / without_proof
        print(f"\n{options.model} to opset 9: {told}; legalising is {part:.0%} of the export without its proof")


if __name__ == "__main__":
    main()
