"""Inputs, outputs and modules that no file can have: each is said in the user's terms, not in those of a library."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import torch
from torch import nn

import tonnx


class Result:
    def __init__(self, a: torch.Tensor) -> None:
        self._a = a


X = torch.randn(2, 4)
TRAINED = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(4)).train()

CASES: list[tuple[str, Any, Any, list[str]]] = [
    ("returns None", lambda x: None, X, ["returns nothing", "return the tensors"]),
    ("returns a list of None", lambda x: [None, None], X, ["returns nothing"]),
    ("returns text", lambda x: (x + 1, "a"), X, ["an output of type str", "tensors and numbers only"]),
    ("sparse input", lambda x: x.to_dense(), X.to_sparse(), ["'x' is a sparse tensor", "x.to_dense()"]),
    (
        "quantised input",
        lambda x: x.dequantize(),
        torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
        ["'x' is a quantised"],
    ),
    ("opaque class", lambda x: Result(x + 1), X, ["returns a Result", "tonnx.register_container(Result"]),
    ("lazy", nn.LazyLinear(3), X, ["'weight' has no shape yet", "run the model once"]),
    (
        "program in training",
        torch.export.export(TRAINED, (X,)),
        (),
        ["dropout with p=0.5", "model.eval()", 'training="PRESERVE"'],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_messages(case: Any) -> None:
    _, model, args, parts = case
    with pytest.raises(tonnx.TonnxError) as caught:
        tonnx.export(model, args)
    message = str(caught.value)
    for part in parts:
        assert part in message, message
    assert len(message) < 700


PUBLIC = (tonnx.export, tonnx.retarget, tonnx.verify, tonnx.bench, tonnx.report, tonnx.load, tonnx.lower)


@pytest.mark.parametrize("function", PUBLIC, ids=lambda function: function.__name__)
def test_help_names_every_argument(function: Any) -> None:
    text = inspect.getdoc(function) or ""
    said = re.findall(r"\w+", " ".join(re.findall(r"(?m)^    ([\w, ]+): ", text)))
    silent = [name for name in inspect.signature(function).parameters if name not in said]
    assert text.count("\nArgs:\n") == 1 and not silent


def test_a_program_in_training_can_be_exported_as_it_is() -> None:
    result = tonnx.export(torch.export.export(TRAINED, (X,)), training="PRESERVE", verify=False)
    assert [node.op_type for node in result.model.graph] == ["Dropout", "BatchNormalization"]


def test_an_operator_without_a_fake_is_told() -> None:
    library = torch.library.Library("tonnx_rough", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    with pytest.raises(tonnx.TonnxError) as caught:
        tonnx.export(lambda x: torch.ops.tonnx_rough.twice(x), X, capture="export", dynamic_axes={"x": [0]})
    assert "tonnx_rough::twice gives: it has no fake implementation" in str(caught.value)
    assert '@torch.library.register_fake("tonnx_rough::twice")' in str(caught.value)
