"""Numbers that an object counts along with its tensors: how much a cache holds, beside what it holds.

In a file they are sizes of the tensors. Which of its numbers an object counts and which are its settings, a call of the
model tells: it changes the former.
"""

from __future__ import annotations

from typing import Any

import torch

from tonnx.frontends.torch.call.containers import Node, Path
from tonnx.frontends.torch.call.signature import ModelCall
from tonnx.frontends.torch.call.state import state_kept


def tie_counters(module: torch.nn.Module, call: ModelCall) -> list[str]:
    """Let the numbers that the model counts follow the dynamic sizes that they are in the example.

    Returns notes of those that are no size: the file has them as they are in the example. The module must be in the
    mode that is wanted.
    """
    if not any(leaf.dynamic for leaf in call.leaves):
        return []
    objects = [(path, node, numbers) for path, node in call.tree.objects() if (numbers := _numbers(node.value))]
    if not objects:
        return []
    args = call.with_tensors([leaf.tensor.detach().clone() for leaf in call.leaves])
    copies = [_at(args, path) for path, _, _ in objects]
    try:
        with torch.random.fork_rng(devices=[]), state_kept(module):
            module(*args[0], **args[1])
    except Exception:  # noqa: BLE001 (the user's code: whatever comes next runs it again, and tells)
        return []
    places, fixed = {id(leaf.tensor): set(leaf.dynamic) for leaf in call.leaves}, []
    for (path, node, numbers), copied in zip(objects, copies, strict=True):
        for name, number in numbers.items():
            if getattr(copied, name, number) == number:
                continue
            sizes = [at for at in _sizes(node, places) if at[2] == number]
            if sizes:
                node.sizes[name] = sizes[-1][:2]
            else:
                fixed.append(f"{call.names[path[1].key] if path[0].key == 0 else path[1].key}: {name} = {number}")
    return [f"[!] fixed in the file, though the model counts with it: {text}" for text in dict.fromkeys(fixed)]


def _numbers(value: Any) -> dict[str, int]:
    attributes = getattr(value, "__dict__", {})
    return {name: number for name, number in attributes.items() if type(number) is int and not name.startswith("_")}


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = getattr(value, step.key) if step.attribute else value[step.key]
    return value


def _sizes(node: Node, dynamic: dict[int, set[int]]) -> list[tuple[int, int, int]]:
    """The dynamic sizes of the tensors that an object holds itself: (part, axis, size)."""
    return [
        (place, axis, part.value.shape[axis])
        for place, (_, part) in enumerate(node.parts)
        if isinstance(part.value, torch.Tensor)
        for axis in sorted(dynamic.get(id(part.value), ()))
    ]
