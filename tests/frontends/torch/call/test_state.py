"""Whatever a model holds is the same object with the same contents after an export, also after one that failed."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tonnx
from tonnx.frontends.torch.call.state import state_kept


class Frozen(dict[str, Any]):
    """A configuration as libraries have them: every way to write is closed."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("this dict is frozen")

    __setitem__ = __delitem__ = update = pop = clear = setdefault = _refuse  # type: ignore[assignment]


class Counting(OrderedDict[str, int]):
    reads = 0

    def __getitem__(self, key: str) -> int:
        Counting.reads += 1
        return super().__getitem__(key)


class Uncounted(tuple[int, ...]):
    """A pair of numbers that is no list of them."""

    def __len__(self) -> int:
        raise NotImplementedError


@dataclasses.dataclass
class Options:
    width: int
    seen: list[int]


@dataclasses.dataclass(slots=True)
class Slotted:
    last: Tensor | None
    sizes: dict[str, int]


class Cache:
    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.calls = 0


class Holder(nn.Module):
    """Holds one of everything; `change` says what forward does to it."""

    def __init__(self, change: Callable[[Holder], None] | None = None, fails: bool = False) -> None:
        super().__init__()
        self.change, self.fails = change, fails
        self.config = Frozen(width=4, names=["a"])
        self.ordered = OrderedDict(b=1, a=2)
        self.kind = Uncounted((1, 2))
        self.counting = Counting(c=3)
        self.by_name: defaultdict[str, list[int]] = defaultdict(list, x=[1])
        self.recent = deque([1, 2], maxlen=3)
        self.numbers = {1, 2}
        self.nested = {"tables": [torch.arange(3.0)], "pair": ([1], {"deep": [2]})}
        self.layers = nn.ModuleDict({"one": nn.Linear(4, 4)})
        self.options = Options(4, [0])
        self.slotted = Slotted(None, {"h": 1})
        self.cache = Cache()
        self.table = torch.zeros(2)
        self.register_buffer("count", torch.zeros(1))
        self.itself = [self]

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers["one"](x)
        if self.change is not None:
            self.change(self)
        if self.fails:
            raise ValueError("the model fails after it has changed itself")
        return y + 1


def seen(thing: Any, visited: dict[int, Any] | None = None) -> Any:
    """Identity and contents of all that can be reached, independent of what is tested."""
    visited = {} if visited is None else visited
    if id(thing) in visited or isinstance(thing, (str, int, float, bool, type, type(None))):
        return id(thing) if id(thing) in visited else thing
    visited[id(thing)] = thing
    if isinstance(thing, Tensor):
        return id(thing), thing.tolist()
    if isinstance(thing, dict):
        items = (OrderedDict if isinstance(thing, OrderedDict) else dict).items(thing)
        return id(thing), [(k, seen(v, visited)) for k, v in items]
    if isinstance(thing, (list, tuple, set, deque)):
        return id(thing), [seen(v, visited) for v in thing]
    if dataclasses.is_dataclass(thing):
        return id(thing), [(f.name, seen(getattr(thing, f.name), visited)) for f in dataclasses.fields(thing)]
    if (hasattr(thing, "__dict__") and not callable(thing)) or isinstance(thing, nn.Module):
        return id(thing), seen(vars(thing), visited)
    return id(thing)


def _rebind(model: Holder) -> None:
    model.ordered, model.fresh = OrderedDict(z=1), [1]  # type: ignore[assignment]


CHANGES: dict[str, Callable[[Holder], Any]] = {
    "nothing": lambda m: None,
    "attribute added": lambda m: setattr(m, "fresh", 1),
    "attribute removed": lambda m: delattr(m, "table"),
    "attributes rebound": _rebind,
    "dict": lambda m: m.nested.update(new=1),
    "order of a dict": lambda m: m.ordered.move_to_end("b"),
    "subclass of OrderedDict": lambda m: m.counting.update(d=4),
    "defaultdict": lambda m: m.by_name["y"].append(2),
    "list in a defaultdict": lambda m: m.by_name["x"].append(2),
    "deque": lambda m: m.recent.append(9),
    "set": lambda m: m.numbers.add(9),
    "tensor in a list": lambda m: m.nested["tables"][0].add_(1),
    "list in a tuple": lambda m: m.nested["pair"][0].clear(),
    "ModuleDict": lambda m: m.layers.update({"two": nn.Identity()}),
    "dataclass": lambda m: setattr(m.options, "width", 5),
    "list of a dataclass": lambda m: m.options.seen.append(1),
    "slots": lambda m: setattr(m.slotted, "last", torch.ones(1)),
    "dict in slots": lambda m: m.slotted.sizes.clear(),
    "attribute of an object": lambda m: setattr(m.cache, "calls", 3),
    "list of an object": lambda m: m.cache.keys.append(torch.ones(1)),
    "buffer": lambda m: m.count.add_(1),
    "buffer replaced": lambda m: setattr(m, "count", torch.ones(1)),
    "list of a frozen dict": lambda m: m.config["names"].append("b"),
    "frozen dict, through its base": lambda m: dict.update(m.config, height=2),
}


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_put_back(change: str, fails: bool) -> None:
    model = Holder(CHANGES[change], fails).eval()
    before = seen(model)
    try:
        with torch.no_grad(), state_kept(model):
            model(torch.randn(2, 4))
            assert (seen(model) != before) == (change != "nothing")
    except ValueError:
        assert fails
    assert seen(model) == before


class Fused(nn.Module):
    """Weights that are computed anew in every call, into the memory of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.fused = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.fused.weight.data = 2 * self.wide.weight.data
        return self.fused(x)


@pytest.mark.parametrize("capture", ["auto", "export"])
def test_exchanged_memory_is_put_back(capture: str, tmp_path: Path) -> None:
    """The recorder follows a weight that is given the memory of a result; torch.export does not."""
    model, x = Fused().eval(), torch.randn(2, 4)
    before, memory = model.fused.weight.detach().clone(), model.fused.weight.data_ptr()
    if capture == "auto":
        tonnx.export(model, (x,), tmp_path / "net.onnx", dynamic_axes={"x": {0: "batch"}})
    else:
        with pytest.raises(tonnx.CaptureError, match="Fused exchanges a weight while it runs") as caught:
            tonnx.export(model, (x,), tmp_path / "net.onnx", capture=capture)
        assert "self.fused.weight.data = " in str(caught.value.where)
    assert model.fused.weight.data_ptr() == memory and torch.equal(model.fused.weight, before)


@pytest.mark.parametrize("fails", [False, True])
def test_an_export_leaves_everything(fails: bool) -> None:
    model = Holder(fails=fails)
    before, reads = seen(model), Counting.reads
    if fails:
        with pytest.raises(tonnx.TonnxError):
            tonnx.export(model, (torch.randn(2, 4),))
    else:
        tonnx.export(model, (torch.randn(2, 4),), dynamic_axes={"x": {0: "batch"}})
    assert seen(model) == before and Counting.reads == reads


class Inferred(nn.Module):
    """Weights and state that were made in inference mode, as HQQ's are: PyTorch counts no versions of them."""

    def __init__(self) -> None:
        super().__init__()
        with torch.inference_mode():
            self.layer, self.calls = nn.Linear(4, 4), torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        with torch.inference_mode():
            self.calls.add_(1)
        return self.layer(x) + self.calls


def test_what_inference_mode_has_made_is_put_back() -> None:
    model = Inferred()
    result = tonnx.export(model, (torch.randn(2, 4),))
    assert result.verification is not None and result.verification.ok and not model.calls.any()


def test_the_example_is_not_marked() -> None:
    x = torch.ones(3, 2)
    tonnx.export(lambda x: x + x.shape[0], x, dynamic_axes={"x": {0: "rows"}}, capture="export", verify=False)
    assert not vars(x)
