"""Run an ONNX file in ONNX Runtime: arrays in, arrays out, errors in one line."""

from __future__ import annotations

import ctypes
import os
import re
import threading
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tonnx.errors import InvalidArgument, InvalidModel, TonnxError, VerificationFailed
from tonnx.proof import upward

if TYPE_CHECKING:
    import onnxruntime

Model = str | os.PathLike[str] | bytes

# Only above "fatal": what ONNX Runtime logs as an error it also raises, and we report that ourselves.
_LOG_FATAL = 4

# dtypes that ONNX Runtime computes but its numpy interface (1.31) neither takes nor gives:
# name in ONNX Runtime -> (onnx element type, numpy dtype of the values, numpy dtype of their bits)
_FOREIGN: dict[str, tuple[int, Any, Any]] = {
    "tensor(bfloat16)": (16, ml_dtypes.bfloat16, np.uint16),
    "tensor(float8e4m3fn)": (17, ml_dtypes.float8_e4m3fn, np.uint8),
    "tensor(float8e4m3fnuz)": (18, ml_dtypes.float8_e4m3fnuz, np.uint8),
    "tensor(float8e5m2)": (19, ml_dtypes.float8_e5m2, np.uint8),
    "tensor(float8e5m2fnuz)": (20, ml_dtypes.float8_e5m2fnuz, np.uint8),
}
_FOREIGN_DTYPES = {np.dtype(values): (code, bits) for code, values, bits in _FOREIGN.values()}


_EXACT = ("session.qdq_matmulnbits_accuracy_level", "1")
"""Products with weights of 4 or 8 bits: ONNX Runtime rounds the other factor to 8 bits by default, too."""
_DATA_FOLDER = "session.model_external_initializers_file_folder_path"

PATIENCE = 300.0
"""Seconds that a proof gives one run: a loop whose end is lost would never end."""


class TooNew(InvalidModel):
    """The file's opset, or its IR version, is newer than the installed onnx or ONNX Runtime."""


class Session:
    """A loaded ONNX file.

    A path also finds the file's external data; bytes must hold the whole model, or be given the folder of the data.

    >>> Session("model.onnx").run({"x": x})["y"]
    """

    remark = ""
    """Who runs the file in ONNX Runtime's place, and why; see `tonnx.proof.judge`."""

    def __init__(
        self,
        model: Model,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        *,
        optimised: bool = True,
        exact: bool = True,
        spin: bool = True,
        fused_integers: bool = True,
        plans_memory: bool = True,
        data_folder: str | None = None,
    ) -> None:
        import onnxruntime

        self._options = onnxruntime.SessionOptions()
        self._options.log_severity_level = _LOG_FATAL
        if threads is not None:
            self._options.intra_op_num_threads = threads
        if data_folder is not None:
            self._options.add_session_config_entry(_DATA_FOLDER, data_folder)
            self._options.add_session_config_entry("session.disable_prepacking", "1")  # it would copy the weights
        if exact:
            self._options.add_session_config_entry(*_EXACT)
        if not fused_integers:  # nor are float weights beside rounded activations rounded for it
            self._options.add_session_config_entry("session.disable_quant_qdq", "1")
        self._options.enable_mem_pattern = plans_memory
        if not spin:
            self._options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if not optimised:
            self._options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._providers = _available(providers or ["CPUExecutionProvider"], onnxruntime.get_available_providers())
        self.brought_up_by = ""
        """Who brought a file of an opset below 7 up to 7, where this session runs it; empty for newer ones."""
        source = model if isinstance(model, bytes) else os.fspath(model)
        self._old = upward.old_model(source)
        if self._old is not None:
            self.inputs, self.outputs = upward.types_of(self._old)
            self.shapes, self.metadata = upward.shapes_of(self._old), upward.metadata_of(self._old)
            self._brought_up: dict[Any, onnxruntime.InferenceSession] = {}
            return
        try:
            self._session = self._opened(source)
            self.inputs = {value.name: value.type for value in self._session.get_inputs()}
            self.outputs = {value.name: value.type for value in self._session.get_outputs()}
            self.shapes = {v.name: v.shape for v in (*self._session.get_inputs(), *self._session.get_outputs())}
            self.metadata = self._session.get_modelmeta().custom_metadata_map
        except Exception as error:  # ONNX Runtime's errors have no base class of their own; texts may not be UTF-8
            raise _not_loaded(error, None if isinstance(source, bytes) else source) from error

    def _opened(self, source: str | bytes) -> onnxruntime.InferenceSession:
        import onnxruntime

        # Without the fallback: it would print to stdout and quietly use another provider.
        return onnxruntime.InferenceSession(source, self._options, providers=self._providers, enable_fallback=0)

    def _for(self, arrays: Mapping[str, np.ndarray]) -> onnxruntime.InferenceSession:
        """The session itself; of an old file, one for inputs of these shapes."""
        if self._old is None:
            return self._session
        shapes = {name: array.shape for name, array in arrays.items()}
        key = tuple(sorted(shapes.items()))
        if key not in self._brought_up:
            self._brought_up = {key: self._bring_up(shapes)}  # only the last: each holds all weights
        return self._brought_up[key]

    def _bring_up(self, shapes: Mapping[str, tuple[int, ...]]) -> onnxruntime.InferenceSession:
        assert self._old is not None
        failure: Exception | None = None
        for source, who in upward.ways_up(self._old, shapes):
            try:
                session = self._opened(source)
            except Exception as error:  # noqa: BLE001 (ONNX Runtime's errors have no base class; the last is raised)
                failure = error
                continue
            if not self.brought_up_by.startswith(upward.BY_TONNX):  # the weakest judge that was needed
                self.brought_up_by = who
            return session
        assert failure is not None
        raise _not_loaded(failure, None) from failure

    def run(self, feeds: Mapping[str, np.ndarray], patience: float | None = None) -> dict[str, np.ndarray]:
        """Every output by name. Raises VerificationFailed if ONNX Runtime cannot compute them.

        ``patience``: so many seconds at most, for a Loop that may never end.
        """
        arrays = {name: np.asarray(array) for name, array in feeds.items()}
        foreign = any(kind in _FOREIGN for kind in (*self.inputs.values(), *self.outputs.values()))
        with _Limit(patience) as limit:
            try:
                session = self._for(arrays)
                if foreign or any(array.dtype in _FOREIGN_DTYPES for array in arrays.values()):
                    values = {name: _to_ort(array) for name, array in arrays.items()}
                    results = session.run_with_ort_values(None, values, limit.options)
                    return dict(zip(self.outputs, map(_from_ort, results), strict=True))
                results = session.run(None, arrays, limit.options)
                return dict(zip(self.outputs, map(_of_maps, results), strict=True))
            except TonnxError:
                raise
            except Exception as error:  # ONNX Runtime's errors have no base class of their own
                why = f"it did not end within {patience:g} s" if limit.reached else one_line(error)
                raise VerificationFailed("ONNX Runtime does not run the model", why=why) from error


def _of_maps(result: Any) -> Any:
    """Maps, one a row, as numbers that can be compared: [rows, keys, 2]; all else as it is."""
    rows = [result] if isinstance(result, dict) else result
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        return result
    numbers = [[(_key_number(key), value) for key, value in sorted(row.items())] for row in rows]
    if len({len(row) for row in rows}) > 1:  # other keys in each row: a list without a shape
        numbers = [[pair for row in numbers for pair in row]]
    return np.asarray(numbers, np.float32)


def _key_number(key: int | str) -> int:
    return zlib.crc32(key.encode()) % (1 << 20) if isinstance(key, str) else key


class _Limit:
    """Ends a run that takes longer than its time; without a time it does nothing, and costs nothing."""

    def __init__(self, seconds: float | None) -> None:
        self.options: onnxruntime.RunOptions | None = None
        self._timer: threading.Timer | None = None
        if seconds is not None:
            import onnxruntime

            self.options = onnxruntime.RunOptions()
            self.options.log_severity_level = _LOG_FATAL
            self._timer = threading.Timer(seconds, self._end)
            self._timer.daemon = True

    def _end(self) -> None:
        assert self.options is not None
        self.options.terminate = True

    @property
    def reached(self) -> bool:
        return self.options is not None and bool(self.options.terminate)

    def __enter__(self) -> _Limit:
        if self._timer is not None:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()


def numpy_dtype(kind: str) -> np.dtype | None:
    """The dtype of the elements of ``tensor(float)`` and the like; None for text, and for what is no tensor."""
    if kind in _FOREIGN:
        return np.dtype(_FOREIGN[kind][1])
    names = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(string)": None}
    inner = kind[len("tensor(") : -1] if kind.startswith("tensor(") else None
    name = names.get(kind, inner)
    try:
        return None if name is None else np.dtype(name)
    except TypeError:  # 4-bit integers and the like, which numpy does not have
        return None


# What ONNX Runtime says of a file that came after it.
_NEWEST_RUN = re.compile(r"max supported IR version: \d+|official support for domain ai\.onnx is till opset \d+")


def _not_loaded(error: Exception, where: str | None) -> InvalidModel:
    if (newest := _NEWEST_RUN.search(str(error))) is not None:
        import onnxruntime

        return TooNew(
            f"ONNX Runtime {onnxruntime.__version__} is too old for the file's opset",
            where=where,
            why=newest.group(),
            hint="pip install -U onnxruntime onnx, or ask for an older opset; verify=False writes the file unproven",
        )
    return InvalidModel(
        "ONNX Runtime does not load the model", where=where, why=one_line(error), hint=_hint(str(error))
    )


def check_model(model: Model) -> None:
    """onnx's full check (with shape inference), or InvalidModel with its one-line cause."""
    import onnx

    where = None if isinstance(model, bytes) else os.fspath(model)
    newest = onnx.defs.onnx_opset_version()
    if (opset := upward.opset_of(model if isinstance(model, bytes) else os.fspath(model))) and opset > newest:
        why = f"the file is of opset {opset}, the newest that it knows is {newest}"
        raise TooNew(f"onnx {onnx.__version__} is too old for the file's opset", where=where, why=why)
    if isinstance(model, bytes) and len(model) > onnx.checker.MAXIMUM_PROTOBUF:
        raise InvalidModel("a model above 2 GiB must be given by path, with its weights as external data")
    try:
        # By path, onnx finds external data and does not copy the model.
        onnx.checker.check_model(model if isinstance(model, bytes) else os.fspath(model), full_check=True)
    except Exception as error:  # ValidationError, InferenceError, ValueError, DecodeError: no common base
        if "Field 'shape'" in str(error) and _is_valid_but_for_shapes(model):
            return
        what = "onnx.checker does not accept the model"
        raise InvalidModel(what, where=where, why=one_line(error)) from error


def _is_valid_but_for_shapes(model: Model) -> bool:
    """Inputs and outputs whose rank nobody knows: onnx.checker wants one, runtimes do not. All else must be right."""
    import onnx

    proto = upward.load_proto(model, weights=False)
    try:
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
        for value in (*proto.graph.input, *proto.graph.output):
            if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
                value.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto())
        onnx.checker.check_model(proto)
    except Exception:  # noqa: BLE001 (the same kinds as above; the caller raises the first complaint)
        return False
    return True


_NOISE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : "
    # the C++ file, line and signature that ONNX_ENFORCE puts before its message; parentheses nest once
    r"|/\S*onnxruntime\S*:\d+ [^()]*\((?:[^()]|\([^()]*\))*\)(?: const)?(?: \[with [^\]]*\])? "
    r"|\[ShapeInferenceError\] (?:Inference error\(s\): )?"
    r"|==> Context: Bad node spec for "
    r"|Non-zero status code returned while "
)


def one_line(error: BaseException | str, limit: int = 300) -> str:
    """The cause in one line: without status codes, C++ signatures and line breaks."""
    text = " ".join(_NOISE.sub("", " ".join(str(error).split()) + " ").split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _hint(message: str) -> str | None:
    if "Could not find an implementation" in message:
        return "the file is valid ONNX, but this runtime has no kernel for that operator with that dtype"
    return None


def _available(wanted: Sequence[str], available: Sequence[str]) -> list[str]:
    for provider in wanted:
        if provider not in available:
            raise InvalidArgument(
                f"ONNX Runtime has no {provider} here", why=f"this build offers {', '.join(available)}"
            )
    return list(wanted)


def _to_ort(array: np.ndarray) -> onnxruntime.OrtValue:
    from onnxruntime import OrtValue

    if array.dtype not in _FOREIGN_DTYPES:
        return OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"))
    code, bits = _FOREIGN_DTYPES[array.dtype]
    # The OrtValue reads the memory of this view and keeps it alive.
    return OrtValue.ortvalue_from_numpy_with_onnx_type(np.asarray(array, order="C").view(bits), code)


def _from_ort(value: onnxruntime.OrtValue) -> np.ndarray:
    if not value.is_tensor() or value.data_type() not in _FOREIGN:
        array: np.ndarray = value.numpy()
        return array
    # numpy() refuses these dtypes (or gives uint8) and DLPack does not know them in 1.31: read the memory.
    _, dtype, _ = _FOREIGN[value.data_type()]
    result = np.empty(tuple(value.shape()), dtype)
    if result.nbytes:
        ctypes.memmove(result.ctypes.data, value.data_ptr(), result.nbytes)
    return result
