"""Whose integer kernels saturate: told from three answers, on any processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tonnx.proof.session import Session
from tonnx.proof.subject import Subject
from tonnx.proof.trials import judging, rounding, saturation
from tonnx.proof.trials import prove as trials
from tonnx.proof.trials.prove import prove
from tonnx.proof.trials.verification import Verification

RNG = np.random.default_rng(0)
WEIGHT = np.sign(RNG.normal(size=(16, 4))).astype(np.int8) * np.int8(127)
SCALE, STEP, OUT = np.float32(2 / 127), np.float32(0.01), np.float32(0.25)  # the observed range is -1 to 1
EXAMPLE = {"x": RNG.uniform(-1, 1, (8, 16)).astype(np.float32)}
ZERO, ZERO_WEIGHT = 63, np.int8(0)


def layer(weight: np.ndarray = WEIGHT, zero: Any = ZERO_WEIGHT) -> bytes:
    """A matrix of weights between two ranges, as every exporter writes it."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("MatMul", ["d", "wd"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "os", "oz"], ["mq"]),
        helper.make_node("DequantizeLinear", ["mq", "os", "oz"], ["y"]),
    ]
    constants = {"s": SCALE, "z": np.uint8(ZERO), "w": weight, "ws": STEP, "wz": zero, "os": OUT, "oz": np.uint8(128)}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 4])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return bytes(model.SerializeToString())


UNSIGNED = layer((WEIGHT.view(np.uint8) ^ 128), np.uint8(128))


def framework(saturates: bool, factor: float = 1.0) -> Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]:
    """The same layer as a framework computes it, by kernels that add pairs in 16 bits or by others."""

    def run(inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        integers = np.clip(np.rint(inputs["x"] / SCALE) + ZERO, 0, 255).astype(np.int64)
        products = integers[:, :, None] * WEIGHT.astype(np.int64)
        pairs = products.reshape(len(integers), -1, 2, WEIGHT.shape[1]).sum(2)
        sums = (np.clip(pairs, -(2**15), 2**15 - 1) if saturates else pairs).sum(1)
        reals = (sums - ZERO * WEIGHT.astype(np.int64).sum(0)) * np.float64(SCALE) * STEP * factor
        return [((np.clip(np.rint(reals / OUT) + 128, 0, 255) - 128) * OUT).astype(np.float32)]

    return run


class Cut(Session):
    """ONNX Runtime on a processor whose integer kernels saturate; run node by node, it computes with reals."""

    def __init__(self, *args: Any, optimised: bool = True, **more: Any) -> None:
        super().__init__(*args, optimised=optimised, **more)
        self.optimised = optimised

    def run(self, feeds: Mapping[str, np.ndarray], patience: float | None = None) -> dict[str, np.ndarray]:
        return {"y": framework(True)(feeds)[0]} if self.optimised else super().run(feeds, patience)


def proven(model: bytes, reference: Any, saturates: bool, example: Any = EXAMPLE) -> Verification:
    name = "PyTorch" if saturates else None
    return prove(model, Subject(reference, example, ["y"], saturates=lambda: name), values=True)


def test_the_kernels_do_saturate() -> None:
    beyond = {"x": EXAMPLE["x"] * 10}
    exact, cut = framework(False), framework(True)
    assert np.array_equal(exact(EXAMPLE)[0], cut(EXAMPLE)[0])
    assert np.abs(exact(beyond)[0] - cut(beyond)[0]).max() > 4 * OUT


def test_a_framework_that_saturates_is_judged_within_the_observed_range() -> None:
    verification = proven(UNSIGNED, framework(True), saturates=True)
    assert verification.ok and all(c.max_abs == 0 for t in verification.trials for c in t.comparisons)
    assert {t.label for t in verification.trials if t.saturated} >= {"large values"}
    assert "[!] this processor's integer kernels saturate in PyTorch: judged on values within" in str(verification)


@pytest.mark.parametrize(("saturates", "factor"), [(False, 1.0), (True, 1.5)])
def test_what_is_not_saturation_is_a_failure(saturates: bool, factor: float) -> None:
    """A framework that would saturate, but not on this processor; and one that is off within the range, too."""
    verification = proven(UNSIGNED, framework(True, factor), saturates)
    assert not verification.ok and "[✗]" in str(verification)


def test_values_that_cannot_be_brought_into_range() -> None:
    proto = onnx.load_model_from_string(layer())
    next(t for t in proto.graph.initializer if t.name == "z").CopyFrom(numpy_helper.from_array(np.uint8(140), "z"))
    verification = proven(proto.SerializeToString(), framework(True), saturates=True)
    assert not verification.ok and "saturate in PyTorch, on smaller inputs too" in str(verification)


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "open_session", Cut)
    for module in (judging, saturation):
        monkeypatch.setattr(module, "runtime_saturates", lambda: True)


@pytest.mark.usefixtures("cut")
def test_a_runtime_that_saturates_is_told_from_a_wrong_file() -> None:
    beyond = {"x": EXAMPLE["x"] * 2}
    verification = proven(layer(), framework(False), saturates=False, example=beyond)
    assert verification.ok and "integer kernels saturate in ONNX Runtime" in str(verification)
    assert all(c.max_abs <= OUT for t in verification.trials for c in t.comparisons)
    assert not proven(layer(), framework(False, 1.5), saturates=False, example=beyond).ok
    # without int8 nothing saturates: then the runtime is wrong, which is the user's trouble as well
    assert not proven(UNSIGNED, framework(False), saturates=False, example=beyond).ok


@pytest.mark.usefixtures("cut")
def test_saturation_is_no_noise() -> None:
    """What rounding may do is measured without kernels that saturate: or it would allow everything."""
    inputs = {"x": EXAMPLE["x"] * 10}
    want, cut_off = (framework(saturates)(inputs)[0] for saturates in (False, True))
    one_step = np.where(np.arange(want.size).reshape(want.shape) == 3, want + OUT, want)
    judge = rounding.Quantised(layer())
    assert judge.allows(inputs, "y", want, one_step) and not judge.allows(inputs, "y", want, cut_off)


@pytest.mark.parametrize(("size", "difference", "allowed"), [(1, 2.5, True), (1, 3.5, False), (400, 2.5, False)])
def test_one_number_may_be_off_by_more_than_the_mean_of_many(size: int, difference: float, allowed: bool) -> None:
    """Rounding moves each number by up to 1 here, by 0.45 in the mean."""
    steps = iter([1.0, 0.1, 0.1, 0.1, 0.1])
    stepped = SimpleNamespace(run=lambda _inputs: {"y": np.full(size, next(steps))})
    judge = rounding.Quantised(b"")
    judge.__dict__.update(smooth=flat(size), exact=SimpleNamespace(session=stepped))
    assert judge.allows({}, "y", np.zeros(size), np.full(size, difference)) == allowed


def flat(size: int) -> SimpleNamespace:
    return SimpleNamespace(run=lambda _inputs: {"y": np.zeros(size)})


def test_a_file_from_elsewhere_is_told_apart_here_as_well() -> None:
    """With the kernels of this processor, whatever they are."""
    verification = proven(layer(), framework(False), saturates=False, example={"x": EXAMPLE["x"] * 2})
    assert verification.ok
    saturated = any(c.saturated for t in verification.trials for c in t.comparisons)
    assert saturated == saturation.runtime_saturates() == ("ONNX Runtime" in str(verification))
