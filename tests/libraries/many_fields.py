"""Many fields: molecules, brain signals, survival, sound effects, and transformers that are each of a kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.libraries.case import Case
from tests.libraries.pictures import _ANY, _BATCH_ONLY, _new, _picture
from tests.libraries.sequences import _BATCH, _TEXT, _ids, _vectors

_ROWS = {"b": (4, 7, 1)}
_ATOMS = {"b": _BATCH, "n": (8, 11, 6)}
_SIGNALS = {"b": _BATCH, "n": (8000, 9600, 6400)}


class _Call(nn.Module):
    """A network and how it is called."""

    def __init__(self, network: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.network, self.call = network, call

    def forward(self, *inputs: Any) -> Any:
        return self.call(self.network, *inputs)


def _made(path: str, *args: Any, **config: Any) -> Callable[[], Any]:
    return lambda: _new(path, *args, **config)


def _brain(name: str, n: int = 512, **config: Any) -> Case:
    make = _made(f"braindecode.models.{name}", n_chans=8, n_outputs=3, n_times=n, **config)
    return Case(f"braindecode/{name}", make, lambda b: (torch.randn(b, 8, n),), _BATCH_ONLY)


def _points(width: int) -> Any:
    return lambda b, n: (torch.randn(b, n, width), torch.randn(b, n, 3))


def _posed(b: int, n: int) -> dict[str, Any]:
    rotations = torch.linalg.qr(torch.randn(b, n, 3, 3))[0]
    return {"x": torch.randn(b, n, 16), "rotations": rotations, "translations": torch.randn(b, n, 3)}


def _litgpt(name: str, config: str, **options: Any) -> Case:
    def make() -> Any:
        from litgpt.config import Config

        return _new("litgpt.model.GPT", Config.from_name(config, block_size=64, padded_vocab_size=99, **options))

    return Case(f"litgpt/{name}", make, _ids, _TEXT)


def _torchscale(kind: str, path: str, of: Callable[[Any], Any], **options: Any) -> Case:
    def make() -> Any:
        config = _new(f"torchscale.architecture.config.{kind}Config", vocab_size=99, **options)
        return _Call(_new(path, config, embed_tokens=nn.Embedding(99, 32)), lambda network, ids: of(network(ids)))

    return Case(f"torchscale/{path.rpartition('.')[2]}", make, _ids, _TEXT)


def _environments() -> Any:
    """What an atom has around itself, as networks of energies see it."""
    from torchani.aev import AEVComputer

    return _Call(AEVComputer.like_2x(num_species=4), lambda network, kinds, places: network(kinds, places))


def _atoms(b: int, n: int) -> Any:
    return torch.randint(0, 4, (b, n)), torch.randn(b, n, 3) * 2


def _tabm() -> Any:
    from tabm import TabM

    return TabM.make(n_num_features=6, cat_cardinalities=[3, 5], d_out=2, k=4, n_blocks=2, d_block=16)


def _mixed(b: int) -> Any:
    return torch.randn(b, 6), torch.stack([torch.randint(0, 3, (b,)), torch.randint(0, 5, (b,))], 1)


def _survival(name: str) -> Case:
    def make() -> Any:
        import pycox.models.loss as losses

        return _Call(nn.Linear(6, 8), lambda network, x, when, seen: getattr(losses, name)(network(x), when, seen))

    example = lambda b: (torch.randn(b, 6), torch.randint(0, 8, (b,)), torch.randint(0, 2, (b,)).float())  # noqa: E731
    return Case(f"pycox/{name}", make, example, _ROWS)


def _effect(name: str, call: Callable[..., Any], parameters: int) -> Case:
    def make() -> Any:
        import dasp_pytorch.functional as effects

        return _Call(nn.Identity(), lambda _, x, p: call(getattr(effects, name), x, p))

    return Case(f"dasp-pytorch/{name}", make, lambda b, n: (torch.randn(b, 1, n), torch.rand(b, parameters)), _SIGNALS)


def _equaliser(effect: Any, x: Any, p: Any) -> Any:
    return effect(x, 16000, *[p[:, i] * (1000 if i % 3 == 1 else 1) + 0.5 for i in range(18)])


def _compressor(effect: Any, x: Any, p: Any) -> Any:
    return effect(x, 16000, -20 * p[:, 0], 2 + p[:, 1], 5 + p[:, 2] * 20, 50 + p[:, 3], 6 + p[:, 4], p[:, 5])


_MELS = {
    "n_mels": 32, "sr": 16000, "win_length": 400, "hopsize": 160, "n_fft": 512, "freqm": 0, "timem": 0, "htk": False,
    "fmin": 0.0, "fmax": None, "norm": 1, "fmin_aug_range": 1, "fmax_aug_range": 1,
}  # fmt: skip
_VARIATES = {"num_variates": 7, "lookback_len": 24, "dim": 16, "heads": 2, "dim_head": 8, "pred_length": (6, 12)}
_SMALL = {"dim": 16, "heads": 2, "dim_head": 8}

CASES = [
    Case("en-transformer/EnTransformer", _made("en_transformer.EnTransformer", dim=16, depth=2, dim_head=32, heads=2),
         _points(16), _ATOMS),
    Case("invariant-point-attention/IPABlock",
         _made("invariant_point_attention.IPABlock", dim=16, heads=2, require_pairwise_repr=False), _posed, _ATOMS),
    Case("torchani/AEVComputer", _environments, _atoms, {"b": _BATCH, "n": (6, 8, 5)}),
    Case("iTransformer/iTransformer",
         _made("iTransformer.iTransformer", depth=2, num_tokens_per_variate=1, **_VARIATES),
         lambda b: (torch.randn(b, 24, 7),), _BATCH_ONLY),
    Case("iTransformer/iTransformer2D", _made("iTransformer.iTransformer2D", depth=1, num_time_tokens=6, **_VARIATES),
         lambda b: (torch.randn(b, 24, 7),), _BATCH_ONLY),
    Case("MEGABYTE-pytorch/MEGABYTE",
         _made("MEGABYTE_pytorch.MEGABYTE", num_tokens=99, dim=(16, 12), depth=(1, 1), max_seq_len=(16, 4), dim_head=8,
               heads=2), _ids, {"b": _BATCH, "n": (16, 24, 30)}),
    Case("colt5-attention/ConditionalRoutedFeedForward",
         _made("colt5_attention.ConditionalRoutedFeedForward", dim=16, light_ff_mult=0.5, heavy_ff_mult=4,
               num_heavy_tokens=4), _vectors(16), {"b": _BATCH, "n": (16, 24, 30)}),
    Case("taylor-series-linear-attention/TaylorSeriesLinearAttn",
         _made("taylor_series_linear_attention.TaylorSeriesLinearAttn", dim=16, dim_head=4, heads=2), _vectors(16),
         _TEXT),
    Case("agent-attention-pytorch/AgentTransformer",
         _made("agent_attention_pytorch.AgentTransformer", num_agent_tokens=8, depth=2, **_SMALL), _vectors(16), _TEXT),
    Case("agent-attention-pytorch/AgentSelfAttention",
         _made("agent_attention_pytorch.AgentSelfAttention", num_agent_tokens=8, **_SMALL),
         lambda b, n: (torch.randn(b, n, 16), torch.ones(b, n).bool()), _TEXT),
    Case("glom-pytorch/Glom", _made("glom_pytorch.Glom", dim=16, levels=3, image_size=32, patch_size=8), _picture(32),
         _BATCH_ONLY),
    Case("segformer-pytorch/Segformer",
         _made("segformer_pytorch.Segformer", dims=(8, 16, 16, 32), heads=(1, 2, 2, 4), ff_expansion=(2, 2, 2, 2),
               reduction_ratio=(8, 4, 2, 1), num_layers=1, decoder_dim=16, num_classes=4), _picture(), _ANY),
    Case("bottleneck-transformer-pytorch/BottleStack",
         _made("bottleneck_transformer_pytorch.BottleStack", dim=16, fmap_size=16, dim_out=32, num_layers=2, heads=2,
               dim_head=8), _picture(16, 16), _BATCH_ONLY),
    Case("mlp-mixer-pytorch/MLPMixer",
         _made("mlp_mixer_pytorch.MLPMixer", image_size=32, channels=3, patch_size=8, dim=16, depth=2, num_classes=5),
         _picture(32), _BATCH_ONLY),
    Case("s5-pytorch/S5", _made("s5.S5", 16, 8), _vectors(16), _TEXT),
    _torchscale("RetNet", "torchscale.architecture.retnet.RetNetDecoder", lambda out: out[0], decoder_embed_dim=32,
                decoder_value_embed_dim=48, decoder_ffn_embed_dim=48, decoder_retention_heads=2, decoder_layers=2,
                no_output_layer=False),
    _torchscale("Encoder", "torchscale.architecture.encoder.Encoder", lambda out: out["encoder_out"],
                encoder_embed_dim=32, encoder_attention_heads=2, encoder_ffn_embed_dim=48, encoder_layers=2,
                rel_pos_buckets=8, max_rel_pos=16, subln=True),
    _torchscale("Decoder", "torchscale.architecture.decoder.Decoder", lambda out: out[0], decoder_embed_dim=32,
                decoder_attention_heads=2, decoder_ffn_embed_dim=48, decoder_layers=2, xpos_rel_pos=True, subln=True,
                no_output_layer=False),
    _litgpt("Pythia", "pythia-14m", n_layer=2, n_embd=32, n_head=4),
    _litgpt("Mixtral", "Mixtral-8x7B-v0.1", n_layer=1, n_embd=32, n_head=4, n_query_groups=2, intermediate_size=32,
            n_expert=4),
    _litgpt("Gemma 2", "Gemma-2-2b", n_layer=2, n_embd=32, n_head=4, n_query_groups=2, head_size=8,
            intermediate_size=32, sliding_window_size=5),
    Case("hear21passt/AugmentMelSTFT", _made("hear21passt.models.preprocess.AugmentMelSTFT", **_MELS),
         lambda b, n: (torch.randn(b, n) * 0.3,), _SIGNALS),
    _effect("parametric_eq", _equaliser, 18),
    _effect("compressor", _compressor, 6),
    _brain("EEGNet"), _brain("ATCNet"), _brain("EEGConformer"), _brain("FBCNet", sfreq=128), _brain("IFNet", sfreq=128),
    _brain("SPARCNet"), _brain("BIOT", 400, sfreq=200), _brain("ContraWR", sfreq=128), _brain("MSVTNet"),
    Case("tabm/TabM", _tabm, _mixed, _ROWS),
    Case("torchtuples/MixedInputMLP", _made("torchtuples.practical.MixedInputMLP", 6, [4, 5], [2, 3], [16], 3),
         lambda b: (torch.randn(b, 6), torch.randint(0, 4, (b, 2))), _ROWS),
    _survival("nll_pmf"), _survival("nll_logistic_hazard"),
]  # fmt: skip
