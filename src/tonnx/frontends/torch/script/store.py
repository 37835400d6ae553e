"""What every cell holds now, and what it held before a branch or a loop was entered."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from tonnx.errors import LoweringError
from tonnx.frontends.torch.script.values import Cell, Compound, List, Tensor, tick
from tonnx.ir.build import Builder
from tonnx.ir.infer import dims_of, same_dims
from tonnx.ir.reach import reached


class Frame:
    """The cells that were written to since a branch or the body of a loop began."""

    def __init__(self) -> None:
        self.start = tick()
        self.before: dict[Cell, Any] = {}

    def outer(self) -> list[Cell]:
        return [cell for cell in self.before if cell.born < self.start]


class Store:
    """Reads and writes. Inside a frame, every change is noted, so that it can be taken back."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []

    def enter(self) -> Frame:
        """From here on changes are noted."""
        frame = Frame()
        self._frames.append(frame)
        return frame

    def leave(self, frame: Frame) -> None:
        """Take back all changes; only what somebody may have spoiled stays so."""
        assert self._frames.pop() is frame
        spoilt = [(cell, cell.poison) for cell in frame.before if cell.poison]
        for cell, state in frame.before.items():
            cell.restore(state)
        for cell, poison in spoilt:
            if cell.born < frame.start and not cell.poison:
                self.touch(cell)
                cell.poison = poison

    def keep(self, frame: Frame) -> None:
        """Let all changes stand; the frame around has seen them."""
        assert self._frames.pop() is frame
        if self._frames:
            outer = self._frames[-1].before
            for cell, state in frame.before.items():
                outer.setdefault(cell, state)

    @property
    def frame(self) -> Frame:
        return self._frames[-1]

    def is_older(self, cell: Cell) -> bool:
        """Whether a cell comes from outside of the branch or loop that is being run."""
        return bool(self._frames) and cell.born < self._frames[-1].start

    def touch(self, cell: Cell) -> None:
        if self._frames and cell not in self._frames[-1].before:
            self._frames[-1].before[cell] = cell.state()

    # Tensors

    def read(self, op: Builder, tensor: Tensor) -> ir.Value:
        root = tensor.root
        self.check(root)
        if tensor is root or tensor.version == root.version:
            return tensor.value
        assert tensor.parent is not None and tensor.again is not None
        value = tensor.again(op, self.read(op, tensor.parent))
        self.touch(tensor)
        tensor.value, tensor.version = value, root.version
        return value

    def write(self, op: Builder, tensor: Tensor, value: ir.Value, spread: bool = True) -> None:
        """A tensor has another value from now on, and so has whatever it is a view of.

        ``spread``: the value may be smaller, and is repeated to the shape of the tensor.
        """
        path: list[tuple[Tensor, ir.Value]] = []
        at, current = tensor, _fit(op, value, self.read(op, tensor), spread)
        while at.parent is not None:
            assert at.back is not None
            path.append((at, current))
            current = at.back(op, self.read(op, at.parent), current)
            at = at.parent
        self.set_root(at, current)
        for view, held in path:
            self.touch(view)
            view.value, view.version = held, at.version

    def set_root(self, root: Tensor, value: ir.Value, spoil: bool = True) -> None:
        """A tensor that owns its memory has another value; its views are computed again when they are read.

        ``spoil`` (here and below): what may share its memory is not known any more.
        """
        self.touch(root)
        root.value, root.version = value, tick()
        if spoil:
            self._spoil(root)

    # Other cells

    def content(self, cell: Compound) -> Any:
        """The elements of a list, the items of a dict."""
        self.check(cell)
        return cell.content

    def set_content(self, cell: Compound, content: Any, spoil: bool = True) -> None:
        """A list, a dict or an object has another content from now on."""
        self.touch(cell)
        cell.content = content
        if spoil:
            self._spoil(cell)

    # Kin

    def check(self, cell: Cell) -> None:
        """Refuse to read what may have been written under another name."""
        if cell.poison:
            raise LoweringError(
                cell.poison,
                why="which path is taken is known only at run time, and with it whether both are the same",
                hint="copy before writing: `y = y.clone()` (or `list(y)`), or write `y = y + 1` instead of `y += 1`",
            )

    def _spoil(self, cell: Cell) -> None:
        def kin(one: Cell) -> list[Cell]:
            # Who changes which tensors a list holds does not write to them.
            return [other for other in one.kin if isinstance(cell, Tensor) or not isinstance(other, Tensor)]

        for other in reached([cell], kin):
            if other is not cell and not other.poison:
                self.touch(other)
                kind = "tensor" if isinstance(other, Tensor) else "list" if isinstance(other, List) else "object"
                other.poison = f"a {kind} is read that may have been written to under another name"


def link(one: Cell, other: Cell) -> None:
    """Two cells may be one."""
    if one is not other:
        one.kin.add(other)
        other.kin.add(one)


def holds(cell: List, tensor: Tensor) -> None:
    """A list has the value of a tensor, not the tensor: a write to the tensor would not be seen in the list."""
    tensor.root.kin.add(cell)


def _fit(op: Builder, value: ir.Value, before: ir.Value, spread: bool) -> ir.Value:
    """A tensor keeps its dtype and shape when it is written to."""
    assert before.dtype is not None
    value = op.cast(value, before.dtype)
    held, wanted = dims_of(value), dims_of(before)
    if not spread or wanted is None or same_dims(held, wanted):
        return value
    return op.Expand(value, op.vector(op.sizes(before)), _shape=wanted)
