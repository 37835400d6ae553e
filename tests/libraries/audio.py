"""Sound in: recognisers, separators, codecs, vocoders."""

from __future__ import annotations

from typing import Any

import torch

from tests.libraries.case import Case
from tests.libraries.pictures import _new

_BATCH = (2, 3, 1)
_SOUND = {"b": _BATCH, "n": (4000, 5200, 3333)}


def _mono(b: int, n: int) -> Any:
    return (torch.randn(b, 1, n) * 0.3,)


def _flat(b: int, n: int) -> Any:
    return (torch.randn(b, n) * 0.3,)


def _lengths(b: int, n: int) -> torch.Tensor:
    return torch.tensor([n, *[n - 2] * (b - 1)])


def _asteroid(name: str, **config: Any) -> Case:
    return Case(f"asteroid/{name}", lambda: _new(f"asteroid.models.{name}", **config), _flat, _SOUND)


class _Of(torch.nn.Module):
    """One method of a network."""

    def __init__(self, model: Any, *names: str) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: torch.Tensor) -> Any:
        for name in self.names:
            inputs = getattr(self.model, name)(*inputs)
            inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        return inputs


def _encodec() -> Any:
    from encodec.model import EncodecModel

    return EncodecModel._get_model([1.5, 3.0], 24_000, 1, causal=True, model_norm="weight_norm")


class _EncodecCodes(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = _encodec()
        self.model.set_target_bandwidth(1.5)

    def forward(self, x: torch.Tensor) -> Any:
        return self.model.encode(x)[0][0]


def _w2v() -> Any:
    return _new(
        "torchaudio.models.wav2vec2_model",
        "group_norm",
        [(16, 10, 5), (16, 3, 2)],
        False,
        32,
        0.0,
        8,
        2,
        2,
        2,
        0.0,
        32,
        0.0,
        0.0,
        False,
        0.0,
        5,
    )


CASES = [
    Case(
        "torchaudio/Conformer",
        lambda: _new("torchaudio.models.Conformer", 16, 2, 32, 2, 7),
        lambda b, n: (torch.randn(b, n, 16), _lengths(b, n)),
        {"b": _BATCH, "n": (20, 31, 17)},
    ),
    Case(
        "torchaudio/Emformer",
        lambda: _new("torchaudio.models.Emformer", 16, 2, 32, 2, 4, right_context_length=1),
        lambda b, n: (torch.randn(b, n, 16), _lengths(b, n) - 1),
        {"b": _BATCH, "n": (21, 33, 17)},
    ),
    Case(
        "torchaudio/HDemucs",
        lambda: _new("torchaudio.models.HDemucs", sources=["a", "b"], channels=8, depth=5, nfft=1024),
        lambda b, n: (torch.randn(b, 2, n),),
        {"b": _BATCH, "n": (8000, 9000, 12345)},
    ),
    Case("torchaudio/wav2vec2", _w2v, _flat, _SOUND),
    Case("torchaudio/wav2vec2 with lengths", _w2v, lambda b, n: (torch.randn(b, n), _lengths(b, n)), _SOUND),
    Case(
        "torchaudio/ConvTasNet",
        lambda: _new(
            "torchaudio.models.ConvTasNet",
            enc_num_feats=16,
            msk_num_feats=8,
            msk_num_hidden_feats=16,
            msk_num_layers=2,
            msk_num_stacks=1,
        ),
        _mono,
        _SOUND,
    ),
    Case(
        "torchaudio/DeepSpeech",
        lambda: _new("torchaudio.models.DeepSpeech", 16, n_hidden=16, n_class=5),
        lambda b, n: (torch.randn(b, 1, n, 16),),
        {"b": _BATCH, "n": (20, 31, 17)},
    ),
    Case("torchaudio/Wav2Letter", lambda: _new("torchaudio.models.Wav2Letter", 5, "waveform"), _mono, _SOUND),
    Case(
        "torchaudio/MelSpectrogram",
        lambda: _new("torchaudio.transforms.MelSpectrogram", 8000, n_fft=256, n_mels=20),
        _flat,
        _SOUND,
    ),
    Case(
        "torchaudio/MFCC",
        lambda: _new("torchaudio.transforms.MFCC", 8000, 13, melkwargs={"n_fft": 256, "n_mels": 20}),
        _flat,
        _SOUND,
    ),
    Case("torchaudio/Resample", lambda: _new("torchaudio.transforms.Resample", 8000, 5000), _flat, _SOUND),
    Case(
        "torchaudio/GriffinLim",
        lambda: _new("torchaudio.transforms.GriffinLim", n_fft=256, n_iter=3, rand_init=False),
        lambda b, n: (torch.rand(b, 129, n),),
        {"b": _BATCH, "n": (20, 31, 17)},
    ),
    Case(
        "torchaudio/Tacotron2 encoder",
        lambda: _new("torchaudio.models.tacotron2._Encoder", 32, 2, 5),
        lambda b, n: (torch.randn(b, 32, n), torch.full((b,), n)),
        {"b": _BATCH, "n": (20, 31, 17)},
    ),
    Case(
        "torchaudio/SquimObjective",
        lambda: _new(
            "torchaudio.models.squim_objective_model",
            feat_dim=16,
            win_len=16,
            d_model=16,
            nhead=2,
            hidden_dim=16,
            num_blocks=1,
            rnn_type="LSTM",
            chunk_size=7,
        ),
        _flat,
        _SOUND,
    ),
    _asteroid(
        "ConvTasNet",
        n_src=2,
        n_filters=32,
        n_blocks=2,
        n_repeats=1,
        bn_chan=16,
        hid_chan=16,
        skip_chan=16,
        sample_rate=8000,
    ),
    _asteroid(
        "DPRNNTasNet", n_src=2, n_filters=16, bn_chan=16, hid_size=8, chunk_size=20, n_repeats=1, sample_rate=8000
    ),
    _asteroid("DPTNet", n_src=2, n_filters=16, ff_hid=8, chunk_size=20, n_repeats=1, n_heads=2, sample_rate=8000),
    _asteroid("SuDORMRFNet", n_src=2, bn_chan=16, num_blocks=1, upsampling_depth=2, n_filters=32, sample_rate=8000),
    Case("encodec/EncodecModel", _encodec, _mono, _SOUND),
    Case("encodec/codes", _EncodecCodes, _mono, _SOUND),
    Case(
        "vocos/Vocos",
        lambda: torch.nn.Sequential(
            _new("vocos.models.VocosBackbone", 20, 32, 64, 2), _new("vocos.heads.ISTFTHead", 32, 64, 16, "center")
        ),
        lambda b, n: (torch.randn(b, 20, n),),
        {"b": _BATCH, "n": (20, 31, 17)},
    ),
    Case(
        "vocos/MelSpectrogramFeatures",
        lambda: _new("vocos.feature_extractors.MelSpectrogramFeatures", 8000, 256, 64, 20),
        _flat,
        _SOUND,
    ),
    Case(
        "snac/SNAC",
        lambda: _new("snac.SNAC", 24000, 8, [2, 4], None, 32, [4, 2], None, 32, 4, [2, 1], False, True),
        _mono,
        {"b": _BATCH, "n": (4000, 5200, 3336)},
    ),
    Case(
        "speechbrain/ECAPA_TDNN",
        lambda: _new(
            "speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN", 16, channels=[32, 32, 32, 32, 96], lin_neurons=16
        ),
        lambda b, n: (torch.randn(b, n, 16),),
        {"b": _BATCH, "n": (40, 61, 33)},
    ),
    Case(
        "speechbrain/Xvector",
        lambda: _new(
            "speechbrain.lobes.models.Xvector.Xvector", in_channels=16, tdnn_channels=[32] * 4 + [64], lin_neurons=16
        ),
        lambda b, n: (torch.randn(b, n, 16),),
        {"b": _BATCH, "n": (40, 61, 33)},
    ),
    Case(
        "speechbrain/CRDNN",
        lambda: _new(
            "speechbrain.lobes.models.CRDNN.CRDNN",
            input_size=16,
            cnn_blocks=1,
            cnn_channels=[8],
            rnn_layers=1,
            rnn_neurons=16,
            dnn_neurons=16,
            dnn_blocks=1,
        ),
        lambda b, n: (torch.randn(b, n, 16),),
        {"b": _BATCH, "n": (40, 62, 34)},
    ),
    Case(
        "speechbrain/Conformer",
        lambda: _speechbrain_conformer(),
        lambda b, n: (torch.randn(b, n, 32),),
        {"b": _BATCH, "n": (20, 31, 17)},
    ),
    Case("speechbrain/Fbank", lambda: _new("speechbrain.lobes.features.Fbank", n_mels=20), _flat, _SOUND),
    Case(
        "speechbrain/SepformerBlocks",
        lambda: _new("speechbrain.lobes.models.dual_path.SBTransformerBlock", 1, 32, 2),
        lambda b, n: (torch.randn(b, n, 32),),
        {"b": _BATCH, "n": (20, 31, 17)},
    ),
    Case(
        "conformer/Conformer",
        lambda: _new(
            "conformer.Conformer",
            dim=32,
            depth=1,
            dim_head=8,
            heads=2,
            ff_mult=2,
            conv_expansion_factor=2,
            conv_kernel_size=7,
        ),
        lambda b, n: (torch.randn(b, n, 32),),
        {"b": _BATCH, "n": (20, 31, 17)},
    ),
    Case("transformers/Wav2Vec2ForCTC", lambda: _wav2vec2(), _flat, _SOUND),
    Case("transformers/EncodecModel", lambda: _hf_encodec(), _mono, _SOUND),
    Case(
        "transformers/UnivNetModel",
        lambda: _univnet(),
        lambda b, n: (torch.randn(b, n, 16), torch.randn(b, n, 8)),
        {"b": _BATCH, "n": (20, 31, 17)},
    ),
    Case(
        "nnAudio/CQT1992v2",
        lambda: _new("nnAudio.features.CQT1992v2", sr=8000, hop_length=128, n_bins=24, fmin=110),
        _flat,
        {"b": _BATCH, "n": (8000, 9000, 12345)},
    ),
    Case(
        "torchlibrosa/LogmelFilterBank",
        lambda: torch.nn.Sequential(
            _new("torchlibrosa.Spectrogram", n_fft=256, hop_length=80),
            _new("torchlibrosa.LogmelFilterBank", sr=8000, n_fft=256, n_mels=20, fmin=50, fmax=4000),
        ),
        _flat,
        _SOUND,
    ),
    Case("julius/ResampleFrac", lambda: _new("julius.ResampleFrac", 4, 5), _flat, _SOUND),
]


def _speechbrain_conformer() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            from speechbrain.lobes.models.transformer.Conformer import ConformerEncoder
            from speechbrain.nnet.attention import RelPosEncXL

            self.positions = RelPosEncXL(32)
            self.encoder = ConformerEncoder(1, 32, 32, 2, kernel_size=7)

        def forward(self, x: torch.Tensor) -> Any:
            return self.encoder(x, pos_embs=self.positions(x))[0]

    return Net()


def _wav2vec2() -> Any:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    return Wav2Vec2ForCTC(
        Wav2Vec2Config(
            vocab_size=9,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=37,
            conv_dim=(16, 16),
            conv_stride=(5, 2),
            conv_kernel=(10, 3),
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=2,
            num_feat_extract_layers=2,
        )
    )


def _hf_encodec() -> Any:
    from transformers import EncodecConfig, EncodecModel

    return EncodecModel(
        EncodecConfig(
            hidden_size=16,
            num_filters=4,
            upsampling_ratios=[4, 2],
            codebook_size=32,
            codebook_dim=16,
            num_lstm_layers=1,
        )
    )


def _univnet() -> Any:
    from transformers import UnivNetConfig, UnivNetModel

    return UnivNetModel(
        UnivNetConfig(
            model_in_channels=8,
            model_hidden_channels=8,
            num_mel_bins=16,
            resblock_kernel_sizes=[3],
            resblock_stride_sizes=[4],
            resblock_dilation_sizes=[[1, 3]],
            kernel_predictor_num_blocks=1,
            kernel_predictor_hidden_channels=8,
        )
    )
