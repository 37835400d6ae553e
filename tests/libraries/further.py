"""Sound, text, tables, flows, equations, spikes, policies and molecules: libraries of one field each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.libraries.case import Case
from tests.libraries.pictures import _new
from tests.libraries.sequences import _BATCH, _TEXT, _hf, _ids, _vectors

_ROWS = {"b": (4, 3, 2)}
_WAVE = {"b": _BATCH, "n": (4096, 5000, 3333)}


class _By(torch.nn.Module):
    """A method of a model, or something else that is done with it."""

    def __init__(self, model: torch.nn.Module, run: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.run = model, run

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(self.model, x)


def _case(name: str, path: str, example: Any, sizes: Any, *args: Any, **config: Any) -> Case:
    return Case(name, lambda: _new(path, *args, **config), example, sizes)


def _rows(width: int) -> Any:
    return lambda b: (torch.randn(b, width),)


def _wave(channels: int) -> Any:
    return lambda b, n: (torch.randn(b, channels, n),)


def _points(b: int, n: int) -> Any:
    return torch.randn(b, n, 16), torch.randn(b, n, 3)


def _ids_of(n: int) -> Any:
    return lambda b: (torch.randint(0, 90, (b, n)),)


def _zuko(name: str, width: int, **config: Any) -> Case:
    def make() -> torch.nn.Module:
        return _By(_new(f"zuko.flows.{name}", width, **config), lambda flow, x: flow().log_prob(x))

    return Case(f"zuko/{name}", make, _rows(width), _ROWS)


def _normflows() -> Any:
    import normflows as nf

    layers: list[Any] = []
    for _ in range(2):
        layers.append(nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 8, 2])))
        layers.append(nf.flows.AutoregressiveRationalQuadraticSpline(2, 1, 8))
    flow = nf.NormalizingFlow(nf.distributions.base.DiagGaussian(2), layers)
    return _By(flow, lambda model, x: model.log_prob(x))


def _freia() -> Any:
    from FrEIA.framework import SequenceINN
    from FrEIA.modules import AllInOneBlock

    def inner(inputs: int, outputs: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(inputs, 8), torch.nn.ReLU(), torch.nn.Linear(8, outputs))

    model = SequenceINN(4)
    for _ in range(2):
        model.append(AllInOneBlock, subnet_constructor=inner, permute_soft=True)
    return model


class _Ode(torch.nn.Module):
    def __init__(self, method: str) -> None:
        super().__init__()
        self.layer, self.method = torch.nn.Linear(4, 4), method
        self.register_buffer("times", torch.linspace(0, 1, 4))

    def change(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(y)) * torch.cos(t)

    def forward(self, x: torch.Tensor) -> Any:
        return _new("torchdiffeq.odeint", self.change, x, self.times, method=self.method)


class _Spikes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)
        self.leaky = _new("snntorch.Leaky", beta=0.9)
        self.synaptic = _new("snntorch.Synaptic", alpha=0.8, beta=0.9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, (current, second), steps = self.leaky.init_leaky(), self.synaptic.init_synaptic(), []
        for t in range(x.shape[0]):
            spikes, first = self.leaky(self.one(x[t]), first)
            spikes, current, second = self.synaptic(self.other(spikes), current, second)
            steps.append(second)
        return torch.stack(steps)


def _wired(kind: str) -> Any:
    return _new(f"ncps.torch.{kind}", 5, _new("ncps.wirings.AutoNCP", 10, 3), batch_first=True)


def _ctr(name: str, **config: Any) -> Case:
    def make() -> Any:
        from deepctr_torch.inputs import DenseFeat, SparseFeat

        columns = [SparseFeat("a", 9, 4), SparseFeat("b", 7, 4), DenseFeat("c", 2)]
        return _new(f"deepctr_torch.models.{name}", columns, columns, task="binary", **config)

    def example(b: int) -> Any:
        return (torch.cat([torch.randint(0, 9, (b, 1)), torch.randint(0, 7, (b, 1)), torch.randn(b, 2)], 1),)

    return Case(f"deepctr-torch/{name}", make, example, _ROWS)


def _policy(discrete: bool) -> Any:
    import gymnasium

    actions: Any = gymnasium.spaces.Discrete(4) if discrete else gymnasium.spaces.Box(-1, 1, (2,))
    policy = _new(
        "stable_baselines3.common.policies.ActorCriticPolicy",
        gymnasium.spaces.Box(-1, 1, (6,)),
        actions,
        lambda _: 1e-3,
    )
    return _By(policy, lambda model, x: model(x, True))


def _separator() -> Any:
    parts = {
        name: _new("openunmix.model.OpenUnmix", nb_bins=129, nb_channels=2, hidden_size=16, nb_layers=1)
        for name in ("vocals", "drums")
    }
    return _new("openunmix.model.Separator", parts, niter=0, n_fft=256, n_hop=64, nb_channels=2)


_SOUND = {
    "conv_dim": (16, 16),
    "conv_stride": (4, 4),
    "conv_kernel": (8, 4),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 20,
    "max_position_embeddings": 256,
}


def _speech(name: str, **config: Any) -> Case:
    return Case(
        f"transformers/{name}",
        lambda: _hf(name, **_SOUND, **config),
        lambda b, n: {"input_values": torch.randn(b, n)},
        {"b": _BATCH, "n": (1600, 2000, 1234)},
    )


def _series(name: str, **config: Any) -> Case:
    return Case(
        f"transformers/{name}",
        lambda: _hf(name, context_length=24, prediction_length=6, d_model=16, num_input_channels=3,
                    patch_length=4, patch_stride=4, num_hidden_layers=1, num_attention_heads=2, **config),
        lambda b: {"past_values": torch.randn(b, 24, 3)},
        {"b": _BATCH},
    )  # fmt: skip


CASES = [
    _case("demucs/Demucs", "demucs.demucs.Demucs", _wave(2), _WAVE, sources=["a", "b"], channels=8, depth=3,
          lstm_layers=1, dconv_attn=10, dconv_lstm=10),
    _case("denoiser/Demucs", "denoiser.demucs.Demucs", _wave(1), _WAVE, hidden=8, depth=3, resample=2),
    _case("openunmix/OpenUnmix", "openunmix.model.OpenUnmix", lambda b, n: (torch.rand(b, 2, 65, n),),
          {"b": _BATCH, "n": (10, 14, 7)}, nb_bins=65, nb_channels=2, hidden_size=16, nb_layers=1, max_bin=33),
    Case("openunmix/Separator", _separator, _wave(2), {"b": _BATCH, "n": (4096, 5120, 3072)}),
    _case("openai-whisper/AudioEncoder", "whisper.model.AudioEncoder", lambda b: (torch.randn(b, 16, 60),),
          {"b": _BATCH}, 16, 30, 32, 2, 1),
    _case("openai-whisper/TextDecoder", "whisper.model.TextDecoder",
          lambda b, n: (torch.randint(0, 30, (b, n)), torch.randn(b, 30, 32)), {"b": _BATCH, "n": (5, 8, 3)},
          30, 32, 32, 2, 1),
    _speech("HubertModel"), _speech("SEWModel", squeeze_factor=2), _speech("WavLMModel", num_buckets=32),
    _speech("UniSpeechSatForCTC"), _speech("Wav2Vec2ConformerModel", position_embeddings_type="relative"),
    _series("PatchTSTForPrediction", ffn_dim=16), _series("PatchTSMixerForPrediction", num_layers=1, gated_attn=True),
    _case("mixture-of-experts/MoE", "mixture_of_experts.MoE", _vectors(), _TEXT, dim=32, num_experts=4, hidden_dim=64,
          second_policy_eval="all"),
    _case("soft-moe-pytorch/DynamicSlotsSoftMoE", "soft_moe_pytorch.DynamicSlotsSoftMoE", _vectors(), _TEXT, dim=32,
          num_experts=4, geglu=True),
    _case("routing-transformer/RoutingTransformerLM", "routing_transformer.RoutingTransformerLM", _ids_of(32),
          {"b": _BATCH}, num_tokens=99, dim=32, heads=2, depth=1, window_size=8, n_local_attn_heads=1, max_seq_len=32,
          causal=True, dim_head=16),
    _case("gated-state-spaces-pytorch/GatedStateSpacesLM", "gated_state_spaces_pytorch.GatedStateSpacesLM", _ids, _TEXT,
          num_tokens=99, dim=32, depth=1, dss_kernel_N=8, dss_kernel_H=16),
    _case("mega-pytorch/MegaLayer", "mega_pytorch.MegaLayer", _vectors(), _TEXT, dim=32, ema_heads=4, attn_dim_qk=16,
          attn_dim_value=32),
    _case("minGRU-pytorch/minGRU", "minGRU_pytorch.minGRU", _vectors(), _TEXT, dim=32),
    _case("charformer-pytorch/GBST", "charformer_pytorch.GBST", _ids, {"b": _BATCH, "n": (12, 18, 9)}, num_tokens=99,
          dim=32, max_block_size=4, downsample_factor=4, score_consensus_attn=True),
    _case("g-mlp-pytorch/gMLP", "g_mlp_pytorch.gMLP", _ids_of(16), {"b": _BATCH}, num_tokens=99, dim=32, depth=2,
          seq_len=16, causal=True, attn_dim=8),
    _case("product-key-memory/PKM", "product_key_memory.PKM", _vectors(), _TEXT, dim=32, heads=2, num_keys=8, topk=4,
          dim_head=16),
    _case("fair-esm/ESM2", "esm.model.esm2.ESM2", lambda b, n: (torch.randint(4, 24, (b, n)),), _TEXT, num_layers=2,
          embed_dim=32, attention_heads=4),
    _case("egnn-pytorch/EGNN", "egnn_pytorch.EGNN", _points, _TEXT, dim=16),
    _case("egnn-pytorch/EGNN nearest", "egnn_pytorch.EGNN", _points, _TEXT, dim=16, num_nearest_neighbors=4,
          norm_coors=True),
    _case("point-transformer-pytorch/PointTransformerLayer", "point_transformer_pytorch.PointTransformerLayer", _points,
          _TEXT, dim=16, pos_mlp_hidden_dim=8, attn_mlp_hidden_mult=2, num_neighbors=4),
    _case("graph-transformer-pytorch/GraphTransformer", "graph_transformer_pytorch.GraphTransformer",
          lambda b, n: (torch.randn(b, n, 16), torch.randn(b, n, n, 8)), _TEXT, dim=16, depth=1, edge_dim=8,
          with_feedforwards=True, gated_residual=True, rel_pos_emb=True, dim_head=8, heads=2),
    _zuko("NSF", 3, transforms=2, hidden_features=(8,)), _zuko("MAF", 3, transforms=2, hidden_features=(8,)),
    _zuko("NAF", 3, transforms=1, hidden_features=(8,)), _zuko("BPF", 3, transforms=1, hidden_features=(8,)),
    _zuko("GMM", 3, components=2),
    Case("normflows/NormalizingFlow", _normflows, _rows(2), _ROWS), Case("FrEIA/SequenceINN", _freia, _rows(4), _ROWS),
    Case("torchdiffeq/rk4", lambda: _Ode("rk4"), _rows(4), _ROWS),
    Case("torchdiffeq/dopri5", lambda: _Ode("dopri5"), _rows(4), _ROWS),
    Case("snntorch/Leaky and Synaptic", _Spikes, lambda n, b: (torch.randn(n, b, 6),), {"n": (5, 7, 3), "b": _BATCH}),
    Case("ncps/CfC", lambda: _wired("CfC"), _vectors(5), _TEXT),
    Case("ncps/LTC", lambda: _wired("LTC"), _vectors(5), _TEXT),
    _ctr("DeepFM"), _ctr("xDeepFM", cin_layer_size=(8, 4)), _ctr("DCNMix"), _ctr("AutoInt"), _ctr("FiBiNET"),
    _ctr("NFM"), _ctr("ONN"), _ctr("AFN"),
    Case("stable-baselines3/continuous", lambda: _policy(False), _rows(6), _ROWS),
    Case("stable-baselines3/discrete", lambda: _policy(True), _rows(6), _ROWS),
    _case("pytorch-tcn/TCN", "pytorch_tcn.TCN", lambda b, n: (torch.randn(b, 4, n),), {"b": _BATCH, "n": (20, 31, 13)},
          num_inputs=4, num_channels=[8, 8], kernel_size=3, use_skip_connections=True),
    _case("nbeats-pytorch/NBeatsNet", "nbeats_pytorch.model.NBeatsNet", _rows(12), _ROWS,
          stack_types=("trend", "seasonality", "generic"), nb_blocks_per_stack=1, forecast_length=4, backcast_length=12,
          thetas_dim=(4, 8, 4), hidden_layer_units=8),
    _case("pytorch-tsmixer/TSMixer", "torchtsmixer.TSMixer", lambda b: (torch.randn(b, 12, 3),), _ROWS,
          sequence_length=12, prediction_length=4, input_channels=3, output_channels=3, num_blocks=1, ff_dim=8),
    _case("rtdl_num_embeddings/PeriodicEmbeddings", "rtdl_num_embeddings.PeriodicEmbeddings", _rows(4), _ROWS, 4, 8,
          lite=False),
    _case("torch_harmonics/RealSHT", "torch_harmonics.RealSHT", lambda b: (torch.randn(b, 8, 16),), _ROWS, 8, 16),
    _case("neuraloperator/TFNO", "neuralop.models.TFNO", lambda b: (torch.randn(b, 2, 16, 16),), _ROWS, n_modes=(6, 6),
          hidden_channels=8, in_channels=2, out_channels=1, n_layers=2, factorization="tucker", rank=0.5,
          implementation="factorized"),
    _case("neuraloperator/FNO of any resolution", "neuralop.models.FNO", lambda b, h, w: (torch.randn(b, 2, h, w),),
          {"b": (4, 3, 2), "h": (16, 24, 20), "w": (16, 20, 32)}, n_modes=(6, 6), hidden_channels=8, in_channels=2,
          out_channels=1, n_layers=2),
]  # fmt: skip
