"""How many planted faults the default proof delivers, and how often it names the node.

    python bench/planted_faults.py [--faults 28] [--networks a,b] [--seed 0] [--write docs/faults.md]

Small networks of many kinds are exported, one node of each file is changed at a time (another operator, attribute,
constant or input), and the changed file goes through the proof that every export has. What is a fault is decided by
something else: the file and the model run on hundreds of inputs, at many sizes and scales, by ONNX Runtime and PyTorch
alone. The process fails if a fault that shows there is delivered, or the node is named in less than 97 %.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
import onnx
import onnxruntime
import torch
from document import write_section
from fault_networks import NETWORKS, Network
from onnx import helper, numpy_helper

import tonnx
from tonnx.api import export as pipeline
from tonnx.errors import InvalidModel, VerificationFailed
from tonnx.io.read import reader
from tonnx.proof.trials.budget import budget_of
from tonnx.stages import Stages

KINDS = ("operator", "attribute", "constant", "input")
NAMED, MANY = 0.97, 10
"""In how many of the faults the node must be named, and among how many others at most."""
STEPS, RTOL, ATOL = 240, 1e-2, 1e-3
"""The inputs of a sweep, and what shows there: ten times what the proof itself lets pass, and more."""

FAMILIES = [
    "Relu Tanh Sigmoid Sin Cos Exp Abs Neg Erf Softplus LeakyRelu Elu Selu HardSigmoid HardSwish Gelu Softsign Floor "
    "Ceil Round Identity",
    "Add Sub Mul Div",
    "Max Min",
    "Greater GreaterOrEqual Less LessOrEqual Equal",
    "And Or Xor",
    "ReduceMean ReduceSum ReduceMax ReduceMin ReduceL2 ReduceL1 ReduceLogSumExp",
    "GlobalAveragePool GlobalMaxPool",
    "ArgMax ArgMin",
    "Softmax LogSoftmax",
]
OTHERS = {name: [one for one in family.split() if one != name] for family in FAMILIES for name in family.split()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=30, help="for each network")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="write the table to this Markdown file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    outcomes: list[Outcome] = []
    for name in options.networks.split(","):
        with tempfile.TemporaryDirectory() as folder:
            outcomes += tried(name, NETWORKS[name](), options.faults, options.seed, Path(folder))
        print(f"{name}: {summary(outcomes, name)}", file=sys.stderr, flush=True)
    table = render(outcomes)
    print(table)
    if options.write:
        write_section(options.write, "faults", "Planted faults", table)
    shown = [one for one in outcomes if one.shows]
    delivered = [str(one) for one in shown if one.delivered]
    named = sum(one.named for one in shown) / len(shown)
    if delivered or named < NAMED:
        sys.exit("\n".join([*delivered, f"named in {named:.1%}"]))


@dataclass
class Outcome:
    """What became of one fault."""

    network: str
    kind: str
    what: str
    shows: bool
    """In the sweep."""
    delivered: bool
    named: bool
    told: str = ""

    def __str__(self) -> str:
        return f"{self.network}: {self.what} (delivered: {self.delivered}, named: {self.named}{self.told})"


def summary(outcomes: list[Outcome], name: str) -> str:
    own = [one for one in outcomes if one.network == name]
    shown = [one for one in own if one.shows]
    lines = [f"{len(own)} faults, {len(shown)} show, {sum(one.delivered for one in shown)} of them delivered"]
    return "\n  ".join([*lines, *(str(one) for one in shown if one.delivered or not one.named)])


# The sweep


@dataclass
class Sweep:
    """The inputs, and what the model gives for them."""

    inputs: list[dict[str, np.ndarray]] = field(default_factory=list)
    outputs: list[list[np.ndarray]] = field(default_factory=list)

    def shows(self, path: Path) -> bool:
        """Whether a file gives something else somewhere, or fails where the model does not."""
        session = session_of(path)
        names = [one.name for one in session.get_inputs()]
        for inputs, wanted in zip(self.inputs, self.outputs, strict=True):
            try:
                given = session.run(None, {name: inputs[name] for name in names})
            except Exception:
                return True
            if any(differs(one, other) for one, other in zip(given, wanted, strict=True)):
                return True
        return False


def differs(given: np.ndarray, wanted: np.ndarray) -> bool:
    if given.shape != wanted.shape or given.dtype != wanted.dtype:
        return True
    if wanted.dtype.kind != "f":
        return not np.array_equal(given, wanted)
    scale = np.abs(wanted).max(initial=0, where=np.isfinite(wanted))
    return not np.allclose(given, wanted, rtol=RTOL, atol=ATOL * max(1.0, float(scale)), equal_nan=True)


def session_of(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def sweep_of(network: Network, good: Path) -> Sweep:
    """Inputs on which the good file does what the model does: on a tie either may be right."""
    sweep, rng, session = Sweep(), np.random.default_rng(7), session_of(good)
    names = [one.name for one in session.get_inputs()]
    for index in range(STEPS):
        inputs = network.drawn(rng, index)
        with torch.no_grad():
            result = network.model(*(torch.from_numpy(array.copy()) for array in inputs.values()))
        wanted = [one.numpy() for one in (result if isinstance(result, tuple) else (result,))]
        given = session.run(None, {name: inputs[name] for name in names})
        if not any(differs(one, other) for one, other in zip(given, wanted, strict=True)):
            sweep.inputs.append(inputs)
            sweep.outputs.append(wanted)
    assert len(sweep.inputs) > STEPS * 0.9, f"the good file differs at {STEPS - len(sweep.inputs)} of the inputs"
    return sweep


# The proof


def tried(name: str, network: Network, count: int, seed: int, folder: Path) -> Iterator[Outcome]:
    """Plant faults in one network's file until there are so many that ONNX Runtime loads."""
    deliveries: list[Any] = []
    original = pipeline.deliver

    def kept(result: Any, f: Any, stages: Any, subject: Any, **options: Any) -> None:
        deliveries.append((result, subject, options))
        original(result, f, stages, subject, **options)

    pipeline.deliver, good = kept, folder / "good.onnx"
    try:
        tonnx.export(network.model, network.example(), good, dynamic_axes=network.dynamic, opset_version=network.opset)
    finally:
        pipeline.deliver = original
    result, subject, options = deliveries[0]
    sweep = sweep_of(network, good)
    rng, seen = random.Random(f"{seed} {name}"), set[str]()
    path = folder / "bad.onnx"
    for attempt in range(count * 12):
        if len(seen) == count:
            return
        model, kind = onnx.load(good), KINDS[attempt % len(KINDS)]
        planted = PLANT[kind](model, rng)
        if planted is None or planted[1] in seen or not loads(model, path):
            continue
        index, what = planted
        seen.add(what)
        result.model = reader(path)()
        try:
            original(result, folder / "out.onnx", Stages(), subject, **{**options, "budget": budget_of(True)})
            delivered, named, told = True, False, ""
        except VerificationFailed as failure:
            nodes = [] if failure.located is None else [node.index for node in failure.located.nodes]
            delivered, named = False, index in nodes and len(nodes) <= MANY
            told = "" if named else f"; said: {nodes}, planted: {index}, {failure.why}"
        except InvalidModel as failure:
            delivered, named, told = False, True, f"; not valid: {failure.what}"
        yield Outcome(name, kind, what, sweep.shows(path), delivered, named, told)


def loads(model: onnx.ModelProto, path: Path) -> bool:
    """Whether it is a file that somebody could have taken for a good one."""
    del model.graph.value_info[:]
    try:
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)
        session_of(path)
    except Exception:
        return False
    return True


# The faults: each gives the index of the node and says what was done, or None if there is nothing to do

Planted = tuple[int, str] | None


def another_operator(model: onnx.ModelProto, rng: random.Random) -> Planted:
    candidates = [i for i, node in enumerate(model.graph.node) if node.op_type in OTHERS]
    if not candidates:
        return None
    node = model.graph.node[index := rng.choice(candidates)]
    before, node.op_type = node.op_type, rng.choice(OTHERS[node.op_type])
    allowed = onnx.defs.get_schema(node.op_type, model.opset_import[0].version).attributes
    kept = [attribute for attribute in node.attribute if attribute.name in allowed]
    del node.attribute[:]
    node.attribute.extend(kept)
    return index, f"{before} {index} became {node.op_type}"


def another_attribute(model: onnx.ModelProto, rng: random.Random) -> Planted:
    places = [(i, a) for i, node in enumerate(model.graph.node) for a in node.attribute if a.name in ATTRIBUTES]
    if not places:
        return None
    index, attribute = rng.choice(places)
    before = helper.get_attribute_value(attribute)
    after = ATTRIBUTES[attribute.name](before, rng)
    if after == before:
        return None
    attribute.CopyFrom(helper.make_attribute(attribute.name, after))
    return index, f"{attribute.name} of {model.graph.node[index].op_type} {index}: {before} became {after}"


def one_more(value: int, rng: random.Random) -> int:
    return value + rng.choice([-1, 1])


def one_of_them(values: list[int], rng: random.Random) -> list[int]:
    place = rng.randrange(len(values))
    return [value + rng.choice([-1, 1]) if i == place else value for i, value in enumerate(values)]


def flag(value: int, rng: random.Random) -> int:
    return 1 - value


def scaled(value: float, rng: random.Random) -> float:
    return value * rng.choice([0.8, 1.25, 2.0]) + rng.choice([0.0, 0.05])


def exchanged(values: list[int], rng: random.Random) -> list[int]:
    one, other = rng.sample(range(len(values)), 2)
    mixed = list(values)
    mixed[one], mixed[other] = mixed[other], mixed[one]
    return mixed


def another_text(*texts: bytes) -> Callable[[bytes, random.Random], bytes]:
    return lambda value, rng: rng.choice([text for text in texts if text != value])


ATTRIBUTES: dict[str, Callable[[Any, random.Random], Any]] = {
    "axis": one_more, "keepdims": flag, "perm": exchanged, "alpha": scaled, "beta": scaled, "epsilon": scaled,
    "transB": flag, "transA": flag, "pads": one_of_them, "strides": one_of_them, "dilations": one_of_them,
    "kernel_shape": one_of_them, "group": one_more, "ceil_mode": flag, "count_include_pad": flag, "exclusive": flag,
    "reverse": flag, "largest": flag, "select_last_index": flag, "bias": scaled, "lambd": scaled,
    "num_groups": one_more, "upper": flag, "approximate": another_text(b"none", b"tanh"),
    "mode": another_text(b"nearest", b"linear", b"constant", b"edge", b"reflect", b"DCR", b"CRD"),
    "coordinate_transformation_mode": another_text(b"half_pixel", b"align_corners", b"asymmetric"),
    "direction": another_text(b"forward", b"reverse"), "linear_before_reset": flag, "scale": scaled,
}  # fmt: skip


def another_constant(model: onnx.ModelProto, rng: random.Random) -> Planted:
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    places = [(i, j) for i, node in enumerate(model.graph.node) for j, name in enumerate(node.input) if name in arrays]
    places = [(i, j) for i, j in places if arrays[model.graph.node[i].input[j]].size]
    if not places:
        return None
    index, operand = rng.choice(places)
    node = model.graph.node[index]
    array = arrays[node.input[operand]].copy()
    place = rng.randrange(array.size)
    if array.dtype.kind == "f":
        how = rng.choice(["one", "one", "all", "sign"])
        factor = rng.choice([0.8, 1.05, 1.25])
        if how == "all":
            array = (array * factor).astype(array.dtype)
        else:
            old = array.flat[place]
            array.flat[place] = -old if how == "sign" and old else old * factor + 0.05 * float(np.abs(array).max() or 1)
    elif array.dtype.kind in "iu":
        how = "one"
        array.flat[place] += rng.choice([-1, 1])
    else:
        how = "one"
        array.flat[place] = not array.flat[place]
    old_name, node.input[operand] = node.input[operand], f"{node.input[operand]}_planted"
    model.graph.initializer.append(numpy_helper.from_array(array, node.input[operand]))
    return index, f"{how} of {old_name} (input {operand} of {node.op_type} {index}), element {place}"


def another_input(model: onnx.ModelProto, rng: random.Random) -> Planted:
    """An input exchanged with its neighbour, or with another value that there is by then."""
    node = model.graph.node[index := rng.randrange(len(model.graph.node))]
    real = [j for j, name in enumerate(node.input) if name]
    if not real:
        return None
    if len(real) > 1 and rng.random() < 0.4:
        one, other = rng.sample(real, 2)
        node.input[one], node.input[other] = node.input[other], node.input[one]
        return index, f"inputs {one} and {other} of {node.op_type} {index} exchanged"
    earlier = [one.name for one in model.graph.input]
    earlier += [name for other in model.graph.node[:index] for name in other.output if name]
    operand, name = rng.choice(real), rng.choice(earlier)
    if name == node.input[operand]:
        return None
    old, node.input[operand] = node.input[operand], name
    return index, f"input {operand} of {node.op_type} {index}: {old} became {name}"


PLANT: dict[str, Callable[[onnx.ModelProto, random.Random], Planted]] = {
    "operator": another_operator, "attribute": another_attribute, "constant": another_constant, "input": another_input,
}  # fmt: skip


# The table


def render(outcomes: list[Outcome]) -> str:
    networks = Counter(one.network for one in outcomes)
    lines = [
        f"`make bench-faults`: one node of the file is changed at a time, in {len(networks)} small networks; "
        f"{len(outcomes)} changes that ONNX Runtime loads. *Show*: the changed file differs from the model by more "
        f"than {RTOL:g} of the value somewhere in a sweep of {STEPS} inputs, at many sizes and scales, that has no "
        "part in the proof. *Delivered*: the proof that every export has lets it pass. *Named*: the changed node "
        f"is among those that the error names, {MANY} at most. *More*: the proof stops it, the sweep does not see it.",
        "",
        "| changed | changes | show | of them delivered | of them named | more |",
        "|---|---|---|---|---|---|",
    ]
    for kind in (*KINDS, "all"):
        own = [one for one in outcomes if kind in (one.kind, "all")]
        shown = [one for one in own if one.shows]
        named, more = sum(one.named for one in shown), sum(not one.delivered and not one.shows for one in own)
        delivered = sum(one.delivered for one in shown)
        share = f"{named} ({named / len(shown):.1%})" if shown else "–"
        lines.append(f"| {kind} | {len(own)} | {len(shown)} | {delivered} | {share} | {more} |")
    lines += ["", "Networks: " + ", ".join(f"{name} ({count})" for name, count in networks.items()) + "."]
    left = [one for one in outcomes if one.shows and (one.delivered or not one.named)]
    if left:
        lines += ["", "Delivered, or another node named:", ""]
        lines += [f"- {one.network}: {one.what}{' (delivered)' if one.delivered else ''}" for one in left]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
