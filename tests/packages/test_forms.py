"""In which form a model becomes a package is asked of the model itself."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

pytest.importorskip("transformers")

import tests.generation.families  # noqa: F401 (first: transformers imports torchvision)
from tests.generation.packages import model_of

# isort: split
import torch
import transformers
from transformers import cache_utils

import tonnx
from tonnx.errors import VerificationFailed
from tonnx.packages import proof
from tonnx.packages.checkpoint import _task_of
from tonnx.packages.decoder import _keeping, decoder_step
from tonnx.packages.encoder_decoder import DecoderPart, _new_tokens, export_decoder_part


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("CAUSAL_LM:llama", "tokens after a past"),
        ("CAUSAL_LM:mamba", "one token at a time"),
        ("CAUSAL_LM:openai-gpt", "the whole text"),  # it has no cache
        ("CAUSAL_LM:git", "the whole text"),  # it reckons with a picture in the past that is not there
        ("CAUSAL_LM:cpmant", "the whole text"),  # its past has more places than tokens
        ("CAUSAL_LM:deepseek_v4", "the whole text"),  # a part of its state grows by one in every few tokens
        ("SEQ_TO_SEQ_CAUSAL_LM:bart", "tokens after a past"),
        ("SEQ_TO_SEQ_CAUSAL_LM:fsmt", "one token at a time"),  # with a cache, its tokens see later ones
    ],
)
def test_the_form_is_what_the_model_does(case: str, wanted: str) -> None:
    model = model_of(*case.split(":"))
    assert _form(model) == wanted


def _form(model: Any) -> str:
    if model.config.is_encoder_decoder:
        from transformers.modeling_outputs import BaseModelOutput

        with torch.no_grad():
            count = _new_tokens(model, DecoderPart(model, BaseModelOutput), model.config.d_model)
        return "one token at a time" if count == 1 else "tokens after a past"
    step = decoder_step(model)
    return "the whole text" if step.whole_text else "one token at a time" if step.one_token else "tokens after a past"


def test_layers_of_a_cache_keep_everything_and_all_else() -> None:
    sliding = cache_utils.DynamicSlidingWindowLayer(4)
    assert type(_keeping(sliding)) is cache_utils.DynamicLayer
    both = cache_utils.LinearAttentionAndSlidingWindowAttentionLayer(4, number_of_states=3)
    kept = _keeping(both)
    assert type(kept) is cache_utils.LinearAttentionAndFullAttentionLayer and kept.number_of_states == 3
    plain = cache_utils.DynamicLayer()
    assert _keeping(plain) is plain


def test_a_part_of_a_larger_model_is_loaded_by_its_class() -> None:
    config = {"model_type": "emu3_text_model", "architectures": ["Emu3ForCausalLM"]}
    assert _task_of(config, None, False) == ("text-generation", "Emu3ForCausalLM")
    assert _task_of({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, None, False) == (
        "text-generation", "AutoModelForCausalLM",
    )  # fmt: skip
    assert hasattr(transformers, "Emu3ForCausalLM")


def test_the_first_of_equals_where_the_model_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    equal = torch.zeros(1, 40)

    def proven(*_: Any) -> proof.PackageProof:
        places = [torch.topk(equal, 3).indices[0].tolist(), equal.topk(3, dim=-1)[1][0].tolist()]
        if places != [[0, 1, 2]] * 2:
            raise VerificationFailed("the package takes the first of equals")
        return proof.PackageProof(16, 0, 0.0)

    monkeypatch.setattr(proof, "_proven", proven)
    given = torch.return_types.topk((equal[:, :3], torch.tensor([[7, 8, 9]])))  # PyTorch may give any
    monkeypatch.setattr(torch, "topk", lambda *_: given)
    assert proof.prove_package(None, None, 16).in_order  # type: ignore[arg-type]

    def parts(*_: Any) -> proof.PackageProof:
        raise VerificationFailed("another token")

    monkeypatch.setattr(proof, "_proven", parts)
    with pytest.raises(VerificationFailed, match="another token"):
        proof.prove_package(None, None, 16)  # type: ignore[arg-type]


class _Told:
    """A package that generates what it is told to, and its own first prompt otherwise if that is alone."""

    settings: ClassVar[dict[str, Any]] = {}
    decoder = SimpleNamespace(whole_text=False)

    def __init__(self, alone: int) -> None:
        self._alone = alone

    def prompts(self, rows: Any, _: Any) -> Any:
        return rows

    def generations(self, rows: Any, _: Any) -> Any:
        return [SimpleNamespace(tokens=[self._alone if len(rows) == 1 else 5]) for _ in rows]


@pytest.mark.parametrize(("package", "model", "asked"), [(5, 5, [3]), (6, 6, [3, 1]), (6, 5, [3, 1])])
def test_a_prompt_alone_is_asked_for_again_only_if_it_parts(
    package: int, model: int, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a model generates may depend on the other prompts of a batch."""
    batches = []

    def generated(_: Any, question: proof.Question, *__: Any) -> Any:
        batches.append(len(question.rows))
        token = model if len(question.rows) == 1 else 5
        tokens = torch.tensor([[1, 2, token]] * len(question.rows))
        return SimpleNamespace(sequences=tokens, scores=[torch.eye(8)[tokens[:, 2]]])

    monkeypatch.setattr(proof, "_generated", generated)
    question = proof.Question([[1, 2], [1, 2], [1, 2]])
    with pytest.raises(VerificationFailed) if package != model else nullcontext():
        assert proof._compare_tokens(_Told(package), None, question, 1, {}) == (0, False)  # type: ignore[arg-type]
    assert batches == asked


def test_a_model_that_depends_on_its_cache_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def generated(_: Any, question: proof.Question, __: int, ___: Any, use_cache: bool) -> Any:
        tokens = torch.tensor([[1, 2, 7 if use_cache else 5]] * len(question.rows))
        return SimpleNamespace(sequences=tokens, scores=[torch.eye(8)[tokens[:, 2]]])

    monkeypatch.setattr(proof, "_generated", generated)
    with pytest.raises(VerificationFailed, match="generates other tokens without a cache"):
        proof._compare_tokens(_Told(5), None, proof.Question([[1, 2]] * 3), 1, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("picture", [None, object()])
@pytest.mark.parametrize("model", [5, 6])
def test_prompts_of_a_batch_that_a_model_mixes(model: int, picture: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is compared prompt by prompt if the model's own tokens depend on the other prompts, or on padding."""

    def generated(_: Any, question: proof.Question, *__: Any, **___: Any) -> Any:
        token = model if len(question.rows) == 1 else 6
        length = max(map(len, question.rows))
        tokens = torch.tensor([[1] * length + [token]] * len(question.rows))
        return SimpleNamespace(sequences=tokens, scores=[torch.eye(8)[tokens[:, -1]]])

    monkeypatch.setattr(proof, "_generated", generated)
    monkeypatch.setattr(proof.Question, "context", lambda *_: {})
    kinds = {"token_type_ids": torch.tensor([[0, 1], [0, 2], [3, 4]])}
    question = proof.Question([[1, 1], [1], [1, 1]], picture=picture, kinds=kinds)
    assert question.only(1).kinds["token_type_ids"].tolist() == [[2]]
    with pytest.raises(VerificationFailed) if model != 5 else nullcontext():
        assert proof._compare_tokens(_Told(5), None, question, 1, {}) == (0, True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [({"runtime": "ort"}, {"GroupQueryAttention": 2}), ({"opset_version": 23}, {"Attention with a past": 2})],
)
def test_operators_that_keep_the_past(options: dict[str, Any], wanted: dict[str, int], tmp_path: Path) -> None:
    model = model_of("CAUSAL_LM", "llama")
    step = decoder_step(model)
    result = tonnx.export(
        model, (), tmp_path / "m.onnx", kwargs=step.kwargs, dynamic_axes=step.axes, verify=False, **options
    )
    assert _attentions(result.model) == wanted


def test_an_encoders_states_are_no_past_of_the_operator(tmp_path: Path) -> None:
    """After the first step nothing is joined to them, which ONNX Runtime's Attention does not take."""
    model = model_of("SEQ_TO_SEQ_CAUSAL_LM", "bart")
    ids = torch.ones(2, 4, dtype=torch.long)
    result, _ = export_decoder_part(model, tmp_path / "d.onnx", {"input_ids": ids}, opset_version=23, verify=False)
    assert _attentions(result.model) == {"Attention with a past": 2, "Attention": 2}


def _attentions(model: Any) -> dict[str, int]:
    nodes = [node for node in model.graph if node.op_type.endswith("Attention")]
    names = (node.op_type + " with a past" * (node.domain == "" and len(node.inputs) > 4) for node in nodes)
    return dict(Counter(names))
