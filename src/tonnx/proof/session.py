"""Run an ONNX file in ONNX Runtime: arrays in, arrays out, errors in one line."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tonnx.errors import InvalidArgument, InvalidModel, VerificationFailed

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


class Session:
    """A loaded ONNX file.

    A path also finds the file's external data; bytes must hold the whole model.

    >>> Session("model.onnx").run({"x": x})["y"]
    """

    def __init__(
        self, model: Model, providers: Sequence[str] | None = None, threads: int | None = None
    ) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = _LOG_FATAL
        if threads is not None:
            options.intra_op_num_threads = threads
        source = model if isinstance(model, bytes) else os.fspath(model)
        wanted = _available(providers or ["CPUExecutionProvider"], onnxruntime.get_available_providers())
        try:
            # Without the fallback: it would print to stdout and quietly use another provider.
            self._session = onnxruntime.InferenceSession(source, options, providers=wanted, enable_fallback=0)
        except Exception as error:  # ONNX Runtime's errors have no base class of their own
            raise InvalidModel(
                "ONNX Runtime does not load the model",
                where=None if isinstance(source, bytes) else source,
                why=one_line(error),
                hint=_hint(str(error)),
            ) from error
        self.inputs = {value.name: value.type for value in self._session.get_inputs()}
        self.outputs = {value.name: value.type for value in self._session.get_outputs()}

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Every output by name. Raises VerificationFailed if ONNX Runtime cannot compute them."""
        arrays = {name: np.asarray(array) for name, array in feeds.items()}
        foreign = any(kind in _FOREIGN for kind in (*self.inputs.values(), *self.outputs.values()))
        try:
            if foreign or any(array.dtype in _FOREIGN_DTYPES for array in arrays.values()):
                values = {name: _to_ort(array) for name, array in arrays.items()}
                results = self._session.run_with_ort_values(None, values)
                return dict(zip(self.outputs, map(_from_ort, results), strict=True))
            return dict(zip(self.outputs, self._session.run(None, arrays), strict=True))
        except Exception as error:  # ONNX Runtime's errors have no base class of their own
            raise VerificationFailed("ONNX Runtime does not run the model", why=one_line(error)) from error


def check_model(model: Model) -> None:
    """onnx's full check (with shape inference), or InvalidModel with its one-line cause."""
    import onnx

    where = None if isinstance(model, bytes) else os.fspath(model)
    if isinstance(model, bytes) and len(model) > onnx.checker.MAXIMUM_PROTOBUF:
        raise InvalidModel("a model above 2 GiB must be given by path, with its weights as external data")
    try:
        # By path, onnx finds external data and does not copy the model.
        onnx.checker.check_model(model if isinstance(model, bytes) else os.fspath(model), full_check=True)
    except Exception as error:  # ValidationError, InferenceError, ValueError, DecodeError: no common base
        what = "onnx.checker does not accept the model"
        raise InvalidModel(what, where=where, why=one_line(error)) from error


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
