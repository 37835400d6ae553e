"""`tonnx.retarget` and `tonnx retarget`: any ONNX file at another opset, from whatever it is given as."""

from __future__ import annotations

import io
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import tonnx
from tonnx.cli import main
from tonnx.errors import InvalidArgument, InvalidModel, RetargetError

X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


NET = """<ir_version: 8, opset_import: ["" : 18]> net (float[batch, 3] x) => (float[batch] total, float[batch, 3] soft)
    <float[3] weight = {1.0, 2.0, 3.0}, int64[1] axes = {-1}> {
        scaled = Mul(x, weight)
        total = ReduceSum<keepdims = 0>(scaled, axes)
        [named] soft = Softmax(scaled)
    }"""


@pytest.fixture
def net() -> onnx.ModelProto:
    return parsed(NET)


def imports(model: onnx.ModelProto) -> dict[str, int]:
    return {entry.domain: entry.version for entry in model.opset_import}


def run(model: onnx.ModelProto | str, feeds: dict[str, np.ndarray]) -> list[Any]:
    source = model if isinstance(model, str) else model.SerializeToString()
    return list(onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, feeds))


def compared(result: tonnx.RetargetResult) -> int:
    """How many sets of inputs both files were run on and agreed."""
    assert result.verification is not None and result.verification.ok
    return sum(trial.skipped is None for trial in result.verification.trials)


@pytest.mark.parametrize("form", ["path", "text path", "bytes", "bytearray", "proto", "ir"])
def test_any_form_of_input_which_is_not_changed(net: onnx.ModelProto, tmp_path: Path, form: str) -> None:
    path = tmp_path / "in.onnx"
    onnx.save(net, path)
    given: Any = {
        "path": path,
        "text path": str(path),
        "bytes": net.SerializeToString(),
        "bytearray": bytearray(net.SerializeToString()),
        "proto": net,
        "ir": ir.from_proto(net),
    }[form]
    was = ir.to_proto(given).SerializeToString() if form == "ir" else net.SerializeToString()
    result = tonnx.retarget(given, 11, tmp_path / "out.onnx")
    made = onnx.load(tmp_path / "out.onnx")
    assert imports(made) == {"": 11} and made.ir_version == 6
    onnx.checker.check_model(made, full_check=True)
    assert compared(result) > 1
    np.testing.assert_allclose(run(made, {"x": X})[0], run(net, {"x": X})[0], rtol=1e-6)
    if form == "ir":
        assert ir.to_proto(given).SerializeToString() == was
    else:
        assert net.SerializeToString() == was == path.read_bytes()


@pytest.mark.parametrize("opset", range(1, 27))
def test_every_opset_up_and_down(net: onnx.ModelProto, opset: int) -> None:
    result = tonnx.retarget(net, opset)
    made = ir.to_proto(result.model)
    assert imports(made) == {"": opset} and (result.source, result.opset) == (18, opset)
    assert compared(result) > 1
    back = tonnx.retarget(made, 18)
    assert compared(back) > 1
    np.testing.assert_allclose(run(ir.to_proto(back.model), {"x": X})[1], run(net, {"x": X})[1], rtol=1e-5)


def test_names_are_kept(net: onnx.ModelProto) -> None:
    net.doc_string, net.producer_name = "about this model", "somebody"
    net.metadata_props.add(key="author", value="nobody")
    made = ir.to_proto(tonnx.retarget(net, 13).model)
    assert [x.name for x in made.graph.input] == ["x"]
    assert [x.name for x in made.graph.output] == ["total", "soft"]
    assert "weight" in {tensor.name for tensor in made.graph.initializer}
    assert "scaled" in {name for node in made.graph.node for name in node.output}
    assert "named" in {node.name for node in made.graph.node}
    assert made.graph.name == "net" and made.doc_string == "about this model" and made.producer_name == "somebody"
    assert made.metadata_props[0].value == "nobody"
    assert made.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_to_a_file_object_and_to_nothing(net: onnx.ModelProto) -> None:
    buffer = io.BytesIO()
    result = tonnx.retarget(net, 9, buffer)
    assert result.path is None and result.size == len(buffer.getvalue())
    assert imports(onnx.load_model_from_string(buffer.getvalue())) == {"": 9}
    assert imports(ir.to_proto(tonnx.retarget(net, 9, verify=False).model)) == {"": 9}


def test_what_is_printed(net: onnx.ModelProto) -> None:
    result = tonnx.retarget(net, 9)
    text = str(result)
    assert "opset 18 → 9, IR 4" in text and "input x: float[batch, 3]" in text and "✓" in text
    assert all(before != after for _, before, after in result.changes())


def test_custom_operators_are_left_alone(tmp_path: Path) -> None:
    model = parsed("""<ir_version: 8, opset_import: ["" : 18, "my.ops" : 3]> g (float[2, 3] x) => (float[2] y) {
        t = my.ops.Magic<strength = 3, mode = "fast">(x)
        axes = Constant<value_ints = [-1]>()
        y = ReduceMean<keepdims = 0>(t, axes) }""")
    result = tonnx.retarget(model, 13, tmp_path / "out.onnx")
    made = onnx.load(tmp_path / "out.onnx")
    assert imports(made) == {"": 13, "my.ops": 3}
    assert (made.graph.node[0].domain, made.graph.node[0].op_type) == ("my.ops", "Magic")
    assert {a.name: onnx.helper.get_attribute_value(a) for a in made.graph.node[0].attribute} == {
        "strength": 3,
        "mode": b"fast",
    }
    assert result.verification is None
    assert any(note.startswith("not compared") and "Magic" in note for note in result.notes)
    assert "not compared" in str(result)
    onnx.checker.check_model(made)


def test_operators_of_a_known_other_domain_are_compared() -> None:
    model = parsed("""<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 3]> g (float[2, 3] x) => (float[2, 3] y) {
        y = ai.onnx.ml.Scaler<offset = [0.0], scale = [2.0]>(x) }""")
    result = tonnx.retarget(model, 11)
    assert result.model.opset_imports == {"": 11, "ai.onnx.ml": 3}
    assert compared(result)


def test_the_long_name_of_the_default_domain() -> None:
    model = parsed("""<ir_version: 8, opset_import: ["ai.onnx" : 18]> g (float[2, 3] x) => (float[2] y) {
        axes = Constant<value_ints = [-1]>()
        y = ai.onnx.ReduceSum<keepdims = 0>(x, axes) }""")
    result = tonnx.retarget(model, 11)
    assert result.model.opset_imports == {"": 11}
    assert compared(result)


FUNCTION = """<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
    g (float[2, 3] x) => (float[2, 3] y) { y = my.Scaled<axis = %s>(x) }
    <domain: "my", opset_import: ["" : %d]> Scaled<axis>(x) => (y) {
        two = Constant<value = float {2.0}>()
        t = Mul(x, two)
        y = Softmax<axis: int = @axis>(t) }"""


def test_functions_are_kept_where_they_can_be() -> None:
    model = parsed(FUNCTION % (0, 18))
    for opset in (15, 24):
        result = tonnx.retarget(model, opset)
        assert [f.name for f in result.model.functions.values()] == ["Scaled"]
        assert {dict(f.opset_imports)[""] for f in result.model.functions.values()} == {opset}
        assert result.model.ir_version >= 8  # the first with functions
        assert not result.notes and compared(result)


@pytest.mark.parametrize("version", [18, 13])
def test_functions_are_inlined_where_a_rule_needs_shapes(version: int) -> None:
    result = tonnx.retarget(parsed(FUNCTION % (0, version)), 9)
    assert not result.model.functions and result.model.ir_version == 4
    assert result.notes[0] == "inlined 1 function"
    assert compared(result)


def test_functions_in_a_circle() -> None:
    model = parsed("""<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
        g (float[2, 3] x) => (float[2, 3] y) { y = my.A(x) }
        <domain: "my", opset_import: ["" : 18, "my" : 1]> A(x) => (y) { t = my.B(x)  y = Softmax<axis = -2>(t) }
        <domain: "my", opset_import: ["" : 18, "my" : 1]> B(x) => (y) { y = my.A(x) }""")
    with pytest.raises(InvalidModel, match="in a circle"):
        tonnx.retarget(model, 9)


def with_weights(path: Path, rows: int) -> onnx.ModelProto:
    """A model whose one large weight lies in a file of its own."""
    model = parsed("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[N, 64] x) => (float[N] y) <int64[1] axes = {-1}> {
        t = MatMul(x, weight)  y = ReduceSum<keepdims = 0>(t, axes) }""")
    weight = np.random.default_rng(0).standard_normal((64, rows)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=1024)
    return model


def test_external_data_is_read_in_place(tmp_path: Path) -> None:
    with_weights(tmp_path / "in.onnx", 65536)
    data = tmp_path / "weights.bin"
    before = data.stat()
    assert before.st_size == 16 * 1024**2
    tonnx.retarget(tmp_path / "in.onnx", 11, tmp_path / "warm.onnx", verify=False)  # imports
    tracemalloc.start()
    tonnx.retarget(tmp_path / "in.onnx", 11, tmp_path / "one.onnx", verify=False)
    tonnx.retarget(tmp_path / "in.onnx", 9, tmp_path / "two.onnx", verify=False, external_data=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 1024**2
    after = data.stat()
    assert (after.st_mtime_ns, after.st_size, after.st_ino) == (before.st_mtime_ns, before.st_size, before.st_ino)
    assert (tmp_path / "one.onnx").stat().st_size > before.st_size
    assert (tmp_path / "two.onnx").stat().st_size < 10_000
    x = np.random.default_rng(1).standard_normal((2, 64)).astype(np.float32)
    want = run(str(tmp_path / "in.onnx"), {"x": x})[0]
    for name in ("one", "two"):
        np.testing.assert_allclose(run(str(tmp_path / f"{name}.onnx"), {"x": x})[0], want, rtol=1e-4, atol=1e-3)


def test_in_place_with_external_data(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    with_weights(path, 8)
    x = np.random.default_rng(1).standard_normal((2, 64)).astype(np.float32)
    want = run(str(path), {"x": x})[0]
    for opset, external in ((13, True), (11, True), (9, False)):
        result = tonnx.retarget(path, opset, path, external_data=external)
        assert compared(result) > 1
        np.testing.assert_allclose(run(str(path), {"x": x})[0], want, rtol=1e-5)


def test_missing_external_data(tmp_path: Path) -> None:
    with_weights(tmp_path / "in.onnx", 8)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(tonnx.TonnxError, match=r"weights\.bin"):
        tonnx.retarget(tmp_path / "in.onnx", 11, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


IR3 = """<ir_version: 3, opset_import: ["" : 8]> g (float[2, 6] x, int64[2] shape, float[4] w) => (float[3, 4] y)
    <int64[2] shape = {3, 4}, float[4] w = {1.0, 2.0, 3.0, 4.0}> { t = Reshape(x, shape)  y = Mul(t, w) }"""


@pytest.mark.parametrize("opset", [7, 9, 13, 26])
def test_files_of_ir_version_3(opset: int) -> None:
    """There, every initializer had to be an input as well; that is no invitation to set it."""
    result = tonnx.retarget(parsed(IR3), opset)
    made = ir.to_proto(result.model)
    assert [x.name for x in made.graph.input] == (["x", "shape", "w"] if opset < 9 else ["x"])
    assert compared(result)
    assert str(result).count("  input ") == 1


def test_default_values_of_inputs_are_fixed_only_if_they_must_be() -> None:
    model = parsed("""<ir_version: 7, opset_import: ["" : 13]> g (float[2, 1, 3] x, int64[1] axes) => (float[2, 3] y)
        <int64[1] axes = {1}> { y = Squeeze(x, axes) }""")
    up = tonnx.retarget(model, 21)
    assert [v.name for v in up.model.graph.inputs] == ["x", "axes"] and not up.notes
    down = tonnx.retarget(model, 11)
    assert [v.name for v in down.model.graph.inputs] == ["x"]
    assert down.notes == ["1 initializer is no longer among the inputs"]
    assert compared(up) and compared(down)


def test_bodies_of_if_and_loop() -> None:
    model = parsed("""<ir_version: 10, opset_import: ["" : 18]>
        g (int64 n, bool c, float[2, 4] x) => (float[2] y, float[M, 2] all)
        <bool go = {1}, int64[1] axes = {-1}> {
            last, all = Loop(n, go, x)
                <body = b (int64 i, bool ci, float[2, 4] v) => (bool co, float[2, 4] w, float[2] s) {
                co = Identity(ci)  w = Add(v, v)  s = ReduceSum<keepdims = 0>(w, axes) }>
            y = If(c)<then_branch = th () => (float[2] a) { a = ReduceMax<keepdims = 0>(x, axes) },
                      else_branch = el () => (float[2] b) { b = ReduceMean<keepdims = 0>(x, axes) }>
        }""")
    for opset in (7, 8, 9, 11, 13, 26):
        for n, c in ((3, True), (0, False)):
            inputs = {"n": np.array(n), "c": np.array(c)}
            result = tonnx.retarget(model, opset, inputs=inputs)
            assert compared(result) >= 1
            assert {node.op_type for node in result.model.graph} >= {"If", "Loop"}


def test_real_inputs(net: onnx.ModelProto) -> None:
    result = tonnx.retarget(net, 11, inputs={"x": X})
    assert result.verification is not None
    assert result.verification.trials[0].shapes == {"x": (2, 3)}
    for wrong, reason in (
        ({"y": X}, "no input 'y'"),
        ({"x": X.T}, "does not fit"),
        ({"x": X.astype(np.float64)}, "does not fit"),
    ):
        with pytest.raises(InvalidArgument, match=reason):
            tonnx.retarget(net, 11, inputs=wrong)


def test_inputs_are_guessed_until_the_original_runs() -> None:
    """An index that must be below 1, and an image that must not be tiny."""
    model = parsed("""<ir_version: 8, opset_import: ["" : 18]>
        g (int64[2] i, float[1, 1, H, W] x) => (float[2, 3] y, float[1, 1, H2, W2] z)
        <float[1, 3] t = {1.0, 2.0, 3.0}, float[1, 1, 5, 5] k = {
         1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.,1.}> {
        y = Gather(t, i)  z = Conv(x, k) }""")
    only_index = onnx.ModelProto()
    only_index.CopyFrom(model)
    del only_index.graph.node[1], only_index.graph.output[1], only_index.graph.input[1]
    assert compared(tonnx.retarget(only_index, 11))
    only_image = onnx.ModelProto()
    only_image.CopyFrom(model)
    del only_image.graph.node[0], only_image.graph.output[0], only_image.graph.input[0]
    result = tonnx.retarget(only_image, 11)
    assert compared(result) > 1
    assert result.verification is not None and result.verification.trials[0].shapes["x"] == (1, 1, 7, 7)


BLOCKED = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[2, 3] x, int64[1] axes, seq(float[3]) s, int64 i) => (float[n, m] y, float[3] z) {
    [first] y = Squeeze(x, axes)
    [second] z = SequenceAt(s, i) }"""


def test_an_impossible_opset_lists_every_blocker(tmp_path: Path) -> None:
    model = parsed(BLOCKED)
    out = tmp_path / "out.onnx"
    out.write_bytes(b"what was there before")
    with pytest.raises(RetargetError) as caught:
        tonnx.retarget(model, 9, out)
    error = caught.value
    assert {(b.node, b.operator, b.lowest_opset) for b in error.blockers} == {
        ("first", "Squeeze", 13),
        ("second", "SequenceAt", 11),
    }
    assert error.hint == "the lowest opset that works for this model is 13"
    assert "2 nodes cannot be expressed at opset 9" in str(error)
    assert out.read_bytes() == b"what was there before" and list(tmp_path.iterdir()) == [out]
    assert tonnx.retarget(model, 13).opset == 13


@pytest.mark.parametrize(
    "content", [b"", b"plain text\n" * 20, bytes(range(256)), None], ids=["empty", "text", "junk", "cut"]
)
def test_files_that_are_no_models(net: onnx.ModelProto, tmp_path: Path, content: bytes | None) -> None:
    whole = net.SerializeToString()
    data = whole[: len(whole) // 2] if content is None else content
    path = tmp_path / "bad.onnx"
    path.write_bytes(data)
    for given in (path, data):
        with pytest.raises(InvalidModel, match="not an ONNX model"):
            tonnx.retarget(given, 11)


def test_arguments_that_cannot_be_used(net: onnx.ModelProto, tmp_path: Path) -> None:
    for opset in (27, 0, -1, "11", 11.0, True, None):
        with pytest.raises(InvalidArgument):
            tonnx.retarget(net, opset)  # type: ignore[arg-type]
    for model in (None, 3, tmp_path / "missing.onnx", tmp_path, {"x": 1}):
        with pytest.raises(InvalidArgument):
            tonnx.retarget(model, 11)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        tonnx.retarget(net, 11, tmp_path / "no" / "such" / "folder.onnx")


def test_opsets_that_runtimes_do_not_run_are_read_as_well() -> None:
    add = parsed("""<ir_version: 3, opset_import: ["" : 6]> g (float[2, 3] x, float[2] w) => (float[2, 3] y) {
        y = Add<broadcast = 1, axis = 0>(x, w) }""")
    assert compared(tonnx.retarget(add, 13))
    cast = parsed("""<ir_version: 3, opset_import: ["" : 5]> g (float[2, 3] x) => (float[2, 3] y) {
        y = Cast<to = "FRACTION">(x) }""")
    with pytest.raises(RetargetError) as caught:
        tonnx.retarget(cast, 9)
    assert caught.value.blockers[0].lowest_opset is None


def test_outputs_of_unknown_rank() -> None:
    """onnx.checker wants a shape of every output, which nobody can give here; runtimes do not."""
    free = parsed("""<ir_version: 8, opset_import: ["" : 18]> g (float[2, 3] x, int64[k] shape) => (float[a] y) {
        y = Reshape(x, shape) }""")
    free.graph.output[0].type.tensor_type.ClearField("shape")
    result = tonnx.retarget(free, 11, inputs={"x": X, "shape": np.array([3, 2])})
    assert compared(result) and not result.proto.graph.output[0].type.tensor_type.HasField("shape")
    free.graph.node[0].op_type = "Relu"  # which takes one input
    with pytest.raises(RetargetError, match="takes 1 inputs, not 2"):
        tonnx.retarget(free, 11)
    free.graph.node[0].op_type, free.graph.input[0].type.tensor_type.elem_type = "Reshape", onnx.TensorProto.STRING
    with pytest.raises(InvalidModel, match=r"onnx\.checker"):  # a string does not become a float
        tonnx.retarget(free, 11, inputs={"x": np.array([["a"] * 3] * 2, dtype=object), "shape": np.array([3, 2])})


# The command


def test_command(net: onnx.ModelProto, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(net, source)
    assert main(["retarget", str(source), "--opset", "9", "-o", str(out)]) == 0
    assert imports(onnx.load(out)) == {"": 9}
    assert "opset 18 → 9" in capsys.readouterr().out
    np.savez(tmp_path / "real.npz", x=X)
    command = ["retarget", str(source), "--opset", "22", "-o", str(out)]
    assert main([*command, "--inputs", str(tmp_path / "real.npz"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["source_opset"] == 18 and data["opset"] == 22
    assert imports(onnx.load(out)) == {"": 22}


def test_command_failures(net: onnx.ModelProto, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(parsed(BLOCKED), source)
    assert main(["retarget", str(source), "--opset", "9", "-o", str(out)]) == 1
    message = capsys.readouterr().err
    assert "SequenceAt" in message and "Squeeze" in message and "the lowest opset that works" in message
    for opset in ("0", "27", "x"):
        assert main(["retarget", str(source), "--opset", opset, "-o", str(out)]) == 2
    source.write_text("not a model at all")
    assert main(["retarget", str(source), "--opset", "9", "-o", str(out)]) == 1
    assert "not an ONNX model" in capsys.readouterr().err
    onnx.save(net, source)
    np.savez(tmp_path / "real.npz", nobody=X)
    command = ["retarget", str(source), "--opset", "9", "-o", str(out), "--inputs", str(tmp_path / "real.npz")]
    assert main(command) == 1
    assert "no input 'nobody'" in capsys.readouterr().err
    assert not out.exists()


def test_neither_torch_nor_paddle_is_needed(net: onnx.ModelProto, tmp_path: Path) -> None:
    import subprocess

    onnx.save(net, tmp_path / "in.onnx")
    code = (
        "import sys; sys.modules['torch'] = sys.modules['paddle'] = None; import tonnx;"
        f"print(tonnx.retarget({str(tmp_path / 'in.onnx')!r}, 9))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "✓" in done.stdout, done.stderr
