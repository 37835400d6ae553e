"""Text, time series, tables, quantisers and flows."""

from __future__ import annotations

from typing import Any

import torch

from tests.libraries.case import Case
from tests.libraries.pictures import _new

_BATCH = (2, 3, 1)
_TEXT = {"b": _BATCH, "n": (12, 17, 9)}


def _ids(b: int, n: int) -> Any:
    return (torch.randint(1, 90, (b, n)),)


def _vectors(width: int = 32) -> Any:
    return lambda b, n: (torch.randn(b, n, width),)


def _masked(b: int, n: int) -> dict[str, Any]:
    mask = torch.ones(b, n, dtype=torch.int64)
    mask[-1, n - 3 :] = 0
    return {"input_ids": torch.randint(3, 90, (b, n)), "attention_mask": mask}


def _decoder(**config: Any) -> Any:
    return _new(
        "x_transformers.TransformerWrapper",
        num_tokens=99,
        max_seq_len=64,
        attn_layers=_new("x_transformers.Decoder", dim=32, depth=2, heads=2, attn_dim_head=16, **config),
    )


def _encoder(**config: Any) -> Any:
    return _new(
        "x_transformers.TransformerWrapper",
        num_tokens=99,
        max_seq_len=64,
        attn_layers=_new("x_transformers.Encoder", dim=32, depth=2, heads=2, attn_dim_head=16, **config),
    )


def _x(name: str, make: Any, **config: Any) -> Case:
    return Case(f"x-transformers/{name}", lambda: make(**config), _ids, _TEXT)


def _vq(name: str, **config: Any) -> Case:
    return Case(f"vector-quantize-pytorch/{name}", lambda: _quantiser(name, **config), _vectors(), _TEXT)


def _quantiser(name: str, **config: Any) -> Any:
    made = _new(f"vector_quantize_pytorch.{name}", **config)
    for buffer in ("_codebook",):
        codebook = getattr(made, buffer, None)
        if codebook is not None and hasattr(codebook, "initted"):
            codebook.initted.fill_(True)
            codebook.embed.data.normal_()
    return made


def _hf(name: str, **config: Any) -> Any:
    import transformers

    kind = getattr(transformers, name)
    small = {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 37,
        "max_position_embeddings": 64,
        "use_cache": False,
    }
    return kind(kind.config_class(**{k: v for k, v in {**small, **config}.items() if v is not None}))


def _text(name: str, **config: Any) -> Case:
    return Case(f"transformers/{name}", lambda: _hf(name, **config), _masked, _TEXT)


class _Crf(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.crf = _new("torchcrf.CRF", 5, batch_first=True)

    def forward(self, x: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        return self.crf(x, tags)


def _series(model: Any) -> torch.nn.Module:
    """A network of neuralforecast, which takes a dict of windows."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def forward(self, y: torch.Tensor) -> Any:
            return self.net(
                {
                    "insample_y": y,
                    "insample_mask": torch.ones_like(y),
                    "hist_exog": None,
                    "futr_exog": None,
                    "stat_exog": None,
                }
            )

    return Net()


def _nf(name: str, **config: Any) -> Case:
    options = {"h": 6, "input_size": 24, "max_steps": 1, **config}
    return Case(
        f"neuralforecast/{name}",
        lambda: _series(_new(f"neuralforecast.models.{name}", **options)),
        lambda b: (torch.randn(b, 24, 1),),
        {"b": _BATCH},
    )


def _tsai(name: str, *args: Any, sizes: Any = None, length: int = 40, **config: Any) -> Case:
    return Case(
        f"tsai/{name}",
        lambda: _new(f"tsai.models.{name}", *args, **config),
        lambda b, n=length: (torch.randn(b, 3, n),),
        sizes or {"b": _BATCH},
    )


def _flow(model: Any, method: str) -> torch.nn.Module:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flow = model

        def forward(self, x: torch.Tensor) -> Any:
            return getattr(self.flow, method)(x)

    return Net()


def _nflows() -> Any:
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.nn.nets import ResidualNet
    from nflows.transforms import (
        CompositeTransform,
        MaskedAffineAutoregressiveTransform,
        PiecewiseRationalQuadraticCouplingTransform,
        ReversePermutation,
    )

    coupling = PiecewiseRationalQuadraticCouplingTransform(
        torch.tensor([1, 0, 1, 0]),
        lambda i, o: ResidualNet(i, o, hidden_features=8),
        num_bins=4,
        tails="linear",
        tail_bound=3.0,
    )
    layers = [MaskedAffineAutoregressiveTransform(4, 8), ReversePermutation(4), coupling]
    return _flow(Flow(CompositeTransform(layers), StandardNormal([4])), "log_prob")


def _gp() -> Any:
    import gpytorch

    class Exact(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
            return self.kernel(a, b).to_dense()

    return Exact()


def _tft() -> Any:
    from pytorch_forecasting.models.temporal_fusion_transformer.sub_modules import (
        GatedResidualNetwork,
        InterpretableMultiHeadAttention,
    )

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = GatedResidualNetwork(32, 32, 32, dropout=0.0)
            self.attend = InterpretableMultiHeadAttention(2, 32, 0.0)

        def forward(self, x: torch.Tensor) -> Any:
            x = self.gate(x)
            return self.attend(x, x, x)

    return Net()


# Not among them: networks that draw random numbers at each call (Reformer's hashes, Informer's sampled keys). They give
# something else each time themselves.
CASES = [
    _x("Decoder", _decoder),
    _x("Decoder rotary", _decoder, rotary_pos_emb=True),
    _x("Decoder alibi", _decoder, alibi_pos_bias=True, alibi_num_heads=1),
    _x("Decoder swiglu rmsnorm", _decoder, ff_swish=True, ff_glu=True, use_rmsnorm=True, attn_qk_norm=True),
    _x("Encoder T5 bias", _encoder, rel_pos_bias=True),
    _x("Encoder dynamic bias", _encoder, dynamic_pos_bias=True, dynamic_pos_bias_log_distance=False),
    _x("Encoder memory", _encoder, attn_num_mem_kv=3, sandwich_norm=True),
    _x("Decoder topk", _decoder, attn_sparse_topk=4),
    Case(
        "local-attention/LocalTransformer",
        lambda: _new(
            "local_attention.LocalTransformer",
            num_tokens=99,
            dim=32,
            depth=1,
            max_seq_len=64,
            causal=True,
            local_attn_window_size=8,
            heads=2,
            dim_head=16,
        ),
        _ids,
        _TEXT,
    ),
    Case(
        "linear-attention-transformer/LinearAttentionTransformerLM",
        lambda: _new(
            "linear_attention_transformer.LinearAttentionTransformerLM",
            num_tokens=99,
            dim=32,
            heads=2,
            depth=1,
            max_seq_len=64,
            dim_head=16,
        ),
        _ids,
        _TEXT,
    ),
    Case(
        "performer-pytorch/Performer",
        lambda: _new("performer_pytorch.Performer", dim=32, depth=1, heads=2, dim_head=16),
        _vectors(),
        _TEXT,
    ),
    Case(
        "nystrom-attention/Nystromformer",
        lambda: _new("nystrom_attention.Nystromformer", dim=32, dim_head=16, heads=2, depth=1, num_landmarks=4),
        _vectors(),
        _TEXT,
    ),
    Case(
        "linformer/Linformer",
        lambda: _new("linformer.Linformer", dim=32, seq_len=16, depth=1, heads=2, k=4),
        lambda b: (torch.randn(b, 16, 32),),
        {"b": _BATCH},
    ),
    Case(
        "perceiver-pytorch/Perceiver",
        lambda: _new(
            "perceiver_pytorch.Perceiver",
            num_freq_bands=2,
            depth=1,
            max_freq=4.0,
            input_channels=3,
            input_axis=2,
            num_latents=4,
            latent_dim=16,
            cross_heads=1,
            latent_heads=2,
            cross_dim_head=8,
            latent_dim_head=8,
            num_classes=5,
        ),
        lambda b, n: (torch.randn(b, n, 9, 3),),
        _TEXT,
    ),
    Case(
        "tab-transformer-pytorch/FTTransformer",
        lambda: _new(
            "tab_transformer_pytorch.FTTransformer",
            categories=(3, 4),
            num_continuous=5,
            dim=16,
            dim_out=1,
            depth=1,
            heads=2,
        ),
        lambda b: (torch.randint(0, 3, (b, 2)), torch.randn(b, 5)),
        {"b": _BATCH},
    ),
    Case(
        "pytorch_tabnet/TabNet",
        lambda: _new(
            "pytorch_tabnet.tab_network.TabNet", 8, 3, n_d=4, n_a=4, n_steps=2, group_attention_matrix=torch.eye(8)
        ),
        lambda b: (torch.randn(b, 8),),
        {"b": (4, 3, 2)},
    ),
    Case(
        "rtdl_revisiting_models/FTTransformer",
        lambda: _new(
            "rtdl_revisiting_models.FTTransformer",
            n_cont_features=4,
            cat_cardinalities=[3, 4],
            d_out=2,
            n_blocks=1,
            d_block=16,
            attention_n_heads=2,
            attention_dropout=0.0,
            ffn_d_hidden_multiplier=1.5,
            ffn_dropout=0.0,
            residual_dropout=0.0,
        ),
        lambda b: (torch.randn(b, 4), torch.randint(0, 3, (b, 2))),
        {"b": _BATCH},
    ),
    _vq("VectorQuantize", dim=32, codebook_size=16),
    _vq("ResidualVQ", dim=32, codebook_size=16, num_quantizers=2),
    _vq("FSQ", dim=32, levels=[5, 5, 4]),
    _vq("LFQ", dim=32, codebook_size=256),
    _vq("ResidualFSQ", dim=32, levels=[5, 5, 4], num_quantizers=2),
    _vq("SimVQ", dim=32, codebook_size=16),
    Case(
        "mambapy/Mamba",
        lambda: _new("mambapy.mamba.Mamba", _new("mambapy.mamba.MambaConfig", d_model=16, n_layers=1, pscan=False)),
        _vectors(16),
        _TEXT,
    ),
    Case(
        "mambapy/Mamba scan",
        lambda: _new("mambapy.mamba.Mamba", _new("mambapy.mamba.MambaConfig", d_model=16, n_layers=1)),
        _vectors(16),
        _TEXT,
    ),
    _nf("NHITS", n_pool_kernel_size=[2, 2, 1], mlp_units=[[16, 16]] * 3),
    _nf("NBEATS", mlp_units=[[16, 16]] * 3),
    _nf("TiDE", hidden_size=16),
    _nf("DLinear"),
    _nf("PatchTST", hidden_size=16, n_heads=2, encoder_layers=1, patch_len=6, stride=3),
    _nf("TCN", encoder_hidden_size=8),
    _nf("LSTM", encoder_hidden_size=8),
    _nf("Autoformer", hidden_size=16, n_head=2, conv_hidden_size=8),
    _nf("FEDformer", hidden_size=16, n_head=8, conv_hidden_size=8, modes=4),
    _nf("TimesNet", hidden_size=8, conv_hidden_size=8),
    _nf("BiTCN", hidden_size=8),
    _tsai("InceptionTime.InceptionTime", 3, 5, sizes={"b": _BATCH, "n": (40, 56, 31)}),
    _tsai("ResNet.ResNet", 3, 5, sizes={"b": _BATCH, "n": (40, 56, 31)}),
    _tsai("TST.TST", 3, 5, 40, d_model=16, n_heads=2, d_ff=16, n_layers=1),
    _tsai("XceptionTime.XceptionTime", 3, 5, nf=4, sizes={"b": _BATCH, "n": (40, 56, 31)}),
    _tsai("MINIROCKET_Pytorch.MiniRocketFeatures", 3, 40, num_features=168),
    _tsai("RNN_FCN.LSTM_FCN", 3, 5, 40),
    _tsai("PatchTST.PatchTST", 3, 3, 40, pred_dim=6, d_model=16, n_heads=2, n_layers=1),
    _tsai("TSiTPlus.TSiTPlus", 3, 5, 40, d_model=16, n_heads=2, n_layers=1),
    _tsai("OmniScaleCNN.OmniScaleCNN", 3, 5, 40),
    Case("pytorch-forecasting/TFT parts", _tft, _vectors(), _TEXT),
    Case("nflows/Flow", _nflows, lambda b: (torch.randn(b, 4),), {"b": (4, 3, 2)}),
    Case("pytorch-crf/CRF", _Crf, lambda b, n: (torch.randn(b, n, 5), torch.randint(0, 5, (b, n))), _TEXT),
    Case(
        "gpytorch/RBFKernel", _gp, lambda n, m: (torch.randn(n, 3), torch.randn(m, 3)), {"n": (7, 5, 9), "m": (4, 6, 3)}
    ),
    Case(
        "e3nn/TensorProduct",
        lambda: _new("e3nn.o3.FullyConnectedTensorProduct", "2x0e+1x1o", "1x0e+1x1o", "2x0e+1x1o"),
        lambda b: (torch.randn(b, 5), torch.randn(b, 4)),
        {"b": (4, 3, 2)},
    ),
    Case(
        "e3nn/SphericalHarmonics",
        lambda: _new("e3nn.o3.SphericalHarmonics", [0, 1, 2], True),
        lambda b: (torch.randn(b, 3),),
        {"b": (4, 3, 2)},
    ),
    Case("pykan/KAN", lambda: _kan(), lambda b: (torch.randn(b, 3),), {"b": (4, 3, 2)}),
    _text("BertModel"),
    _text("RobertaModel"),
    _text("DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"]),
    _text("DistilBertModel", dim=32, hidden_dim=37, n_heads=4, n_layers=2),
    _text("LlamaForCausalLM", num_key_value_heads=2),
    _text("Qwen3ForCausalLM", num_key_value_heads=2, head_dim=8),
    _text("GemmaForCausalLM", num_key_value_heads=2, head_dim=8),
    _text("MistralForCausalLM", num_key_value_heads=2),
    _text("PhiForCausalLM"),
    _text("GPTNeoXForCausalLM"),
    _text("BloomForCausalLM", n_layer=2, n_head=4),
    _text("MixtralForCausalLM", num_key_value_heads=2, num_local_experts=3, intermediate_size=48),
    _text("ModernBertModel", global_attn_every_n_layers=2, pad_token_id=0, local_attention=8),
    _text(
        "XLNetModel",
        max_position_embeddings=None,
        num_hidden_layers=None,
        hidden_size=None,
        num_attention_heads=None,
        d_model=32,
        n_layer=2,
        n_head=4,
        d_inner=37,
    ),
    _text(
        "FunnelModel",
        num_hidden_layers=None,
        hidden_size=None,
        num_attention_heads=None,
        d_model=32,
        block_sizes=[1, 1],
        n_head=4,
        d_head=8,
        d_inner=37,
    ),
    _text("AlbertModel", embedding_size=16),
    _text("MPNetModel"),
    _text("ElectraModel", embedding_size=16),
    _text(
        "SqueezeBertModel",
        embedding_size=32,
        q_groups=1,
        k_groups=1,
        v_groups=1,
        post_attention_groups=1,
        intermediate_groups=1,
        output_groups=1,
    ),
    Case("sentence-transformers/mean pooling", lambda: _sentence(), _masked, _TEXT),
]


def _kan() -> Any:
    from kan import KAN

    return KAN(width=[3, 4, 2], grid=3, k=3, auto_save=False, symbolic_enabled=False, save_act=False)


def _sentence() -> Any:
    from sentence_transformers.models import Normalize, Pooling

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert, self.pool, self.unit = _hf("BertModel"), Pooling(32, "mean"), Normalize()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            words = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            features = self.pool({"token_embeddings": words, "attention_mask": attention_mask})
            result: torch.Tensor = self.unit(features)["sentence_embedding"]
            return result

    return Net()
