"""Why a capture failed, in the user's terms: the input and dimension, and the line of their own code."""

from __future__ import annotations

import inspect
import linecache
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any, TextIO

import sympy
import torch
from torch.fx.experimental.sym_node import SymNode

from tonnx.errors import CaptureError, first_line
from tonnx.frontends.patching import DISPATCH, How, Patch, patched_here
from tonnx.frontends.torch.call.signature import DimSpec, Leaf, ModelCall
from tonnx.frontends.torch.capture.except_blocks import handler_of
from tonnx.frontends.torch.capture.patches.short_sizes import Definitions, definitions
from tonnx.frontends.torch.source import is_users, outside_the_model, shorten
from tonnx.frontends.torch.versions import source_name

Spot = tuple[str, int, str]
"""A file, a line and the function's name."""

_SHAPE_ENV = "torch.fx.experimental.symbolic_shapes.ShapeEnv"
_SYM_NODE = "torch.fx.experimental.sym_node.SymNode"
_LAYERS = os.path.dirname(torch.nn.__file__) + os.sep
_SYMBOLS = (torch.__file__, inspect.getfile(SymNode), __file__)

RELATIONS: dict[str, Any] = {
    "eq": sympy.Eq,
    "ne": sympy.Ne,
    "lt": sympy.Lt,
    "le": sympy.Le,
    "gt": sympy.Gt,
    "ge": sympy.Ge,
}
"""Comparisons by the name that `operator` and torch have for them."""


@dataclass
class Frozen:
    """The dimensions that became plain numbers during a capture, and the user's line that made them so.

    Torch's own error does not say where. Its name of the dimension, such as ``L['x'].size()[0]``, is the key.
    """

    places: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    spots: list[Spot] = field(default_factory=list)
    """All lines where a symbolic number became a plain one: file, number and the function's name."""
    decided: list[tuple[Any, bool, Spot]] = field(default_factory=list)
    """Conditions on sizes in the model's own code, what the example made of them, and the line."""
    ones: dict[Any, Spot] = field(default_factory=dict)
    """Sizes that torch itself took for 1, as they are in the example: what is 1 is broadcast, squeezed or not there."""
    assumed: list[tuple[Any, Any, Spot]] = field(default_factory=list)
    """Expressions of sizes that the model reads as plain numbers: the expression, the number, the line."""

    env: Any = None
    """Torch's knowledge of the symbols in those expressions."""

    swallowed: list[tuple[str, str]] = field(default_factory=list)
    """Lines that needed a value, and the ``except`` of the model that catches the error about it."""

    def patches(self) -> Iterator[Patch]:
        """Listeners to torch while it captures. What they record costs nothing unless a number is fixed."""
        reason = "errors name the line, and loops and branches there are recorded"
        for owner, name, listener in (
            (_SHAPE_ENV, "_set_replacement", self._symbol_fixed),
            (_SYM_NODE, "guard_int", self._number_asked),
            (_SYM_NODE, "guard_float", self._number_asked),
            (_SYM_NODE, "guard_bool", self._condition_asked),
            (_SHAPE_ENV, "evaluate_sym_node", self._decided_by_torch),
            (_SHAPE_ENV, "_make_data_dependent_error", self._value_asked),
            *((_SYM_NODE, name, partial(self._compared, relation)) for name, relation in RELATIONS.items()),
        ):
            yield Patch(owner, name, listener, reason, optional=True)

    def _symbol_fixed(self, original: Any, env: Any, symbol: Any, value: Any, *rest: Any) -> Any:
        if value.is_Integer:
            frame = self._spot()
            line = None if frame is None else line_of(frame, frame.f_lineno)
            for source in env.var_to_sources.get(symbol, ()):
                self.places.setdefault(source_name(source), (int(value), line))
        return original(env, symbol, value, *rest)

    def _number_asked(self, original: Any, node: Any, *rest: Any) -> Any:
        # Of an expression such as n // 64, without a symbol being fixed: torch only asserts that it has this value.
        expression = node.expr if node.expr.free_symbols and node.maybe_as_int() is None else None
        frame = self._spot() if expression is not None else None
        number = original(node, *rest)
        if frame is not None:
            self.assumed.append((self._own(node, expression), number, spot_of(frame)))
        return number

    def _own(self, node: Any, expression: Any) -> Any:
        self.env = node.shape_env
        return expression

    @property
    def definitions(self) -> Definitions:
        """What symbols stand for that are no sizes of inputs, or turned out to be equal to others."""
        return {} if self.env is None else {**self.env.replacements, **definitions(self.env)}

    def _condition_asked(self, original: Any, node: Any, *rest: Any) -> Any:
        frame = asking_frame()
        if frame is None:
            return original(node, *rest)
        expression, outcome = node.expr, original(node, *rest)
        if expression.free_symbols:
            self.decided.append((self._own(node, expression), outcome, spot_of(frame)))
        return outcome

    def _decided_by_torch(self, original: Any, env: Any, node: Any, *rest: Any, **options: Any) -> Any:
        relation, outcome = node.expr, original(env, node, *rest, **options)
        if not isinstance(relation, (sympy.Eq, sympy.Ne)) or bool(outcome) != isinstance(relation, sympy.Eq):
            return outcome
        size = relation.args[0] if relation.args[1] == 1 else relation.args[1] if relation.args[0] == 1 else None
        if size is not None and (frame := calling_frame(sys._getframe(1))) is not None:
            self.ones.setdefault(self._own(node, size), spot_of(frame))
        return outcome

    def _value_asked(self, original: Any, env: Any, *rest: Any, **options: Any) -> Any:
        frame = calling_frame(sys._getframe(1))
        if frame is not None and (handler := handler_of(frame)) is not None:
            self._spot()
            self.swallowed.append((line_of(frame, frame.f_lineno), line_of(*handler)))
        return original(env, *rest, **options)

    def _compared(self, relation: Any, original: Any, node: Any, other: Any) -> Any:
        # torch takes sizes for positive, so that `x.shape[0] == 0` is false at once, and nobody is asked.
        result, frame = original(node, other), asking_frame()
        if frame is None:  # first of all: torch itself compares a thousand times as often as models do
            return result
        if result.expr in (sympy.true, sympy.false) and (node.expr.free_symbols or other.expr.free_symbols):
            asked = relation(node.expr, other.expr, evaluate=False)
            self.decided.append((self._own(node, asked), bool(result.expr), spot_of(frame)))
        return result

    def swallow_error(self) -> CaptureError | None:
        """The model itself has caught torch's error, and taken the way that it has for errors; None if not."""
        if not self.swallowed:
            return None
        where, handler = self.swallowed[0]
        return CaptureError(
            "the control flow of the model depends on the values of a tensor",
            where=where,
            why=f"torch.export's error about it is caught by the model itself ({handler}), which hides the branch",
            hint="take the line out of the try block, or let the except clause name the one error that it is for",
            data_dependent=True,
        )

    def _spot(self) -> FrameType | None:
        frame = calling_frame(sys._getframe(2))
        if frame is not None:
            self.spots.append(spot_of(frame))
        return frame

    def error(self, model: torch.nn.Module, call: ModelCall) -> CaptureError | None:
        """The dimensions that were asked to be dynamic and are not; None if there is none."""
        frozen_axes = []
        for prefix, leaf in zip(_sources(model, call), call.leaves, strict=True):
            for axis, wanted in leaf.dynamic.items():
                place = self.places.get(f"{prefix}.size()[{axis}]")
                if place is not None and not wanted.optional:
                    frozen_axes.append((leaf, axis, wanted, *place))
        return frozen(frozen_axes) if frozen_axes else None


def frozen(dimensions: list[tuple[Leaf, int, DimSpec, int, str | None]]) -> CaptureError:
    """The error for dimensions that the model fixes: (input, axis, what was asked for, size, the user's line)."""
    named = [
        f"dimension {axis} of the input {leaf.name!r} ({wanted.name}) cannot be dynamic: the model fixes it to {size}"
        for leaf, axis, wanted, size, _ in dimensions
    ]
    lines = list(dict.fromkeys(line for *_, line in dimensions if line))
    return CaptureError(
        "\n".join(named),
        where="\n         ".join(lines) or None,
        why="the model compares this size with a number, converts it to one, or combines it with a fixed one",
        hint="remove the dependence on the fixed size, or leave this dimension out of the dynamic ones",
    )


def _sources(model: torch.nn.Module, call: ModelCall) -> Iterator[str]:
    """Torch's name of each tensor input: the model takes nothing else here, each as a parameter of forward."""
    for name, _ in zip(inspect.signature(model.forward).parameters, call.leaves, strict=True):
        yield f"L[{name!r}]"


def explain(error: BaseException, model: torch.nn.Module, call: ModelCall, froze: Frozen) -> CaptureError:
    """The cause in one line, and the user's own line that it came from."""
    text = str(error).strip()
    first = first_line(text)
    if "specialized" in text or "static shape" in text or "Constraints violated" in text:
        frozen_error = froze.error(model, call)
        if frozen_error is not None:
            return frozen_error
        first = next((line.strip(" -") for line in text.splitlines() if line.strip().startswith("-")), first)
    name, hint = type(model).__name__, None
    what = f"torch.export could not capture {name}: {first}"
    if is_data_dependent(error):
        what = f"the control flow of {name} depends on the values of a tensor"
        hint = (
            "compute both sides and choose with torch.where, write it as torch.cond or torch.while_loop, "
            "compile the function with torch.jit.script, or move it out of the model"
        )
    elif type(error).__name__ == "UnsupportedOperatorException":
        operator = first.rsplit(".", 1)[0].replace(".", "::", 1)
        what = f"torch.export does not know what shape {operator} gives: it has no fake implementation"
        hint = f'write one: @torch.library.register_fake("{operator}")'
    elif "which is not a known type" in text:
        kind = text.partition("<class '")[2].partition("'")[0].rpartition(".")[2] or "class of its own"
        what = f"{name} returns a {kind}, of which nobody knows what is in it"
        hint = f"tonnx.register_container({kind}, flatten, unflatten) says what it holds; or return tensors"
    elif ".numpy()" in text or "__array_" in text or "np.ndarray" in text or "numpy.ndarray" in text:
        hint = "compute it with torch's functions: what numpy does is not part of the graph"
        what = f"torch.export could not capture {name}: it hands a tensor to numpy ({first[:200]})"
    elif not first or type(error).__module__ == "builtins":  # the text of a KeyError or an assert says little alone
        what = f"torch.export could not capture {name}: {type(error).__name__}: {first}".rstrip(": ")
    if hint is None and user_line(error) is not None:
        hint = "write that line with torch's functions, try capture='script', or move it out of the model"
    return CaptureError(what, where=user_line(error), hint=hint, data_dependent=is_data_dependent(error))


def is_data_dependent(error: BaseException | None) -> bool:
    """Whether somebody asked for a number that only the run knows."""
    return type(error).__name__ in ("GuardOnDataDependentSymNode", "Unsuitable")


def user_line(error: BaseException) -> str | None:
    """``net.py:12: y = x + z``: the innermost frame of an exception that is neither torch's nor ours."""
    at = user_frame(error)
    return None if at is None else line_of(*at)


def user_frame(error: BaseException) -> tuple[FrameType, int] | None:
    at = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_users(frame.f_code.co_filename):
            at = frame, line
    return at


def spot_of_error(error: BaseException | None) -> list[Spot]:
    """The user's line that an exception came from, if there is one."""
    at = None if error is None else user_frame(error)
    return [] if at is None else [(at[0].f_code.co_filename, at[1], at[0].f_code.co_name)]


def calling_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the model that is running, or of the torch.nn layer if it has none of its own."""
    layer = None
    while frame is not None:
        file = frame.f_code.co_filename
        if outside_the_model(frame):
            break
        if is_users(file):
            return frame
        if layer is None and file.startswith(_LAYERS):
            layer = frame
        frame = frame.f_back
    return layer


def asking_frame() -> FrameType | None:
    """The frame whose own code asks a symbolic number something; None if that is torch's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (frame.f_code is DISPATCH or frame.f_code.co_filename in _SYMBOLS):
        frame = frame.f_back
    return frame if frame is not None and is_users(frame.f_code.co_filename) else None


def spot_of(frame: FrameType) -> Spot:
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name


def line_of(frame: FrameType, number: int) -> str:
    """``net.py:12: y = x + z``."""
    file = frame.f_code.co_filename
    text = linecache.getline(file, number, frame.f_globals).strip()
    return f"{shorten(file)}:{number}" + (f": {text}" if text else "")


_TALKATIVE = ("export", "export._trace", "fx.experimental.symbolic_shapes", "_subclasses.fake_tensor")


def quiet_torch() -> list[Patch]:
    """Keep torch.export from printing its half-made graph, and from warning of and logging what it raises anyway.

    What the user's own code prints goes through. ``TORCH_LOGS`` asks for torch's messages, and gets them.
    """
    quiet = [Patch("warnings", "filters", [("ignore", None, Warning, None, 0)], "of its own ways", How.VALUE)]
    if os.environ.get("TORCH_LOGS"):
        return quiet
    loggers = [logging.getLogger(f"torch.{name}") for name in _TALKATIVE]
    return [
        *quiet,
        *(
            Patch(logger, "filters", [*logger.filters, _from_elsewhere], "it logs what is raised anyway", How.VALUE)
            for logger in loggers
        ),
        Patch("sys", "stderr", _WithoutGraphs(sys.stderr), "torch.export prints graphs that fail", How.VALUE),
    ]


def _from_elsewhere(record: logging.LogRecord) -> bool:
    return not patched_here()


class _WithoutGraphs:
    """A stream that passes on everything but the source text of a graph."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._dropped = False

    def write(self, text: str) -> int:
        if not patched_here():
            return self._stream.write(text)
        # print writes its line break on its own
        self._dropped = text.lstrip().startswith("def forward(") or (self._dropped and text == "\n")
        return len(text) if self._dropped else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
