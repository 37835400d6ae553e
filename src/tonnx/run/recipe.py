"""Recipes: what happens to a picture before the network, and to the network's outputs after it.

A recipe is a small TOML or YAML file. Each step is a name with its options:

    before:
      - color: rgb
      - resize: {short: 256}
      - crop: 224
      - scale: 0.00392156862745098
      - normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}
      - layout: nchw
    after:
      - softmax
      - top_k: {k: 5, labels: labels.txt}

The steps themselves are plain functions with the options as keyword parameters: `before.py` and `after.py`.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tonnx.errors import InvalidArgument, did_you_mean, in_one_line, needed, told_as
from tonnx.toml import read_toml

METADATA_KEY = "tonnx.recipe"
"""Where a recipe lies in a model's metadata."""

ROLES = ("picture", "original_size", "network_size", "scale")
"""What an input of a model can be: detectors want to know sizes besides the picture."""

_READY = Path(__file__).with_name("recipes")
_MOST = 1 << 20  # bytes; a recipe is a page of text


@dataclass(frozen=True)
class Step:
    """A step with its options, checked."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def fault(self) -> contextlib.AbstractContextManager[None]:
        """An option of the wrong kind shows when the step is taken: say which step it was."""
        kinds = (TypeError, ValueError, IndexError, AttributeError)
        return told_as(InvalidArgument, f"the step {self} cannot be taken", *kinds, why=str)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.options.items())})"


@dataclass(frozen=True)
class Recipe:
    """Steps before and after a network."""

    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    name: str = "recipe"
    embedded: tuple[Step, ...] = ()
    """Steps that the file takes itself; ``before`` is what is left to do outside."""
    inputs: dict[str, str] = field(default_factory=dict)
    """What goes into which input of the model, if it has several: see `ROLES`."""
    folder: Path | None = None
    """Where the files that it names (labels) lie, unless they are given by a full path."""

    def to_json(self) -> str:
        """One line of text for a model's metadata. Labels are taken along, since the file travels alone."""
        steps = {
            when: [{step.name: _with_labels(step, self.folder)} for step in getattr(self, when)]
            for when in ("before", "embedded", "after")
        }
        return json.dumps({"name": self.name, "inputs": self.inputs, **steps}, ensure_ascii=False)


def ready_recipes() -> list[str]:
    """The names of the recipes that come with tonnx."""
    return sorted(path.stem for path in _READY.glob("*.toml"))


def read_recipe(source: str | os.PathLike[str] | Mapping[str, Any] | Recipe) -> Recipe:
    """A ready recipe by name, a TOML or YAML file, or the same as a dict."""
    if isinstance(source, Recipe):
        return source
    if isinstance(source, Mapping):
        return parse(source, str(source.get("name", "recipe")))
    if not isinstance(source, (str, os.PathLike)):
        raise InvalidArgument(f"a recipe is a name, a file or a dict, not {type(source).__name__}")
    text = os.fspath(source)
    if text in ready_recipes():
        return parse(_read_file(_READY / f"{text}.toml"), text)
    path = Path(text)
    if not path.is_file():
        raise InvalidArgument(
            f"there is no recipe {text!r}", why=f"it is neither a file nor one of {', '.join(ready_recipes())}"
        )
    return parse(_read_file(path), path.name, path.resolve().parent)


def from_json(text: str) -> Recipe:
    with told_as(InvalidArgument, "the recipe in the model's metadata is not readable", json.JSONDecodeError, why=str):
        data = json.loads(text)
    return parse(data, str(data.get("name", "recipe")) if isinstance(data, dict) else "recipe")


def parse(data: Any, name: str, folder: Path | None = None) -> Recipe:
    """Check everything that can be checked before a picture is opened."""
    from tonnx.run.after import STEPS as AFTER
    from tonnx.run.before import STEPS as BEFORE

    if not isinstance(data, Mapping):
        raise InvalidArgument(f"{name}: a recipe has the lists before and after, this is a {type(data).__name__}")
    for key in data:
        if key not in ("name", "inputs", "before", "embedded", "after"):
            raise InvalidArgument(f"{name}: a recipe has no {key!r}", why="it has before, after, inputs and name")
    before = _steps(data.get("before", []), BEFORE, f"{name}: before")
    after = _steps(data.get("after", []), AFTER, f"{name}: after")
    embedded = _steps(data.get("embedded", []), BEFORE, f"{name}: embedded")
    return Recipe(before, after, name, embedded, _inputs(data.get("inputs", {}), name), folder)


def _inputs(roles: Any, name: str) -> dict[str, str]:
    if not isinstance(roles, Mapping) or not all(role in ROLES for role in roles.values()):
        raise InvalidArgument(f"{name}: inputs says which input is one of {', '.join(ROLES)}, not {roles!r}")
    return {str(key): str(role) for key, role in roles.items()}


def _steps(steps: Any, functions: Mapping[str, Callable[..., Any]], where: str) -> tuple[Step, ...]:
    if not isinstance(steps, (list, tuple)):
        raise InvalidArgument(f"{where} must be a list of steps, not {steps!r}")
    return tuple(_step(item, functions, f"{where}, step {i}") for i, item in enumerate(steps, 1))


def _step(item: Any, functions: Mapping[str, Callable[..., Any]], where: str) -> Step:
    if isinstance(item, str):
        item = {item: {}}
    if not isinstance(item, Mapping) or len(item) != 1:
        raise InvalidArgument(f"{where} must be one name with its options, not {item!r}")
    ((name, options),) = item.items()
    if name not in functions:
        hint = did_you_mean(name, functions)
        raise InvalidArgument(f"{where}: there is no step {name!r}", why=f"known are {', '.join(functions)}", hint=hint)
    accepted = list(inspect.signature(functions[name]).parameters.values())[1:]
    if options is None:
        options = {}
    if not isinstance(options, Mapping):  # `crop: 224` gives the first option
        if not accepted:
            raise InvalidArgument(f"{where}: {name} has no options")
        options = {accepted[0].name: options}
    names = [parameter.name for parameter in accepted]
    for option in options:
        if option not in names:
            raise InvalidArgument(f"{where}: {name} has no option {option!r}", why=f"it has {', '.join(names)}")
    missing = [p.name for p in accepted if p.default is p.empty and p.name not in options]
    if missing:
        raise InvalidArgument(f"{where}: {name} needs {', '.join(missing)}")
    return Step(str(name), dict(options))


def _read_file(path: Path) -> Any:
    with told_as(InvalidArgument, f"cannot read the recipe {path}", OSError, UnicodeDecodeError, why=str):
        if path.stat().st_size > _MOST:
            raise InvalidArgument(f"{path} is too large for a recipe", why=f"{path.stat().st_size} bytes")
        text = path.read_text(encoding="utf-8")
    if path.suffix.lower() == ".json":
        return _parsed(path, json.loads, text, json.JSONDecodeError)
    if path.suffix.lower() in (".yaml", ".yml"):
        yaml = needed("yaml", "a YAML recipe needs PyYAML", "pip install pyyaml, or write TOML")
        return _parsed(path, yaml.safe_load, text, yaml.YAMLError)
    return read_toml(path).data


def _parsed(path: Path, parser: Callable[[str], Any], text: str, failure: type[Exception]) -> Any:
    with told_as(InvalidArgument, f"the recipe {path} is not readable", failure, why=in_one_line):
        return parser(text)


def _with_labels(step: Step, folder: Path | None) -> dict[str, Any]:
    from tonnx.run.detections import read_labels

    options = dict(step.options)
    if isinstance(options.get("labels"), str):
        options["labels"] = read_labels(options["labels"], folder)
    if isinstance(options.get("alphabet"), str) and options["alphabet"].endswith(".txt"):
        options["alphabet"] = read_labels(options["alphabet"], folder)
    return options
