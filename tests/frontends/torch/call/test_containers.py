"""Arguments and results of any class: what inputs and outputs are called; and nothing of the user's is touched."""

from __future__ import annotations

import copy
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import pytest
import torch
from torch.utils import _pytree as pytree

import tonnx
from tonnx.errors import CaptureError, InvalidArgument
from tonnx.frontends.torch.call.containers import USERS, results_of, tree_of

X = torch.randn(2, 3)


class Pair(NamedTuple):
    one: Any
    two: Any


@dataclass(frozen=True)
class State:
    hidden: torch.Tensor
    steps: int = 3


@dataclass
class Output(OrderedDict):  # type: ignore[type-arg]
    """An output class as libraries write them: a dict with attributes."""

    sample: Any = None
    loss: Any = None

    def __post_init__(self) -> None:
        for name in ("sample", "loss"):
            if getattr(self, name) is not None:
                super().__setitem__(name, getattr(self, name))

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class Layer:
    def __init__(self, window: int = 9) -> None:
        self.keys: Any = None
        self.values: Any = None
        self.window, self.seen, self.dtype = window, 0, torch.float32

    def update(self, key: torch.Tensor, value: torch.Tensor) -> None:
        self.keys = key if self.keys is None else torch.cat([self.keys, key], dim=1)
        self.values = value if self.values is None else torch.cat([self.values, value], dim=1)
        self.seen += key.shape[1]


class Cache:
    def __init__(self, layers: int = 0) -> None:
        self.layers = [Layer() for _ in range(layers)]
        self.owner = self  # objects that hold each other are no tree


class TwoCaches:
    def __init__(self) -> None:
        self.self_attention_cache, self.cross_attention_cache = Cache(1), Cache(1)


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Hidden:
    def __init__(self, value: Any) -> None:
        self._value = value


def filled(layers: int = 2, length: int = 4) -> Cache:
    cache = Cache(layers)
    for layer in cache.layers:
        layer.update(torch.randn(2, length, 3), torch.randn(2, length, 3))
    return cache


def halves() -> TwoCaches:
    caches = TwoCaches()
    for cache in (caches.self_attention_cache, caches.cross_attention_cache):
        cache.layers[0].update(torch.randn(2, 4, 3), torch.randn(2, 4, 3))
    return caches


RESULTS = [
    ("tensor", X, ["output"]),
    ("tuple", (X, X), ["output_0", "output_1"]),
    ("one of a tuple", (X,), ["output"]),
    ("dict", {"a": X, "b": {"c": X}}, ["a", "b_c"]),
    ("equal names", {"a": {"b": X}, "a_b": X}, ["a_b", "a_b_"]),
    ("named tuple", Pair(X, (X, X)), ["one", "two_0", "two_1"]),
    ("dataclass", State(X), ["hidden", "steps"]),
    ("output class", Output(sample=X), ["sample"]),
    ("slots", Slotted(X), ["value"]),
    ("cache", {"logits": X, "past_key_values": filled(1)}, ["logits", "present.0.key", "present.0.value"]),
    (
        "two caches",
        {"past_key_values": halves()},
        ["present.0.decoder.key", "present.0.decoder.value", "present.0.encoder.key", "present.0.encoder.value"],
    ),
    (
        "legacy cache",
        {"past_key_values": ((X, X), (X, X))},
        ["present.0.key", "present.0.value", "present.1.key", "present.1.value"],
    ),
    ("state", {"state": Slotted(X), "other": Slotted(X)}, ["present_state.value", "other.value"]),
]


@pytest.mark.parametrize(("value", "names"), [case[1:] for case in RESULTS], ids=[case[0] for case in RESULTS])
def test_names_of_results(value: Any, names: list[str]) -> None:
    assert list(results_of(value, ["state"])) == names


ARGUMENTS = [Pair(X, [X]), State(X), Output(sample=X, loss=X), filled(), halves(), Slotted(X), {"a": (X, 1)}]


@pytest.mark.parametrize("value", ARGUMENTS, ids=lambda value: type(value).__name__)
def test_put_together_again(value: Any) -> None:
    tree = tree_of(value)
    before = [tensor for _, tensor in tree.tensors()]
    other = tree.rebuilt(iter([tensor + 1 for tensor in before]))
    assert type(other) is type(value) and other is not value
    for (_, new), old in zip(tree_of(other).tensors(), before, strict=True):
        assert torch.equal(new, old + 1)
    assert all(a is b for (_, a), b in zip(tree_of(value).tensors(), before, strict=True))


class Decoder(torch.nn.Module):
    """Keys of the past and of the present, as a decoder has them; counts with numbers that the cache keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, past_key_values: Cache | None = None) -> Output:
        cache = Cache(2) if past_key_values is None else past_key_values
        if not cache.layers:
            cache.layers += [Layer(), Layer()]
        for layer in cache.layers:
            place = torch.arange(x.shape[1]) + layer.seen
            layer.update(self.linear(x) + place[:, None] / layer.window, x)
            x = x + layer.keys.mean(1, keepdim=True)
        result = Output(sample=x)
        result["past_key_values"] = cache
        return result


def names_and_shapes(values: Any) -> dict[str, list[Any]]:
    return {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in values
    }


@pytest.mark.parametrize("past", [None, Cache(), filled()], ids=["none", "empty", "filled"])
def test_export_with_a_cache(past: Cache | None, tmp_path: Path) -> None:
    before = copy.copy(past.layers) if past is not None else []
    lengths = [layer.seen for layer in before]
    axes = {"x": {0: "batch", 1: "sequence"}}
    if before:
        axes["past_key_values"] = {0: "batch", 1: "past"}
    kwargs = {} if past is None else {"past_key_values": past}
    result = tonnx.export(Decoder(), (torch.randn(2, 5, 3),), tmp_path / "net.onnx", kwargs=kwargs, dynamic_axes=axes)
    assert result.verification is not None and result.verification.ok and len(result.verification.trials) > 3
    graph = onnx.load(tmp_path / "net.onnx").graph
    length = "past + sequence" if before else "sequence"
    assert names_and_shapes(graph.output)["present.1.value"] == ["batch", length, 3]
    inputs = names_and_shapes(graph.input)
    assert list(inputs) == ["x", *(f"past_key_values.{i}.{p}" for i in range(len(before)) for p in ("key", "value"))]
    # The user's cache is as it was.
    assert past is None or (past.layers == before and [layer.seen for layer in past.layers] == lengths)


def test_a_count_that_is_no_size_is_told(tmp_path: Path) -> None:
    past = filled()
    past.layers[1].seen = 11
    axes = {"x": {1: "sequence"}, "past_key_values": {1: "past"}}
    result = tonnx.export(Decoder(), (torch.randn(2, 5, 3), past), tmp_path / "net.onnx", dynamic_axes=axes)
    assert "[!] fixed in the file, though the model counts with it: past_key_values: seen = 11" in result.notes


@pytest.mark.parametrize(
    "past",
    [
        {1: "past"},
        [[{1: "past"}] * 2] * 2,  # as torch.export has it: lists of keys and of values
        {"key_cache": [{1: "past"}] * 2, "value_cache": [{1: "past"}] * 2},
    ],
)
def test_dynamic_shapes_of_a_cache(past: Any, tmp_path: Path) -> None:
    shapes = {"x": {1: "sequence"}, "past_key_values": past}
    tonnx.export(Decoder(), (torch.randn(2, 5, 3), filled()), tmp_path / "net.onnx", dynamic_shapes=shapes)
    inputs = names_and_shapes(onnx.load(tmp_path / "net.onnx").graph.input)
    assert inputs["past_key_values.0.key"] == [2, "past", 3]


def test_lists_of_a_cache_that_differ_are_refused() -> None:
    """In which order its tensors would be is nothing that everybody agrees on."""
    shapes = {"x": {1: "sequence"}, "past_key_values": [[{1: "past"}] * 2, [{1: "past"}, {}]]}
    with pytest.raises(InvalidArgument, match="which has no such part"):
        tonnx.export(Decoder(), (torch.randn(2, 5, 3), filled()), dynamic_shapes=shapes)


@dataclass
class Counted:
    """Keys, and how many of their places are used, as a tensor."""

    keys: torch.Tensor
    used: torch.Tensor


def read(x: torch.Tensor, past: Any) -> torch.Tensor:
    return x + (past.keys * past.used if isinstance(past, Counted) else past[0] + past[1] * 2)


@pytest.mark.parametrize("way", ["dynamic_axes", "dynamic_shapes"])
@pytest.mark.parametrize(
    ("past", "dynamic"),
    [
        (Counted(torch.randn(2, 3), torch.tensor(4)), {"past_keys"}),
        ([torch.randn(2, 3), torch.randn(2, 3)], {"past_0", "past_1"}),
    ],
)
def test_axes_of_an_argument_are_those_of_what_it_holds(past: Any, dynamic: set[str], way: str) -> None:
    """A count beside the keys has no axes; a list's tensors have names of their own."""
    options: dict[str, Any] = {way: {"x": {0: "batch"}, "past": {0: "batch"}}}
    result = tonnx.export(read, (torch.randn(2, 3), past), **options)
    shapes = {str(value.name): str(value.shape) for value in result.model.graph.inputs}
    assert {name for name, shape in shapes.items() if "batch" in shape} == {"x", *dynamic}


def test_output_class_that_torch_flattens_without_names(tmp_path: Path) -> None:
    class Sample(Output):
        pass

    pytree._private_register_pytree_node(
        Sample,
        lambda value: (list(value.values()), list(value)),
        lambda values, keys: Sample(**dict(zip(keys, values, strict=True))),
    )
    try:
        result = tonnx.export(lambda x: Sample(sample=x * 2), (X,), tmp_path / "net.onnx")
    finally:
        pytree._deregister_pytree_node(Sample)
    assert result.verification is not None and result.verification.ok
    assert list(names_and_shapes(onnx.load(tmp_path / "net.onnx").graph.output)) == ["sample"]


def test_registered_class(tmp_path: Path) -> None:
    before = dict(pytree.SUPPORTED_NODES)

    def model(x: torch.Tensor, state: Hidden) -> Hidden:
        return Hidden(x + state._value)

    with pytest.raises(CaptureError, match="register_container"):
        tonnx.export(model, (X, Hidden(X)), tmp_path / "net.onnx")
    tonnx.register_container(Hidden, lambda h: {"value": h._value}, lambda parts: Hidden(parts["value"]))
    try:
        result = tonnx.export(model, (X, Hidden(X)), tmp_path / "net.onnx", dynamic_axes={"x": [0], "state": [0]})
    finally:
        del USERS[Hidden]
    assert result.verification is not None and result.verification.ok
    graph = onnx.load(tmp_path / "net.onnx").graph
    assert (graph.input[1].name, graph.output[0].name) == ("state.value", "value")
    assert before == pytree.SUPPORTED_NODES


def test_what_cannot_be_copied_is_told() -> None:
    class Single(Slotted):
        def __copy__(self) -> Any:
            raise TypeError("there is only one")

    with pytest.raises(InvalidArgument, match="Single cannot be copied"):
        tonnx.export(lambda x, y: x + y.value, (X, Single(X)))
    with pytest.raises(InvalidArgument, match="a class and two functions"):
        tonnx.register_container("Hidden", dict, dict)  # type: ignore[arg-type]


def test_hooks_of_the_model_see_its_own_arguments(tmp_path: Path) -> None:
    seen: list[Any] = []
    model = Decoder()
    model.register_forward_pre_hook(lambda module, args, kwargs: seen.append(kwargs), with_kwargs=True)
    model.register_forward_hook(lambda module, args, output: seen.append(type(output)))
    past = filled()
    tonnx.export(model, (torch.randn(2, 5, 3),), tmp_path / "net.onnx", kwargs={"past_key_values": past})
    assert {type(kwargs["past_key_values"]) for kwargs in seen[::2]} == {Cache} and set(seen[1::2]) == {Output}
    assert all(kwargs["past_key_values"] is not past for kwargs in seen[::2])
