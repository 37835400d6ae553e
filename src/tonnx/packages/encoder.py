"""A model that reads a whole text at once, as one file: batch and sequence are dynamic, padding is masked."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tonnx.api.export import export
from tonnx.api.result import ExportResult
from tonnx.errors import VerificationFailed
from tonnx.packages.decoder import random_tokens
from tonnx.run.package import Package

_RTOL = 1e-3


def export_encoder(model: Any, path: Path, **options: Any) -> ExportResult:
    """Write the file; ``options`` are those of `tonnx.export`."""
    kwargs = _inputs(model, random_tokens(model, 2, 7), torch.tensor([[1] * 7, [1] * 4 + [0] * 3]))
    axes = {name: {0: "batch", 1: "sequence"} for name, value in kwargs.items() if isinstance(value, torch.Tensor)}
    return export(model, (), path, kwargs=kwargs, dynamic_axes=axes, **options)


def _inputs(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
    parameters = inspect.signature(model.forward).parameters
    kwargs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
    if "token_type_ids" in parameters and getattr(model.config, "type_vocab_size", 0) > 1:
        kwargs["token_type_ids"] = torch.zeros_like(ids)
    if "use_cache" in parameters:
        kwargs["use_cache"] = False
    return kwargs


def prove_encoder(package: Package, model: Any) -> float:
    """Texts of several lengths in one batch: the largest difference, as a part of the largest value."""
    worst = 0.0
    for lengths in ((9,), (3, 8, 5)):
        rows = [random_tokens(model, 1, length)[0].tolist() for length in lengths]
        outputs, mask = package.outputs(rows)
        ids = torch.zeros(mask.shape, dtype=torch.long)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = torch.tensor(row)
        with torch.no_grad():
            wanted = model(**_inputs(model, ids, torch.from_numpy(mask)))
        for name, array in outputs.items():
            expected = wanted[name].float().numpy()
            real = mask.astype(bool) if expected.shape[:2] == mask.shape else slice(None)  # not what padding gives
            difference = float(np.abs(array[real] - expected[real]).max() / max(np.abs(expected[real]).max(), 1e-9))
            if not difference <= _RTOL:
                raise VerificationFailed(
                    f"{name} of the package differs from the model's by {difference:.2g} of the largest value",
                    where=f"texts of {', '.join(map(str, lengths))} tokens",
                )
            worst = max(worst, difference)
    return worst
