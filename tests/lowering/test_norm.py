"""Normalisations and distances."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.lowering.harness import Case, check, table

IMAGE = torch.randn(3, 6, 4, 5) * 2 + 1
SEQUENCE = torch.randn(2, 5, 8)
SPACE = {0: [0, 2, 3]}


def _lived_in(module):
    """Statistics and parameters that are not the neutral ones."""
    torch.manual_seed(1)
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.is_floating_point():
            tensor.data = torch.rand_like(tensor) + 0.5
    return module


class _Composed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))

    def forward(self, x):
        return self.layer(x)


BATCH = [
    Case("batch_norm 2d", _lived_in(nn.BatchNorm2d(6)), [IMAGE], dynamic=SPACE),
    Case("batch_norm 1d rank 2", _lived_in(nn.BatchNorm1d(8)), [torch.randn(4, 8)], dynamic={0: [0]}),
    Case("batch_norm 1d rank 3", _lived_in(nn.BatchNorm1d(5)), [SEQUENCE], dynamic={0: [0, 2]}),
    Case("batch_norm 3d", _lived_in(nn.BatchNorm3d(2)), [torch.randn(2, 2, 3, 4, 5)], dynamic={0: [0]}),
    Case("batch_norm plain", _lived_in(nn.BatchNorm2d(6, affine=False, eps=0.1)), [IMAGE], dynamic=SPACE),
    Case("batch_norm alone", _lived_in(nn.BatchNorm2d(6)), [IMAGE], has=["BatchNormalization"]),
    Case("batch_norm own statistics", _lived_in(nn.BatchNorm2d(6, track_running_stats=False)), [IMAGE], dynamic=SPACE),
    Case(
        "batch_norm own statistics plain",
        nn.BatchNorm1d(8, affine=False, track_running_stats=False),
        [torch.randn(4, 8)],
    ),
    Case(
        "batch_norm training",
        lambda x: F.batch_norm(x, torch.zeros(6), torch.ones(6), training=True),
        [IMAGE],
        dynamic=SPACE,
    ),
    Case("batch_norm float16", _lived_in(nn.BatchNorm2d(6)).half(), [IMAGE.half()]),
    Case("batch_norm mixed", _lived_in(nn.BatchNorm2d(6)), [IMAGE.bfloat16()]),
    Case("instance_norm", nn.InstanceNorm2d(6), [IMAGE], dynamic=SPACE, has=["InstanceNormalization"]),
    Case("instance_norm affine", _lived_in(nn.InstanceNorm1d(5, affine=True)), [SEQUENCE], dynamic={0: [0, 2]},
         left_out="more than 1 spatial element"),
    Case("instance_norm alone", nn.InstanceNorm2d(6), [IMAGE[0]]),
    Case(
        "instance_norm tracked",
        _lived_in(nn.InstanceNorm2d(6, affine=True, track_running_stats=True)),
        [IMAGE],
        dynamic=SPACE,
    ),
    Case("group_norm empty batch", nn.GroupNorm(1, 2), [torch.randn(0, 2)]),
    Case("instance_norm 3d", nn.InstanceNorm3d(2), [torch.randn(2, 2, 3, 4, 5)]),
]

WITHIN = [
    Case("layer_norm", _lived_in(nn.LayerNorm(8)), [SEQUENCE], dynamic={0: [0, 1]}, has=["LayerNormalization"]),
    Case("layer_norm axes", _lived_in(nn.LayerNorm([5, 8], eps=0.1)), [SEQUENCE], dynamic={0: [0]}),
    Case("layer_norm plain", nn.LayerNorm(8, elementwise_affine=False), [SEQUENCE], dynamic={0: [0, 1]}),
    Case("layer_norm no bias", _lived_in(nn.LayerNorm(8, bias=False)), [SEQUENCE], dynamic={0: [0, 1]}),
    Case("layer_norm vector", _lived_in(nn.LayerNorm(8)), [torch.randn(8)]),
    Case("layer_norm dynamic axis", lambda x: F.layer_norm(x, x.shape[1:]), [SEQUENCE], dynamic={0: [0, 1]}),
    Case("layer_norm float16", _lived_in(nn.LayerNorm(8)).half(), [SEQUENCE.half()]),
    Case("layer_norm bfloat16", _lived_in(nn.LayerNorm(8)).bfloat16(), [SEQUENCE.bfloat16()]),
    Case("layer_norm float64", _lived_in(nn.LayerNorm(8)).double(), [SEQUENCE.double()]),
    Case(
        "native_layer_norm", lambda x: torch.native_layer_norm(x, [8], None, None, 1e-5), [SEQUENCE], dynamic={0: [0]}
    ),
    Case("rms_norm", _lived_in(nn.RMSNorm(8, eps=0.1)), [SEQUENCE], dynamic={0: [0, 1]}),
    Case("rms_norm default epsilon", nn.RMSNorm([5, 8]), [SEQUENCE * 1e-4], dynamic={0: [0]}),
    Case("rms_norm plain", nn.RMSNorm(8, elementwise_affine=False), [SEQUENCE], dynamic={0: [0, 1]}),
    Case("rms_norm float16", _lived_in(nn.RMSNorm(8)).half(), [(SEQUENCE * 1e-3).half()]),
    Case("group_norm", _lived_in(nn.GroupNorm(3, 6)), [IMAGE], dynamic=SPACE),
    Case("group_norm plain", nn.GroupNorm(2, 6, affine=False), [IMAGE], dynamic=SPACE),
    Case("group_norm rank 2", _lived_in(nn.GroupNorm(2, 6)), [torch.randn(4, 6)], dynamic={0: [0]}),
    Case("group_norm rank 3", _lived_in(nn.GroupNorm(1, 6)), [torch.randn(4, 6, 7)], dynamic={0: [0, 2]}),
    Case("group_norm rank 5", _lived_in(nn.GroupNorm(2, 4)), [torch.randn(1, 4, 2, 3, 2)], dynamic={0: [0]}),
    Case("group_norm float16", _lived_in(nn.GroupNorm(3, 6)).half(), [IMAGE.half()]),
    Case("group_norm float64", _lived_in(nn.GroupNorm(3, 6)).double(), [IMAGE.double()]),
    Case("group_norm bfloat16", _lived_in(nn.GroupNorm(3, 6)).bfloat16(), [IMAGE.bfloat16()]),
    Case("native_group_norm", lambda x: torch.native_group_norm(x, None, None, 3, 6, 20, 2, 1e-5), [IMAGE]),
    Case("local_response_norm", nn.LocalResponseNorm(3, 0.1, 0.6, 1.5), [IMAGE], dynamic=SPACE),
    Case("local_response_norm rank 3", nn.LocalResponseNorm(2), [SEQUENCE]),
    Case("normalize", lambda x: F.normalize(x, dim=1), [IMAGE], dynamic=SPACE),
    Case("normalize p", lambda x: F.normalize(x, p=3.0, dim=-1), [SEQUENCE], dynamic={0: [0]}),
    Case("weight_norm", torch.nn.utils.weight_norm(nn.Conv1d(5, 3, 2)), [SEQUENCE], dynamic={0: [0]}),
    Case("weight_norm all", torch.nn.utils.weight_norm(nn.Linear(8, 3), dim=None), [SEQUENCE], dynamic={0: [0]}),
    Case("weight_norm parametrized", _Composed(), [SEQUENCE], dynamic={0: [0]}),
    Case("spectral_norm", nn.utils.parametrizations.spectral_norm(nn.Linear(8, 3)), [SEQUENCE], dynamic={0: [0]}),
]

TWO = [torch.randn(4, 6), torch.randn(4, 6)]
ROWS = {0: {0: "n"}, 1: {0: "n"}}

DISTANCES = [
    Case("cosine_similarity", nn.CosineSimilarity(), TWO, dynamic=ROWS),
    Case("cosine_similarity dim", nn.CosineSimilarity(dim=-2, eps=0.5), TWO, dynamic=ROWS),
    Case("cosine_similarity broadcast", F.cosine_similarity, [torch.randn(4, 6), torch.randn(5, 1, 6)], kwargs={}),
    Case(
        "cosine_similarity repeated", lambda a, b: F.cosine_similarity(a, b, -1), [torch.randn(4, 6), torch.randn(4, 1)]
    ),
    Case("pairwise_distance", nn.PairwiseDistance(), TWO, dynamic=ROWS),
    Case("pairwise_distance p", nn.PairwiseDistance(p=1, keepdim=True), TWO, dynamic=ROWS),
    Case("mse_loss", nn.MSELoss(), TWO, dynamic=ROWS),
    Case("smooth_l1_loss", nn.SmoothL1Loss(reduction="none"), TWO, dynamic=ROWS),
    Case("bce", nn.BCEWithLogitsLoss(), [TWO[0], torch.rand(4, 6)], dynamic=ROWS),
    Case("cross_entropy", nn.CrossEntropyLoss(label_smoothing=0.1), [TWO[0], torch.tensor([0, 5, 2, 3])]),
    Case("cross_entropy image", nn.CrossEntropyLoss(ignore_index=2), [IMAGE, torch.randint(0, 6, (3, 4, 5))]),
]


@table([*BATCH, *WITHIN, *DISTANCES])
def test_norm(case):
    check(case)
