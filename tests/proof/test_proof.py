"""The proof itself: what counts as equal, which inputs are tried, and what a failure says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tonnx.errors import CaptureError, InvalidArgument, InvalidModel, VerificationFailed
from tonnx.proof.compare import compare
from tonnx.proof.session import Session, one_line
from tonnx.proof.subject import Subject
from tonnx.proof.trials.prove import prove
from tonnx.proof.trials.verification import Trial, Verification

FLOAT = TensorProto.FLOAT
NAN, INF = float("nan"), float("inf")


def model_bytes(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[Any]]],
    outputs: dict[str, tuple[int, list[Any]]],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 20,
) -> bytes:
    def values(described: dict[str, tuple[int, list[Any]]]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(name, *described[name]) for name in described]

    initializers = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", values(inputs), values(outputs), initializers)
    opsets = [helper.make_opsetid("", opset)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def one_node(operator: str, dtype: int = FLOAT, shape: tuple[Any, ...] = ("n",), **attributes: Any) -> bytes:
    node = helper.make_node(operator, ["x"], ["y"], name="the_node", **attributes)
    return model_bytes([node], {"x": (dtype, list(shape))}, {"y": (dtype, list(shape))})


def frozen_batch(batch: int) -> bytes:
    """Reshape to a batch that an exporter has frozen, while the file claims a dynamic one."""
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], name="the_node")
    shape = {"shape": np.array([batch, 4])}
    return model_bytes([node], {"x": (FLOAT, ["batch", 2, 2])}, {"y": (FLOAT, ["rows", 4])}, shape)


def array(values: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, dtype)


# --- session ------------------------------------------------------------------------------------------


def test_a_loop_without_end_is_ended() -> None:
    go_on = helper.make_node("Identity", ["go"], ["still"])
    more = helper.make_node("Add", ["sum", "sum"], ["more"])
    state, flag = (FLOAT, [2]), (TensorProto.BOOL, [])
    infos = {"i": (TensorProto.INT64, []), "go": flag, "sum": state}, {"still": flag, "more": state}
    ins, outs = ([helper.make_tensor_value_info(name, *kind) for name, kind in some.items()] for some in infos)
    body = helper.make_graph([go_on, more], "body", ins, outs)
    loop = helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body)
    model = model_bytes([loop], {"x": state}, {"y": state}, {"yes": np.array(True)})
    with pytest.raises(VerificationFailed, match=r"did not end within 0\.5 s"):
        Session(model).run({"x": np.ones(2, np.float32)}, patience=0.5)


@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        (TensorProto.FLOAT, np.float32),
        (TensorProto.FLOAT16, np.float16),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
        (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2),
        (TensorProto.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz),
        (TensorProto.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz),
        (TensorProto.INT64, np.int64),
        (TensorProto.BOOL, np.bool_),
        (TensorProto.STRING, object),
    ],
)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3)])
def test_every_dtype_goes_in_and_out(code: int, dtype: Any, shape: tuple[int, int]) -> None:
    session = Session(one_node("Identity", code, ("n", "m")))
    # Transposed, because the memory of such an array is not in the order of its elements.
    x = np.arange(shape[0] * shape[1]).reshape(shape[::-1]).astype("U1" if dtype is object else dtype).T
    y = session.run({"x": x})["y"]
    assert y.dtype == dtype
    assert y.shape == shape
    assert compare("y", x, y, rtol=0, atol=0).ok


def test_bfloat16_is_computed_and_scalars_work() -> None:
    cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)
    session = Session(model_bytes([cast], {"x": (FLOAT, [])}, {"y": (TensorProto.BFLOAT16, [])}))
    y = session.run({"x": array(1.5)})["y"]
    assert y.dtype == ml_dtypes.bfloat16
    assert y.shape == ()
    assert float(y) == 1.5


@pytest.mark.parametrize(
    ("model", "cause"),
    [
        (b"garbage" * 30, "protobuf parsing failed"),
        (b"", "No graph was found"),
        (one_node("Nope"), "No Op registered for Nope"),
        ("/no/such/file.onnx", "File doesn't exist"),
    ],
)
def test_a_model_that_does_not_load(model: bytes | str, cause: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidModel) as caught:
        Session(model)
    assert caught.value.why is not None
    assert cause in caught.value.why
    assert "\n" not in caught.value.why
    assert "ONNXRuntimeError" not in caught.value.why
    assert capfd.readouterr() == ("", "")


def test_a_missing_kernel_is_not_called_an_invalid_file() -> None:
    with pytest.raises(InvalidModel) as caught:
        Session(one_node("Gelu", TensorProto.DOUBLE))
    assert caught.value.hint is not None
    assert "no kernel" in caught.value.hint


def test_a_run_that_fails_has_a_short_cause_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    session = Session(frozen_batch(2), threads=1)
    with pytest.raises(VerificationFailed) as caught:
        session.run({"x": np.zeros((3, 2, 2), np.float32)})
    why = caught.value.why
    assert why is not None
    assert "the_node" in why
    assert "Input shape:{3,2,2}" in why
    assert "\n" not in why
    assert "onnxruntime::" not in why
    assert "/onnxruntime_src" not in why
    assert capfd.readouterr() == ("", "")


def test_an_absent_provider_is_named() -> None:
    with pytest.raises(InvalidArgument, match="NopeExecutionProvider"):
        Session(one_node("Relu"), providers=["NopeExecutionProvider"])


def test_external_data_is_found_by_path(tmp_path: Path) -> None:
    add = helper.make_node("Add", ["x", "w"], ["y"])
    weight = np.arange(1000, dtype=np.float32)
    raw = model_bytes([add], {"x": (FLOAT, [1000])}, {"y": (FLOAT, [1000])}, {"w": weight})
    path = tmp_path / "m.onnx"
    onnx.save(onnx.load_from_string(raw), path, save_as_external_data=True, location="m.data")
    before = path.read_bytes()
    result = prove(path, Subject(lambda feeds: [feeds["x"] + weight], {"x": weight}, ["y"]))
    assert result.ok
    assert path.read_bytes() == before
    (tmp_path / "m.data").unlink()
    with pytest.raises(InvalidModel):
        prove(path, Subject(lambda feeds: [feeds["x"]], {"x": weight}, ["y"]))


def test_one_line_is_short() -> None:
    assert one_line("a\n  b\t c") == "a b c"
    assert len(one_line("x" * 1000)) == 300


def test_nothing_heavy_is_imported() -> None:
    """Neither a framework nor ONNX Runtime, so that help texts stay quick."""
    code = "import sys, tonnx.proof; print([m for m in ('torch', 'paddle', 'onnxruntime') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- prove --------------------------------------------------------------------------------------------


def ones(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def relu(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [np.maximum(feeds["x"], 0)]


def flat_rows(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [feeds["x"].reshape(-1, 4)]


BATCH = {"x": {0: "batch"}}


def test_a_good_file_is_proven_at_every_size() -> None:
    model = one_node("Relu", shape=("batch", 3))
    result = prove(model, Subject(relu, {"x": ones(2, 3)}, ["y"], BATCH))
    assert result.ok
    assert [trial.label for trial in result.trials] == ["example", "batch=3", "batch=1"]
    assert [trial.shapes["x"] for trial in result.trials] == [(2, 3), (3, 3), (1, 3)]
    (output,) = result.per_output()
    assert output.shapes == ((2, 3), (3, 3), (1, 3))
    assert output.max_abs == 0
    assert output.ok
    assert str(result) == "[✓] y (2, 3) float32  max abs 0  max rel 0   sizes tried: batch=1,2,3"
    result.raise_if_failed()


def test_the_first_axis_is_tried_at_small_sizes_however_large_the_example() -> None:
    model = one_node("Relu", shape=("batch", 3))
    result = prove(model, Subject(relu, {"x": ones(50, 3)}, ["y"], BATCH))
    assert {trial.shapes["x"][0] for trial in result.trials} == {1, 2, 3, 50, 51}


@pytest.mark.parametrize("batch", [1, 2])
def test_a_frozen_batch_is_caught_by_the_other_sizes(batch: int) -> None:
    model = frozen_batch(batch)
    example = {"x": ones(batch, 2, 2)}
    assert prove(model, Subject(flat_rows, example, ["y"])).ok
    result = prove(model, Subject(flat_rows, example, ["y"], BATCH))
    assert [trial.ok for trial in result.trials] == [True, False, False]
    assert "ONNX Runtime does not run the model" in str(result)
    with pytest.raises(VerificationFailed, match="output 'y'") as caught:
        result.raise_if_failed()
    assert caught.value.verification is result
    assert caught.value.where is not None
    assert caught.value.where.startswith("at batch=")
    assert "inf" not in caught.value.what


def test_wrong_numbers_name_the_worst_output() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["good"]), helper.make_node("Abs", ["x"], ["bad"])]
    shape = (FLOAT, ["batch", 3])
    model = model_bytes(nodes, {"x": shape}, {"good": shape, "bad": shape})
    names = ["good", "bad"]
    result = prove(model, Subject(lambda f: relu(f) * 2, {"x": ones(2, 3)}, names, BATCH))
    assert not result.ok
    assert result.worst is not None
    assert result.worst.name == "bad"
    assert [output.ok for output in result.per_output()] == [True, False]
    with pytest.raises(VerificationFailed, match=r"output 'bad'.*1 of 2 outputs fail.*max abs") as caught:
        result.raise_if_failed()
    assert caught.value.why is not None
    assert "out of tolerance" in caught.value.why
    assert "[✓] good" in str(result)
    assert "[✗] bad" in str(result)


def test_sizes_at_which_the_model_fails_are_left_out() -> None:
    def picky(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        if len(feeds["x"]) % 2:
            raise RuntimeError("batch must be even\nand here follow\nmany lines")
        return relu(feeds)

    model = one_node("Relu", shape=("batch", 3))
    result = prove(model, Subject(picky, {"x": ones(6, 3)}, ["y"], BATCH))
    assert result.ok
    assert not result.only_example
    skipped = {trial.label: trial.skipped for trial in result.trials if trial.skipped}
    assert skipped == {f"batch={n}": "RuntimeError: batch must be even" for n in (1, 3, 7)}
    assert "sizes tried: batch=2,6" in str(result)
    assert "[-] batch=1 left out, the model itself fails there: RuntimeError: batch must be even" in str(result)


def test_only_the_example_is_proven_if_all_else_is_left_out() -> None:
    def only_two(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        assert len(feeds["x"]) == 2
        return relu(feeds)

    result = prove(one_node("Relu", shape=("batch", 3)), Subject(only_two, {"x": ones(2, 3)}, ["y"], BATCH))
    assert result.ok
    assert result.only_example
    assert str(result).splitlines()[-1].endswith("only the example is proven")


def test_a_model_that_fails_on_its_example_is_not_the_files_fault() -> None:
    def broken(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        raise KeyError("mine")

    with pytest.raises(CaptureError, match="fails on the example"):
        prove(one_node("Relu"), Subject(broken, {"x": ones(2)}, ["y"]))


ADD = model_bytes(
    [helper.make_node("Add", ["a", "b"], ["y"])],
    {"a": (FLOAT, ["n", "m"]), "b": (FLOAT, ["n", 1])},
    {"y": (FLOAT, ["n", "m"])},
)


def test_equal_symbols_get_equal_sizes_within_their_ranges() -> None:
    seen: list[tuple[int, int, int]] = []

    def add(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        seen.append((*feeds["a"].shape, feeds["b"].shape[0]))
        return [feeds["a"] + feeds["b"]]

    dynamic = {"a": {0: "n", 1: "m"}, "b": {0: "n"}}
    limits = {"n": (2, None), "m": (1, 32)}
    result = prove(ADD, Subject(add, {"a": ones(4, 32), "b": ones(4, 1)}, ["y"], dynamic, limits))
    assert result.ok
    assert not any(trial.skipped for trial in result.trials)
    assert all(rows == other for rows, _, other in seen)
    assert {rows for rows, _, _ in seen} == {2, 3, 4, 5}
    assert {columns for _, columns, _ in seen} == {1, 16, 31, 32}


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [
        ({"a": {0: "n", 1: "n"}}, "two sizes in the example: 4 and 32"),
        ({"c": {0: "n"}}, "no input 'c'"),
        ({"a": {2: "n"}}, "no axis 2"),
    ],
)
def test_a_wrong_dynamic_argument_is_explained(dynamic: dict[str, dict[int, str]], message: str) -> None:
    example = {"a": ones(4, 32), "b": ones(4, 1)}
    with pytest.raises(InvalidArgument, match=message):
        prove(ADD, Subject(lambda f: [f["a"]], example, ["y"], dynamic))


@pytest.mark.parametrize(
    ("reference", "names", "words"),
    [
        (lambda f: [f["x"].astype(np.float64)], ["y"], "dtype: float64 in the model, float32 in the file"),
        (lambda f: [f["x"][None]], ["y"], "shape: (1, 2) in the model"),
        (lambda f: [f["x"]] * 2, ["y"], "the model gives 2 outputs, the file has 1"),
        (lambda f: [f["x"]], ["z"], "no output 'z', only y"),
    ],
)
def test_structural_differences_are_failures(reference: Callable[..., Any], names: list[str], words: str) -> None:
    result = prove(one_node("Identity"), Subject(reference, {"x": ones(2)}, names))
    assert not result.ok
    assert words in str(result)


@pytest.mark.parametrize(
    ("model", "cause"),
    [
        (b"garbage" * 30, "malformed"),
        (b"", "ir_version"),
        (one_node("Nope"), "No Op registered for Nope"),
        (one_node("Relu", nonsense=1), "Unrecognized attribute: nonsense"),
    ],
)
@pytest.mark.parametrize("by_path", [False, True])
def test_the_checker_speaks_first(model: bytes, cause: str, by_path: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model)
    with pytest.raises(InvalidModel, match=r"onnx\.checker") as caught:
        prove(path if by_path else model, Subject(relu, {"x": ones(2)}, ["y"]))
    assert caught.value.why is not None
    assert "\n" not in caught.value.why
    # Of bytes that are no model, older versions say that they cannot be parsed, or miss the first field.
    assert any(text in caught.value.why for text in (cause, "Unable to parse proto", "ir_version set properly"))
    assert caught.value.where == (str(path) if by_path else None)


def test_a_wrong_declared_shape_fails_the_full_check_only() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    model = model_bytes([node], {"x": (FLOAT, [2, 3])}, {"y": (FLOAT, [2, 4])})
    with pytest.raises(InvalidModel, match=r"onnx\.checker"):
        prove(model, Subject(relu, {"x": ones(2, 3)}, ["y"]))


def test_bfloat16_model_with_a_dynamic_batch() -> None:
    model = one_node("Identity", TensorProto.BFLOAT16, ("batch", 3))
    example = {"x": ones(2, 3).astype(ml_dtypes.bfloat16)}
    assert prove(model, Subject(lambda f: [f["x"]], example, ["y"], BATCH)).ok
    assert not prove(model, Subject(lambda f: [f["x"] * 2], example, ["y"], BATCH)).ok


def test_token_ids_do_not_leave_the_embedding() -> None:
    table = ones(8, 4)
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    ids = (TensorProto.INT64, ["batch", "time"])
    model = model_bytes([node], {"x": ids}, {"y": (FLOAT, ["batch", "time", 4])}, {"table": table})
    example = {"x": np.array([[1, 7, 0, 3, 7]])}
    dynamic = {"x": {0: "batch", 1: "time"}}
    result = prove(model, Subject(lambda f: [table[f["x"]]], example, ["y"], dynamic))
    assert result.ok
    assert len(result.trials) >= 6
    assert not any(trial.skipped for trial in result.trials)


def test_a_reference_that_writes_into_its_inputs_does_no_harm() -> None:
    def in_place(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [np.maximum(feeds["x"], 0, out=feeds["x"])]

    example = {"x": ones(2, 3)}
    model = one_node("Abs", shape=("batch", 3))
    assert not prove(model, Subject(in_place, example, ["y"], BATCH)).ok
    np.testing.assert_array_equal(example["x"], ones(2, 3))


def test_outputs_that_are_nothing_but_nan_are_pointed_out() -> None:
    model = one_node("Sqrt", shape=("batch", 3))
    example = {"x": -np.abs(ones(2, 3)) - 1}
    with np.errstate(invalid="ignore"):
        result = prove(model, Subject(lambda f: [np.sqrt(f["x"])], example, ["y"], BATCH))
    assert result.ok
    assert "nothing but NaN" in str(result)


def test_the_seed_repeats_the_inputs() -> None:
    seen: list[np.ndarray] = []

    def watch(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        seen.append(feeds["x"].copy())
        return relu(feeds)

    model = one_node("Relu", shape=("batch", 3))
    for seed in (0, 0, 1):
        prove(model, Subject(watch, {"x": ones(2, 3)}, ["y"], BATCH), seed=seed, sizes=1, check=False)
    assert len(seen) == 6
    assert np.array_equal(seen[1], seen[3])
    assert not np.array_equal(seen[1], seen[5])


def test_inputs_are_drawn_until_the_outputs_move() -> None:
    """At an example that is all negative, anything that gives zeros would pass."""
    wrong = Subject(lambda feeds: [2 * relu(feeds)[0]], {"x": array([-1, -3, -2, -4])}, ["y"], {})
    proof = prove(one_node("Relu"), wrong, check=False)
    assert proof.trials[0].ok and not proof.ok


@pytest.mark.parametrize(("scale", "faint"), [(1e-7, True), (0.0, True), (1.0, False)])
def test_output_below_the_tolerance_is_said_to_prove_little(scale: float, faint: bool) -> None:
    values = np.full(4, scale, dtype=np.float32)
    trial = Trial("example", {}, {}, (compare("y", values, values),))
    (summary,) = Verification((trial,)).per_output()
    assert summary.ok
    assert summary.faint is faint
    assert ("proves little" in str(summary)) is faint


def test_sizes_beyond_what_the_capture_assumes_are_tried(tmp_path: Path) -> None:
    """A limit that somebody derived is no reason to leave sizes out that were asked for; the model's own failure is."""

    def reference(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        if feeds["x"].shape[0] > 9:
            raise ValueError("too long")
        return [feeds["x"] * (2 if feeds["x"].shape[0] > 3 else 3)]

    add = helper.make_node("Add", ["x", "x"], ["y"])
    (path := tmp_path / "doubled.onnx").write_bytes(model_bytes([add], {"x": (FLOAT, ["n"])}, {"y": (FLOAT, ["n"])}))
    example = {"x": np.arange(1, 6, dtype=np.float32)}
    subject = Subject(reference, example, ["y"], {"x": {0: "n"}}, assumed={"n": (4, 9)})
    trials = {trial.label: trial for trial in prove(path, subject).trials}
    assert not trials["n=3 (which the capture takes for impossible)"].ok
    assert "too long" in str(trials["n=10 (which the capture takes for impossible)"].skipped)
    asked = replace(subject, limits={"n": (4, 9)})
    assert prove(path, asked).ok


def test_sizes_beyond_take_those_along_that_are_computed_of_them(tmp_path: Path) -> None:
    """The mask of more tokens is longer, or the model is asked what nobody asks it."""
    add = helper.make_node("Add", ["x", "mask"], ["y"])
    shapes = {"x": (FLOAT, ["n"]), "mask": (FLOAT, ["n * 1"])}
    (path := tmp_path / "sum.onnx").write_bytes(model_bytes([add], shapes, {"y": (FLOAT, ["n"])}))
    example = {name: np.arange(1, 6, dtype=np.float32) for name in shapes}
    dynamic = {"x": {0: "n"}, "mask": {0: "n * 1"}}
    subject = Subject(lambda feeds: [feeds["x"] + feeds["mask"]], example, ["y"], dynamic, assumed={"n": (4, 9)})
    proof = prove(path, subject)
    beyond = [trial for trial in proof.trials if "takes for impossible" in trial.label]
    assert proof.ok and [trial.sizes for trial in beyond] == [{"n": n, "n * 1": n} for n in (3, 10)]
