"""The table of what is patched: every name exists in the torch that is installed, and everything is put back."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tonnx
from tests.models import torchvision_schemas
from tonnx.frontends.patching import ABSENT, How, Patch
from tonnx.frontends.torch.capture.explain import Frozen
from tonnx.frontends.torch.capture.patches.table import FOREIGN, OF_TORCH_EXPORT, export_patches
from tonnx.frontends.torch.capture.python_flow.replace_code import Rewrites
from tonnx.frontends.torch.reference.mode import FAST_PATH, NO_DROPOUT

TABLE: list[Patch] = [*FOREIGN, *OF_TORCH_EXPORT, *NO_DROPOUT, *Frozen().patches(), FAST_PATH]


@pytest.mark.parametrize("patch", TABLE, ids=str)
def test_names_exist(patch: Patch) -> None:
    """Also those that may be missing: without them an export is poorer, and nobody would notice."""
    package = str(patch.owner).partition(".")[0]
    if package == "torchvision":
        torchvision_schemas.declare()
        pytest.importorskip("torchvision")
    required = Patch(patch.owner, patch.name, patch.replacement, patch.reason, patch.how)
    assert required.resolved() is not ABSENT  # raises with the name that vanished
    assert patch.reason


def test_no_name_twice() -> None:
    names = [str(patch) for patch in (*FOREIGN, *OF_TORCH_EXPORT)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("way", "patches"), [("record", FOREIGN), ("export", (*FOREIGN, *OF_TORCH_EXPORT))])
def test_everything_is_in_force_during_a_capture_and_only_then(way: str, patches: tuple[Patch, ...]) -> None:
    seen: list[dict[str, Any]] = []

    class Looks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append({str(patch): _held(patch) for patch in (*patches, FAST_PATH)})
            seen[-1]["asked"] = torch.onnx.is_in_onnx_export()
            return x + 1

    before = {str(patch): _held(patch) for patch in (*patches, FAST_PATH)}
    tonnx.export(Looks(), torch.ones(2), verify=False, capture=way)
    assert seen[0].pop("asked") and not torch.onnx.is_in_onnx_export()
    kept = {str(patch) for patch in patches if patch.how is How.KEPT}
    same = [name for name, value in seen[0].items() if value is before[name] and value is not ABSENT]
    assert set(same) <= kept
    assert {str(patch): _held(patch) for patch in (*patches, FAST_PATH)} == before


def _held(patch: Patch) -> Any:
    owner = patch.resolved()
    if owner is ABSENT:
        return ABSENT
    return getattr(owner, patch.name).__code__ if patch.how is How.CODE else vars(owner).get(patch.name)


def test_lists_of_tensors_are_numbers_afterwards() -> None:
    """A `__getitem__` that was set on torch.Tensor and deleted leaves tensors sequences for C for ever."""
    number = torch.tensor(1)
    tonnx.export(lambda x: x + torch.tensor([number, number]), torch.ones(2), verify=False)
    assert torch.tensor([number, number]).tolist() == [1, 1]
    slots = ("__getitem__", "__setitem__", "__len__", "__iter__")
    patches = list(export_patches(torch.nn.Identity(), Frozen(), Rewrites()))
    assert not [str(patch) for patch in patches if patch.owner == "torch.Tensor" and patch.name in slots]
