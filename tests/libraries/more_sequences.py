"""More of text, series, tables, graphs and physics: libraries that are each for one of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.libraries.case import Case
from tests.libraries.pictures import _new
from tests.libraries.sequences import _BATCH, _TEXT, _ids, _vectors

_ROWS = {"b": (4, 7, 1)}
_ADAPTED = {"target_modules": ["query", "value"]}


def _fields(b: int) -> Any:
    return (torch.stack([torch.randint(0, 5, (b,)), torch.randint(0, 7, (b,)), torch.randint(0, 3, (b,))], 1),)


def _factorisation(name: str, path: str, **config: Any) -> Case:
    make = lambda: _new(f"torchfm.model.{path}", field_dims=[5, 7, 3], embed_dim=8, **config)  # noqa: E731
    return Case(f"torchfm/{name}", make, _fields, _ROWS)


def _function(b: int, n: int, m: int) -> Any:
    """Where a function is known, its values there, and where it is asked for."""
    return torch.rand(b, 1, n), torch.randn(b, 1, n), torch.rand(b, 1, m)


def _operator(name: str, **config: Any) -> Case:
    from_sizes = {"b": _BATCH, "n": (12, 12, 12), "m": (9, 14, 5)}

    def make() -> Any:
        from continuiti.operators.shape import OperatorShapes, TensorShape

        shapes = OperatorShapes(
            x=TensorShape(1, torch.Size([12])), u=TensorShape(1, torch.Size([12])),
            y=TensorShape(1, torch.Size([9])), v=TensorShape(1, torch.Size([9])),
        )  # fmt: skip
        return _new(f"continuiti.operators.{name}", shapes=shapes, **config)

    return Case(f"continuiti/{name}", make, _function, from_sizes)


def _hypergraph(nodes: int, edges: int) -> Any:
    incidence = (torch.rand(nodes, edges) > 0.5).float()
    incidence[:, 0] = incidence[0] = 1
    return torch.randn(nodes, 6), incidence


def _bert() -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(
        BertConfig(
            vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=64,
        )
    )  # fmt: skip


def _adapted(name: str, config: str, **options: Any) -> Case:
    def make() -> Any:
        import peft

        return peft.get_peft_model(_bert(), getattr(peft, config)(task_type="SEQ_CLS", **options))

    return Case(f"peft/{name}", make, lambda b, n: {"input_ids": torch.randint(3, 90, (b, n))}, _TEXT)


def _xlstm(slstm: bool) -> Any:
    import xlstm

    layer = xlstm.mLSTMLayerConfig(conv1d_kernel_size=4, qkv_proj_blocksize=4, num_heads=4)
    mlstm = xlstm.mLSTMBlockConfig(mlstm=layer)
    other = xlstm.sLSTMBlockConfig(
        slstm=xlstm.sLSTMLayerConfig(backend="vanilla", num_heads=4, conv1d_kernel_size=4),
        feedforward=xlstm.FeedForwardConfig(proj_factor=1.3, act_fn="gelu"),
    )
    return xlstm.xLSTMBlockStack(
        xlstm.xLSTMBlockStackConfig(
            mlstm_block=mlstm, slstm_block=other if slstm else None, context_length=64, num_blocks=2,
            embedding_dim=32, slstm_at=[1] if slstm else [],
        )
    )  # fmt: skip


def _infini() -> Any:
    return _new("infini_transformer_pytorch.InfiniTransformer", num_tokens=99, dim=32, depth=2, dim_head=8, heads=2)


class _Part(nn.Module):
    """One result of a network that gives many."""

    def __init__(self, network: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.network, self.args, self.kwargs = network, args, kwargs

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.network(*inputs, *self.args, **self.kwargs)[0]


class _ToParents(nn.Module):
    """A parser's scorer: words, a recurrent network, an edge for each pair."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(99, 16)
        self.network = _new("supar.modules.VariationalLSTM", 16, 12, num_layers=2, bidirectional=True)
        self.head, self.child = nn.Linear(24, 10), nn.Linear(24, 10)
        self.edges = _new("supar.modules.Biaffine", n_in=10, bias_x=True, bias_y=False)
        self.labels = _new("supar.modules.Biaffine", n_in=10, n_out=5)

    def forward(self, words: torch.Tensor) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.words(words), words.ne(0).sum(1).cpu(), batch_first=True, enforce_sorted=False
        )
        x, _ = self.network(packed)
        x, _ = nn.utils.rnn.pad_packed_sequence(x, True, total_length=words.shape[1])
        return self.edges(self.child(x), self.head(x)), self.labels(self.child(x), self.head(x))


class _Ahead(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> Any:
        return self.network(x, num_steps_forecast=3)


class _Density(nn.Module):
    def __init__(self, flow: nn.Module) -> None:
        super().__init__()
        self.flow = flow

    def forward(self, x: torch.Tensor) -> Any:
        return self.flow.log_prob(x)


class _Complex(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, real: torch.Tensor, imaginary: torch.Tensor) -> Any:
        return torch.view_as_real(self.network(torch.complex(real, imaginary)))


class _Distances(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ball = _new("geoopt.PoincareBall", c=1.0)
        self.weight = nn.Parameter(0.1 * torch.randn(4, 6))

    def forward(self, x: torch.Tensor) -> Any:
        y = self.ball.mobius_matvec(self.weight, self.ball.expmap0(x))
        return self.ball.dist(y[:, :1], y), self.ball.logmap0(y), self.ball.projx(3 * y)


class _Sparse(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        import entmax

        return entmax.sparsemax(x, dim=-1), entmax.entmax15(x, dim=1), entmax.entmax_bisect(x, alpha=1.3, dim=-1)


class _Triples(nn.Module):
    def __init__(self, name: str, *sizes: int) -> None:
        super().__init__()
        self.model = _new(f"torchkge.models.{name}", *sizes)

    def forward(self, heads: torch.Tensor, tails: torch.Tensor, relations: torch.Tensor) -> Any:
        return self.model.scoring_function(heads, tails, relations)


def _retnet() -> Any:
    network = _new("yet_another_retnet.retnet.RetNet", num_tokens=99, d_model=32, nhead=4, num_layers=2,
                   dim_feedforward=48)  # fmt: skip
    return _Calls(network)


class _Calls(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> Any:
        return self.network.forward_parallel(x)


def _memformer() -> Any:
    network = _new(
        "memformer.Memformer", dim=32, num_memory_slots=8, encoder_only=True, enc_num_tokens=99, enc_depth=2,
        enc_heads=2, enc_max_seq_len=64,
    )  # fmt: skip
    return _Part(network)


def _joey() -> Any:
    return _Part(
        _new("joeynmt.encoders.TransformerEncoder", hidden_size=32, ff_size=48, num_layers=2, num_heads=4)
    )


class _Curated(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: torch.Tensor) -> Any:
        from curated_transformers.layers import AttentionMask

        return self.network(ids, AttentionMask(torch.ones_like(ids, dtype=torch.bool))).logits


def _curated() -> Any:
    from curated_transformers.models import GPTNeoXCausalLM, GPTNeoXConfig

    config = GPTNeoXConfig(
        hidden_width=32, intermediate_width=48, n_attention_heads=4, n_hidden_layers=2, n_pieces=99,
        n_positions=64, rotary_embedding_fraction=0.5, dtype=torch.float32,
    )  # fmt: skip
    return _Curated(GPTNeoXCausalLM(config))


def _flow(name: str) -> Any:
    from torchflows.bijections.finite.autoregressive import architectures
    from torchflows.flows import Flow

    return Flow(getattr(architectures, name)(4, n_layers=2))


def _policy() -> Any:
    return _new("rsl_rl.modules.MLP", 8, 3, [16, 16], "elu")


def _kan() -> Any:
    from kan_gpt.model import GPT

    config = GPT.get_default_config()
    config.model_type, config.n_layer, config.n_head, config.n_embd = None, 2, 2, 16
    config.vocab_size, config.block_size = 99, 64
    return _Part(GPT(config))


CASES = [
    Case("xlstm/mLSTM", lambda: _xlstm(False), _vectors(), _TEXT),
    Case("xlstm/mLSTM and sLSTM", lambda: _xlstm(True), _vectors(), _TEXT),
    Case("yet-another-retnet/RetNet", lambda: _retnet(), _ids, _TEXT),
    Case("dnc/DNC", lambda: _Part(_new("dnc.DNC", 8, 16, nr_cells=5, cell_size=6, read_heads=2)), _vectors(8), _TEXT),
    Case("memformer/Memformer", lambda: _memformer(), lambda b, n: (torch.randint(1, 90, (b, n)),), _TEXT),
    Case("infini-transformer-pytorch/InfiniTransformer", lambda: _Part(_infini()), _ids, _TEXT),
    Case(
        "h-net-dynamic-chunking/DynamicSequenceChunker",
        lambda: _Part(_new("h_net_dynamic_chunking.DynamicSequenceChunker", 32)),
        _vectors(),
        _TEXT,
    ),
    Case(
        "rela-transformer/ReLATransformer",
        lambda: _new("rela_transformer.ReLATransformer", num_tokens=99, dim=32, depth=2, max_seq_len=64, heads=2),
        _ids,
        _TEXT,
    ),
    Case(
        "tranception-pytorch/Tranception",
        lambda: _new("tranception_pytorch.Tranception", dim=32, depth=2, heads=4, dim_head=8),
        lambda b, n: (torch.randint(0, 21, (b, n)),),
        _TEXT,
    ),
    Case(
        "ETSformer-pytorch/ETSFormer",
        lambda: _Ahead(_new("etsformer_pytorch.ETSFormer", time_features=4, model_dim=32, layers=2, heads=4, K=4)),
        lambda b, n: (torch.randn(b, n, 4),),
        {"b": _BATCH, "n": (32, 48, 26)},
    ),
    Case(
        "deformable-attention/DeformableAttention1D",
        lambda: _new("deformable_attention.DeformableAttention1D", dim=16, dim_head=8, heads=4, downsample_factor=4),
        lambda b, n: (torch.randn(b, 16, n),),
        {"b": _BATCH, "n": (32, 48, 64)},
    ),
    *(_factorisation(name, path, **config) for name, path, config in (
        ("DeepFM", "dfm.DeepFactorizationMachineModel", {"mlp_dims": (16, 8), "dropout": 0.1}),
        ("xDeepFM", "xdfm.ExtremeDeepFactorizationMachineModel",
         {"mlp_dims": (16,), "dropout": 0.1, "cross_layer_sizes": (8, 8), "split_half": False}),
        ("FieldAware", "ffm.FieldAwareFactorizationMachineModel", {}),
        ("Attentional", "afm.AttentionalFactorizationMachineModel", {"attn_size": 8, "dropouts": (0.1, 0.1)}),
        ("DeepCross", "dcn.DeepCrossNetworkModel", {"num_layers": 2, "mlp_dims": (16,), "dropout": 0.1}),
        ("ProductNetwork", "pnn.ProductNeuralNetworkModel", {"mlp_dims": (16,), "dropout": 0.1, "method": "outer"}),
    )),
    _operator("DeepONet"),
    _operator("BelNet"),
    _operator("DeepNeuralOperator"),
    _operator("FourierNeuralOperator"),
    Case(
        "pina-mathlab/KolmogorovArnoldNetwork",
        lambda: _new("pina.model.KolmogorovArnoldNetwork", layers=[3, 8, 2]),
        lambda b: (torch.rand(b, 3),),
        _ROWS,
    ),
    Case(
        "pina-mathlab/FourierIntegralKernel",
        lambda: _new("pina.model.FourierIntegralKernel", input_numb_fields=4, output_numb_fields=4, n_modes=4,
                     dimensions=1, padding=4, inner_size=8),
        lambda b, n: (torch.randn(b, n, 4),),
        {"b": _BATCH, "n": (16, 21, 12)},
    ),
    Case(
        "pina-mathlab/PirateNet",
        lambda: _new("pina.model.PirateNet", input_dimension=3, inner_size=16, output_dimension=2,
                     embedding=nn.Linear(3, 16)),
        lambda b: (torch.rand(b, 3),),
        _ROWS,
    ),
    Case(
        "topomodelx/UniGCN",
        lambda: _new("topomodelx.nn.hypergraph.unigcn.UniGCN", in_channels=6, hidden_channels=8),
        _hypergraph,
        {"nodes": (7, 9, 5), "edges": (4, 6, 3)},
    ),
    Case(
        "topomodelx/AllSet",
        lambda: _new("topomodelx.nn.hypergraph.allset.AllSet", in_channels=6, hidden_channels=8,
                     mlp_activation=nn.ReLU),
        _hypergraph,
        {"nodes": (7, 9, 5), "edges": (4, 6, 3)},
    ),
    Case("supar/Biaffine parser", _ToParents, _ids, _TEXT),
    Case(
        "joeynmt/TransformerEncoder",
        lambda: _joey(),
        lambda b, n: (torch.randn(b, n, 32), torch.full((b,), n), torch.ones(b, 1, n, dtype=torch.bool)),
        _TEXT,
    ),
    Case("curated-transformers/GPTNeoX", lambda: _curated(), _ids, _TEXT),
    _adapted("LoRA", "LoraConfig", r=4, **_ADAPTED),
    _adapted("DoRA", "LoraConfig", r=4, use_dora=True, **_ADAPTED),
    _adapted("OFT", "OFTConfig", r=0, oft_block_size=8, **_ADAPTED),
    _adapted("LoKr", "LoKrConfig", r=4, **_ADAPTED),
    _adapted("FourierFT", "FourierFTConfig", n_frequency=20, **_ADAPTED),
    _adapted("prompt", "PromptTuningConfig", num_virtual_tokens=4),
    _adapted("prefix", "PrefixTuningConfig", num_virtual_tokens=4),
    Case(
        "deepod/AnomalyTransformer",
        lambda: _new("deepod.models.time_series.anomalytransformer.AnomalyTransformerModel", win_size=12, enc_in=3,
                     c_out=3, d_model=16, n_heads=2, e_layers=2, d_ff=16, device="cpu"),
        lambda b: (torch.randn(b, 12, 3),),
        _ROWS,
    ),
    Case(
        "deepod/TimesNet",
        lambda: _new("deepod.models.time_series.timesnet.TimesNetModel", seq_len=24, pred_len=0, enc_in=3, c_out=3,
                     e_layers=1, d_model=8, d_ff=8, dropout=0.1, top_k=2, num_kernels=2),
        lambda b: (torch.randn(b, 24, 3),),
        _ROWS,
    ),
    Case("glasflow/RealNVP", lambda: _Density(_new("glasflow.RealNVP", 4, 3)), lambda b: (torch.randn(b, 4),), _ROWS),
    Case("glasflow/CouplingNSF", lambda: _Density(_new("glasflow.CouplingNSF", 4, 3)), lambda b: (torch.randn(b, 4),),
         _ROWS),
    Case("torchflows/NICE", lambda: _Density(_flow("NICE")), lambda b: (torch.randn(b, 4),), _ROWS),
    Case("torchflows/CouplingRQNSF", lambda: _Density(_flow("CouplingRQNSF")), lambda b: (torch.randn(b, 4),), _ROWS),
    Case("torchflows/MAF", lambda: _Density(_flow("MAF")), lambda b: (torch.randn(b, 4),), _ROWS),
    Case("lampe/NPE", lambda: _new("lampe.inference.NPE", 3, 5, transforms=2, hidden_features=[16]),
         lambda b: (torch.randn(b, 3), torch.randn(b, 5)), _ROWS),
    Case("lampe/FMPE", lambda: _new("lampe.inference.FMPE", 3, 5),
         lambda b: (torch.randn(b, 3), torch.randn(b, 5), torch.rand(b)), _ROWS),
    Case("sbi/LRUEmbedding", lambda: _new("sbi.neural_nets.embedding_nets.LRUEmbedding", 3, 5, state_dim=6,
                                          hidden_dim=8),
         _vectors(3), _TEXT),
    Case("sbi/CausalCNNEmbedding", lambda: _new("sbi.neural_nets.embedding_nets.CausalCNNEmbedding", (160,),
                                                num_conv_layers=3, pool_kernel_size=16),
         lambda b: (torch.randn(b, 160),), _ROWS),
    Case("sbi/SpectralConvEmbedding", lambda: _new("sbi.neural_nets.embedding_nets.SpectralConvEmbedding", 2, modes=5),
         lambda b, n: (torch.randn(b, 2, n),), {"b": _BATCH, "n": (24, 31, 18)}),
    Case("complextorch/CVKAN", lambda: _Complex(_new("complextorch.models.CVKAN", [3, 5, 2])),
         lambda b: (torch.randn(b, 3), torch.randn(b, 3)), _ROWS),
    Case("complextorch/ViTLayer", lambda: _Complex(_new("complextorch.models.ViTLayer", 16, 2, 32)),
         lambda b, n: (torch.randn(b, n, 16), torch.randn(b, n, 16)), _TEXT),
    Case("geoopt/PoincareBall", lambda: _Distances(), lambda b, n: (0.1 * torch.randn(b, n, 6),), _TEXT),
    Case("entmax/entmax", lambda: _Sparse(), _vectors(8), _TEXT),
    Case("torch-uncertainty/NormalInverseGammaLinear",
         lambda: _new("torch_uncertainty.layers.NormalInverseGammaLinear", nn.Linear, 3, in_features=8),
         lambda b: (torch.randn(b, 8),), _ROWS),
    Case("rsl-rl-lib/MLP", lambda: _policy(), lambda b: (torch.randn(b, 8),), _ROWS),
    Case("torchkge/ConvKB", lambda: _Triples("ConvKBModel", 8, 3, 20, 4),
         lambda b: (torch.randint(0, 20, (b,)), torch.randint(0, 20, (b,)), torch.randint(0, 4, (b,))), _ROWS),
    Case("torchkge/ComplEx", lambda: _Triples("ComplExModel", 8, 20, 4),
         lambda b: (torch.randint(0, 20, (b,)), torch.randint(0, 20, (b,)), torch.randint(0, 4, (b,))), _ROWS),
    Case("zetascale/MambaBlock", lambda: _new("zeta.nn.MambaBlock", dim=16, depth=1, d_state=8), _vectors(16), _TEXT),
    Case("fuxictr/CompressedInteractionNet",
         lambda: _new("fuxictr.pytorch.layers.CompressedInteractionNet", 5, [8, 8]),
         lambda b: (torch.randn(b, 5, 4),), _ROWS),
    Case("fuxictr/DIN_Attention", lambda: _new("fuxictr.pytorch.layers.DIN_Attention", embedding_dim=8,
                                               hidden_activations="Dice", use_softmax=True),
         lambda b, n: (torch.randn(b, 8), torch.randn(b, n, 8), torch.ones(b, n)), _TEXT),
    Case("kan-gpt/GPT", lambda: _kan(), _ids, _TEXT),
    Case("bi-lstm-crf/BiRnnCrf", lambda: _new("bi_lstm_crf.BiRnnCrf", 99, 5, 16, 12), _ids, _TEXT),
    Case("pygod/GAAN", lambda: _new("pygod.nn.GAANBase", in_dim=6, noise_dim=4, hid_dim=8),
         lambda b: (torch.randn(b, 6), torch.randn(b, 4)), _ROWS),
]  # fmt: skip
