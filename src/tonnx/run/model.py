"""``tonnx.load``: an ONNX file as a Python function that checks what it is given."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tonnx.errors import InvalidArgument, InvalidModel, TonnxError
from tonnx.proof.session import Session, numpy_dtype
from tonnx.run.recipe import METADATA_KEY, Recipe, from_json, read_recipe


@dataclass(frozen=True)
class Port:
    """An input or output of a model."""

    name: str
    dtype: np.dtype | None
    """None: not a tensor of numbers (a sequence, an optional, text)."""
    shape: tuple[int | str | None, ...]
    ranked: bool = True
    """Whether the file says how many dimensions it has; if not, ``shape`` is empty."""

    def __str__(self) -> str:
        if not self.ranked:
            return f"{self.name}: {self.dtype.name if self.dtype is not None else '?'}"
        dims = ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.name}: {self.dtype.name if self.dtype is not None else '?'}[{dims}]"


def load(
    path: str | os.PathLike[str],
    *,
    recipe: str | os.PathLike[str] | Mapping[str, Any] | Recipe | None = None,
    providers: str | Sequence[str] | None = None,
    threads: int | None = None,
) -> Any:
    """Load an ONNX file to call it, or a package to use it.

    Example::

        model = tonnx.load("net.onnx")
        model(x)["output"]                  # arrays, torch and paddle tensors, lists
        model(input=x, mask=m)              # by name
        model.predict("cat.jpg").lines      # pictures, through the recipe in the file or ``recipe=``
        tonnx.load("package").generate("Once upon")  # a folder: `tonnx.run.package.Package`

    Args:
        path: the file, a `Model`; external data is found beside it. Or the folder of a package, a `Package`.
        recipe: a ready recipe's name, a TOML or YAML file, or a dict; by default the one in the model's metadata.
        providers: ONNX Runtime's execution providers in order of preference, also in short (``"cuda"``); the CPU
            if not given.
        threads: for one operator; by default as many as there are cores.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidArgument(f"tonnx.load takes the path of a file, not {type(path).__name__}")
    text = os.fspath(path)
    if not os.path.exists(text):
        raise InvalidModel(f"there is no file {text}")
    if threads is not None and threads < 1:
        raise InvalidArgument(f"threads must be at least 1, not {threads}")
    provider_names = [provider_name(name) for name in ([providers] if isinstance(providers, str) else providers or ())]
    if os.path.isdir(text):
        from tonnx.run.package import Package

        return Package(path, provider_names or None, threads)
    session = Session(path, provider_names or None, threads)
    model = Model(session, None if recipe is None else read_recipe(recipe), path)
    model.loaded_by = {"recipe": model.recipe, "providers": provider_names or None, "threads": threads}
    return model


class Model:
    """A loaded ONNX file. Call it with inputs in order or by name; it gives the outputs by name.

    It is pickled as its path and options, so that each process that it is sent to loads the file by itself.
    """

    loaded_by: Mapping[str, Any] | None = None
    """The options of `load`; None for a model that was not loaded by it."""

    def __init__(
        self, session: Session, recipe: Recipe | None = None, path: str | os.PathLike[str] | None = None
    ) -> None:
        self._session = session
        self.path = None if path is None else os.path.abspath(path)
        self.inputs = {name: _port(name, kind, session.shapes[name]) for name, kind in session.inputs.items()}
        scalars = {name for name, port in self.inputs.items() if not port.shape}
        for name in scalars & _unranked(path) if scalars and path is not None else ():
            self.inputs[name] = replace(self.inputs[name], ranked=False)
        self.outputs = {name: _port(name, kind, session.shapes[name]) for name, kind in session.outputs.items()}
        stored = session.metadata.get(METADATA_KEY)
        self.recipe = recipe if recipe is not None or stored is None else from_json(stored)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, np.ndarray]:
        """The outputs by name. An input may be an array, a tensor, a list of numbers, or a picture."""
        return self.run(self.arrays(*args, **kwargs))

    def arrays(self, *args: Any, **kwargs: Any) -> dict[str, np.ndarray]:
        """What a call with these arguments runs on, by name; see `check` for whether it fits."""
        feeds = self._named(args, kwargs)
        return {name: self._array(self.inputs[name], value) for name, value in feeds.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None or self.loaded_by is None:
            raise TypeError("only a model that tonnx.load has loaded can be pickled: by its path and options")
        return _loaded, (self.path, dict(self.loaded_by))

    def __repr__(self) -> str:
        outputs = ", ".join(map(str, self.outputs.values()))
        return f"<tonnx model: {', '.join(map(str, self.inputs.values()))} → {outputs}>"

    def predict(self, picture: Any) -> Any:
        """One picture (a path or Pillow's) through the recipe: an `Answer` with ``lines``, ``data``, ``picture``."""
        from tonnx.run.pipeline import predict

        return predict(self, [picture])[0]

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run on arrays that fit: their dtypes and shapes are checked first."""
        self.check(feeds)
        try:
            return self._session.run(feeds)
        except TonnxError as error:
            raise InvalidArgument("the model does not run on these inputs", why=error.why) from error

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) == 1 and isinstance(args[0], Mapping) and not kwargs:
            return self._named((), args[0])
        if len(args) > len(self.inputs):
            raise InvalidArgument(f"{len(args)} inputs were given, the model has {len(self.inputs)}", why=self._takes())
        feeds = dict(zip(self.inputs, args, strict=False))
        for name, value in kwargs.items():
            if name in feeds:
                raise InvalidArgument(f"the input {name!r} was given twice")
            if name not in self.inputs:
                raise InvalidArgument(f"the model has no input {name!r}", why=self._takes())
            feeds[name] = value
        return feeds

    def _array(self, port: Port, value: Any) -> np.ndarray:
        if isinstance(value, np.ndarray):
            return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
        if hasattr(value, "detach") or type(value).__module__.partition(".")[0] == "paddle":
            return _from_tensor(value)
        pictures = list(value) if isinstance(value, (list, tuple)) else [value]
        if port.dtype is not None and pictures and all(map(_is_picture, pictures)):
            from tonnx.run.pipeline import picture_batch

            return picture_batch(self, pictures)
        return _from_numbers(port, value)

    def check(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Raises InvalidArgument if something is missing, or is of another dtype or shape than the model takes."""
        missing = [str(port) for name, port in self.inputs.items() if name not in feeds]
        if missing:
            raise InvalidArgument(f"missing: {', '.join(missing)}", why=self._takes())
        sizes: dict[str, tuple[int, str]] = {}
        for name, array in feeds.items():
            port = self.inputs.get(name)
            if port is None:
                raise InvalidArgument(f"the model has no input {name!r}", why=self._takes())
            if port.dtype is None:
                continue
            if array.dtype != port.dtype:
                hint = f"{name}.astype({port.dtype.name!r}), or .to({port.dtype.name}) if it is a tensor"
                raise InvalidArgument(f"the input {port} was given as {array.dtype.name}", hint=hint)
            if port.ranked:
                _check_shape(port, array.shape, sizes)

    def _takes(self) -> str:
        return "it takes " + "; ".join(map(str, self.inputs.values()))


def _loaded(path: str, options: dict[str, Any]) -> Any:
    return load(path, **options)


def provider_name(name: str) -> str:
    """ONNX Runtime's own name: ``cuda`` is CUDAExecutionProvider."""
    import onnxruntime

    providers = {p.lower(): p for p in onnxruntime.get_all_providers()}
    for full in (name.lower(), f"{name.lower()}executionprovider"):
        if full in providers:
            return providers[full]
    raise InvalidArgument(f"there is no execution provider {name!r}", why=f"known are {', '.join(providers.values())}")


def _is_picture(value: Any) -> bool:
    return hasattr(value, "getbands") or isinstance(value, (str, os.PathLike))  # Pillow's, or a path


def _from_numbers(port: Port, value: Any) -> np.ndarray:
    """Plain numbers and lists of them take the input's dtype where that changes nothing."""
    what = f"the input {port} cannot be made of {type(value).__name__}"
    if value is None:
        raise InvalidArgument(what)
    if isinstance(value, (bytes, bytearray)):
        raise InvalidArgument(what, hint="open a picture first: PIL.Image.open(io.BytesIO(…)); or np.frombuffer")
    try:
        array = np.asarray(value, dtype=port.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(what, why=str(error)[:200]) from error
    if port.dtype is not None and port.dtype.kind in "iub" and not np.array_equal(array, np.asarray(value)):
        raise InvalidArgument(what, why=f"not all of its values are of {port.dtype.name}")
    return array


def _check_shape(port: Port, shape: tuple[int, ...], sizes: dict[str, tuple[int, str]]) -> None:
    what = f"the input {port} was given with the shape {list(shape)}"
    if len(shape) != len(port.shape):
        raise InvalidArgument(what, why=f"its rank is {len(port.shape)}")
    for axis, (declared, size) in enumerate(zip(port.shape, shape, strict=True)):
        if isinstance(declared, int) and declared != size:
            raise InvalidArgument(what, why=f"axis {axis} is {declared} in this file")
        if isinstance(declared, str):
            before = sizes.setdefault(declared, (size, port.name))
            if before[0] != size:
                raise InvalidArgument(
                    f"the inputs do not fit: {declared} is {before[0]} in {before[1]}, but {size} in {port.name}"
                )


def _from_tensor(value: Any) -> np.ndarray:
    """A torch or paddle tensor as an array, bfloat16 included."""
    name = str(value.dtype)
    if hasattr(value, "detach") and "torch" in name:
        from tonnx.frontends.torch.operators.weights import as_numpy

        return as_numpy(value)
    array: np.ndarray = value.numpy()
    if name.endswith("bfloat16") and array.dtype == np.uint16:
        import ml_dtypes

        return array.view(ml_dtypes.bfloat16)
    return array


def _port(name: str, kind: str, shape: Sequence[Any]) -> Port:
    return Port(name, numpy_dtype(kind), tuple(d if isinstance(d, int) or d not in ("", "?") else None for d in shape))


def _unranked(path: str | os.PathLike[str]) -> set[str]:
    """Inputs of which the file says no shape; ONNX Runtime shows those as if they were scalars."""
    import onnx

    model = onnx.load(os.fspath(path), load_external_data=False)
    return {value.name for value in model.graph.input if not value.type.tensor_type.HasField("shape")}
