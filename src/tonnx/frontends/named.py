"""The user's model by a name: ``path/file.py:name``, ``package.module:name``, an archive, or what Paddle saved."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tonnx.errors import (
    InvalidArgument,
    TonnxError,
    cause_of,
    first_line,
    innermost,
    needed,
    short_path,
    told_as,
)
from tonnx.frontends.torch.archives import is_torch_file, load_torch_file

WRITTEN = "it is written path/file.py:name or package.module:name, or is an archive such as model.pt or program.pt2"

_SCRIPT = (".pt", ".pth", ".ts")
_PADDLE = (".json", ".pdmodel")


@dataclass
class Loaded:
    """A model, and the example inputs that came with it, if any did."""

    model: Any
    args: Any = None
    kwargs: dict[str, Any] | None = None

    @property
    def has_example(self) -> bool:
        return self.args is not None or self.kwargs is not None


@contextlib.contextmanager
def importable(target: str) -> Iterator[None]:
    """The model's folder, or the current one, first on sys.path: forward may import while it runs, too."""
    before = list(sys.path)
    file, _, _ = split_target(target)
    folders = [str(root) for root in _roots(file)] if file is not None else [os.getcwd()]
    sys.path[:0] = folders
    try:
        yield
    finally:
        sys.path[:] = before


def load(target: str) -> Loaded:
    """Import the model. What its own code raises is reported with its own line."""
    needed("torch", "a PyTorch model needs torch", 'pip install "tonnx[torch]"')
    candidate = _imported(target)
    if callable(candidate) and not isinstance(candidate, _kinds()):
        candidate = _called(candidate, target)  # a class or a function
    return _unpacked(candidate, target)


def _imported(target: str) -> Any:
    """What is called so in the user's file or module; or what an archive holds."""
    file, module, name = split_target(target)
    if file is not None and file.suffix != ".py":
        return _archive(file)
    with _blamed(f"importing {file or module}"):
        imported = _import_file(file) if file is not None else importlib.import_module(str(module))
    return _attribute(imported, name, target)


def _kinds() -> tuple[type, ...]:
    """What a model is, rather than what makes one."""
    import torch

    return torch.nn.Module, torch.export.ExportedProgram, torch.jit.ScriptFunction


def load_any(target: str) -> Loaded:
    """Import a model of any kind. A function without parameters makes it; one with parameters is the model itself."""
    candidate = _imported(target)
    if inspect.isclass(candidate) or (inspect.isroutine(candidate) and _needs_nothing(candidate)):
        candidate = _called(candidate, target)
    model, *rest = candidate if isinstance(candidate, (tuple, list)) and candidate else (candidate,)
    if len(rest) > 2 or (len(rest) == 2 and not (rest[1] is None or isinstance(rest[1], dict))):
        kinds = ", ".join(type(part).__name__ for part in candidate)
        hint = "return a model, (model, args), or (model, args, kwargs)"
        raise InvalidArgument(f"{target} gives ({kinds})", hint=hint)
    return Loaded(model, *rest)


def _needs_nothing(function: Any) -> bool:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):  # ValueError: a builtin without a signature
        return False
    return True


def is_paddle(target: str) -> bool:
    """Whether it is the file, the folder or the prefix of a saved Paddle model."""
    path = Path(target)
    if target.endswith((*_PADDLE, ".pdiparams")) or path.name == "__model__" or path.is_dir():
        return True
    return any(Path(target + suffix).is_file() for suffix in _PADDLE)


def _is_saved_paddle(target: str) -> bool:
    return ".py:" not in target and is_paddle(target)


def is_python(target: str) -> bool:
    """Whether a model is made by the user's own code."""
    return not target.endswith((".onnx", ".pt2", *_SCRIPT)) and not _is_saved_paddle(target)


def load_against(target: str) -> Loaded:
    """The model: a path for what is saved, an object for what is Python's."""
    if target.endswith(".onnx") or _is_saved_paddle(target):
        if target.endswith(".onnx") and not Path(target).is_file():
            raise InvalidArgument(f"there is no file {target}")
        return Loaded(target)
    if target.endswith(_SCRIPT):
        return Loaded(_script(Path(target)))
    return load_any(target)


def _script(path: Path) -> Any:
    import torch

    if not path.is_file():
        raise InvalidArgument(f"there is no file {path}")
    hint = "weights alone are no model: write a function that makes the model and loads them"
    with told_as(InvalidArgument, f"{path} is not a TorchScript archive", RuntimeError, why=first_line, hint=hint):
        return torch.jit.load(path, map_location="cpu")


def split_target(target: str) -> tuple[Path | None, str | None, str]:
    """The file or the module, and the name in it."""
    if target.endswith(".onnx") or is_torch_file(target):
        return Path(target), None, ""
    place, colon, name = target.rpartition(":")
    if not colon or name.endswith(".py") or "/" in name or os.sep in name:  # C:\net.py has a colon, too
        place, name = target, ""
    if place.endswith(".py"):
        return Path(place), None, name
    if "/" in place or os.sep in place or not all(part.isidentifier() for part in place.split(".")):
        raise InvalidArgument(f"{target!r} does not name a model", hint=WRITTEN)
    return None, place, name


def _roots(file: Path) -> list[Path]:
    """Where imports in the file are looked for: its folder, and the folder that holds its package."""
    folder = file.resolve().parent
    top = folder
    while (top / "__init__.py").is_file():
        top = top.parent
    return list(dict.fromkeys([folder, top]))


def _archive(file: Path) -> Any:
    if file.suffix == ".onnx":
        raise InvalidArgument(f"{file} is an ONNX file already")
    try:
        return load_torch_file(file)
    except InvalidArgument as error:
        if error.hint is not None:
            error.hint = f"{error.hint}: {WRITTEN}"
        raise


def _import_file(file: Path) -> ModuleType:
    """Import under the file's own module name, so that pickles and ``python file.py`` agree with it."""
    if not file.is_file():
        raise InvalidArgument(f"there is no file {file}")
    path = file.resolve()
    package = path.parent.relative_to(_roots(file)[-1]).parts
    name = ".".join([*package, path.stem])
    previous = sys.modules.get(name)
    if previous is not None and getattr(previous, "__file__", None) == str(path):
        return previous
    if package:
        return importlib.import_module(name)
    if previous is not None:
        name = f"_{name}_of_the_user"  # a file called random.py must not replace Python's
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # for a .py file there is one
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _attribute(module: ModuleType, name: str, target: str) -> Any:
    value: Any = module
    for part in name.split(".") if name else ():
        value = getattr(value, part, None)
        if value is None:
            break
    if name and value is not None:
        return value
    there = ", ".join(_candidates(module)) or "none"
    raise InvalidArgument(
        f"there is no {name!r} in {target.rpartition(':')[0]}" if name else f"{target} does not say which model",
        why=f"models and functions there: {there}",
        hint=WRITTEN,
    )


def _candidates(module: ModuleType) -> Iterator[str]:
    torch = sys.modules.get("torch")
    for name, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__
        is_model = torch is not None and isinstance(value, torch.nn.Module)
        if not name.startswith("_") and (is_model or (own and callable(value))):
            yield name


def _called(function: Any, target: str) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise InvalidArgument(
            f"{target} cannot be called without arguments: {error}",
            hint="write a function without parameters that returns the model",
        ) from None
    except ValueError:  # a builtin without a signature: calling it will tell
        pass
    with _blamed(f"calling {target}"):
        return function()


def _unpacked(candidate: Any, target: str) -> Loaded:
    parts = candidate if isinstance(candidate, tuple) else (candidate,)
    model, *rest = parts or (None,)
    fits = len(rest) <= 2 and (len(rest) < 2 or rest[1] is None or isinstance(rest[1], dict))
    if not isinstance(model, _kinds()) or not fits:
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise InvalidArgument(
            f"{target} is neither a model nor a function that returns one",
            why=f"it gives {f'({kinds})' if isinstance(candidate, tuple) else kinds}",
            hint="return a torch.nn.Module, (module, example_args), or (module, args, kwargs)",
        )
    return Loaded(model, *rest)


@contextlib.contextmanager
def _blamed(doing: str) -> Iterator[None]:
    """An error of the user's code becomes one that names the user's line."""
    try:
        yield
    except TonnxError:
        raise
    except SystemExit as error:
        raise TonnxError(
            f"{doing}: the file ends the program (exit code {error.code})",
            where=_blame(error),
            hint='put what is to run only as a script under `if __name__ == "__main__":`',
        ) from error
    except Exception as error:
        raise TonnxError(f"{doing}: {cause_of(error)}", where=_blame(error)) from error


def _blame(error: BaseException) -> str | None:
    """The innermost line outside of Python's import machinery, installed packages and tonnx."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{short_path(error.filename)}:{error.lineno}: {(error.text or '').strip()}"
    not_users = (str(Path(__file__).resolve().parents[1]), os.path.dirname(os.__file__), "<")
    return innermost(error, lambda file: "site-packages" not in file and not file.startswith(not_users))
